// The CUDA backend's entry points, on torch's current stream.
#pragma once

#include "../activation_kind.h"
#include "../launch_plan.h"

namespace activation::cuda {

// The contract of cpu_activation.h.
void run_unary(Activation kind, const LaunchPlan& plan);
void run_gated(Activation kind, Gate gate, const LaunchPlan& plan, double threshold);

// The gradient of `input`, contiguous, from that of the result.
Tensor unary_gradient(Activation kind, const Tensor& grad_output, const Tensor& input);
Tensor gated_gradient(
    Activation kind, Gate gate, const Tensor& grad_output, const Tensor& input, double threshold);

}  // namespace activation::cuda
