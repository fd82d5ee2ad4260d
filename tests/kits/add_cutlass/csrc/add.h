#pragma once

#include <torch/csrc/stable/tensor.h>

void add_one(torch::stable::Tensor& out, const torch::stable::Tensor& input);
void add_one_cuda(torch::stable::Tensor& out, const torch::stable::Tensor& input);
