"""Many processes on one host, or on several that share a cache: published toys and new Pythons.

Time budget of this folder: 5 minutes on two cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from toy_variant import write_toy_metadata

import kernels
from kernel_spec import directory, publishing
from kernel_spec.backend import BackendKind
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId

SOURCE = Path(kernels.__file__).parents[1]
KITS = Path(__file__).parents[2] / "kits"
LOAD = "import kernels; print(kernels.get_kernel('acme/toy').VALUE)"
TOY = {"__init__.py": "from .a import VALUE\n", "a.py": "VALUE = 1\n", "data.bin": b"\0" * 100_000}


def write_variant(folder: Path, files: Mapping[str, str | bytes], backend: BackendKind) -> None:
    """Write a variant whose metadata has the digest of its files."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    write_toy_metadata(folder, backend=backend)


def publish(
    root: Path,
    files: Mapping[str, str | bytes] = TOY,
    *,
    variant: str = "torch-cpu",
    backend: BackendKind = BackendKind.CPU,
    sources: Path | None = None,
    repo: str = "acme/toy",
) -> str:
    """Publish a variant, and a project's sources below ``src``; return the commit."""
    name = RepoId(*repo.split("/"))
    folder = root.parent / f"{root.name}-{name.name}" / "build" / variant
    write_variant(folder, files, backend)
    top = folder.parents[1]
    paths = {path.relative_to(top).as_posix(): path for path in top.rglob("*") if path.is_file()}
    if sources is not None:
        found = [path for path in sources.rglob("*") if path.is_file()]
        paths |= {f"src/{path.relative_to(sources).as_posix()}": path for path in found}
    hub = DirectoryHub(root)
    known = directory.read_refs(hub, name).branches if directory.has_repository(hub, name) else ()
    parent = next((ref.commit for ref in known if ref.name == "v1"), None)
    return publishing.publish(hub, name, paths, branch="v1", parent=parent)


@dataclass
class Host:
    """A machine: a home, a cache, and settings for the processes that run there."""

    home: Path
    hub: str
    python: str = sys.executable
    wrapper: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.home / "cache"

    @property
    def store(self) -> Path:
        return self.cache / "store-v1"

    def start(self, code: str = LOAD, **environ: str) -> subprocess.Popen[str]:
        """Start a Python process."""
        keep = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        settings = {
            "HOME": str(self.home),
            "KERNELS_CACHE": str(self.cache),
            "KERNELS_HUB": self.hub,
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_PROXY": "*",
        }
        return subprocess.Popen(
            [*self.wrapper, self.python, "-c", code],
            env=keep | settings | self.environ | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str = LOAD, *, fails: bool = False, **environ: str) -> str:
        """Run a Python process; return what it printed, or what it said where it fails."""
        process = self.start(code, **environ)
        out, err = process.communicate(timeout=180)
        assert (process.returncode != 0) is fails, f"{process.returncode}\n{out}\n{err}"
        return err if fails else out.strip()


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for processes that must succeed; return what they printed."""
    done = [process.communicate(timeout=300) for process in processes]
    for process, (_, err) in zip(processes, done, strict=True):
        assert process.returncode == 0, err
    return [out.strip() for out, _ in done]


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "hub"
    root.mkdir()
    return root


@pytest.fixture
def host(tmp_path, root):
    home = tmp_path / "home"
    home.mkdir()
    return Host(home, f"file://{root}")


@pytest.fixture
def web(serve, root, host):
    """Serve the hub over http and let the host ask it; the owner acme is trusted."""
    hub = serve(root, trusted=("acme",))
    host.hub = hub.url
    yield hub
    hub.stop()


@pytest.fixture(scope="session", name="publish")
def publish_fixture():
    return publish


@pytest.fixture(scope="session", name="finish")
def finish_fixture():
    return finish


@pytest.fixture(scope="session")
def kits():
    return KITS
