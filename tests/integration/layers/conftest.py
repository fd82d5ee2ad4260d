"""transformers and diffusers as they are published, with this distribution installed beside them.

Budget of the group: 6 minutes. What needs the published libraries runs as a script of
``consumers/`` in their environment; a script asserts as it goes and prints one JSON document.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
import pytest
from lacking import give_up, require_commands
from toy_variant import write_toy_metadata

from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId

ROOT = Path(__file__).parents[3]
CONSUMERS = Path(__file__).parent / "consumers"
OURS = ("activation", "triton-layer-norm")
# Kernels that the libraries ask for and that are not ours: toys in plain torch.
# Each library asks for the version that it was written for.
TOYS = (
    ("rotary", 2, "rotary.py"),
    ("flash-attn2", 3, "flash_attn.py"),
    ("flash-attn2", 4, "flash_attn.py"),
    ("eager-only", 1, "eager_only.py"),
    ("no-backward", 1, "no_backward.py"),
    ("fused", 1, "fused.py"),
)


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build our kernels, and publish them and the toys to a directory hub."""
    require_commands("g++")
    root = tmp_path_factory.mktemp("hub")
    for name in OURS:
        project = tmp_path_factory.mktemp(name) / name
        source = ROOT / "kernels-community" / name
        shutil.copytree(source, project, ignore=shutil.ignore_patterns("build"))
        builder = Path(sys.executable).parent / "kernel-builder"
        done = subprocess.run(
            [builder, "build", project, "--backend", "cpu"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        _publish(root, name, 1, project)
    for name, version, source in TOYS:
        project = tmp_path_factory.mktemp(name) / name
        _write_toy(project, name, version, (CONSUMERS / "toys" / source).read_text())
        _publish(root, name, version, project)
    return root


def _publish(root: Path, name: str, version: int, project: Path) -> None:
    files = {
        path.relative_to(project).as_posix(): path
        for path in (project / "build").rglob("*")
        if path.is_file()
    }
    repo = RepoId("kernels-community", name)
    publishing.publish(DirectoryHub(root), repo, files, branch=f"v{version}", parent=None)


def _write_toy(project: Path, name: str, version: int, source: str) -> None:
    variant = project / "build" / "torch-universal"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text(source)
    write_toy_metadata(variant, name, version=version)


@pytest.fixture(scope="session")
def consumers() -> peers.ClientVenv:
    """transformers 5.24.0 and diffusers 0.42.1 with torch; not this distribution."""
    try:
        return peers.make_torch_venv("transformers==5.24.0", "diffusers==0.42.1")
    except peers.PeerUnavailableError as err:
        give_up(err)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, consumers: peers.ClientVenv) -> Path:
    """This distribution as pip installs it, in a folder of its own.

    Beside it what it needs and they lack, and accelerate and peft, which would bring in another
    torch if they brought in what they depend on.
    """
    project = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", project / "src", ignore=ignored)
    target = tmp_path_factory.mktemp("site")
    others = ("pyelftools", "accelerate==1.*", "peft==0.*", "psutil")
    _install(consumers, target, str(project), *others)
    return target


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory, consumers: peers.ClientVenv) -> Path:
    """The published client in a folder of its own."""
    target = tmp_path_factory.mktemp("published")
    _install(consumers, target, "kernels==0.17.2")
    return target


def _install(consumers: peers.ClientVenv, target: Path, *requirements: str) -> None:
    done = subprocess.run(
        [
            *(consumers.folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps"),
            *("--disable-pip-version-check", "--target", target, *requirements),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def run_consumer(
    tmp_path: Path, hub: Path, consumers: peers.ClientVenv, installed: Path
) -> Callable[..., Any]:
    """Run a script of ``consumers/`` beside the libraries, offline; return what it printed.

    What is ``before`` is found before this distribution.
    """

    def run(script: str, *, before: Path | None = None, **environ: str) -> Any:
        keep = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        settings = {
            "HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "1",
            "KERNELS_HUB": f"file://{hub}",
            "KERNELS_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join(
                map(str, (before, installed) if before else (installed,))
            ),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "2",
        }
        done = subprocess.run(
            [consumers.folder / "bin" / "python", CONSUMERS / script],
            check=False,
            env=keep | settings | environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run
