#pragma once
#include <torch/csrc/stable/tensor.h>

torch::stable::Tensor scale(torch::stable::Tensor x, double factor);
