"""The installed torch, found and read without importing it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_spec.system import TorchBuild, parse_torch_build

_VERSION = re.compile(r"""^__version__\s*=\s*['"]([^'"]+)['"]""", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchInstall:
    """An installed torch.

    Attributes:
        root: the directory of the package.
        build: its version.
    """

    root: Path
    build: TorchBuild

    @property
    def include_dirs(self) -> tuple[Path, Path]:
        """The directories of its headers."""
        include = self.root / "include"
        return include, include / "torch" / "csrc" / "api" / "include"

    @property
    def identity(self) -> str:
        """A text that changes with the installation."""
        status = (self.root / "version.py").stat()
        return f"{self.build.version}:{self.root}:{status.st_size}:{status.st_mtime_ns}"


def find_torch() -> TorchInstall | None:
    """Find the torch that this Python would import, or None."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    return read_torch(Path(found.origin).parent)


def read_torch(root: Path) -> TorchInstall:
    """Read the version of the torch in a directory.

    Raises:
        ToolchainError: it does not say its version.
    """
    source = root / "version.py"
    match = _VERSION.search(source.read_text()) if source.is_file() else None
    if match is None:
        raise ToolchainError(
            f"{source}: expected a line `__version__ = '2.13.0'`, found none; "
            "torch is not installed properly: install it again"
        )
    return TorchInstall(root=root, build=parse_torch_build(match[1]))


def get_torch() -> TorchInstall:
    """Find the installed torch and its headers.

    Raises:
        ToolchainError: torch is not installed, or without its headers.
    """
    torch = find_torch()
    if torch is None:
        raise ToolchainError(
            "torch is not installed in this Python, and its headers are needed to compile; "
            "install it: pip install torch"
        )
    header = torch.include_dirs[0] / "torch" / "headeronly" / "version.h"
    if not header.is_file():
        raise ToolchainError(
            f"torch {torch.build.version} in {torch.root} has no {header.relative_to(torch.root)}; "
            "a torch with its C++ headers, 2.9 or newer, is needed: pip install --upgrade torch"
        )
    return torch
