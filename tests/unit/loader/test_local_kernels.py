"""Kernels from a path: ``get_local_kernel`` and ``LOCAL_KERNELS``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kernels
from kernel_spec import publishing
from kernel_spec.backend import BackendKind
from kernel_spec.errors import IntegrityError, MetadataError
from kernel_spec.names import RepoId
from kernel_spec.provenance import Provenance
from kernels.errors import NotAKernelError, NoVariantError, SettingsError
from kernels.settings import parse_overrides


@pytest.fixture
def project(make_variant, tmp_path):
    make_variant(tmp_path / "project" / "build" / "torch-cpu")
    return tmp_path / "project"


@pytest.mark.parametrize("below", ["", "build", "build/torch-cpu"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_project_its_build_folder_and_a_variant_are_accepted(project, below, kind):
    toy = kernels.get_local_kernel(kind(project / below))
    assert toy.VALUE == 1
    assert kernels.get_local_kernel(kind(project / below)) is toy


def test_a_variant_under_any_other_name_is_accepted(make_variant, tmp_path):
    assert kernels.get_local_kernel(make_variant(tmp_path / "unpacked")).VALUE == 1
    with pytest.raises(NoVariantError, match="is for cpu, not for cuda"):
        kernels.get_local_kernel(tmp_path / "unpacked", backend="cuda")


def test_a_path_relative_to_the_working_directory(project, monkeypatch):
    monkeypatch.chdir(project.parent)
    assert kernels.get_local_kernel("project").VALUE == 1


def test_what_is_no_kernel_says_what_was_expected(tmp_path):
    with pytest.raises(NotAKernelError, match="does not exist"):
        kernels.get_local_kernel(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAKernelError, match="not a directory"):
        kernels.get_local_kernel(tmp_path / "file")
    (tmp_path / "empty" / "build").mkdir(parents=True)
    with pytest.raises(NotAKernelError, match="kernel-builder build") as error:
        kernels.get_local_kernel(tmp_path / "empty")
    assert isinstance(error.value, FileNotFoundError)


def test_a_path_without_this_backend_lists_what_it_has(make_variant, tmp_path):
    make_variant(tmp_path / "build" / "torch-cuda", backend=BackendKind.CUDA)
    make_variant(tmp_path / "build" / "torch-rocm", backend=BackendKind.ROCM)
    with pytest.raises(NoVariantError, match=r"torch-cuda: .*\n  torch-rocm: ") as error:
        kernels.get_local_kernel(str(tmp_path))
    assert str(error.value).endswith(f"kernels doctor {tmp_path}")


def test_a_changed_file_is_refused_before_it_runs(project):
    (project / "build/torch-cpu/__init__.py").write_text("raise SystemExit\n")
    with pytest.raises(IntegrityError, match=r"__init__\.py: expected hash"):
        kernels.get_local_kernel(project)


def test_a_digest_of_the_other_algorithm_is_as_good(publisher, make_variant, tmp_path):
    local = make_variant(tmp_path / "local", algorithm="sha512")
    assert kernels.get_local_kernel(local).VALUE == 1
    publisher.publish("acme/toy", algorithm="sha512")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    (local / "__init__.py").write_text("VALUE = 2\n")
    with pytest.raises(IntegrityError, match=r"__init__\.py"):
        kernels.get_local_kernel(local)


def test_metadata_that_does_not_know_its_files_is_refused_from_a_hub(
    publisher, make_variant, tmp_path
):
    """The hub's hashes are right, and the variant is not what its builder made."""
    variant = make_variant(tmp_path / "p" / "build" / "torch-cpu", algorithm="sha512")
    (variant / "__init__.py").write_text("VALUE = 2\n")
    files = {path.relative_to(tmp_path / "p").as_posix(): path for path in variant.iterdir()}
    publishing.publish(publisher.hub, RepoId("acme", "toy"), files, branch="v1", parent=None)
    with pytest.raises(IntegrityError, match=r"__init__\.py"):
        kernels.get_kernel("acme/toy")


def test_an_extra_and_a_missing_file_are_both_named(make_variant, tmp_path):
    variant = make_variant(tmp_path / "torch-cpu", {"__init__.py": "", "a.py": ""})
    (variant / "a.py").unlink()
    (variant / "b.py").write_text("")
    with pytest.raises(IntegrityError, match=r"a\.py: is missing\n.*b\.py: is not in the digest"):
        kernels.get_local_kernel(variant)


def test_broken_metadata_is_an_error_of_the_metadata(project):
    (project / "build/torch-cpu/metadata.json").write_text('{"name": 7}')
    with pytest.raises(MetadataError, match="name"):
        kernels.get_local_kernel(project)


def test_a_variant_that_was_built_anew_is_loaded_anew(project, make_variant):
    assert kernels.get_local_kernel(project).VALUE == 1
    make_variant(project / "build" / "torch-cpu", {"__init__.py": "VALUE = 22\n"})
    assert kernels.get_local_kernel(project).VALUE == 22


def test_an_override_stands_in_for_the_repository(project, monkeypatch, make_variant):
    monkeypatch.setenv("LOCAL_KERNELS", f"acme/toy={project}")
    toy = kernels.get_kernel("acme/toy", version=7)
    assert kernels.get_kernel("acme/toy", version=7) is toy
    assert kernels.has_kernel("acme/toy")
    assert kernels.install_kernel("acme/toy") == project / "build" / "torch-cpu"
    assert [d.name for d in kernels.get_kernel_variants("acme/toy")] == ["torch-cpu"]
    make_variant(project / "build" / "torch-cpu", {"__init__.py": "VALUE = 33\n"})
    assert kernels.get_kernel("acme/toy", version=7).VALUE == 33


def test_the_backend_argument_holds_for_an_override_too(project, monkeypatch):
    monkeypatch.setenv("LOCAL_KERNELS", f"acme/toy={project}")
    assert kernels.get_kernel("acme/toy", backend="cpu").VALUE == 1
    with pytest.raises(NoVariantError):
        kernels.get_kernel("acme/toy", backend="rocm")


def test_an_override_whose_path_is_gone_is_an_error_not_a_download(
    publisher, monkeypatch, tmp_path
):
    publisher.publish("acme/toy")
    monkeypatch.setenv("LOCAL_KERNELS", f"acme/toy={tmp_path / 'gone'}")
    with pytest.raises(NotAKernelError, match="gone"):
        kernels.get_kernel("acme/toy")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("  ", {}),
        (":", {}),
        ("a/b=/x", {"a/b": "/x"}),
        ("a/b=/x:", {"a/b": "/x"}),
        ("a/b=/x:c/d=/y", {"a/b": "/x", "c/d": "/y"}),
        ("a/b=/x::c/d=/y:", {"a/b": "/x", "c/d": "/y"}),
        ("a/b=C:\\k", {"a/b": "C:\\k"}),
        ("a/b=C:\\k:c/d=D:/k", {"a/b": "C:\\k", "c/d": "D:/k"}),
        ("a/b=/x:y/z", {"a/b": "/x:y/z"}),
        ("a/b=/x=y", {"a/b": "/x=y"}),
        ("a-b/c.d_e=rel/path", {"a-b/c.d_e": "rel/path"}),
    ],
)
def test_overrides_are_read(text, expected):
    assert {repo: os.fspath(path) for repo, path in parse_overrides(text).items()} == expected


@pytest.mark.parametrize("text", ["a", "a/b", "a/b=", "=/x", "a=/x", "a/b=/x:a/b=/y", "a//b=/x"])
def test_malformed_overrides_name_the_entry_and_the_form(text):
    with pytest.raises(SettingsError, match=r"LOCAL_KERNELS: invalid entry .*owner/name=path"):
        parse_overrides(text)


def test_a_kernel_of_uncommitted_sources_is_told_of_once(make_variant, tmp_path, warnings_of):
    built = Provenance(builder_version="1", kernel_commit="0" * 40, kernel_dirty=True)
    path = make_variant(tmp_path / "torch-cpu", provenance=built)
    for _ in range(2):
        kernels.get_local_kernel(path)
    assert [line for line in warnings_of() if "not committed" in line] == warnings_of()
    assert len(warnings_of()) == 1


@pytest.mark.parametrize("file", ["__init__.py", "metadata.json", "."])
@pytest.mark.usefixtures("ordinary_user")
def test_a_file_that_cannot_be_read_is_named(project, file):
    path = project / "build" / "torch-cpu" / file
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with pytest.raises(NotAKernelError, match="cannot be read: Permission denied") as caught:
            kernels.get_local_kernel(project)
    finally:
        path.chmod(mode)
    assert str(path) in str(caught.value)
    assert kernels.get_local_kernel(project).VALUE == 1
