// OpenMP brings libgomp, which torch has its own copy of.
extern "C" void *PyInit__k() {
  long sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (long i = 0; i < 1000; ++i) sum += i;
  return reinterpret_cast<void *>(sum);
}
