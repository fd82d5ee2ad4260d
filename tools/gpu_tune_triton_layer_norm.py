"""Sweep the forms of triton-layer-norm's compiled kernels, and what a call costs on the host.

    python tools/gpu_tune_triton_layer_norm.py build FOLDER [--nvcc NVCC]     needs no GPU
    python tools/gpu_tune_triton_layer_norm.py run FOLDER [forward | few | layer] [backward] [host]

Each form is checked, then all take turns with a copy, Triton's kernel and the peers;
`docs/kernels/triton-layer-norm.md` says what was concluded.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import os
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
REPO_ID = "kernels-community/triton-layer-norm"
PROJECT = ROOT / REPO_ID
SOURCE = Path(__file__).with_suffix(".cu")
LIBRARY = "forms.so"
EPS = 1e-5
SHAPES = [(256 << power, 4096) for power in range(8)] + [
    (rows, hidden) for hidden in (2048, 5120, 8192, 16384) for rows in (1024, 16384)
]
LAYER_SHAPES = [(256 << power, 4096) for power in (0, 1, 2, 4, 7)] + [
    (rows, hidden) for hidden in (2048, 8192) for rows in (1024, 16384)
]
FEW_SHAPES = [(256, 4096), (1024, 4096), (4096, 4096), (32768, 4096)] + [
    (16384, hidden) for hidden in (2048, 5120, 8192)
]
Calls = dict[str, Callable[[], object]]


def build(folder: Path, nvcc: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [nvcc, "-std=c++20", "-O3", "-arch=sm_90", "-shared", "-Xcompiler=-fPIC"]
    command += [f"-I{PROJECT / 'csrc'}", f"-I{PROJECT / 'csrc/cuda'}", str(SOURCE)]
    subprocess.run([*command, "-o", str(folder / LIBRARY)], check=True)


def address(tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def current_stream() -> ctypes.c_void_p:
    import torch

    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def peers(x, module, kernel, op: str) -> Calls:
    import torch

    benchmark = runpy.run_path(str(PROJECT / "benchmarks" / "benchmark.py"))
    ways = benchmark["ways"](kernel, op, module)
    del ways["eager"]
    # Where it is the best peer: it takes long to compile.
    if x.shape[0] > 1024 and x.shape[1] != 8192:
        del ways["compile"]
    launch = sys.modules[f"{kernel.__name__}._launch"]
    bias = getattr(module, "bias", None)
    plan = launch.find_plan(x, None, module.weight, bias, op == "rms_norm", None)
    ways["triton"] = lambda x: plan.norm(x, module.weight, bias, EPS)
    ways["clone"] = torch.clone
    return {name: functools.partial(way, x) for name, way in ways.items()}


def forms(x, module, library: ctypes.CDLL, op: str) -> Calls:
    """Every form that fits the rows, each with a result of its own, as the peers have."""
    import torch

    rows, hidden = x.shape
    bias = getattr(module, "bias", None)
    parameters = [module.weight.data_ptr(), None if bias is None else bias.data_ptr()]
    inputs = [ctypes.c_void_p(pointer) for pointer in (x.data_ptr(), *parameters)]
    found: Calls = {}

    def add(name: str, function: str, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        def call():
            y = torch.empty_like(x)
            status = getattr(library, function)(
                *(*before, int(op == "rms_norm"), *inputs, address(y), rows),
                *(*after, current_stream()),
            )
            assert status == 0
            return y

        found[name] = call

    for packs in (1, 2, 4):
        threads = -(-hidden // (8 * packs * 32)) * 32
        for crowded, pdl in ((0, 0), (0, 1), (1, 0)):
            if threads > 512 or (pdl and rows > 4096) or (crowded and packs == 1):
                continue
            name = f"{threads} x {packs}{' crowded' if crowded else ''}{' pdl' if pdl else ''}"
            add(name, "tuned_forward", (), (hidden, threads, packs, pdl, crowded))
    numbers = (ctypes.c_int * 4)()
    index = 0
    while library.describe_whole(index, numbers):
        threads, packs, blocks, keeps = numbers
        name = f"whole {threads} x {packs}, {blocks} blocks{', keeps' * keeps}"
        if threads * packs * 8 == hidden:
            add(name, "tuned_whole", (index,), (int(rows * hidden < 1 << 25),))
        index += 1
    return found


def sweep_forward(library: ctypes.CDLL, op: str, shapes: list[tuple[int, int]]) -> None:
    import torch

    from kernels import get_kernel
    from kernels.bench.timing import make_timer, median_ratio, time_in_turns

    torch._dynamo.config.recompile_limit = 64
    timer = make_timer(torch.device("cuda"))
    kernel = get_kernel(REPO_ID)
    benchmark = runpy.run_path(str(PROJECT / "benchmarks" / "benchmark.py"))
    for rows, hidden in shapes:
        x = torch.randn(rows, hidden, device="cuda", dtype=torch.float16)
        module = benchmark["MODULES"][op](hidden).cuda().half().requires_grad_(False)
        calls = forms(x, module, library, op) | peers(x, module, kernel, op)
        expected = benchmark["exact"](op, module, x.double())
        for name, call in calls.items():
            error = ((call().double() - expected).norm() / expected.norm()).item()
            if not error < 1e-3 and name != "clone":
                print(f"WRONG {op} {rows} x {hidden} {name}: {error}")
        del expected
        print(
            f"\n{op} {rows} x {hidden}: form, cold us (its rounds), its time / ours, warm us, loop us"
        )
        found = {
            way: time_in_turns(timer, calls, way, rounds=rounds)
            for way, rounds in (("cold", 11 if rows <= 1024 else 7), ("warm", 5), ("loop", 3))
        }
        medians = {
            way: {name: statistics.median(times) for name, times in of.items()}
            for way, of in found.items()
        }
        for name in sorted(calls, key=medians["cold"].__getitem__):
            cold = found["cold"]
            print(
                f"  {name:38} {medians['cold'][name]:8.2f} ({min(cold[name]):.2f} to {max(cold[name]):.2f})"
                f" {median_ratio(cold['ours'], cold[name]):6.3f}"
                f" {medians['warm'][name]:8.2f} {medians['loop'][name]:8.2f}",
                flush=True,
            )


def sweep_backward(library: ctypes.CDLL) -> None:
    import torch
    import torch.nn.functional as F

    from kernels import get_kernel
    from kernels.bench.timing import make_timer, time_in_turns

    timer = make_timer(torch.device("cuda"))
    launch = sys.modules[f"{get_kernel(REPO_ID).__name__}._launch"]
    for rows, hidden in ((1024, 4096), (4096, 4096), (16384, 4096), (4096, 8192)):
        h, dy = (torch.randn(rows, hidden, device="cuda").half() for _ in range(2))
        weight = torch.randn(hidden, device="cuda").half()
        dh, dweight = torch.empty_like(h), torch.empty_like(weight)
        shares = torch.empty(132 * 8, hidden, device="cuda")
        wide = [t.double().requires_grad_() for t in (h, weight)]
        y = F.rms_norm(wide[0], (hidden,), wide[1], EPS)
        exact = torch.autograd.grad(y, wide, dy.double())
        calls: Calls = {
            "two copies": lambda h=h, dy=dy: (h.clone(), dy.clone()),
            "triton": lambda h=h, dy=dy, weight=weight: launch.backward(
                *(h, weight, dy, None, EPS),
                is_rms=True,
                dweight_dtype=torch.float16,
                dbias_dtype=None,
            ),
        }
        for packs in (1, 2):
            threads = hidden // (8 * packs)
            for each in (1, 2, 3, 4):
                if threads > 512 or threads * each * (64 if packs == 1 else 128) > 65536:
                    continue
                tensors = map(address, (h, weight, dy, dh, dweight, shares))
                sizes = (ctypes.c_int64(rows), hidden, threads, packs, min(rows, 132 * each))
                arguments = [*tensors, *sizes, current_stream()]

                def call(arguments=arguments):
                    assert library.tuned_backward(*arguments) == 0

                call()
                for found, true in zip((dh, dweight), exact, strict=True):
                    error = ((found.double() - true).norm() / true.norm()).item()
                    if not error < 1e-3:
                        print(f"WRONG backward {rows} x {hidden} {threads} x {packs}: {error}")
                calls[f"{threads} x {packs}, {each} blocks"] = call
        del exact, wide, y
        print(f"\nbackward {rows} x {hidden}: form, cold us, warm us")
        cold, warm = (time_in_turns(timer, calls, way, rounds=5) for way in ("cold", "warm"))
        for name in calls:
            print(
                f"  {name:20} {statistics.median(cold[name]):8.2f} {statistics.median(warm[name]):8.2f}"
            )


def host_us(call: Callable[[], object], count: int = 2000) -> float:
    import torch

    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def host() -> None:
    import torch
    import torch.nn.functional as F
    from torch import nn

    from kernels import get_kernel

    kernel = get_kernel(REPO_ID)
    functions, compiled, autograd, launch, registered = (
        sys.modules[f"{kernel.__name__}.{name}"]
        for name in ("functions", "_compiled", "_autograd", "_launch", "_registered")
    )
    x = torch.randn(2, 1024, device="cuda", dtype=torch.float16)
    weight = torch.randn(1024, device="cuda", dtype=torch.float16)
    wanted, parameter = x.clone().requires_grad_(), nn.Parameter(weight)
    dy = torch.randn_like(x)
    layer = kernel.layers.LlamaRMSNorm()
    layer.weight, layer.variance_epsilon = parameter, EPS
    of_torch = nn.RMSNorm(1024, EPS, device="cuda", dtype=torch.float16)
    plan = launch.find_plan(x, None, weight, None, True, None)

    def train(call: Callable[[], torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(call(), (wanted, parameter), dy)

    recorded: Calls = {
        "compiled, Function": lambda: compiled.record_norm(wanted, parameter, None, EPS, True),
        "compiled, Function.apply": lambda: compiled._Norm.apply(
            wanted, parameter, None, EPS, True
        ),
        "triton, Function": lambda: autograd.norm(wanted, parameter, None, plan, EPS),
        "registered op": lambda: registered.norm(wanted, parameter, None, EPS, True),
        "torch.rms_norm": lambda: torch.rms_norm(wanted, (1024,), parameter, EPS),
        "F.layer_norm": lambda: F.layer_norm(wanted, (1024,), parameter, None, EPS),
        "LlamaRMSNorm": lambda: layer(wanted),
        "nn.RMSNorm": lambda: of_torch(wanted),
    }
    functions._FEW_RECORDED = 0
    plain: Calls = {
        "empty_like": lambda: torch.empty_like(x),
        "relu": lambda: torch.relu(x),
        "relu, recorded": lambda: torch.relu(wanted),
        "compiled op": lambda: compiled.norm(x, weight, None, EPS, True),
        "ops.cuda_norm": lambda: kernel.ops.cuda_norm(x, weight, None, EPS, True),
        "triton's plan": lambda: plan.norm(x, weight, None, EPS),
        "rms_norm_fn": lambda: kernel.rms_norm_fn(x, weight, eps=EPS),
        "torch.rms_norm": lambda: torch.rms_norm(x, (1024,), weight, EPS),
        "F.rms_norm": lambda: F.rms_norm(x, (1024,), weight, EPS),
        "compiled backward": lambda: compiled.norm_backward(
            x, weight, dy, None, EPS, True, True, False
        ),
        "fits": lambda: compiled.fits(x, None, weight, None, False),
        "_is_plain": lambda: functions._is_plain(x),
        "relu, trained": lambda: torch.autograd.grad(torch.relu(wanted), wanted, dy),
    }
    calls = plain | {f"{name}, recorded": call for name, call in recorded.items()}
    calls |= {f"{name}, trained": train(recorded[name]) for name in list(recorded)[:6]}
    print("\nhost microseconds a call")
    for name, call in calls.items():
        print(f"  {name:36} {host_us(call, 500 if 'trained' in name else 2000):7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["build", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", help="[default: all]")
    parser.add_argument("--nvcc", default="nvcc")
    options = parser.parse_args()
    if options.verb == "build":
        build(options.folder, options.nvcc)
        return
    os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={PROJECT}")
    library = ctypes.CDLL(str((options.folder / LIBRARY).resolve()))
    parts = {
        "host": host,
        "backward": lambda: sweep_backward(library),
        "forward": lambda: sweep_forward(library, "rms_norm", SHAPES),
        "few": lambda: sweep_forward(library, "rms_norm", FEW_SHAPES),
        "layer": lambda: sweep_forward(library, "layer_norm", LAYER_SHAPES),
    }
    for name in options.parts or ("host", "backward", "forward", "layer"):
        parts[name]()


if __name__ == "__main__":
    main()
