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
