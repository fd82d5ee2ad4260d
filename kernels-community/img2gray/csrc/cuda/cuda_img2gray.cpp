// The ops on tensors: checks them, finds torch's stream, and hands plain memory to the launch.
#include "cuda_img2gray.h"

#include <optional>

#include <cuda_runtime_api.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "../check_image.h"
#include "launch.h"

namespace img2gray::cuda {
namespace {

Element element_of(const Tensor& image) {
  switch (image.scalar_type()) {
    case ScalarType::Byte: return Element::kByte;
    case ScalarType::Float: return Element::kFloat;
    case ScalarType::Double: return Element::kDouble;
    case ScalarType::Half: return Element::kHalf;
    case ScalarType::BFloat16: return Element::kBFloat16;
    default:
      STD_TORCH_CHECK(
          false, "dtype must be uint8 or a floating-point type, not ",
          torch::headeronly::toString(image.scalar_type()));
  }
}

void convert_by(Form form, Tensor& out, const Tensor& image, const std::string& name) {
  const Weights& weights = find_weights(name);
  const Element element = element_of(image);
  const ImageView view = view_image(out, image, form == Form::kBest);
  if (view.pixels() == 0) return;
  const auto device = image.get_device_index();
  std::optional<torch::stable::accelerator::DeviceGuard> guard;  // costs more than to look
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != device) guard.emplace(device);
  void* handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &handle));
  STD_CUDA_CHECK(launch_convert(
      form, element, out.mutable_data_ptr(), image.const_data_ptr(), view, weights,
      static_cast<cudaStream_t>(handle)));
}

}  // namespace

void convert(Tensor& out, const Tensor& image, const std::string& weights) {
  convert_by(Form::kBest, out, image, weights);
}

void convert_by_grid(Tensor& out, const Tensor& image, const std::string& weights) {
  convert_by(Form::kGrid, out, image, weights);
}

}  // namespace img2gray::cuda
