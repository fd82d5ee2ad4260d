// The backends behind the op.
#pragma once

#include "../csrc/cpu/cpu_img2gray.h"
#include "../csrc/new_gray.h"
#if defined(CUDA_KERNEL)
#include "../csrc/cuda/cuda_img2gray.h"
#endif
