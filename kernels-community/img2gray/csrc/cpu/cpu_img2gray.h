// The CPU backend's entry point.
#pragma once

#include "../check_image.h"

namespace img2gray::cpu {

// Any strides: uint8, float16, bfloat16, float32 or float64, the same on both sides.
void run(const Conversion& conversion);

}  // namespace img2gray::cpu
