"""One word for a release of torch: what the builder, the loader and the kernels themselves take for one."""

import re
from pathlib import Path

import pytest

from kernel_builder.package import format_ops
from kernel_builder.toolchain.torch import read_torch
from kernel_spec.system import parse_torch_build
from kernel_spec.version import MajorMinor, is_release, parse_major_minor

RELEASES = ["2.11.0", "2.11.0+cu130", "2.11.1", "2.11.0.post1", "2.11.0.post1+cpu", "2.11.0+rc1.a"]
BEFORE = [
    "2.11.0a0+git1234abc",
    "2.11.0rc1",
    "2.11.0b2",
    "2.11.0.dev20260101+cpu",
    "2.11.0.post1.dev3",
    "2.11.0a0.post1",
]
GARBAGE = ["2.11.0 ", "2.11.0-1", "2.11.", "2.11.0.post", "2.11.0\n", "2.11.0cu130"]
NO_VERSION = ["", "2", "unknown", "v2.11.0", "\u0662.11.0"]


@pytest.mark.parametrize("text", RELEASES)
def test_a_release(text: str) -> None:
    assert is_release(text)
    torch = parse_torch_build(text, cxx11_abi=False)
    assert (torch.release, torch.prerelease) == (MajorMinor(2, 11), False)
    assert (torch.version, torch.cxx11_abi) == (text, False)


@pytest.mark.parametrize("text", [*BEFORE, *GARBAGE])
def test_what_is_no_release_has_the_interface_of_none(text: str) -> None:
    assert not is_release(text)
    torch = parse_torch_build(text)
    assert (torch.release, torch.prerelease) == (MajorMinor(2, 11), True)


@pytest.mark.parametrize("text", NO_VERSION)
def test_what_is_no_version_is_refused(text: str) -> None:
    assert not is_release(text)
    with pytest.raises(ValueError, match=r"expected a version such as 2\.13"):
        parse_major_minor(text)
    with pytest.raises(ValueError, match=r"expected a version such as 2\.13"):
        parse_torch_build(text)


@pytest.mark.parametrize("text", [*RELEASES, *BEFORE])
def test_the_builder_reads_the_same_in_an_installed_torch(text: str, tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text(f"__version__ = '{text}'\n")
    assert read_torch(tmp_path).build == parse_torch_build(text)


@pytest.mark.parametrize("text", [*RELEASES, *BEFORE, *GARBAGE, *NO_VERSION])
def test_kernels_take_the_same_for_a_release_without_us(text: str) -> None:
    """Their own file runs where this package is not installed."""
    source = format_ops("_k", compiled=True, per_torch=True)
    written = re.search(r'pattern = r"(.*)"  # a release', source)
    assert written is not None
    found = re.fullmatch(written[1], text, re.ASCII)
    assert (found is not None) == is_release(text)
    if found is not None:
        assert MajorMinor(int(found[1]), int(found[2])) == parse_major_minor(text)
