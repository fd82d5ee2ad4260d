"""Files of a variant that give rights away, that anybody may change, or that are one file twice."""

import os
from pathlib import Path

import pytest

from kernel_builder.check.finding import Finding
from kernel_builder.check.layout import check_layout
from kernel_builder.check.subject import Subject
from kernel_spec.backend import BackendKind
from kernel_spec.digest import digest_tree
from kernel_spec.metadata import Metadata
from kernel_spec.variant import parse_variant


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "torch-cpu"
    place.mkdir()
    (place / "__init__.py").write_text("")
    (place / "_ops.py").write_text("ops = None\n")
    for path in (place, *place.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return place


def findings(directory: Path) -> list[Finding]:
    metadata = Metadata(
        name="k",
        id="_k",
        version=1,
        license="MIT",
        backend=BackendKind.CPU,
        digest=digest_tree(directory),
    )
    subject = Subject(directory=directory, variant=parse_variant(directory.name), metadata=metadata)
    return list(check_layout(subject))


def test_what_a_build_writes_is_fine(directory: Path) -> None:
    assert findings(directory) == []


@pytest.mark.parametrize(
    ("name", "mode", "word", "fix"),
    [
        ("_ops.py", 0o4644, "setuid", "chmod ug-s _ops.py"),
        ("_ops.py", 0o2644, "setgid", "chmod ug-s _ops.py"),
        ("_ops.py", 0o666, "everybody may change it", "chmod o-w _ops.py"),
        (".", 0o777, "everybody may change it", "chmod o-w ."),
    ],
)
def test_a_mode_that_gives_rights_away(
    directory: Path, name: str, mode: int, word: str, fix: str
) -> None:
    (directory / name).chmod(mode)
    (finding,) = findings(directory)
    assert (finding.rule, finding.file, finding.fix) == ("file-mode", name, fix)
    assert word in finding.message


@pytest.mark.parametrize(
    ("head", "is_stray"),
    [
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x03\0\x3e\0", True),
        # For a GPU of NVIDIA, and of AMD: what Python loads onto the device itself.
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0\xbe\0", False),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x03\0\xe0\0", False),
        (b"\xcf\xfa\xed\xfe" + b"\0" * 16, True),
        (b"\xca\xfe\xba\xbe" + b"\0" * 16, True),
        (b"!<arch>\n", True),
        (b"\x00\x01\x02\x03", False),
    ],
    ids=["ELF", "cubin", "hsaco", "Mach-O", "Mach-O for several", "archive", "data"],
)
def test_code_under_another_name(directory: Path, head: bytes, is_stray: bool) -> None:
    (directory / "table.bin").write_bytes(head)
    (directory / "table.bin").chmod(0o644)
    found = [(each.file, each.rule) for each in findings(directory)]
    assert found == ([("table.bin", "stray-file")] if is_stray else [])


def test_each_missing_file_is_told_with_where_it_comes_from(directory: Path) -> None:
    for name in ("__init__.py", "_ops.py"):
        (directory / name).unlink()
    first, second = findings(directory)
    assert (first.file, first.fix) == ("__init__.py", "add it under torch-ext/<module>")
    assert (second.file, second.fix) == ("_ops.py", "build the variant with kernel-builder")


def test_a_library_without_its_ops_file_is_one_fault(directory: Path) -> None:
    compiled = directory.rename(directory.parent / "torch-stable-abi210-cpu-x86_64-linux")
    (compiled / "_k.abi3.so").write_bytes(b"")
    (compiled / "_k.abi3.so").chmod(0o644)
    (compiled / "_ops.py").unlink()
    (finding,) = findings(compiled)
    assert (finding.file, finding.rule) == ("_ops.py", "layout")
    assert "the file is missing" in finding.message


def test_two_names_of_one_file(directory: Path) -> None:
    os.link(directory / "_ops.py", directory / "more.py")
    (finding,) = findings(directory)
    assert (finding.rule, finding.file) == ("file-mode", "more.py")
    assert "same file as _ops.py" in finding.message


def test_a_link_from_another_tree_is_how_hubs_keep_what_did_not_change(directory: Path) -> None:
    os.link(directory / "_ops.py", directory.parent / "elsewhere.py")
    assert findings(directory) == []


def test_the_ops_of_another_build_are_found(directory: Path) -> None:
    compiled = directory.rename(directory.parent / "torch-stable-abi210-cpu-x86_64-linux")
    (compiled / "_k.abi3.so").write_bytes(b"")
    (compiled / "_k.abi3.so").chmod(0o644)
    (finding,) = findings(compiled)
    assert (finding.file, finding.symbol) == ("_ops.py", "_k")
    assert "does not name this id" in finding.message
    (compiled / "_ops.py").write_text("import torch\nfrom . import _k\nops = torch.ops._k\n")
    assert findings(compiled) == []
