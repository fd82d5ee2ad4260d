"""What torch's libraries define: a list that takes seconds to read and is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kernel_builder.toolchain.torch import TorchInstall
from kernel_spec.whole_file import write_whole

_LIBRARIES = ("libc10.so", "libtorch.so", "libtorch_cpu.so")
_FOR_CUDA = ("libc10_cuda.so", "libtorch_cuda.so")


def read_exports(torch: TorchInstall, store: Path) -> frozenset[str]:
    """Read the names that the libraries of an installed torch define.

    Args:
        torch: the torch.
        store: the directory where the list is kept.

    Raises:
        BinaryFormatError: a library of torch is damaged.
    """
    from kernel_spec.binary import read_elf

    key = hashlib.sha256(torch.identity.encode()).hexdigest()[:32]
    kept = store / f"{key}.txt"
    if kept.is_file():
        return frozenset(kept.read_text().split("\n"))
    names: set[str] = set()
    present = [name for name in _FOR_CUDA if (torch.root / "lib" / name).is_file()]
    for library in (*_LIBRARIES, *present):
        facts = read_elf(torch.root / "lib" / library)
        names.update(symbol.name for symbol in facts.symbols if symbol.defined)
    store.mkdir(parents=True, exist_ok=True)
    write_whole(kept, "\n".join(sorted(names)).encode(), lasting=False)
    return frozenset(names)
