// The scalar functions of activation_kind.h and their derivatives, on the device, in float.
//
// `T` is the type that the result is rounded to. float takes the accurate exp. The 16-bit types
// take the exp and the reciprocal of the special function unit, and shorter polynomials: a relative
// error of at most 6e-6 where the rounding to float16 is 5e-4, and 4e-5 where that to bfloat16 is 4e-3.
#pragma once

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../activation_kind.h"

namespace activation::cuda {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ inline void assign(float& to, float x) { to = x; }
__device__ inline void assign(__half& to, float x) { to = __float2half_rn(x); }
__device__ inline void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

// 2^x, results below 2^-126 flushed to 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x within 1 ulp, for x whose reciprocal is a normal float or 0.
__device__ inline float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float kLog2E = 1.44269504088896341f;

// bfloat16 reaches as low as float, where the special function unit flushes to 0: so there a power
// 2^x is taken 2^kShift higher, and brought back by kUnshift.
template <class T>
constexpr float kShift = std::is_same_v<T, __nv_bfloat16> ? 32.0f : 0.0f;
template <class T>
constexpr float kUnshift = std::is_same_v<T, __nv_bfloat16> ? 0x1p-32f : 1.0f;

// exp(z) for z <= 0, down to the smallest values that T has.
template <class T>
__device__ inline float exp_nonpositive(float z) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(z);
  } else {
    return fast_exp2(fmaf(z, kLog2E, kShift<T>)) * kUnshift<T>;
  }
}

// sigmoid(z) and 1 - sigmoid(z), neither of which cancels or overflows.
struct Sigmoid {
  float value;
  float rest;
};

template <class T>
__device__ inline Sigmoid sigmoid(float z) {
  const float e = exp_nonpositive<T>(-fabsf(z));
  const float large = fast_reciprocal(1.0f + e);
  const float small = e * large;
  return z < 0.0f ? Sigmoid{small, large} : Sigmoid{large, small};
}

// x sigmoid(z), for z of the sign of x.
//
// In the 16-bit types by one power and one reciprocal, 2^-k x / (2^-k + 2^(-z log2(e) - k)): where the
// reciprocal is flushed to 0, so is the result in T. bfloat16 reaches as low as float, so there k keeps the
// denominator from it for longer; x 2^-16 is exact for every bfloat16 x.
template <class T>
__device__ inline float times_sigmoid(float x, float z) {
  if constexpr (std::is_same_v<T, float>) {
    const float e = exp_nonpositive<T>(-fabsf(z));
    return x * ((z < 0.0f ? e : 1.0f) * fast_reciprocal(1.0f + e));
  } else {
    constexpr bool kWide = std::is_same_v<T, __nv_bfloat16>;
    constexpr float kLower = kWide ? 16.0f : 0.0f;
    constexpr float kScale = kWide ? 0x1p-16f : 1.0f;
    const float denominator = kScale + fast_exp2(fmaf(z, -kLog2E, -kLower));
    return x * kScale * fast_reciprocal(denominator);
  }
}

template <int count>
__device__ inline float polynomial(const float (&coefficients)[count], float x) {
  float sum = coefficients[count - 1];
#pragma unroll
  for (int i = count - 2; i >= 0; --i) sum = fmaf(sum, x, coefficients[i]);
  return sum;
}

// P(N > a) for a standard normal N and a >= 0. The coefficients are those of
// tools/fit_polynomials.py.
//
// float: exp(-a^2 / 2) times a polynomial in (a - 3) / (a + 3), of relative error 1e-8.
// Else 2^p(a) with a polynomial p that is -1 at 0, so that ties of halved subnormals stay ties. Its
// last coefficient is negative, which takes the tail to 0 beyond the end of the fit. Relative errors:
// float16 6e-6 up to a = 6, bfloat16 4e-5 up to 13.4; from there on the results are 0.
template <class T>
__device__ inline float normal_tail(float a) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr float kFactor[] = {
        0.12151394784450531f,     -0.20640261471271515f,    0.12322505563497543f,
        -0.04621323570609093f,    0.0061318110674619675f,   0.0029042139649391174f,
        -0.0009828225011005998f,  -0.00033854652428999543f, 0.00011450476449681446f,
        5.267684537106468e-05f};
    const float s = fmaf(-6.0f, fast_reciprocal(a + 3.0f), 1.0f);
    return expf(a * a * -0.5f) * polynomial(kFactor, s);
  } else if constexpr (std::is_same_v<T, __half>) {
    constexpr float kSlope[] = {
        -1.151214361190796f,   -0.4585415720939636f,    -0.05389096587896347f,
        0.008476861752569675f, -0.0009231895091943443f, 6.07266447332222e-05f,
        -1.7938045857590623e-06f};
    return fast_exp2(fmaf(polynomial(kSlope, a), a, -1.0f));
  } else {
    constexpr float kSlope[] = {
        -1.1510511636734009f,  -0.4587554335594177f,    -0.05395126715302467f,
        0.008657515980303288f, -0.0010177958756685257f, 8.31412326078862e-05f,
        -4.420417553774314e-06f, 1.3663463960256195e-07f, -1.8552634983848293e-09f};
    return fast_exp2(fmaf(polynomial(kSlope, a), a, -1.0f + kShift<T>)) * kUnshift<T>;
  }
}

// P(N <= x).
template <class T>
__device__ inline float normal_probability(float x) {
  const float tail = normal_tail<T>(fabsf(x));
  return x < 0.0f ? tail : 1.0f - tail;
}

// The density of N at x.
template <class T>
__device__ inline float normal_density(float x) {
  return 0.3989422804014327f * exp_nonpositive<T>(x * x * -0.5f);
}

constexpr float kGeluQuickSlope = 1.702f;
constexpr float kTwiceSqrt2OverPi = 1.5957691216057308f;  // (1 + tanh(u)) / 2 = sigmoid(2 u)
constexpr float kGeluTanhCubic = 0.044715f;

template <Activation kind, class T>
__device__ inline float activate(float x, float threshold) {
  if constexpr (kind == Activation::kSilu) {
    return times_sigmoid<T>(x, x);
  } else if constexpr (kind == Activation::kGeluQuick) {
    return times_sigmoid<T>(x, kGeluQuickSlope * x);
  } else if constexpr (kind == Activation::kGeluTanh) {
    return times_sigmoid<T>(x, x * kTwiceSqrt2OverPi * fmaf(x * x, kGeluTanhCubic, 1.0f));
  } else if constexpr (kind == Activation::kGelu) {
    return x * normal_probability<T>(x);
  } else {
    static_assert(kind == Activation::kFatrelu);
    return x <= threshold ? 0.0f : x;  // written so that NaN passes
  }
}

// A function's value and slope at one x.
struct Tangent {
  float value;
  float slope;
};

template <Activation kind, class T>
__device__ inline Tangent tangent(float x, float threshold) {
  if constexpr (kind == Activation::kFatrelu) {
    return {x <= threshold ? 0.0f : x, x <= threshold ? 0.0f : 1.0f};
  } else {
    // Beyond 200 the slopes are 0 and 1; their formulas would say inf * 0. NaN stays.
    const float near = fabsf(x) > 200.0f ? copysignf(200.0f, x) : x;
    if constexpr (kind == Activation::kGelu) {
      const float probability = normal_probability<T>(x);
      return {x * probability, fmaf(near, normal_density<T>(x), probability)};
    } else {
      float z = near;
      float dz = 1.0f;
      if constexpr (kind == Activation::kGeluQuick) {
        z = kGeluQuickSlope * near;
        dz = kGeluQuickSlope;
      } else if constexpr (kind == Activation::kGeluTanh) {
        const float square = near * near;
        z = near * kTwiceSqrt2OverPi * fmaf(square, kGeluTanhCubic, 1.0f);
        dz = kTwiceSqrt2OverPi * fmaf(square, 3.0f * kGeluTanhCubic, 1.0f);
      }
      const Sigmoid at = sigmoid<T>(z);
      return {x * at.value, at.value * fmaf(near * dz, at.rest, 1.0f)};
    }
  }
}

}  // namespace activation::cuda
