"""Two ranks that measure: they decide alike, and none waits for what the other does not ask."""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from scene import IDS, MAPPING, make_llama
from torch import multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers.models.llama.modeling_llama import LlamaMLP

from kernels import Mode, kernelize, replace_kernel_forward_from_hub, report, use_kernel_mapping

RANKS = 2


class Mlp(nn.Module):
    """A kernel that uses the layers in its layer, each of which is gathered from all ranks."""

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Given:
    def load(self):
        return Mlp


def shard(model):
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        for module in (layer.mlp.gate_proj, layer.mlp.down_proj, layer):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def work(rank, folder):
    torch.set_num_threads(1)
    place = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=RANKS)
    replace_kernel_forward_from_hub(LlamaMLP, "MLP")
    mapping = {"RMSNorm": MAPPING["RMSNorm"], "MLP": {"cpu": Given()}}
    result = {}
    for name, wrap in (("ddp", DistributedDataParallel), ("fully_shard", shard)):
        model = make_llama()
        with use_kernel_mapping(mapping):
            kernelize(model, mode=Mode.TRAINING, select="measured")
        wrapped = wrap(model)
        for _ in range(2):
            wrapped(IDS, labels=IDS).loss.backward()
        layers = report(model).layers
        decided = {
            kind: [[shape.shape, shape.runs] for each in layers if each.layer_name == kind
                   for shape in each.shapes]
            for kind in mapping
        }  # fmt: skip
        of_ranks = [None] * RANKS
        dist.all_gather_object(of_ranks, decided)
        result[name] = of_ranks
    dist.destroy_process_group()
    if rank == 0:
        Path(folder, "result").write_text(json.dumps(result))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, args=(folder,), nprocs=RANKS)
        print(Path(folder, "result").read_text())
