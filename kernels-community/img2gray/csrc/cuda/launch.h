// What the device code offers: a launch on plain memory. No header of torch is read here, because
// nvcc would read it again for every architecture; cuda_img2gray.cpp is what knows tensors.
#pragma once

#include <cuda_runtime_api.h>

#include "../gray_formula.h"
#include "../image_view.h"

namespace img2gray::cuda {

enum class Form { kBest, kGrid };

// Starts one kernel on `stream`, of the current device, for a picture with at least one pixel;
// returns what the runtime says.
cudaError_t launch_convert(
    Form form, Element element, void* out, const void* image, const ImageView& view,
    const Weights& weights, cudaStream_t stream);

}  // namespace img2gray::cuda
