// The kernels that every processor of the architecture runs: SSE2 on x86-64, NEON on aarch64.
#define ACTIVATION_ISA baseline
#include "simd_baseline.h"
#include "span_kernels.h"
