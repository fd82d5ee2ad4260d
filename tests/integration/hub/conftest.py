"""The unmodified clients, each in a virtual environment of its own, and a hub to use them on."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from kernel_spec.directory import DirectoryHub, publish
from kernel_spec.names import RepoId

TORCH = "2.13.0"
# What torch itself imports, without the gigabyte of torch.
TORCH_NEEDS = ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec")


@dataclass
class ClientVenv:
    """A virtual environment with a published client in it."""

    folder: Path

    def run(self, hub, home, *words, offline=False, check=True):
        """Run a command of the environment against a hub, with ``home`` as the client's cache."""
        keep = {key: os.environ[key] for key in ("PATH", "TMPDIR", "LANG") if key in os.environ}
        environment = keep | {
            "HOME": str(home),
            "HF_HOME": str(home / "hf"),
            "HF_ENDPOINT": hub.url,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONNOUSERSITE": "1",
            "NO_PROXY": "*",
        }
        if offline:
            environment["HF_HUB_OFFLINE"] = "1"
        command = [str(self.folder / "bin" / words[0]), *words[1:]]
        done = subprocess.run(
            command,
            check=False,
            env=environment,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check and done.returncode:
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def python(self, hub, home, code, *, offline=False):
        """Run a script; what it assigns to ``result`` comes back."""
        script = f"{code}\nimport json\nprint('\\nRESULT ' + json.dumps(result))\n"
        done = self.run(hub, home, "python", "-c", script, offline=offline)
        return json.loads(done.stdout.rpartition("\nRESULT ")[2])


def make_venv(*requirements, links=()):
    """Make a virtual environment once and keep it; ``links`` are put into its site-packages.

    It stays in ``$XDG_CACHE_HOME/kernels-tests``, under a name that hashes what is in it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernels-tests"
    cache.mkdir(parents=True, exist_ok=True)
    key = json.dumps([requirements, list(map(str, links)), sys.version, sys.base_prefix])
    folder = cache / f"venv-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    stamp = folder / "ready"
    with FileLock(f"{folder}.lock"):
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-input"]
            done = subprocess.run(
                [*pip, *requirements], check=False, capture_output=True, text=True
            )
            if done.returncode:
                reason = f"cannot install {' '.join(requirements)}: {done.stderr[-2000:]}"
                (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
            [site] = folder.glob("lib/python3*/site-packages")
            for link in links:
                (site / link.name).symlink_to(link)
            stamp.touch()
    return ClientVenv(folder)


@pytest.fixture(scope="session")
def reference():
    """The published ``kernels`` 0.17.2 with ``huggingface_hub`` 2.4.0.

    torch takes a gigabyte, so where this interpreter has the wanted one, its folders are linked
    into the environment rather than installed again. Nothing else of this interpreter can be
    imported there, above all not this project's own ``kernels``.
    """
    client = ("huggingface_hub==2.4.0", "kernels==0.17.2")
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        site = Path(spec.origin).parent.parent
        info = list(site.glob(f"torch-{TORCH}*.dist-info"))
        if info:
            links = (site / "torch", site / "torchgen", site / "functorch", *info)
            return make_venv(*client, *TORCH_NEEDS, links=[link for link in links if link.exists()])
    return make_venv(*client, f"torch=={TORCH}")


@pytest.fixture(scope="session")
def hub_1_10():
    """The oldest ``huggingface_hub`` that knows repositories of kernels."""
    return make_venv("huggingface_hub==1.10.*")


CARD = b"# Toy\n\nA kernel of one line.\n"
LIBRARY = bytes(range(256)) * 8


def toy_files(version):
    """Return the files of a version of the toy; every version has the same paths."""
    metadata = {
        "name": "toy",
        "id": f"_toy_cpu_{version}",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    code = f"VERSION = {version}\n\n\ndef double(x):\n    return x * 2\n"
    return {
        "build/torch-cpu/__init__.py": code.encode(),
        "build/torch-cpu/metadata.json": json.dumps(metadata).encode(),
        "build/torch-cpu/data/table.bin": LIBRARY * version,
        "build/torch-cuda/__init__.py": b"raise ImportError('not for this machine')\n",
        "build/torch-cuda/metadata.json": json.dumps(
            metadata | {"id": f"_toy_cuda_{version}", "backend": {"type": "cuda"}}
        ).encode(),
    }


def publish_bytes(root, scratch, repo, files, *, branch, parent=None, tags=()):
    """Publish files given as bytes."""
    places = {}
    for number, (path, data) in enumerate(files.items()):
        places[path] = (
            scratch / f"{branch.replace('/', '-')}-{len(list(scratch.iterdir()))}-{number}"
        )
        places[path].write_bytes(data)
    return publish(DirectoryHub(root), repo, places, branch=branch, parent=parent, tags=tags)


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    """A directory hub: ``acme/toy`` with main, v1 (two commits), v2 and tags; ``stranger/toy``."""
    root, scratch = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("scratch")
    repo = RepoId("acme", "toy")
    main = publish_bytes(root, scratch, repo, {"README.md": CARD}, branch="main")
    first = publish_bytes(
        root, scratch, repo, toy_files(1) | {"draft.txt": b"x"}, branch="v1", tags=["v1.0.0"]
    )
    v1 = publish_bytes(
        root, scratch, repo, toy_files(1), branch="v1", parent=first, tags=["v1.0.1"]
    )
    v2 = publish_bytes(root, scratch, repo, toy_files(2), branch="v2")
    slash = publish_bytes(root, scratch, repo, {"a/b.txt": b"slash"}, branch="feature/x")
    publish_bytes(root, scratch, RepoId("stranger", "toy"), toy_files(1), branch="v1")
    return SimpleNamespace(root=root, main=main, first=first, v1=v1, v2=v2, slash=slash)


@pytest.fixture(scope="session")
def served(serve, toys):
    """The directory hub of toys, served; ``acme`` is a trusted publisher."""
    return serve(toys.root, trusted=["acme"])


@pytest.fixture
def toy_version_files():
    return toy_files
