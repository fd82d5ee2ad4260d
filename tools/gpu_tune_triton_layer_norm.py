"""Sweep the forms of triton-layer-norm's forward kernel, and what a call costs on the host.

    python tools/gpu_tune_triton_layer_norm.py [sweep] [host]

Prints one table for each; `docs/kernels/triton-layer-norm.md` says what was concluded.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from gpu_bench_triton_layer_norm import EPS, HIDDEN, PROJECT, REPO_ID, RMSNorm, rms_peers
from gpu_timing import WAYS, copy_bandwidth, medians, time_in_turns
from torch import nn

from kernels import get_kernel

# Changes to the source of the forward kernel that are tried beside it.
LOAD_X = "load_tile(x_ptr + row * x_row_stride + columns, mask, MASKED)"
HINTED = "tl.load(x_ptr + row * x_row_stride + columns, mask=mask, other=0.0, {})"
EVICT_FIRST = {LOAD_X: HINTED.format('eviction_policy="evict_first"')}
STREAMING = {
    "tl.store(tile_ptr, values)": 'tl.store(tile_ptr, values, cache_modifier=".cs")',
    "tl.store(tile_ptr, values, mask=mask)": "tl.store(tile_ptr, values, mask=mask,"
    ' cache_modifier=".cs")',
}
TRIALS = {"": {}, "ef": EVICT_FIRST, "cs": STREAMING, "ef+cs": EVICT_FIRST | STREAMING}


def load_device_kernels(trial: str = ""):
    source = (PROJECT / "torch-ext/triton_layer_norm" / "_kernels.py").read_text()
    for old, new in TRIALS[trial].items():
        assert old in source, old
        source = source.replace(old, new)
    # Triton reads the source of its kernels from a file
    path = Path(tempfile.mkdtemp()) / "_kernels.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"_norm_kernels_{trial}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def prepare(kernels, x, weight, *, rows_each: int, warps: int, pdl=False, maxnreg=None) -> Callable:
    """Compile one form and return what launches it, past all of Triton's own work per call."""
    rows, hidden = x.shape
    grid = -(-rows // rows_each)
    block = 1 << (hidden - 1).bit_length()
    flags = (hidden, block, rows_each, True, False, True, False, pdl)
    option = {"launch_pdl": True} if pdl else {}
    compiled = kernels.norm_forward_kernel[(grid,)](
        *(x, None, weight, None, torch.empty_like(x), None),
        *(rows, hidden, hidden, EPS, *flags),
        num_warps=warps,
        maxnreg=maxnreg,
        **option,
    )
    stream = torch.cuda.current_stream().cuda_stream
    head = (grid, 1, 1, stream, compiled.function, False, pdl, None, None)
    head += (compiled.packed_metadata, None, None, None, x.data_ptr(), None, weight.data_ptr())
    launch = compiled.run.launch

    def call() -> torch.Tensor:
        y = torch.empty_like(x)
        launch(*head, None, y.data_ptr(), None, rows, hidden, hidden, EPS, *flags)
        return y

    return call


def forms(x, weight, *, few: bool) -> dict[str, Callable]:
    found = {}
    for trial in ("", "ef"):
        kernels = load_device_kernels(trial)
        each, warps = ((1,), (1, 2, 4, 8, 16)) if few else ((1, 2, 4, 8), (4, 8, 16, 32))
        for rows_each, count in itertools.product(each, warps):
            per_thread = rows_each * x.shape[1] // (count * 32)
            if 8 <= per_thread <= 128 and (few or per_thread <= 64):
                options = {"rows_each": rows_each, "warps": count}
                found[f"r{rows_each} w{count} {trial}"] = prepare(kernels, x, weight, **options)
        if not few and not trial:
            for each_, count, registers in ((1, 8, 32), (2, 8, 48), (4, 8, 64), (4, 16, 40)):
                name = f"r{each_} w{count} max {registers}"
                options = {"rows_each": each_, "warps": count, "maxnreg": registers}
                found[name] = prepare(kernels, x, weight, **options)
            found["r4 w8 pdl"] = prepare(kernels, x, weight, rows_each=4, warps=8, pdl=True)
    return found


def sweep() -> None:
    torch._dynamo.config.recompile_limit = 64
    print(f"copy {copy_bandwidth():.0f} GB/s")
    shapes = [(r, HIDDEN) for r in (256, 512, 1024, 32768)]
    for rows, hidden in shapes:
        x = torch.randn(rows, hidden, device="cuda", dtype=torch.float16)
        module = RMSNorm(hidden).cuda().half().requires_grad_(False)
        expected = F.rms_norm(x.double(), (hidden,), module.weight.double(), EPS)
        calls = {"clone": lambda x=x: x.clone(), **rms_peers(x, module)}
        del calls["eager"]
        calls |= forms(x, module.weight, few=rows < 2048)
        for name, call in calls.items():
            error = (call().double() - expected).norm() / expected.norm()
            assert error < 1e-3 or name == "clone", (name, error)
        del expected
        torch.cuda.empty_cache()
        moved = 2 * x.numel() * x.element_size()
        print(f"\n{rows} x {hidden}: form, cold us (GB/s), warm us, loop us")
        cold, warm, loop = (
            medians(time_in_turns(calls, way, rounds=5, repeats=10)) for way in WAYS
        )
        for name in sorted(calls, key=lambda n: cold[n])[:14]:
            print(
                f"  {name:12} {cold[name]:7.2f} ({moved / cold[name] / 1e3:5.0f})"
                f" {warm[name]:7.2f} {loop[name]:7.2f}"
            )


def host_us(call: Callable, count: int = 3000) -> float:
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def host() -> None:
    kernels = load_device_kernels()
    x = torch.randn(2, 1024, device="cuda", dtype=torch.float16)
    weight = torch.randn(1024, device="cuda", dtype=torch.float16)
    wanted = x.clone().requires_grad_()

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, eps):
            ctx.save_for_backward(x, weight)
            ctx.eps = eps
            return torch.empty_like(x)

        @staticmethod
        def backward(ctx, dy):
            return dy, None, None

    shortcut = super(Nothing, Nothing).apply
    bare = super(torch.autograd.Function, Nothing).apply
    flags = (1024, 1024, 1, True, False, True, False, False)
    options = {"rows_each": 1, "warps": 4}
    norms = get_kernel(REPO_ID)
    guards = torch._C._dynamo.guards
    layer = norms.layers.LlamaRMSNorm()
    layer.weight, layer.variance_epsilon = nn.Parameter(weight), EPS
    of_torch = nn.RMSNorm(1024, EPS, device="cuda", dtype=torch.float16)
    normal = kernels.norm_forward_kernel[(2,)]
    calls = {
        "empty_like": lambda: torch.empty_like(x),
        "_empty_strided_cuda": lambda: guards._empty_strided_cuda(
            tuple(x.shape), x.stride(), x.dtype
        ),
        "empty and launch": prepare(kernels, x, weight, **options, pdl=False),
        "empty and launch, PDL": prepare(kernels, x, weight, **options, pdl=True),
        "rms_norm_fn": lambda: norms.rms_norm_fn(x, weight, eps=EPS),
        "rms_norm_fn, grad": lambda: norms.rms_norm_fn(wanted, weight, eps=EPS),
        "LlamaRMSNorm, grad": lambda: layer(wanted),
        "nn.RMSNorm, grad": lambda: of_torch(wanted),
        "triton's own launch": lambda: normal(
            x, None, weight, None, x.clone(), None, 2, 1024, 1024, EPS, *flags, num_warps=4
        ),
        "F.rms_norm": lambda: F.rms_norm(x, (1024,), weight, EPS),
        "F.rms_norm, grad": lambda: F.rms_norm(wanted, (1024,), weight, EPS),
        "Function.apply": lambda: Nothing.apply(wanted, weight, EPS),
        "Function.apply, super": lambda: shortcut(wanted, weight, EPS),
        "Function.apply, bare": lambda: bare(wanted, weight, EPS),
        "is_compiling": torch.compiler.is_compiling,
        "is_grad_enabled": torch.is_grad_enabled,
        "dispatch stack": torch._C._len_torch_dispatch_stack,
        "functorch": torch._C._functorch.peek_interpreter_stack,
        "getDevice": torch._C._cuda_getDevice,
        "raw stream": lambda: torch._C._cuda_getCurrentRawStream(0),
        "x.shape": lambda: x.shape,
        "x.numel": lambda: x.numel(),
        "x.data_ptr": lambda: x.data_ptr(),
        "x.get_device": lambda: x.get_device(),
        "x.is_contiguous": lambda: x.is_contiguous(),
        "x.dtype": lambda: x.dtype,
        "x.requires_grad": lambda: x.requires_grad,
    }
    print("\nhost microseconds a call")
    for name, call in calls.items():
        print(f"  {name:24} {host_us(call):6.2f}")


def main() -> None:
    chosen = sys.argv[1:] or ["sweep", "host"]
    for name in chosen:
        {"sweep": sweep, "host": host}[name]()


if __name__ == "__main__":
    main()
