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

// What a type's channels are multiplied with: rounded on the host, where it is done once.
template <class Real>
struct RealWeights {
  Real red;
  Real green;
  Real blue;
};
template <class T>
using FactorsOf = std::conditional_t<
    std::is_same_v<T, uint8_t>, FixedWeights,
    RealWeights<std::conditional_t<std::is_same_v<T, double>, double, float>>>;

template <class T>
FactorsOf<T> factors_of(const Weights& weights) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return to_fixed(weights);
  } else {
    using Real = decltype(FactorsOf<T>::red);
    return {
        static_cast<Real>(weights.red), static_cast<Real>(weights.green),
        static_cast<Real>(weights.blue)};
  }
}

template <class T>
__device__ inline T gray_pixel(const FactorsOf<T>& factors, T red, T green, T blue) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return gray_of(factors, red, green, blue);
  } else {
    T gray;
    assign(gray, gray_of(factors, to_real(red), to_real(green), to_real(blue)));
    return gray;
  }
}

}  // namespace img2gray::cuda
