// Throws a class of torch: its typeinfo and vtable; calls a template that returns one.
namespace c10 {
class Error {
 public:
  Error();
  virtual ~Error();
};
}  // namespace c10
namespace at {
class Tensor {
 public:
  ~Tensor();
};
}  // namespace at
template <typename T> at::Tensor make(T);
extern "C" void *PyInit__k() {
  make<int>(1);
  throw c10::Error();
}
