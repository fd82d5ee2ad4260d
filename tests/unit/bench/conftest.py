"""A toy kernel with a benchmark file, as a project and on a directory hub, and an empty environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_variant import write_toy_metadata

import kernels.load
from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernels.settings import VARIABLES

BENCHMARK = """
import torch
from kernels.bench import Case

def cases(kernel, device):
    for size in (64, 128):
        x = torch.arange(size, dtype=torch.float32, device=device)
        yield Case(
            op="double", shape=(size,), dtype="float32",
            ours=lambda: kernel.double(x), expected=lambda: x.double() * 2, tolerance=1e-6,
            peers={"eager": lambda: x * 2}, references={"copy": lambda: x.clone()},
            moved_bytes=8 * size,
        )
"""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELS_HUB", f"file://{tmp_path / 'hub'}")
    monkeypatch.setattr("kernels.bench.ceiling.HOST_COPY_BYTES", 1 << 16)
    monkeypatch.setattr("kernels.bench.timing.HOST_FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr("kernels.bench.machine.find_load", lambda: (0.0, 2))
    kernels.load.forget()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A built project whose `double` is right."""
    place = tmp_path / "toy"
    variant = place / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text("def double(x):\n    return x + x\n")
    write_toy_metadata(variant)
    (place / "benchmarks").mkdir()
    (place / "benchmarks" / "benchmark.py").write_text(BENCHMARK)
    return place


@pytest.fixture
def published(project: Path, tmp_path: Path) -> str:
    """The project on the hub of the settings, as acme/toy; its commit."""
    files = {
        path.relative_to(project).as_posix(): path for path in project.rglob("*") if path.is_file()
    }
    hub = DirectoryHub(tmp_path / "hub")
    return publishing.publish(hub, RepoId("acme", "toy"), files, branch="v1", parent=None)
