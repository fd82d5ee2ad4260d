// How a call looks in memory: rows of pixels.
#pragma once

#include <cstdint>

namespace img2gray {

// The pixel (image n, row y, column x) has its red value at n * image_stride + y * row_stride +
// x * pixel_stride, green and blue one and two channel_strides behind. Strides count elements;
// they say all about HWC, CHW, crops and transposed images. The output is dense.
struct ImageView {
  int64_t images;
  int64_t height;
  int64_t width;
  int64_t image_stride;
  int64_t row_stride;
  int64_t pixel_stride;
  int64_t channel_stride;

  int64_t rows() const { return images * height; }
  int64_t pixels() const { return rows() * width; }

  // The offset of row `row` of all rows of all images.
  int64_t row_offset(int64_t row) const {
    return row / height * image_stride + row % height * row_stride;
  }
  bool is_interleaved() const { return pixel_stride == 3 && channel_stride == 1; }
  bool is_planar() const { return pixel_stride == 1; }
};

}  // namespace img2gray
