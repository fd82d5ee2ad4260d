"""Time recorded norms: by the node of autograd in C++, by the Function in Python, and by torch's own op.

    LOCAL_KERNELS=kernels-community/triton-layer-norm=FOLDER python tools/gpu_autograd_node.py [ROWS ...]
                  [--hidden N ...] [--dtype NAME] [--model] [--seconds S]

It needs a GPU, and a variant with a library for the torch that is there. A loop waits for the host or the device,
whichever is slower; the device alone is what a captured graph takes. What came of it: docs/kernels/triton-layer-norm.md.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
EPS = 1e-5
ROWS = (1, 16, 64, 256, 512, 1024, 2048, 4096)
OPS = ("rms_norm", "layer_norm")
Call = Callable[[], object]


def find_ways(op: str, weight, bias) -> dict[str, Callable[..., object]]:
    """Return every way to record the norm of x."""
    import torch.nn.functional as F

    from kernels import get_kernel

    kernel = get_kernel("kernels-community/triton-layer-norm")
    compiled = sys.modules[f"{kernel.__name__}._compiled"]
    if not compiled.has_node:
        sys.exit("the variant has no library for the torch that is here")
    function, is_rms = getattr(kernel, f"{op}_fn"), op == "rms_norm"
    of_torch = getattr(F, op)
    rest = (weight,) if is_rms else (weight, bias)
    return {
        "torch": lambda x: of_torch(x, x.shape[-1:], *rest, eps=EPS),
        "ours": lambda x: function(x, *rest, eps=EPS),
        "node": lambda x: compiled.record_norm(x, weight, bias, EPS, is_rms),
        "Python": lambda x: compiled.in_python[0](x, weight, bias, EPS, is_rms),
    }


def time_loops(calls: dict[str, Call], rounds: int = 9) -> dict[str, float]:
    """Return the median µs of a call in a loop, of rounds in which all take turns."""
    import torch

    def loop(call: Call, count: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count * 1e6

    counts = {name: max(20, int(6000 / loop(call, 10))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            times[name].append(loop(calls[name], counts[name]))
    return {name: statistics.median(found) for name, found in times.items()}


def time_on_device(calls: dict[str, Call], rounds: int = 9, count: int = 20) -> dict[str, float]:
    """Return the median µs of a call in a captured graph of many, warm."""
    import torch

    graphs = {}
    for name, call in calls.items():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(count):
                call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            begin.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / count)
    return {name: statistics.median(found) for name, found in times.items()}


def find_calls(op: str, rows: int, hidden: int, dtype) -> Iterator[tuple[str, dict[str, Call]]]:
    import torch

    def draw(*shape: int):
        return torch.randn(shape, device="cuda").to(dtype).requires_grad_()

    x, weight, bias = draw(rows, hidden), draw(hidden), draw(hidden)
    bias = None if op == "rms_norm" else bias
    leaves = [t for t in (x, weight, bias) if t is not None]
    dy = torch.randn_like(x)
    ways = find_ways(op, weight, bias)
    grad = torch.autograd.grad
    yield "forward", {name: lambda f=f: f(x) for name, f in ways.items()}
    yield "training", {name: lambda f=f: grad(f(x), leaves, dy) for name, f in ways.items()}


def find_models(op: str, rows: int, hidden: int, dtype) -> Iterator[tuple[str, dict[str, Call]]]:
    """Yield the tutorial's model around each norm, and its training."""
    import torch
    from torch import nn

    first, last = (nn.Linear(hidden, out).cuda().to(dtype) for out in (hidden, 10))
    weight, bias = (torch.randn(hidden, device="cuda").to(dtype).requires_grad_() for _ in range(2))
    ways = find_ways(op, weight, None if op == "rms_norm" else bias)
    x, activation = torch.randn(rows, hidden, device="cuda").to(dtype), nn.GELU()
    models = {name: lambda f=f: last(activation(f(first(x)))) for name, f in ways.items()}
    leaves = [weight, *first.parameters(), *last.parameters()]
    yield "model", models
    yield (
        "its training",
        {name: lambda m=m: torch.autograd.grad(m().sum(), leaves) for name, m in models.items()},
    )


def measure(options: argparse.Namespace) -> None:
    import torch

    torch.manual_seed(0)
    begin = time.perf_counter()
    find = find_models if options.model else find_calls
    columns = ("loop: torch", "ours", "node", "Python", "device: torch", "node")
    print(
        f"{'':40}" + "".join(f"{name:>15}" for name in columns), "(others: torch's time / theirs)"
    )
    for op in OPS:
        for hidden in options.hidden:
            for rows in options.rows:
                for what, calls in find(op, rows, hidden, getattr(torch, options.dtype)):
                    if time.perf_counter() - begin > options.seconds:
                        return
                    loop = time_loops(calls)
                    device = time_on_device({name: calls[name] for name in ("torch", "node")})
                    cells = [f"{loop['torch']:.1f}"]
                    cells += [f"{loop['torch'] / loop[n]:.3f}" for n in ("ours", "node", "Python")]
                    cells += [f"{device['torch']:.2f}", f"{device['torch'] / device['node']:.3f}"]
                    line = "".join(f"{cell:>15}" for cell in cells)
                    print(f"{op:10} {rows:6} x {hidden:<6} {what:13}{line}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, default=ROWS, metavar="ROWS")
    parser.add_argument("--hidden", nargs="*", type=int, default=[4096], metavar="N")
    parser.add_argument("--dtype", default="float16", metavar="NAME")
    parser.add_argument("--model", action="store_true", help="in the tutorial's model")
    parser.add_argument("--seconds", type=float, default=300, metavar="S", help="at most")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
