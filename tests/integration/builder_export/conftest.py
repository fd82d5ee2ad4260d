"""An environment of pip's own with torch in it, and projects to install. The group's budget: six minutes.

torch takes a gigabyte, so that of this interpreter is linked into the environment; nothing else of
this interpreter can be imported there.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from lacking import give_up

KITS = Path(__file__).parents[2] / "kits"
# torch and what it imports, by distribution.
TORCH = ("torch", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock")
TOOLS = ("setuptools>=77", "cmake", "ninja")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment."""

    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    def run(
        self, *words: object, cwd: Path | None = None, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, without the caller's Python and wishes."""
        left_out = ("PYTHON", "VIRTUAL_ENV", "CMAKE_", "KERNEL", "CUDA", "MAX_JOBS", "DEBUG")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
        kept |= {"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONNOUSERSITE": "1"}
        return subprocess.run(
            [str(self.bin / str(words[0])), *map(str, words[1:])],
            cwd=cwd or self.root,
            env={**kept, "MAX_JOBS": "2", **(more or {})},
            capture_output=True,
            text=True,
            check=False,
        )

    def do(self, *words: object, **more: object) -> str:
        """Run a program that has to end well, and return all that it says."""
        done = self.run(*words, **more)  # type: ignore[arg-type]
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    if importlib.util.find_spec("torch") is None or shutil.which("g++") is None:
        give_up("torch and g++ are needed")
    root = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", root], check=True)
    links = root / "links"
    links.mkdir()
    for name in (*TORCH, "typing_extensions"):
        distribution = importlib.metadata.distribution(name)
        assert distribution.files is not None
        tops = {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}
        for top in tops:
            place = Path(str(distribution.locate_file(top)))
            (links / top).symlink_to(place)
    found = Environment(root)
    [site] = root.glob("lib/python3*/site-packages")
    (site / "links.pth").write_text(f"{links}\n")
    done = found.run("python", "-m", "pip", "install", "-q", "--no-input", "-U", *TOOLS)
    if done.returncode:
        give_up(f"pip cannot install {' '.join(TOOLS)}: {done.stderr[-2000:]}")
    return found


@pytest.fixture
def copy_kit(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        leave_out = shutil.ignore_patterns("__pycache__", "build")
        return Path(shutil.copytree(KITS / name, tmp_path / "a b" / name, ignore=leave_out))

    return copy
