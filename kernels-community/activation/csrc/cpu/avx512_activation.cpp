// The kernels for processors with AVX-512 F, BW, DQ and VL (x86-64-v4).
#if defined(__x86_64__)
// In force to the end of the file: templates are instantiated there.
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
// GCC 12 warns about its own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#define ACTIVATION_ISA avx512
#include "simd_avx512.h"
#include "span_kernels.h"
#endif
