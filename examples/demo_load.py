"""The second half of the demo: a process that only knows a hub and loads kernels from it.

Called by ``demo.py`` with the directory for results; ``KERNELS_HUB`` and ``KERNELS_CACHE`` say the rest.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

started = time.perf_counter()
import torch  # noqa: E402

torch_seconds = time.perf_counter() - started

from kernels import get_kernel  # noqa: E402
from kernels.load import LoadTrace, load_with_trace  # noqa: E402

ROUNDS = 9
ELEMENTS = 1 << 22


def main(output: Path) -> None:
    """Load, check, convert a photograph, measure."""
    traces = [load("kernels-community/activation"), load("kernels-community/img2gray")]
    check_activation()
    picture = convert_photograph(output / "grey.png")
    rows = measure()
    (output / "load.json").write_text(
        json.dumps(
            {"traces": [as_json(trace) for trace in traces], "rows": rows, **picture}, indent=2
        )
        + "\n"
    )


def load(repo_id: str) -> LoadTrace:
    """Load one kernel and show where each millisecond went."""
    trace = load_with_trace(repo_id)
    if repo_id.endswith("activation"):
        print(f"  import torch (not ours)  {torch_seconds * 1e3:8.1f} ms")
    total = sum(phase.seconds for phase in trace.phases)
    where = "downloaded" if trace.downloaded else "from the cache"
    print(f"  {repo_id}  {total * 1e3:.1f} ms, {where}, {trace.path.name}")
    print("    " + "  ".join(f"{phase.name} {phase.seconds * 1e3:.1f}" for phase in trace.phases))
    return trace


def check_activation() -> None:
    """Run the one-liner and compare it with torch."""
    activation = get_kernel("kernels-community/activation")
    x = torch.randn((10, 10), dtype=torch.float16)
    y = torch.empty_like(x)
    activation.gelu_fast(y, x)
    expected = torch.nn.functional.gelu(x.double(), approximate="tanh")
    error = (y.double() - expected).abs().max().item()
    torch.testing.assert_close(y.double(), expected, rtol=2e-3, atol=2e-3)
    print(f"  gelu_fast against torch in float64: largest difference {error:.1e} (float16)")


def convert_photograph(target: Path) -> dict[str, object]:
    """Convert a photograph that ships with matplotlib to grey and save it."""
    import numpy as np
    from matplotlib import cbook
    from PIL import Image

    img2gray = get_kernel("kernels-community/img2gray")
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        colours = torch.from_numpy(np.array(Image.open(file).convert("RGB")))
    grey = img2gray.img2gray(colours)
    weights = torch.tensor([0.21, 0.72, 0.07], dtype=torch.float64)
    expected = (colours.double() @ weights).floor()
    worst = int((grey.double() - expected).abs().max().item())
    if worst > 1:
        sys.exit(f"demo: img2gray differs from torch by {worst} grey levels; at most 1 is rounding")
    side_by_side = torch.cat([colours, grey[..., None].expand(-1, -1, 3)], dim=1)
    Image.fromarray(grey.numpy()).save(target)
    Image.fromarray(side_by_side.numpy()).save(target.with_name("demo.jpg"), quality=85)
    height, width = grey.shape
    print(
        f"  photograph of {width} x {height} pixels to grey: {target.name}, side by side: demo.jpg"
    )
    return {"picture": {"width": width, "height": height, "largest_difference": worst}}


def measure() -> list[dict[str, object]]:
    """Time kernels against eager torch on one thread, rounds interleaved, medians.

    Both write into memory that is there: fresh memory costs eager torch more than its arithmetic.
    """
    activation = get_kernel("kernels-community/activation")
    img2gray = get_kernel("kernels-community/img2gray")
    torch.set_num_threads(1)
    x = torch.randn(ELEMENTS)
    gate = torch.randn(1024, 2 * 4096)
    half = gate.shape[-1] // 2
    out, gated = torch.empty_like(x), torch.empty(1024, half)
    image = torch.randint(0, 256, (1080, 1920, 3), dtype=torch.uint8)
    weights = torch.tensor([0.21, 0.72, 0.07])
    grey = torch.empty((1080, 1920), dtype=torch.uint8)
    cases: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        (
            f"gelu_fast fp32, {x.numel():,} elements",
            lambda: activation.gelu_fast(out, x),
            lambda: torch._C._nn.gelu(x, approximate="tanh", out=out),
        ),
        (
            f"silu_and_mul fp32, {gated.numel():,} elements",
            lambda: activation.silu_and_mul(gated, gate),
            lambda: torch.mul(torch.nn.functional.silu(gate[:, :half]), gate[:, half:], out=gated),
        ),
        (
            "img2gray uint8, 1920 x 1080",
            lambda: img2gray.img2gray(image),
            lambda: grey.copy_(image.float() @ weights),
        ),
    ]
    print(
        f"\n  {'one thread, median of ' + str(ROUNDS):<44}{'kernel':>10}{'torch':>10}{'speed-up':>10}"
    )
    rows: list[dict[str, object]] = []
    for name, kernel, eager in cases:
        kernel(), eager()
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for side, call in zip(times, (kernel, eager), strict=True):
                begin = time.perf_counter()
                call()
                side.append(time.perf_counter() - begin)
        ours, theirs = (statistics.median(side) * 1e3 for side in times)
        print(f"  {name:<44}{ours:7.2f} ms{theirs:7.2f} ms{theirs / ours:9.2f}x")
        rows.append({"name": name, "kernel_ms": ours, "torch_ms": theirs})
    return rows


def as_json(trace: LoadTrace) -> dict[str, object]:
    """Turn a trace into plain values."""
    return {
        "kernel": trace.kernel.metadata.name,
        "downloaded": trace.downloaded,
        "phases_ms": {phase.name: phase.seconds * 1e3 for phase in trace.phases},
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
