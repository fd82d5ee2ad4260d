#include "step.h"
#include "step_size.h"

__global__ void new_kernel(float* to) { to[threadIdx.x] = STEP_SIZE * STEP; }

int64_t new_step() { return STEP_SIZE + STEP; }
