"""The one variant that is built for a loader: for which devices and toolkit, and what becomes of a failure."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_builder import from_source, per_torch
from kernel_builder.errors import BuilderError, SelectionError
from kernel_builder.from_source import build_fitting
from kernel_builder.job import work_directory
from kernel_builder.planned import Host, Selection
from kernel_builder.report import Outcome, VariantReport
from kernel_builder.settings import Settings, read_settings
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.system import Device, System, TorchBuild
from kernel_spec.version import MajorMinor

TORCH = TorchBuild("2.13.0", MajorMinor(2, 13))
HOST = Host(
    cpu="x86_64",
    os="linux",
    torch=TORCH,
    toolkits={BackendKind.CUDA: MajorMinor(13, 0)},
)
CPU = System(
    torch=TORCH,
    backend=Backend(BackendKind.CPU),
    cpu="x86_64",
    os="linux",
    python=MajorMinor(3, 12),
    glibc=MajorMinor(2, 39),
)
CUDA = replace(
    CPU,
    backend=Backend(BackendKind.CUDA, MajorMinor(13, 1)),
    devices=tuple(Device(arch, "", n) for n, arch in enumerate(("9.0", "8.0", "9.0"))),
)
TEXT = """\
[general]
name = "my-norm"
version = 1
edition = 5
license = "MIT"
backends = ["cuda", "cpu"]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.10"

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["csrc/norm.cpp"]

[kernel.cuda]
backend = "cuda"
depends = ["torch"]
src = ["csrc/norm.cu"]
"""
NODE = """
[kernel.node]
backend = "cpu"
depends = ["torch"]
per-torch = true
src = ["csrc/node.cpp"]
"""
CPU_VARIANT = "torch-stable-abi210-cpu-x86_64-linux"


class Builds:
    """What was asked of the builder, whose answers a test gives: None stands for a variant."""

    def __init__(self) -> None:
        self.answers: list[Exception | None] = []
        self.asked: list[Selection] = []
        self.settings: list[Settings] = []

    def detect_host(self, settings: Settings) -> Host:
        self.settings.append(settings)
        return HOST

    def __call__(
        self, project: Path, *, selection: Selection, provenance: Any, settings: Settings
    ) -> Any:
        del provenance
        self.asked.append(selection)
        self.settings.append(settings)
        work_directory(project, settings).mkdir(parents=True, exist_ok=True)
        error = self.answers.pop(0) if self.answers else None
        [name] = selection.variants
        made = VariantReport(
            variant=name,
            outcome=Outcome.BUILT if error is None else Outcome.FAILED,
            path=project / "build" / name if error is None else None,
            error=error,  # type: ignore[arg-type]
        )
        return SimpleNamespace(variants=(made,))


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builds:
    made = Builds()
    settings = read_settings({"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""})
    pinned = tuple(
        SimpleNamespace(version=f"2.{minor}.0", release=MajorMinor(2, minor)) for minor in (13, 12)
    )
    monkeypatch.setattr(from_source, "read_settings", lambda: settings)
    monkeypatch.setattr(from_source, "detect_host", made.detect_host)
    monkeypatch.setattr(from_source, "build_project", made)
    monkeypatch.setattr(
        from_source, "list_pinned", lambda _: tuple(MajorMinor(*v) for v in VERSIONS)
    )
    monkeypatch.setattr(per_torch, "read_torch_releases", lambda _: pinned)
    return made


VERSIONS = ((13, 0), (13, 1), (13, 2), (12, 9))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    files = ("torch-ext/binding.cpp", "csrc/norm.cpp", "csrc/norm.cu", "csrc/node.cpp")
    for path in (*files, "torch-ext/my_norm/__init__.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("// of the kernel\n")
    (root / "build.toml").write_text(TEXT + NODE)
    return root


def test_the_variant_for_this_system_is_built_and_no_other(builds: Builds, project: Path) -> None:
    system = replace(CPU, devices=(Device("gfx942"),))
    assert build_fitting(project, system) == project / "build" / CPU_VARIANT
    [asked] = builds.asked
    assert asked.variants == {CPU_VARIANT}
    assert asked.per_torch == frozenset({MajorMinor(2, 13)})
    assert asked.archs == ()


def test_nothing_is_kept_of_a_build_that_succeeds(builds: Builds, project: Path) -> None:
    build_fitting(project, CPU)
    assert not work_directory(project, builds.settings[0]).exists()
    builds.answers = [BuilderError("norm:1: no"), BuilderError("norm:1: no")]
    with pytest.raises(BuilderError, match="norm:1"):
        build_fitting(project, CPU)
    assert work_directory(project, builds.settings[0]).is_dir()


def test_cuda_is_compiled_for_the_devices_with_what_torch_takes(
    builds: Builds, project: Path
) -> None:
    build_fitting(project, CUDA)
    assert builds.asked[0].archs == ("8.0", "9.0")
    assert [name.split("-")[2] for name in builds.asked[0].variants] == ["abi210"]
    assert {each.cuda_versions for each in builds.settings} == {(MajorMinor(13, 1),)}


def test_a_cuda_that_no_toolkit_fits_leaves_the_choice_to_the_settings(
    builds: Builds, project: Path
) -> None:
    later = replace(CUDA, backend=Backend(BackendKind.CUDA, MajorMinor(14, 0)))
    with pytest.raises(SelectionError):
        build_fitting(project, later)
    [given] = builds.settings
    assert given.cuda_versions == read_settings({}).cuda_versions
    assert builds.asked == []


def test_the_backend_that_was_asked_for_is_built(builds: Builds, project: Path) -> None:
    build_fitting(project, CUDA, BackendKind.CPU)
    assert builds.asked[0].variants == {CPU_VARIANT}


def test_without_its_per_torch_library_it_is_built_all_the_same(
    builds: Builds, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builds.answers = [BuilderError("the headers cannot be had"), None]
    with caplog.at_level(logging.WARNING, logger="kernels"):
        assert build_fitting(project, CPU) == project / "build" / CPU_VARIANT
    assert [each.per_torch for each in builds.asked] == [{MajorMinor(2, 13)}, frozenset()]
    assert (
        f"{CPU_VARIANT} is built without its library for torch 2.13, which it works without: "
        "the headers cannot be had"
    ) in caplog.text


def test_a_variant_without_one_is_tried_once(builds: Builds, project: Path) -> None:
    (project / "build.toml").write_text(TEXT)
    builds.answers = [BuilderError("norm:1: no"), None]
    with pytest.raises(BuilderError, match="norm:1: no"):
        build_fitting(project, CPU)
    assert len(builds.asked) == 1


def test_a_system_that_nothing_fits_is_told_why(builds: Builds, project: Path) -> None:
    older = replace(CPU, torch=TorchBuild("2.9.0", MajorMinor(2, 9)))
    with pytest.raises(SelectionError) as caught:
        build_fitting(project, older)
    first, *lines = str(caught.value).splitlines()
    assert first == "no variant that can be built here fits this system:"
    assert any(line.startswith(f"  {CPU_VARIANT}: ") and "2.10" in line for line in lines)
    assert builds.asked == []
