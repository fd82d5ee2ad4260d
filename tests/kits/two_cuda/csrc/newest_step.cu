#include <cuda_runtime.h>

#if CUDART_VERSION < 13020
#error "build.toml says cuda-minver = 13.2"
#endif

__global__ void newest_kernel(float* to) { to[threadIdx.x] = 3; }
