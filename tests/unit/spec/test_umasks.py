"""Who publishes with a private umask keeps nobody from what is there: one ref that cannot be read hides them all."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId

REPO = RepoId("acme", "toy")


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("mask", [0o077, 0o777, 0o000])
def test_what_is_published_into_a_shared_repository_can_be_read_by_all(tmp_path, mask):
    hub, source = DirectoryHub(tmp_path / "hub"), tmp_path / "a.py"
    source.write_text("1")
    with umask(0o022):
        first = publishing.publish(hub, REPO, {"a.py": source}, branch="v1", parent=None)
    source.write_text("2")
    with umask(mask):
        publishing.publish(hub, REPO, {"a.py": source}, branch="v1", parent=first, tags=("v1.0.0",))
        publishing.publish(hub, REPO, {"b.py": source}, branch="v2", parent=None)
    places = [hub.root, *hub.root.rglob("*")]
    for place in places:
        mode = place.stat().st_mode
        if place.name == ".lock":
            continue
        assert mode & 0o444 == 0o444, place
        assert not place.is_dir() or mode & 0o111 == 0o111, place
        assert place.is_dir() or not mode & 0o022, f"{place}: others may write to it"
