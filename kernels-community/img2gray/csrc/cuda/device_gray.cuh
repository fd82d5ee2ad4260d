// Grey of one pixel on the device, for every type.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../gray_formula.h"

namespace img2gray::cuda {

__device__ inline float to_real(float x) { return x; }
__device__ inline double to_real(double x) { return x; }
__device__ inline float to_real(__half x) { return __half2float(x); }
__device__ inline float to_real(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ inline void assign(float& to, float x) { to = x; }
__device__ inline void assign(double& to, double x) { to = x; }
__device__ inline void assign(__half& to, float x) { to = __float2half_rn(x); }
__device__ inline void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

template <class T>
__device__ inline T gray_pixel(
    const Weights& weights, const FixedWeights& fixed, T red, T green, T blue) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return gray_of(fixed, red, green, blue);
  } else {
    T gray;
    assign(gray, gray_of(weights, to_real(red), to_real(green), to_real(blue)));
    return gray;
  }
}

}  // namespace img2gray::cuda
