"""Kernelized models in DistributedDataParallel, fully_shard and accelerate's hooks."""

import copy
import json
import tempfile

import torch
import torch.distributed as dist
from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module
from scene import IDS, MAPPING, count_norms, make_llama
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from kernels import Mode, kernelize, report, unkernelize, use_kernel_mapping

NORMS = {"RMSNorm": MAPPING["RMSNorm"]}
result = {}
plain = make_llama()
plain(IDS, labels=IDS).loss.backward()


def kernelized(model):
    with use_kernel_mapping(NORMS):
        return kernelize(model, mode=Mode.TRAINING, strict=True)


def check(name, model, wrapped):
    with count_norms() as norms:
        wrapped(IDS, labels=IDS).loss.backward()
    result[name] = [len(norms), len(report(wrapped).kernels)]
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        gradient = one.grad.full_tensor() if hasattr(one.grad, "full_tensor") else one.grad
        torch.testing.assert_close(gradient, other.grad, rtol=1e-4, atol=1e-6)


with tempfile.NamedTemporaryFile() as file:
    dist.init_process_group("gloo", init_method=f"file://{file.name}", rank=0, world_size=1)
    model = make_llama()
    check("ddp around", model, DistributedDataParallel(kernelized(model)))
    model = make_llama()
    check("ddp before", model, kernelized(DistributedDataParallel(model)))

    mesh = dist.init_device_mesh("cpu", (1,))
    for when in ("around", "before"):
        model = make_llama()
        if when == "around":
            kernelized(model)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if when == "before":
            kernelized(model)
        check(f"fully_shard {when}", model, model)
    dist.destroy_process_group()

# What device_map="auto" does to each layer of a model that does not fit a GPU.
model = make_llama()
for module in model.modules():
    if type(module).__name__ == "LlamaRMSNorm":
        add_hook_to_module(module, AlignDevicesHook(execution_device="cpu", offload=True))
kernelized(model)
with torch.no_grad(), count_norms() as norms:
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits)
hooked = sum("_hf_hook" in module.__dict__ for module in model.modules())
result["accelerate"] = [len(norms), len(report(model).kernels), hooked]
unkernelize(model)
with torch.no_grad(), count_norms() as norms:
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits)
for module in model.modules():
    remove_hook_from_module(module)
with torch.no_grad():
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits)
result["accelerate after"] = [len(norms), len(report(model).kernels)]

# Copies: kernelized as the model was, each with its own weights.
twin = copy.deepcopy(kernelized(make_llama()))
with torch.no_grad(), count_norms() as norms:
    for parameter in twin.parameters():
        parameter.mul_(2)
    twin(IDS)
result["copy"] = [len(norms), len(report(twin).kernels)]
print(json.dumps(result))
