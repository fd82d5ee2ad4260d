"""The hub as a process of its own, and the published clients, for every integration test."""

from __future__ import annotations

import platform
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import peers
import pytest
from lacking import give_up

from kernel_spec.directory import DirectoryHub, file_path, read_listing, read_refs
from kernel_spec.names import RepoId
from kernel_spec.staging import is_intact

# A shell starts what it puts in the background with interrupts ignored, and a child inherits that:
# the processes that tests interrupt would never hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def serve(tmp_path_factory):
    """Serve a directory hub: ``serve(root, *, trusted=(), options=()) -> .url .requests() .stop()``."""
    with ExitStack() as stack:

        def start(root, *, trusted=(), host="127.0.0.1", options=()):
            log = tmp_path_factory.mktemp("hub") / "stderr.log"
            return stack.enter_context(
                peers.serve_hub(root, log, trusted=trusted, host=host, options=options)
            )

        yield start


def venv_or_skip(make, *requirements):
    """Make a peer's environment; where that fails, fail in CI and skip elsewhere."""
    try:
        return make(*requirements)
    except peers.PeerUnavailableError as err:
        give_up(err)


@pytest.fixture(scope="session")
def other_cpu():
    """The name of another processor that this machine has a compiler for."""
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
    if shutil.which(compiler := f"{other}-linux-gnu-g++") is None:
        give_up(f"no {compiler}")
    return other


@pytest.fixture(scope="session")
def reference():
    """The published ``kernels`` 0.17.2 with ``huggingface_hub`` 2.4.0."""
    return venv_or_skip(peers.reference_venv)


@pytest.fixture(scope="session")
def hub_1_10():
    """The oldest ``huggingface_hub`` that knows repositories of kernels."""
    return venv_or_skip(peers.make_venv, "huggingface_hub==1.10.*")


@pytest.fixture(scope="session")
def old_kernels():
    """The published ``kernels`` 0.12.3, which publishes by itself, as a model."""
    return venv_or_skip(peers.make_torch_venv, "kernels==0.12.3", "huggingface_hub==1.10.*")


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
