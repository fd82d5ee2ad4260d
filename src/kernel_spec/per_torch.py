"""The names of per-torch libraries: optional parts of a stable-ABI variant, each for one release of torch."""

from __future__ import annotations

import re

from kernel_spec.version import MajorMinor

_NAME = re.compile(r"(?P<id>.+)\.torch(?P<major>[1-9])(?P<minor>0|[1-9]\d*)\.so", re.ASCII)


def format_per_torch(op_id: str, release: MajorMinor) -> str:
    """Return the name of the library of a kernel that is for one release of torch.

    >>> format_per_torch("_norm_cuda_0123456789ab", MajorMinor(2, 11))
    '_norm_cuda_0123456789ab.torch211.so'
    """
    return f"{op_id}.torch{release.major}{release.minor}.so"


def parse_per_torch(name: str) -> MajorMinor | None:
    """Return the release of torch that a library is for, by its name; None: it is no per-torch library.

    Args:
        name: the name of a file, without its directory.
    """
    match = _NAME.fullmatch(name)
    return None if match is None else MajorMinor(int(match["major"]), int(match["minor"]))
