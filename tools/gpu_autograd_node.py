"""Time RMSNorm recorded by a node of autograd in C++ beside a node in Python and torch's own.

    LOCAL_KERNELS=kernels-community/triton-layer-norm=FOLDER python tools/gpu_autograd_node.py [ROWS ...]

It needs a GPU and a C++ compiler: torch's stable ABI has no nodes, so the one in C++ is compiled for the torch
that is there. What came of it: docs/kernels/triton-layer-norm.md, docs/decisions/0064.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
HIDDEN = 4096
EPS = 1e-5
ROWS = (64, 256, 1024, 2048, 4096)
NODE = r"""
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/extension.h>

using at::Tensor;
using Maybe = std::optional<Tensor>;

template <class Signature>
auto find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

struct Norm : torch::autograd::Function<Norm> {
  static Tensor forward(
      torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    static const auto op =
        find<Tensor(const Tensor&, const Maybe&, const Maybe&, double, bool)>("THE_OP");
    context->save_for_backward({x, weight});
    context->saved_data["eps"] = eps;
    at::AutoDispatchBelowADInplaceOrView guard;
    return op.call(x, weight, std::nullopt, eps, true);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list dy) {
    static const auto op = find<std::tuple<Tensor, Maybe, Maybe>(
        const Tensor&, const Maybe&, const Tensor&, const Maybe&, double, bool, bool, bool)>(
        "THE_OP_backward");
    const auto saved = context->get_saved_variables();
    const double eps = context->saved_data["eps"].toDouble();
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [dx, dweight, dbias] = op.call(
        saved[0], saved[1], dy[0], std::nullopt, eps, true, context->needs_input_grad(1), false);
    return {dx, dweight.value_or(Tensor()), Tensor()};
  }
};

Tensor norm(const Tensor& x, const Tensor& weight, double eps) { return Norm::apply(x, weight, eps); }
"""
Norm = Callable[..., object]


def compile_node(op: str) -> Norm:
    from torch.utils.cpp_extension import load_inline

    built = load_inline(
        "node", NODE.replace("THE_OP", op), functions=["norm"], extra_cflags=["-O2"]
    )
    return built.norm  # type: ignore[no-any-return]


def find_ways(weight) -> dict[str, Norm]:
    """Every way to record the norm of x, by the compiled kernels and by torch's own."""
    import torch.nn.functional as F

    from kernels import get_kernel

    kernel = get_kernel("kernels-community/triton-layer-norm")
    compiled, ops = (sys.modules[f"{kernel.__name__}.{name}"] for name in ("_compiled", "_ops"))
    node = compile_node(ops.add_op_namespace_prefix("cuda_norm"))
    return {
        "torch": lambda x: F.rms_norm(x, (HIDDEN,), weight, EPS),
        "ours, by size": lambda x: kernel.rms_norm_fn(x, weight, eps=EPS),
        "ours, a node in Python": lambda x: compiled.record_norm(x, weight, None, EPS, True),
        "ours, a node in C++": lambda x: node(x, weight, EPS),
    }


def make_models(ways: dict[str, Norm]) -> dict[str, Norm]:
    """Return the tutorial's model, 4096-4096-10, around each norm."""
    from torch import nn

    first, last = (nn.Linear(HIDDEN, out).cuda().half() for out in (HIDDEN, 10))
    activation = nn.GELU()
    return {
        name: lambda x, norm=norm: last(activation(norm(first(x)))) for name, norm in ways.items()
    }


def time_loops(calls: dict[str, Callable[[], object]], count: int, rounds: int = 15) -> None:
    """Print the median time of a call in a loop, and torch's over it, of rounds in which all take turns."""
    import random
    import statistics

    import torch

    def loop(call: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count * 1e6

    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        loop(call)
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            times[name].append(loop(calls[name]))
    for name, found in times.items():
        ratios = [own / each for own, each in zip(times["torch"], found, strict=True)]
        print(
            f"  {name:24} {statistics.median(found):7.1f} us  {statistics.median(ratios):.3f}",
            flush=True,
        )


def check(ways: dict[str, Norm], x, weight, dy) -> None:
    """Refuse to time a node that does not give the very gradients of the one in Python."""
    import torch

    found, expected = (
        torch.autograd.grad(ways[f"ours, a node in {language}"](x), (x, weight), dy)
        for language in ("C++", "Python")
    )
    if not all(map(torch.equal, found, expected)):
        sys.exit("the node in C++ gives other gradients than the one in Python")


def measure(rows: int, ways: dict[str, Norm], models: dict[str, Norm], weight) -> None:
    import torch

    plain = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.float16)
    x, dy = plain.clone().requires_grad_(), torch.randn_like(plain)
    check(ways, x, weight, dy)

    def bind(call: Norm, to) -> Callable[[], object]:
        return lambda: call(to)

    def train(norm: Norm) -> Callable[[], object]:
        return lambda: torch.autograd.grad(norm(x), (x, weight), dy)

    print(f"{rows} x {HIDDEN}: forward, recorded")
    time_loops({name: bind(norm, x) for name, norm in ways.items()}, 300)
    print(f"{rows} x {HIDDEN}: with its backward")
    time_loops({name: train(norm) for name, norm in ways.items()}, 150)
    print(f"{rows} x {HIDDEN}: the model")
    time_loops({name: bind(call, plain) for name, call in models.items()}, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, default=ROWS, metavar="ROWS")
    counts = parser.parse_args().rows
    import torch

    weight = torch.randn(HIDDEN, device="cuda", dtype=torch.float16, requires_grad=True)
    ways = find_ways(weight)
    models = make_models(ways)
    for rows in counts:
        measure(rows, ways, models, weight)


if __name__ == "__main__":
    main()
