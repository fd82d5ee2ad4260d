import errno
import os
from pathlib import Path

import pytest

from kernel_builder import package
from kernel_builder.package import install_variant, remove_leftovers, write_variant
from kernel_builder.planned import VariantBuild
from kernel_spec.backend import BackendKind
from kernel_spec.metadata import KernelDependency, parse_metadata
from kernel_spec.provenance import Provenance
from kernel_spec.variant import NoarchVariant, parse_variant

PROVENANCE = Provenance(builder_version="1.2.3")


def build(**changes: object) -> VariantBuild:
    fields: dict[str, object] = {
        "variant": NoarchVariant(BackendKind.CPU),
        "backend": BackendKind.CPU,
        "op_id": "_my_kit_cpu_0123456789ab",
        "module": "my_kit",
        "units": (),
        "headers": (),
        "package": ("__init__.py", "sub/deep.py"),
        "torch": None,
        "archs": (),
        "depends": (),
        "name": "my-kit",
        "version": 3,
        "license": "MIT",
    }
    return VariantBuild(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "project" / "torch-ext" / "my_kit"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text("from ._ops import ops\n")
    (package / "sub" / "deep.py").write_text("x = 1\n")
    (package / "sub" / "deep.py").chmod(0o777)
    (package / "notes.txt").write_text("not packaged\n")
    return tmp_path / "project"


def files(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): f"{path.stat().st_mode & 0o777:o}"
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_a_noarch_variant(project: Path, tmp_path: Path, umask: int) -> None:
    target = tmp_path / "torch-cpu"
    before = os.umask(umask)
    try:
        write_variant(project, build(), None, provenance=PROVENANCE, target=target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o755
    assert files(target) == {
        "__init__.py": "644",
        "_ops.py": "644",
        "metadata.json": "644",
        "sub": "755",
        "sub/deep.py": "644",
    }
    assert "ops = torch.ops._my_kit_cpu_0123456789ab\n" in (target / "_ops.py").read_text()
    metadata = parse_metadata((target / "metadata.json").read_bytes())
    assert (metadata.name, metadata.id, metadata.version) == (
        "my-kit",
        "_my_kit_cpu_0123456789ab",
        3,
    )
    assert metadata.provenance == PROVENANCE
    assert metadata.minver == (0, 14, 0)
    assert metadata.digest is not None
    assert sorted(metadata.digest.files) == ["__init__.py", "_ops.py", "sub/deep.py"]


def test_a_compiled_variant_imports_its_library(project: Path, tmp_path: Path) -> None:
    library = tmp_path / "_my_kit_cpu_0123456789ab.abi3.so"
    library.write_bytes(b"library")
    target = tmp_path / "variant"
    made = build(variant=parse_variant("torch-stable-abi210-cpu-x86_64-linux"))
    write_variant(project, made, library, provenance=PROVENANCE, target=target)
    assert (target / library.name).read_bytes() == b"library"
    assert "from . import _my_kit_cpu_0123456789ab" in (target / "_ops.py").read_text()


def test_the_ops_file_prefixes_names(project: Path, tmp_path: Path) -> None:
    target = tmp_path / "torch-cpu"
    write_variant(project, build(), None, provenance=PROVENANCE, target=target)
    source = (target / "_ops.py").read_text().replace("import torch\n", "").partition("ops = ")
    namespace: dict[str, object] = {}
    exec(source[2].partition("\n")[2], namespace)  # the function alone, which needs no torch
    assert namespace["add_op_namespace_prefix"]("relu") == "_my_kit_cpu_0123456789ab::relu"  # type: ignore[operator]


def test_kernel_dependencies_need_a_newer_client(project: Path, tmp_path: Path) -> None:
    made = build(kernel_depends=(KernelDependency(repo_id="a/b", version=1),))
    write_variant(project, made, None, provenance=PROVENANCE, target=tmp_path / "torch-cpu")
    document = (tmp_path / "torch-cpu" / "metadata.json").read_bytes()
    assert parse_metadata(document).minver == (0, 17, 0)


def _variant(root: Path, content: str) -> Path:
    root.mkdir(parents=True)
    (root / "file").write_text(content)
    return root


def test_a_first_install(tmp_path: Path) -> None:
    target = tmp_path / "project" / "build" / "torch-cpu"
    install_variant(_variant(tmp_path / "made", "new"), target)
    assert (target / "file").read_text() == "new"
    assert not (tmp_path / "made").exists()
    assert [path.name for path in target.parent.iterdir()] == ["torch-cpu"]


def test_an_older_variant_is_replaced_whole(tmp_path: Path) -> None:
    target = _variant(tmp_path / "build" / "torch-cpu", "old")
    (target / "stale").write_text("")
    install_variant(_variant(tmp_path / "made", "new"), target)
    assert [path.name for path in target.iterdir()] == ["file"]
    assert (target / "file").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["torch-cpu"]


def test_a_file_system_without_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(first: Path, second: Path) -> None:
        raise OSError(errno.EINVAL, "no", str(first))

    monkeypatch.setattr(package, "_exchange", refuse)
    target = _variant(tmp_path / "build" / "torch-cpu", "old")
    install_variant(_variant(tmp_path / "made", "new"), target)
    assert (target / "file").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["torch-cpu"]


def test_a_failed_install_keeps_the_old_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(first: Path, second: Path) -> None:
        raise OSError(errno.EIO, "disk", str(first))

    monkeypatch.setattr(package, "_exchange", fail)
    target = _variant(tmp_path / "build" / "torch-cpu", "old")
    with pytest.raises(OSError, match="disk"):
        install_variant(_variant(tmp_path / "made", "new"), target)
    assert (target / "file").read_text() == "old"


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    target = _variant(tmp_path / "build" / "torch-cpu", "old")
    _variant(tmp_path / "build" / ".torch-cpu.new", "half")
    remove_leftovers(target)
    assert [path.name for path in target.parent.iterdir()] == ["torch-cpu"]


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("there", ["link", "link to nothing"])
def test_a_link_in_its_place_makes_way_and_what_it_leads_to_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, exchanges: bool
) -> None:
    def cannot(first: Path, second: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    if not exchanges:
        monkeypatch.setattr(package, "_exchange", cannot)
    made, elsewhere = tmp_path / "work" / "torch-cpu", tmp_path / "elsewhere"
    target = tmp_path / "build" / "torch-cpu"
    made.mkdir(parents=True)
    (made / "new").touch()
    target.parent.mkdir()
    target.symlink_to(elsewhere)
    if there == "link":
        elsewhere.mkdir()
        (elsewhere / "mine").touch()
    install_variant(made, target)
    assert not target.is_symlink()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert there != "link" or (elsewhere / "mine").is_file()
    assert [path.name for path in target.parent.iterdir()] == ["torch-cpu"]
    assert not made.exists()


def test_a_file_in_its_place_is_named_and_stays(tmp_path: Path) -> None:
    made, target = tmp_path / "made", tmp_path / "torch-cpu"
    made.mkdir()
    target.write_text("mine")
    with pytest.raises(NotADirectoryError) as caught:
        install_variant(made, target)
    assert caught.value.filename == str(target)
    assert target.read_text() == "mine"


def test_a_link_that_a_killed_install_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".torch-cpu.old").symlink_to(tmp_path)
    remove_leftovers(tmp_path / "torch-cpu")
    assert list(tmp_path.iterdir()) == []
