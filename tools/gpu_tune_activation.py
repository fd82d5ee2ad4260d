"""Compare variants of the activations' streaming kernel: threads, loads in flight, elements a
load, cache hints.

    python tools/gpu_tune_activation.py build LIBRARY [--nvcc NVCC]     needs no GPU
    python tools/gpu_tune_activation.py run LIBRARY [--small] [--json FILE]

Each variant is checked against torch, then all take turns with a copy of the same size.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
SOURCE = Path(__file__).with_suffix(".cu")
HINTS = ("kNone", "kEvictFirst", "kNoL1", "kNoL1EvictFirst")
WHOLE = 8  # elements in a pack of 16 bytes


def variants(kind: str, gated: str) -> list[tuple[str, str, int, int, int, str]]:
    """What differs between two of a list is one thing at a time, from the form in use on."""
    shapes = itertools.product((64, 128, 256, 512), (1, 2, 4), (1, 2, 4, WHOLE))
    found = [(kind, gated, threads, depth, pack, "kNone") for threads, depth, pack in shapes]
    return found + [
        (kind, gated, 128, depth, WHOLE, hint) for depth in (1, 2) for hint in HINTS[1:]
    ]


EXACT = [("kGelu", "false", 128, depth, WHOLE, "kNone") for depth in (1, 2, 4)]
VARIANTS = variants("kGeluTanh", "false") + EXACT + variants("kSilu", "true")
SMALL = {
    "false": [(4, 4), (1, 4096), (64, 4096), (256, 4096), (1024, 4096)],
    "true": [(1, 22016), (16, 8192), (64, 8192), (256, 8192)],
}
LARGE = {
    "false": [(16384, 8192), (4096, 4096)],
    "true": [(16384, 16384), (4096, 22016)],
}
ALL = {gated: LARGE[gated] + SMALL[gated] for gated in SMALL}


def build(library: Path, nvcc: str) -> None:
    table = library.resolve().with_name("activation_variants.inc")
    lines = (f"VARIANT({n}, {', '.join(map(str, v))})\n" for n, v in enumerate(VARIANTS))
    table.write_text("".join(lines))
    command = [
        *(nvcc, "-std=c++20", "-O3", "-arch=sm_90", "-shared", "-Xcompiler=-fPIC"),
        *("--expt-relaxed-constexpr", f"-I{table.parent}"),
        f"-I{ROOT / 'kernels-community/activation/csrc'}",
        *("-o", str(library), str(SOURCE)),
    ]
    subprocess.run(command, check=True)


def run(library: Path, sizes: dict[str, list[tuple[int, int]]], output: Path | None) -> None:
    import torch
    import torch.nn.functional as F

    from kernels.bench.timing import make_timer, time_in_turns

    exact = {
        "kGeluTanh": lambda x: F.gelu(x, approximate="tanh"),
        "kGelu": F.gelu,
        "kSilu": lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    }
    code = ctypes.CDLL(str(library.resolve()))
    timer = make_timer(torch.device("cuda"))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    found: dict[str, dict[str, float]] = {}
    for gated, shapes in sizes.items():
        for rows, cols in shapes:
            x = torch.randn(rows, cols, device="cuda").half()
            out = x.new_empty(rows, cols // 2 if gated == "true" else cols)
            target, source = torch.empty_like(out), torch.randn_like(out)

            def call(number: int, x=x, out=out) -> None:
                count, row = out.numel(), out.shape[1]
                places = (ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(x.data_ptr()))
                if status := code.run_variant(number, *places, count, row, stream):
                    raise RuntimeError(f"variant {number}: {status}")

            calls = {"copy": lambda target=target, source=source: target.copy_(source)}
            for number, variant in enumerate(VARIANTS):
                if variant[1] != gated or out.shape[1] % variant[4]:
                    continue
                out.fill_(float("nan"))
                call(number)
                torch.testing.assert_close(out, exact[variant[0]](x), rtol=2e-3, atol=2e-3)
                calls[" ".join(map(str, variant))] = lambda number=number: call(number)
            for way in ("cold", "warm"):
                times = time_in_turns(timer, calls, way, rounds=5)
                middle = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
                found[f"{rows}x{cols} {way}"] = middle
                print(f"{rows} x {cols} {way}: copy {middle['copy']:.2f}")
                for name in sorted(middle, key=middle.__getitem__)[:8]:
                    print(f"  {name:45} {middle[name]:8.2f}")
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("build", "run"))
    parser.add_argument("library", type=Path)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument(
        "--small", action="store_true", help="only the sizes that the launch decides"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.verb == "build":
        build(options.library, options.nvcc)
    else:
        run(options.library, SMALL if options.small else ALL, options.json)


if __name__ == "__main__":
    main()
