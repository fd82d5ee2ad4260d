"""A published toy kernel, and new processes that load it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from lacking import give_up
from toy_variant import write_toy_metadata

import kernels
from kernel_spec import directory, publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId

SOURCE = Path(kernels.__file__).parents[1]
REPO = RepoId("acme", "toy")
FILES = {
    "__init__.py": "from .a import VALUE\n",
    "a.py": "VALUE = 1\n",
    "b/__init__.py": "",
    "b/data.bin": b"\0" * 100_000,
}
LOAD = "import kernels; print(kernels.get_kernel('acme/toy').VALUE)"


def publish(
    root: Path, files: Mapping[str, str | bytes] = FILES, *, repo: RepoId = REPO, branch: str = "v1"
) -> str:
    """Publish a variant ``torch-cpu`` as the next commit of a branch; return the commit."""
    project = root.parent / f"{root.name}-{repo.name}-{branch}"
    variant = project / "build" / "torch-cpu"
    for path, content in files.items():
        target = variant / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    write_toy_metadata(variant, repo.name)
    hub = DirectoryHub(root)
    known = (
        {ref.name: ref.commit for ref in directory.read_refs(hub, repo).branches}
        if directory.has_repository(hub, repo)
        else {}
    )
    paths = {p.relative_to(project).as_posix(): p for p in project.rglob("*") if p.is_file()}
    return publishing.publish(hub, repo, paths, branch=branch, parent=known.get(branch))


# The process kills itself at the call of a function after so many of them.
KILLER = """
import os, pathlib, shutil, signal
def arm(owner, name, count):
    original = getattr(owner, name)
    def call(*args, **kwargs):
        nonlocal count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(owner, name, call)
{imports}
arm({owner}, {name!r}, {count})
{then}
"""


@dataclass
class Machine:
    """A user's machine: a home, a cache, and settings for the processes that run there."""

    home: Path
    hub: str
    python: str = sys.executable

    @property
    def store(self) -> Path:
        return self.home / "cache" / "store-v1"

    def start(
        self, code: str = LOAD, *, stdin: bool = False, **environ: str
    ) -> subprocess.Popen[str]:
        """Start a Python process, with a pipe to it if asked for."""
        keep = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        settings = {
            "HOME": str(self.home),
            "KERNELS_CACHE": str(self.home / "cache"),
            "KERNELS_HUB": self.hub,
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_PROXY": "*",
        }
        return subprocess.Popen(
            [self.python, "-c", code],
            env=keep | settings | environ,
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_killed(
        self, point: tuple[str, str, int], *, imports: str, then: str
    ) -> subprocess.Popen[str]:
        """Start a script that kills itself on its way: at which owner's function, after how many calls."""
        owner, name, count = point
        words = {"owner": owner, "name": name, "count": count, "imports": imports, "then": then}
        return self.start(KILLER.format(**words))

    def run(self, code: str = LOAD, *, code_expected: int = 0, **environ: str) -> str:
        """Run a Python process; return what it printed."""
        process = self.start(code, **environ)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code_expected, f"{process.returncode}\n{out}\n{err}"
        return out.strip() if code_expected == 0 else err


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "hub"
    root.mkdir()
    return root


@pytest.fixture
def commit(root):
    return publish(root)


@pytest.fixture(scope="session")
def machine_of():
    """Make a machine: ``machine_of(home, hub_url, python=sys.executable)``."""
    return Machine


@pytest.fixture
def machine(tmp_path, root):
    home = tmp_path / "home"
    home.mkdir()
    return Machine(home, f"file://{root}")


@pytest.fixture
def republish():
    return publish


@pytest.fixture(scope="session")
def old_hub_client(tmp_path_factory):
    """Return a Python with the oldest supported huggingface_hub, and without torch."""
    folder = tmp_path_factory.mktemp("hub110") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    needs = ["huggingface_hub==1.10.*", "packaging", "filelock", "click", "pyelftools"]
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *needs],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        give_up(f"pip cannot install huggingface_hub 1.10: {done.stderr.strip()[-200:]}")
    return python
