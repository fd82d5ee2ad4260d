from kernels import get_kernel

flash_attention = get_kernel("kernels-community/flash-attn")
