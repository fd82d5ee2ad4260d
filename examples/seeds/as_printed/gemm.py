import torch
from kernels import get_kernel

# Load the kernel from the Hub
gemm = get_kernel("kernels-community/gemm")

# Execute the kernel
result = gemm.gemm(A_fp8, B_fp8, A_scale, B_scale, C)
