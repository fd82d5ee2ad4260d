// How a picture looks in memory: rows of pixels.
#pragma once

#include <cstdint>

namespace img2gray {

// The type of the channels and of the grey.
enum class Element { kByte, kFloat, kDouble, kHalf, kBFloat16 };

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
  // The same pixels as one row, where nothing lies between rows and images: so narrow pictures are as
  // fast as wide ones.
  ImageView merged() const {
    const bool rows_follow = height <= 1 || row_stride == width * pixel_stride;
    const bool images_follow = images <= 1 || image_stride == height * width * pixel_stride;
    if (!rows_follow || !images_follow) return *this;
    return {1, 1, pixels(), image_stride, row_stride, pixel_stride, channel_stride};
  }

  bool is_interleaved() const { return pixel_stride == 3 && channel_stride == 1; }
  bool is_planar() const { return pixel_stride == 1; }
};

}  // namespace img2gray
