"""Time triton-layer-norm against its peers on the GPU that is here, in turns, beside its error.

    python tools/gpu_bench_triton_layer_norm.py [--json FILE] [--only forward,backward,model]

Peers: the tutorial's eager module, torch's own function, torch.compile of the eager module,
and Liger where it is installed. Every figure is the median of the rounds of `gpu_timing`; a
ratio is the median of the rounds' ratios, to the peer whose median is the lowest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from gpu_timing import WAYS, copy_bandwidth, medians, time_in_turns
from torch import nn

REPO_ID = "kernels-community/triton-layer-norm"
PROJECT = Path(__file__).parents[1] / REPO_ID
os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={PROJECT}")

ROWS = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
HIDDEN = 4096
EPS = 1e-5
ROUNDS = 9
Calls = dict[str, Callable[[], object]]


class RMSNorm(nn.Module):
    """As a model without any kernel has it; the weights are random, since ones hide errors."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden))
        self.variance_epsilon = EPS

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return (self.weight * (x * torch.rsqrt(variance + EPS))).to(x.dtype)


class LayerNorm(nn.Module):
    """The same for LayerNorm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden))
        self.bias = nn.Parameter(torch.randn(hidden))
        self.eps = EPS

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide - wide.mean(-1, keepdim=True)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return (wide * scale * self.weight + self.bias).to(x.dtype)


def get_layers():
    from kernels import get_kernel

    return get_kernel(REPO_ID).layers


def rms_peers(x: torch.Tensor, module: nn.Module) -> Calls:
    compiled = torch.compile(module, dynamic=False)
    calls: Calls = {
        "eager": lambda: module(x),
        "torch": lambda: F.rms_norm(x, (x.shape[-1],), module.weight, EPS),
        "compile": lambda: compiled(x),
    }
    try:
        from liger_kernel.transformers import LigerRMSNorm
    except ImportError:
        return calls
    liger = LigerRMSNorm(x.shape[-1], eps=EPS)
    liger.weight = module.weight
    return calls | {"liger": lambda: liger(x)}


def layer_peers(x: torch.Tensor, module: nn.Module) -> Calls:
    compiled = torch.compile(module, dynamic=False)
    calls: Calls = {
        "eager": lambda: module(x),
        "torch": lambda: F.layer_norm(x, (x.shape[-1],), module.weight, module.bias, EPS),
        "compile": lambda: compiled(x),
    }
    try:
        from liger_kernel.transformers.layer_norm import LigerLayerNorm
    except ImportError:
        return calls
    liger = LigerLayerNorm(x.shape[-1], eps=EPS)
    liger.weight, liger.bias = module.weight, module.bias
    return calls | {"liger": lambda: liger(x)}


def shapes() -> Iterator[tuple[str, int, int, torch.dtype]]:
    half, brain = torch.float16, torch.bfloat16
    yield from (("rms", rows, HIDDEN, half) for rows in ROWS)
    yield from (("rms", rows, h, half) for h in (2048, 5120, 8192, 16384) for rows in (1024, 16384))
    yield from (("rms", rows, HIDDEN, brain) for rows in (1024, 32768))
    yield from (("layer", rows, HIDDEN, half) for rows in (256, 1024, 4096, 32768))


def ratio_to_best(times: dict[str, list[float]]) -> tuple[str, float]:
    """The fastest peer, and the median of our time divided by its time."""
    middle = medians(times)
    best = min((name for name in times if name != "ours"), key=middle.__getitem__)
    pairs = zip(times["ours"], times[best], strict=True)
    return best, statistics.median(ours / theirs for ours, theirs in pairs)


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


def measure(kind: str, rows: int, hidden: int, dtype: torch.dtype, backward: bool) -> list[dict]:
    x = torch.randn(rows, hidden, device="cuda", dtype=dtype, requires_grad=backward)
    module = {"rms": RMSNorm, "layer": LayerNorm}[kind](hidden).cuda().to(dtype)
    module.requires_grad_(backward)
    calls = {"rms": rms_peers, "layer": layer_peers}[kind](x, module)
    forward = getattr(get_layers(), {"rms": "LlamaRMSNorm", "layer": "LayerNorm"}[kind]).forward
    calls["ours"] = lambda: forward(module, x)
    wide = x.detach().double().requires_grad_(backward)
    weights = [parameter.detach().double() for parameter in module.parameters()]
    of_torch = {"rms": F.rms_norm, "layer": F.layer_norm}[kind]
    exact = of_torch(wide, (hidden,), *weights, eps=EPS)
    error = relative_error(calls["ours"](), exact)
    if backward:
        dy = torch.randn_like(x)
        leaves = (x, *module.parameters())
        truth = torch.autograd.grad(exact, wide, dy.double())
        calls = {
            name: lambda call=call: torch.autograd.grad(call(), leaves, dy)
            for name, call in calls.items()
        }
        error = relative_error(calls["ours"]()[0], truth[0])
    del exact, wide
    moved = (4 if backward else 2) * x.numel() * x.element_size()
    found = []
    for way in WAYS:
        times = time_in_turns(calls, way, rounds=ROUNDS, repeats=15)
        middle = medians(times)
        best, ratio = ratio_to_best(times)
        name = f"{kind}_norm" + ("+backward" if backward else "")
        ours = middle.pop("ours")
        peers = {name: round(value, 2) for name, value in middle.items()}
        found.append(
            {
                "kernel": f"{REPO_ID}.{name}",
                "shape": [rows, hidden],
                "dtype": str(dtype).removeprefix("torch."),
                "flush": way == "cold",
                "way": way,
                "ours_us": round(ours, 2),
                "peers": peers,
                "best": best,
                "ratio_to_best": round(ratio, 3),
                "gb_per_s": round(moved / ours / 1e3),
                "max_error": error,
            }
        )
        spelled = "  ".join(f"{n} {t:.1f}" for n, t in peers.items())
        print(
            f"{name:17} {rows:6} x {hidden:5} {str(dtype)[6:]:8} {way} ours {ours:7.2f}"
            f"  {spelled}  ratio {ratio:.3f} to {best}  {moved / ours / 1e3:5.0f} GB/s"
            f"  error {error:.1e}"
        )
    return found


class Model(nn.Module):
    """The tutorial's model, 4096-4096-10."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.linear1 = nn.Linear(HIDDEN, HIDDEN)
        self.norm = norm
        self.activation = nn.GELU()
        self.linear2 = nn.Linear(HIDDEN, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(self.activation(self.norm(self.linear1(x))))


def measure_model() -> list[dict]:
    """Time the whole model as the tutorial does: calls in a loop, with autograd recording."""
    ours = RMSNorm(HIDDEN)
    ours.forward = get_layers().LlamaRMSNorm.forward.__get__(ours)
    norms = {
        "eager": RMSNorm(HIDDEN),
        "torch": nn.RMSNorm(HIDDEN, EPS),
        "compile": torch.compile(RMSNorm(HIDDEN), dynamic=False),
        "ours": ours,
    }
    try:
        from liger_kernel.transformers import LigerRMSNorm
    except ImportError:
        pass
    else:
        norms["liger"] = LigerRMSNorm(HIDDEN, EPS)
    models = {name: Model(norm).cuda().half().eval() for name, norm in norms.items()}
    found = []
    for rows in ROWS:
        x = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.float16)
        calls = {name: lambda m=m, x=x: m(x) for name, m in models.items()}
        times = time_in_turns(calls, "loop", rounds=25, repeats=15)
        middle = medians(times)
        best, ratio = ratio_to_best(times)
        faster = {name: middle["eager"] / value for name, value in middle.items()}
        spelled = "  ".join(f"{n} {middle[n]:.1f} ({faster[n]:.3f}x)" for n in faster)
        print(f"model {rows:6}  {spelled}  speed-up {1 / ratio:.3f} of {best}'s")
        found.append({"rows": rows, "us": middle, "speed_up": faster, "to_best": 1 / ratio})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="forward,backward,model")
    options = parser.parse_args()
    chosen = options.only.split(",")
    torch._dynamo.config.recompile_limit = 64
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    meta = {"device": device, "torch": torch.__version__, "copy_gb_per_s": copy_bandwidth()}
    for rows in (HIDDEN, 32768):
        size = rows * HIDDEN * 2
        meta[f"copy_gb_per_s_{rows}x{HIDDEN}"] = copy_bandwidth(size=size)
    print(meta)
    result: dict[str, object] = {"meta": meta, "rows": []}
    rows = []
    if "model" in chosen:
        result["model"] = measure_model()
    if "forward" in chosen:
        with torch.no_grad():
            for case in shapes():
                rows += measure(*case, backward=False)
    if "backward" in chosen:
        for case in (("rms", 4096), ("rms", 16384), ("layer", 4096)):
            kind, count = case
            rows += measure(kind, count, HIDDEN, torch.float16, backward=True)
    result["rows"] = rows
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
