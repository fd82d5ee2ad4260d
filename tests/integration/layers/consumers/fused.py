"""transformers puts a kernel's own layout into a model, for two layers at once, and kernelizes it."""

import json
import tempfile

import torch
from scene import IDS, make_llama
from transformers import LlamaForCausalLM
from transformers.utils import kernel_config
from transformers.utils.kernel_config import KernelConfig

from kernels import get_kernel, report

kernel_config.KERNELS_SUPPORTED_DEVICE_TYPES.append("cpu")
plain = make_llama()
fused = (("RMSNorm", "model.layers.*.post_attention_layernorm"), ("MLP", "model.layers.*.mlp"))
with tempfile.TemporaryDirectory() as folder:
    plain.save_pretrained(folder)
    config = KernelConfig({fused: "kernels-community/fused:NormMLP"})
    model = LlamaForCausalLM.from_pretrained(folder, use_kernels=True, kernel_config=config)
kernel = get_kernel("kernels-community/fused", version=1)
with torch.no_grad():
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits, rtol=1e-5, atol=1e-5)
print(json.dumps({
    "calls": len(kernel.CALLS),
    "kernels": [[layer.path, layer.kernel] for layer in report(model).kernels],
}))  # fmt: skip
