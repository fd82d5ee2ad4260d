"""A tiny Llama, kernelized by transformers itself: same logits, same tokens, and kernels that ran."""

import copy
import json
import tempfile

import torch
import transformers
from scene import IDS, MAPPING, count_norms, count_ops, make_llama
from transformers import LlamaForCausalLM
from transformers.integrations import hub_kernels
from transformers.utils import kernel_config
from transformers.utils.import_utils import is_kernels_available
from transformers.utils.kernel_config import KernelConfig

import kernels
from kernels import (
    Mode,
    get_kernel,
    install_kernel,
    kernelize,
    report,
    unkernelize,
    use_kernel_mapping,
)

assert is_kernels_available()
assert hub_kernels._kernels_enabled

result = {"version": kernels.__version__, "dtypes": {}}
for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
    model = make_llama(dtype)
    plain = copy.deepcopy(model)
    model.kernel_config = None
    with use_kernel_mapping(MAPPING):
        transformers.kernelize(model)
    rotary = get_kernel("kernels-community/rotary", version=2)
    with torch.no_grad(), count_norms() as norms, count_ops("silu") as silus:
        logits = model(IDS).logits
    rotated = len(rotary.CALLS)
    tokens = model.generate(IDS, max_new_tokens=8, do_sample=False)
    found = report(model)
    result["dtypes"][str(dtype)] = {
        "layers": [[layer.path, layer.runs, layer.kernel] for layer in found.layers],
        "norms": len(norms),
        "silus": len(silus),
        "rotated": rotated,
    }
    unkernelize(model)  # the function is shared with the plain model
    rotary.CALLS.clear()
    with torch.no_grad():
        torch.testing.assert_close(logits, plain(IDS).logits, rtol=tolerance, atol=tolerance)
    if dtype is torch.float32:
        assert torch.equal(tokens, plain.generate(IDS, max_new_tokens=8, do_sample=False))
    assert rotary.CALLS == []

# Training: gradients through the kernel's norms are those of the model's own; silu of this
# version of the kernel may have no backward, and is then not used.
model, plain = make_llama().train(), make_llama().train()
with use_kernel_mapping(MAPPING):
    kernelize(model, mode=Mode.TRAINING, strict=True)
result["training"] = {layer.layer_name: layer.runs for layer in report(model).layers}
model(IDS, labels=IDS).loss.backward()
unkernelize(model)
plain(IDS, labels=IDS).loss.backward()
for one, other in zip(model.parameters(), plain.parameters(), strict=True):
    torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)

# What users of transformers write. Its own mapping has nothing for a CPU, and the report says so.
with tempfile.TemporaryDirectory() as folder:
    plain.save_pretrained(folder)
    loaded = LlamaForCausalLM.from_pretrained(folder, use_kernels=True)
assert loaded.use_kernels
result["use_kernels"] = sorted({layer.reason for layer in report(loaded).layers})

# A KernelConfig: a name, a name with a version, and a folder. transformers allows it no CPU.
kernel_config.KERNELS_SUPPORTED_DEVICE_TYPES.append("cpu")
by_name = {
    "RMSNorm": "kernels-community/triton-layer-norm:LlamaRMSNorm",
    "rotary_pos_emb": ("kernels-community/rotary:apply_rotary_transformers", {"version": 2}),
}
folder = install_kernel("kernels-community/activation", version=1)
result["kernel_config"] = []
for mapping, is_local in ((by_name, False), ({"SiLU": f"{folder}:Silu"}, True)):
    model = make_llama()
    model.set_use_kernels(True, KernelConfig(mapping, use_local_kernel=is_local))
    found = report(model)
    result["kernel_config"].append(sorted({layer.layer_name for layer in found.kernels}))
    with torch.no_grad():
        logits = model(IDS).logits
        torch.testing.assert_close(logits, make_llama()(IDS).logits, rtol=1e-5, atol=1e-5)
    unkernelize(model)

# Attention by the id of a repository, and kernels by the function of transformers for it.
model, plain = make_llama(torch.bfloat16), make_llama(torch.bfloat16)
model.set_attn_implementation("kernels-community/flash-attn2")
attention = hub_kernels.get_kernel("kernels-community/flash-attn2", version=4)
with torch.no_grad():
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits, rtol=3e-2, atol=3e-2)
result["attention"] = [attention is get_kernel("kernels-community/flash-attn2", version=4)]
result["attention"].append(len(attention.CALLS))
print(json.dumps(result))
