# /// script
# requires-python = ">=3.11"
# dependencies = ["kernels", "torch>=2.10", "numpy"]
#
# [tool.uv.sources]
# kernels = { path = "../.." }
# ///
from kernels import get_kernel

flash_attention = get_kernel("kernels-community/flash-attn")
