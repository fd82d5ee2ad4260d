// The same formula, pixel by pixel.
#include <ATen/core/Tensor.h>

#include <cstdint>

void img2gray_cpu(const at::Tensor& input, at::Tensor& output) {
  const int64_t pixels = input.numel() / 3;
  const uint8_t* channel = input.const_data_ptr<uint8_t>();
  uint8_t* gray = output.mutable_data_ptr<uint8_t>();
  for (int64_t pixel = 0; pixel < pixels; ++pixel, channel += 3) {
    gray[pixel] = static_cast<uint8_t>((21 * channel[0] + 72 * channel[1] + 7 * channel[2]) / 100);
  }
}
