"""Load the CPU variants that were built elsewhere with whatever Python and torch run this.

    python tools/gpu_other_python.py

The hub is a folder. Prints the versions, what was loaded and its error against torch.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    hub, cache = tempfile.mkdtemp(), tempfile.mkdtemp()
    for name in ("activation", "img2gray"):
        build = f"kernels-community/{name}/build"
        shutil.copytree(ROOT / build, Path(hub) / build)
    os.environ.update(KERNELS_HUB=f"file://{hub}", KERNELS_CACHE=cache)
    import torch
    import torch.nn.functional as F

    from kernels import get_kernel

    print(f"Python {platform.python_version()}, torch {torch.__version__}, {platform.libc_ver()}")
    activation = get_kernel("kernels-community/activation", backend="cpu")
    x = torch.randn(1000, 1001)
    y = torch.empty_like(x)
    activation.gelu_fast(y, x)
    print(activation.__file__)
    print("gelu_fast: largest error", (y - F.gelu(x, approximate="tanh")).abs().max().item())
    img2gray = get_kernel("kernels-community/img2gray", backend="cpu")
    image = torch.randint(256, (123, 457, 3), dtype=torch.uint8)
    exact = img2gray.reference.img2gray(image)
    print("img2gray: all equal", torch.equal(img2gray.img2gray(image), exact))


if __name__ == "__main__":
    main()
