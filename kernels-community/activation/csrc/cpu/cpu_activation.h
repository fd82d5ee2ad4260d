// The CPU backend's entry points.
#pragma once

#include <string>

#include "../activation_kind.h"
#include "../launch_plan.h"

namespace activation::cpu {

// out = f(input), element by element.
void run_unary(Activation kind, const LaunchPlan& plan);

// out = f(gate) * up, gate and up being the halves of the input's rows. Fatrelu alone reads the threshold.
void run_gated(Activation kind, Gate gate, const LaunchPlan& plan, double threshold);

// The instruction set in use: "avx512", "avx2" or "baseline".
std::string isa();

}  // namespace activation::cpu
