/* PyUnicode_AsUTF8 is in no stable ABI, PyUnicode_AsUTF8AndSize since 3.10. */
extern const char *PyUnicode_AsUTF8(void *);
extern const char *PyUnicode_AsUTF8AndSize(void *, long *);
void *PyInit__k(void) {
  long size;
  return (void *)(PyUnicode_AsUTF8(0) ? PyUnicode_AsUTF8AndSize(0, &size) : 0);
}
