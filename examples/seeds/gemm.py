# /// script
# requires-python = ">=3.11"
# dependencies = ["kernels", "torch>=2.10", "numpy"]
#
# [tool.uv.sources]
# kernels = { path = "../.." }
# ///
import torch
from kernels import get_kernel

# Load the kernel from the Hub
gemm = get_kernel("kernels-community/gemm")

# The listing's tensors: K x M, K x N, a scale for each block of 128 along K (and along N for B).
M, N, K = 128, 256, 256
FP8 = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn
A_fp8 = torch.randn(K, M, device="cuda").to(FP8)
B_fp8 = torch.randn(K, N, device="cuda").to(FP8)
A_scale = torch.rand(K // 128, M, device="cuda") + 0.5
B_scale = torch.rand(K // 128, N // 128, device="cuda") + 0.5
C = torch.empty(M, N, dtype=torch.bfloat16, device="cuda")

# Execute the kernel
result = gemm.gemm(A_fp8, B_fp8, A_scale, B_scale, C)
