/* pow has a version since glibc 2.29, pthread_create since 2.34. */
#include <math.h>
#include <pthread.h>
static void *run(void *x) { return x; }
void *PyInit__k(void) {
  pthread_t thread;
  volatile double base = 2.0;
  return pow(base, base) > 1.0 ? (void *)(long)pthread_create(&thread, 0, run, 0) : 0;
}
