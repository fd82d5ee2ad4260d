import torch
import torch.nn.functional as F
from kernels import get_kernel

DEVICE = "cuda"


torch.manual_seed(42)


activation_kernels = get_kernel("kernels-community/activation")


x = torch.randn((4, 4), dtype=torch.float16, device=DEVICE)


y = torch.empty_like(x)


activation_kernels.gelu_fast(y, x)


expected = F.gelu(x)


torch.testing.assert_close(y, expected, rtol=1e-2, atol=1e-2)

print("✅ Kernel output matches PyTorch GELU!")


print("\nInput tensor:")
print(x)
print("\nFast GELU kernel output:")
print(y)
print("\nPyTorch GELU output:")
print(expected)


print("\nAvailable functions in 'kernels-community/activation':")
print(dir(activation_kernels))
