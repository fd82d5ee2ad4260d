"""A directory hub of toys, and the same served, for the unmodified clients to use."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from kernel_spec.directory import DirectoryHub, file_path, publish, read_listing, read_refs
from kernel_spec.names import RepoId
from kernel_spec.staging import is_intact

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


@pytest.fixture
def writable(serve, tmp_path):
    """An empty hub that the holder of ``.token`` writes to as ``acme``; ``.environ`` has the token."""
    root, tokens, home = tmp_path / "root", tmp_path / "tokens.toml", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    command = [
        sys.executable,
        "-m",
        "kernel_hub",
        "add-token",
        str(tokens),
        "ci",
        "--owner",
        "acme",
    ]
    token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    options = ["--tokens", str(tokens)]

    def start():
        return serve(root, trusted=["acme"], options=options)

    return SimpleNamespace(
        root=root,
        tokens=tokens,
        home=home,
        token=token,
        start=start,
        hub=start(),
        environ={"HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"},
        whole=lambda repo="acme/toy": read_whole(root, repo),
        waiting=lambda: sorted(path.name for path in root.glob("acme/toy/.uploads/*")),
    )


def read_whole(root, name):
    """Return the files of each branch; every byte is checked against the commit's listing."""
    hub, repo = DirectoryHub(root), RepoId(*name.split("/"))
    branches = {}
    for ref in read_refs(hub, repo).branches:
        files = read_listing(hub, repo, ref.commit).files
        places = {file.path: file_path(hub, repo, ref.commit, file.path) for file in files}
        assert all(is_intact(places[file.path], file) for file in files)
        branches[ref.name] = {path: place.read_bytes() for path, place in places.items()}
    return branches
