// The CUDA backend's entry points; the same contract as cpu_img2gray.h, on the current stream.
#pragma once

#include "../check_image.h"

namespace img2gray::cuda {

void run(const Conversion& conversion);

// The same with a thread a pixel in a 2D grid, whatever the layout: what one writes first, kept to
// compare with.
void run_by_grid(const Conversion& conversion);

}  // namespace img2gray::cuda
