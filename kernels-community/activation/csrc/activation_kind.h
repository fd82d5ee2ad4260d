// The scalar functions of this kernel, as every backend names them.
#pragma once

namespace activation {

// gelu_fast, gelu_new and gelu_tanh are one function, kGeluTanh:
// their published formulas differ only in the order of the factors.
enum class Activation : int {
  kGelu,       // x Phi(x), Phi the normal distribution function
  kGeluTanh,   // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
  kGeluQuick,  // x sigmoid(1.702 x)
  kSilu,       // x sigmoid(x)
  kFatrelu,    // x where x > threshold, else 0
};
constexpr int kActivationCount = 5;

// Which half of the input's last dimension goes through the activation in a gated op.
enum class Gate { kFirstHalf, kSecondHalf };

// The type of the elements of a call, the same in all its tensors.
enum class Element : int { kFloat, kBFloat16, kHalf };
constexpr int kElementCount = 3;

}  // namespace activation
