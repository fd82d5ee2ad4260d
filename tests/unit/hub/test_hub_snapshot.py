"""Git's form of a commit: what `git` itself would say of the same files."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from kernel_hub.service.lfs import LARGE_FROM, is_large
from kernel_hub.service.snapshot import TreeDirectory, make_snapshot, walk
from kernel_spec.directory import Listing
from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile

REPO = RepoId("acme", "toy")


@pytest.mark.parametrize(
    ("path", "size", "large"),
    [
        ("a/libx.so", 1, True),
        ("libx.so.1.2", 1, True),
        ("_ops.ABI3.SO", 1, True),
        ("kernel.cubin", 1, True),
        ("plot.png", 1, True),
        ("src/so.py", 10, False),
        ("dir.so/readme", 10, False),
        ("README.md", LARGE_FROM - 1, False),
        ("README.md", LARGE_FROM, True),
    ],
)
def test_which_files_are_large(path, size, large):
    assert is_large(path, size) is large


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_tree_ids_are_those_of_git(tmp_path, memory_store):
    # Names whose order differs between folders and files: "a.b" < "a/" < "a0".
    files = {"a/x": b"1", "a.b": b"2", "a0": b"3", "run.sh": b"4", "a/deep/y": b"5", "ä": b""}
    store = memory_store()
    commit = store.commit(REPO, "main", files)
    snapshot = make_snapshot(REPO, commit, store.read_listing(REPO, commit))
    for path, data in files.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o755 if path.endswith(".sh") else 0o644)

    def git(*command):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "none")}
        done = subprocess.run(
            ["git", *command], cwd=tmp_path, env=environment, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    git("init", "-q")
    git("add", ".")
    tree = git("write-tree")
    for folder in ("a", "a/deep"):
        assert snapshot.entries[folder].oid == git("rev-parse", f"{tree}:{folder}")


def test_walk_gives_a_folder_before_its_members():
    listing = Listing(
        None, tuple(TreeFile(path=p, size=0, oid="e" * 40) for p in ("a/b/c", "a/d", "e"))
    )
    snapshot = make_snapshot(REPO, "0" * 40, listing)
    assert [entry.path for entry in walk(snapshot, "")] == ["a", "a/b", "a/b/c", "a/d", "e"]
    assert isinstance(snapshot.entries["a/b"], TreeDirectory)


def test_empty_commit():
    snapshot = make_snapshot(REPO, "0" * 40, Listing(None, ()))
    assert list(walk(snapshot, "")) == []


def test_without_a_sha256_a_binary_stays_a_blob():
    file = TreeFile(path="x.so", size=1, oid="a" * 40)
    snapshot = make_snapshot(REPO, "0" * 40, Listing(None, (file,)))
    assert snapshot.entries["x.so"] == file
