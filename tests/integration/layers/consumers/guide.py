"""The guide's lines for transformers and diffusers, on a tiny Llama and on norms of two shapes."""

import json
import os
from pathlib import Path

import torch
from scene import IDS, make_llama, ours

from kernels import Mode, kernelize, report, use_kernel_mapping

model, plain = make_llama(), make_llama()
kernel = ours("triton-layer-norm", "LlamaRMSNorm")
names = {"use_kernel_mapping": use_kernel_mapping, "kernel": kernel, "model": model}
exec(Path(os.environ["TRANSFORMERS"]).read_text(), names)
with torch.no_grad():
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits, rtol=1e-5, atol=1e-5)
runs = [layer for layer in report(model).layers if layer.runs == "kernel"]
result = {"RMSNorm": sum(layer.layer_name == "RMSNorm" for layer in runs)}

exec(Path(os.environ["DIFFUSERS"]).read_text())
norms = torch.nn.ModuleList([torch.nn.LayerNorm(8), torch.nn.LayerNorm((4, 8))])
with use_kernel_mapping({"LayerNorm": {"cpu": ours("triton-layer-norm", "LayerNorm")}}):
    kernelize(norms, mode=Mode.INFERENCE)
found = {layer.path: layer.runs for layer in report(norms).layers}
result["LayerNorm"] = [found["0"], found.get("1", "original")]
print(json.dumps(result))
