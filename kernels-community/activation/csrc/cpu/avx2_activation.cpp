// The kernels for processors with AVX2, FMA and F16C (x86-64-v3).
#if defined(__x86_64__)
// In force to the end of the file: templates are instantiated there.
#pragma GCC target("avx2,fma,f16c")
#define ACTIVATION_ISA avx2
#include "simd_avx2.h"
#include "span_kernels.h"
#endif
