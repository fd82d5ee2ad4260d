// The constructor of an empty ostringstream has its own symbol since GCC 9.
#include <sstream>
extern "C" void *PyInit__k() {
  static std::string text;
  std::ostringstream stream;
  stream << 1;
  text = stream.str();
  return &text;
}
