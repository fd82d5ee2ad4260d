// A variable of a template, visible outside: one for the whole process, whatever library it is in.
template <typename T> struct Counter { static T value; };
template <typename T> T Counter<T>::value = 0;
extern "C" void *PyInit__k() { return &Counter<int>::value; }
