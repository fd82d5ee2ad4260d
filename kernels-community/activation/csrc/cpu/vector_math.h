// The scalar functions of activation_kind.h over one vector of floats.
//
// Built on the primitives of the simd_*.h that is included before. The sign-symmetric forms keep
// the relative accuracy where the textbook ones cancel (1 + tanh(u) for u near -9) or overflow
// (exp(-x) for x near -89). Coefficients: tools/fit_polynomials.py.
#pragma once

namespace activation::ACTIVATION_ISA {
namespace {

inline Floats broadcast(float value) { return Floats{} + value; }

inline Floats minus_magnitude(Floats x) { return (Floats)((Ints)x | INT32_MIN); }
inline Floats magnitude(Floats x) { return (Floats)((Ints)x & INT32_MAX); }

template <int N>
inline Floats polynomial(const float (&coefficients)[N], Floats x) {
  Floats sum = broadcast(coefficients[N - 1]);
#pragma GCC unroll 16  // at -O2 it would stay a loop that reads the coefficients one by one
  for (int i = N - 2; i >= 0; --i) sum = multiply_add(sum, x, broadcast(coefficients[i]));
  return sum;
}

// exp(z) for z <= 0 within 2 ulp; NaN stays NaN.
// exp(z) = 2^n exp(r), r = z - n ln 2 in [-ln 2 / 2, ln 2 / 2]; see Muller, "Elementary Functions".
inline Floats exp_nonpositive(Floats z) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693145751953125f;  // few enough bits that n * kLn2High is exact
  constexpr float kLn2Low = 1.428606765330187e-6f;
  constexpr float kZeroBelow = -104.0f;  // exp(-104) rounds to 0
  constexpr float kExpRemainder[] = {
      0.5f, 0.16666577756404877f, 0.04166685417294502f, 0.008363146334886551f,
      0.0013901275815442204f};
  // Floats near 1.5 * 2^23 are whole numbers: adding it rounds, and leaves the number in the low
  // bits. The rest of kMagic makes those bits the exponent field of 2^(n + 30). 2^n itself may be
  // too small for a normal float (n reaches -150), so 2^-30 is a second factor.
  constexpr float kMagic = 12582912.0f + 127.0f + 30.0f;
  constexpr float k2ToMinus30 = 0x1p-30f;

  z = at_least(kZeroBelow, z);
  const Floats biased = multiply_add(z, broadcast(kLog2E), broadcast(kMagic));
  const Floats n = biased - kMagic;
  Floats r = multiply_add(n, broadcast(-kLn2High), z);
  r = multiply_add(n, broadcast(-kLn2Low), r);
  const Floats tail = multiply_add(polynomial(kExpRemainder, r), r * r, r);
  return (tail + 1.0f) * (Floats)((Ints)biased << 23) * k2ToMinus30;
}

// x * sigmoid(z) for z of the sign of x: with e = exp(-|z|), sigmoid(z) is 1 / (1 + e) on the
// right and e / (1 + e) on the left.
inline Floats times_sigmoid(Floats x, Floats z) {
  const Floats e = exp_nonpositive(minus_magnitude(z));
  return ((z < 0.0f) ? x * e : x) / (e + 1.0f);
}

// P(N > a) for a standard normal N and a >= 0: exp(-a^2 / 2) times a smooth factor, which is a
// polynomial in s = (a - 3) / (a + 3).
inline Floats normal_tail(Floats a) {
  constexpr float kScaledTail[] = {
      0.12151394784450531f,     -0.20640261471271515f,   0.12322505563497543f,
      -0.04621323570609093f,    0.0061318110674619675f,  0.0029042139649391174f,
      -0.0009828225011005998f,  -0.00033854652428999543f, 0.00011450476449681446f,
      5.267684537102468e-05f};
  a = (a > 15.0f) ? broadcast(15.0f) : a;  // from 14.3 on the tail is 0
  const Floats s = (a - 3.0f) / (a + 3.0f);
  return exp_nonpositive(a * a * -0.5f) * polynomial(kScaledTail, s);
}

template <Activation kind>
inline Floats activate(Floats x, [[maybe_unused]] Floats threshold) {
  if constexpr (kind == Activation::kSilu) {
    return times_sigmoid(x, x);
  } else if constexpr (kind == Activation::kGeluQuick) {
    return times_sigmoid(x, x * 1.702f);
  } else if constexpr (kind == Activation::kGeluTanh) {
    // (1 + tanh(u)) / 2 = sigmoid(2 u)
    constexpr float kTwiceSqrt2OverPi = 1.5957691216057308f;
    const Floats cubic = multiply_add(x * x, broadcast(0.044715f), broadcast(1.0f));
    return times_sigmoid(x, x * kTwiceSqrt2OverPi * cubic);
  } else if constexpr (kind == Activation::kGelu) {
    const Floats tail = normal_tail(magnitude(x));
    return x * ((x < 0.0f) ? tail : 1.0f - tail);
  } else {
    static_assert(kind == Activation::kFatrelu);
    return (x <= threshold) ? Floats{} : x;  // written so that NaN passes, as in F.threshold
  }
}

}  // namespace
}  // namespace activation::ACTIVATION_ISA
