"""A directory hub of toys, and the same served, for the unmodified clients to use."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernel_spec.publishing import publish

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
