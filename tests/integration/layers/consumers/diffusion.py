"""A tiny Stable Diffusion 3 transformer: its norms and activations run our kernels, its attention a toy."""

import json

import torch
from diffusers import SD3Transformer2DModel
from diffusers.models import attention_dispatch
from diffusers.models.normalization import RMSNorm
from diffusers.utils.import_utils import is_kernels_available, is_kernels_version
from scene import count_norms, count_ops, ours
from torch import nn

from kernels import (
    Mode,
    get_kernel,
    kernelize,
    replace_kernel_forward_from_hub,
    report,
    unkernelize,
    use_kernel_mapping,
)

assert is_kernels_available()
assert is_kernels_version(">=", "0.14.0")

torch.manual_seed(0)
model = SD3Transformer2DModel(
    sample_size=8,
    patch_size=1,
    in_channels=4,
    out_channels=4,
    num_layers=2,
    attention_head_dim=8,
    num_attention_heads=4,
    caption_projection_dim=32,
    joint_attention_dim=32,
    pooled_projection_dim=64,
    qk_norm="rms_norm",
).eval()
for parameter in model.parameters():
    if parameter.dim() == 1:
        nn.init.uniform_(parameter, 0.5, 1.5)
inputs = {
    "hidden_states": torch.randn(2, 4, 8, 8),
    "encoder_hidden_states": torch.randn(2, 10, 32),
    "pooled_projections": torch.randn(2, 64),
    "timestep": torch.tensor([1.0, 2.0]),
}
with torch.no_grad():
    expected = model(**inputs).sample

# diffusers marks no layers, so the user does, each with what the kernel needs of it.
replace_kernel_forward_from_hub(RMSNorm, "RMSNorm", lambda norm: norm.bias is None)
replace_kernel_forward_from_hub(nn.LayerNorm, "LayerNorm", lambda n: len(n.normalized_shape) == 1)
replace_kernel_forward_from_hub(nn.SiLU, "SiLU", lambda silu: not silu.inplace)
mapping = {
    "RMSNorm": {"cpu": ours("triton-layer-norm", "LlamaRMSNorm")},
    "LayerNorm": {"cpu": ours("triton-layer-norm", "LayerNorm")},
    "SiLU": {"cpu": ours("activation", "Silu")},
}
with use_kernel_mapping(mapping):
    kernelize(model, mode=Mode.INFERENCE, strict=True)
with torch.no_grad(), count_norms() as norms, count_ops("silu") as silus:
    found = model(**inputs).sample
torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
layers = report(model).layers
result = {
    "runs": sorted({layer.runs for layer in layers}),
    "mapped": {name: sum(layer.layer_name == name for layer in layers) for name in mapping},
    "norms": len(norms),
    "silus": len(silus),
}

# Gradients of what diffusers trains go through them, too.
with use_kernel_mapping(mapping):
    kernelize(model, mode=Mode.TRAINING)
model(**inputs).sample.sum().backward()
gradients = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
unkernelize(model)
model(**inputs).sample.sum().backward()
for one, parameter in zip(gradients, model.parameters(), strict=True):
    torch.testing.assert_close(one, parameter.grad, rtol=1e-3, atol=1e-4)

# The attention backends of diffusers call get_kernel themselves.
backend = attention_dispatch.AttentionBackendName.FLASH_HUB
attention_dispatch._maybe_download_kernel_for_backend(backend)
config = attention_dispatch._HUB_KERNELS_REGISTRY[backend]
toy = get_kernel("kernels-community/flash-attn2", version=3)
assert config.kernel_fn is toy.flash_attn_func
assert config.wrapped_forward_fn is toy.flash_attn_interface._flash_attn_forward
q = torch.randn(1, 16, 4, 8)
torch.testing.assert_close(
    config.kernel_fn(q, q, q), attention_dispatch.dispatch_attention_fn(q, q, q)
)
result["attention"] = len(toy.CALLS)
print(json.dumps(result))
