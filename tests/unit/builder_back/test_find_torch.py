from pathlib import Path

import pytest

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.torch import read_torch
from kernel_spec.version import MajorMinor


def write(root: Path, text: str) -> Path:
    (root / "version.py").write_text(text)
    return root


def test_a_release(tmp_path: Path) -> None:
    torch = read_torch(write(tmp_path, "from typing import X\n__version__ = '2.13.0+cpu'\n"))
    assert torch.build.version == "2.13.0+cpu"
    assert torch.build.release == MajorMinor(2, 13)
    assert not torch.build.prerelease
    assert torch.include_dirs[0] == tmp_path / "include"


@pytest.mark.parametrize("version", ["2.14.0.dev20261101+cpu", "2.14.0a0+git1234", "2.14.0rc1"])
def test_a_prerelease(tmp_path: Path, version: str) -> None:
    torch = read_torch(write(tmp_path, f'__version__ = "{version}"\n'))
    assert torch.build.prerelease
    assert torch.build.release == MajorMinor(2, 14)


def test_an_installation_without_a_version(tmp_path: Path) -> None:
    for text in ("", "version = 2"):
        with pytest.raises(ToolchainError, match=r"version\.py: expected a line"):
            read_torch(write(tmp_path, text))


def test_the_identity_follows_the_installation(tmp_path: Path) -> None:
    before = read_torch(write(tmp_path, "__version__ = '2.13.0'\n")).identity
    after = read_torch(write(tmp_path, "__version__ = '2.13.1'\n")).identity
    assert before != after
