"""Offline, a cache that the published client filled gives the same kernel."""

from __future__ import annotations

import shutil

import pytest

import kernels
from kernel_spec.errors import IntegrityError
from kernels import trust
from kernels.errors import CacheError, NotCachedError, TrustError

COMMIT = "c0ffee" + "0" * 34
OTHER = "f00d" + "0" * 36


@pytest.fixture(params=["hub", "kernels"])
def repo(request, environment, make_variant, make_snapshot, monkeypatch):
    monkeypatch.setenv("KERNELS_HUB", "https://hub.corp")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    trusted = trust.Trusted(frozenset({trust.TrustedOwner("acme", "https://hub.corp")}))
    trust.write_trusted(environment / "home/.config/kernels", trusted)
    variant = make_variant(environment / "v", {"__init__.py": "VALUE = 4\n", "data.bin": b"\0\1"})
    if request.param == "kernels":
        return make_snapshot(environment / "cache", variant, COMMIT)
    monkeypatch.setenv("HF_HUB_CACHE", str(environment / "hf"))
    return make_snapshot(environment / "hf", variant, COMMIT)


@pytest.mark.parametrize(
    "arguments", [{}, {"version": 1}, {"revision": COMMIT}, {"revision": COMMIT[:8]}]
)
def test_a_snapshot_stands_in_for_its_hub(repo, arguments):
    assert kernels.get_kernel("acme/toy", **arguments).VALUE == 4


def test_a_named_ref_is_found(repo):
    (repo / "refs" / "feature").mkdir(parents=True)
    (repo / "refs" / "feature" / "x").write_text(COMMIT)
    assert kernels.get_kernel("acme/toy", revision="feature/x").VALUE == 4
    with pytest.raises(NotCachedError):
        kernels.get_kernel("acme/toy", revision="other")
    with pytest.raises(NotCachedError):
        kernels.get_kernel("acme/toy", version=2)


def test_the_latest_snapshot_of_a_version_is_taken(repo, make_variant, make_snapshot, environment):
    variant = make_variant(environment / "v2", {"__init__.py": "VALUE = 5\n"})
    make_snapshot(repo.parent, variant, OTHER)
    assert kernels.get_kernel("acme/toy", version=1).VALUE == 5


@pytest.mark.parametrize("target", ["nothing", OTHER])
def test_a_snapshot_that_leads_nowhere_hides_no_other(repo, target):
    (repo / "snapshots" / OTHER).symlink_to(target)
    assert kernels.get_kernel("acme/toy", version=1).VALUE == 4


def test_a_changed_blob_is_refused_and_the_snapshot_never_written(repo):
    before = sorted(path for path in repo.rglob("*"))
    for blob in (repo / "blobs").iterdir():
        if blob.read_bytes().startswith(b"VALUE"):
            blob.write_text("VALUE = 9\n")
            changed = blob
    with pytest.raises(IntegrityError, match=r"__init__\.py") as caught:
        kernels.get_kernel("acme/toy")
    assert f"{changed}, in the cache of the published client, holds other bytes" in str(
        caught.value
    )
    assert "Remove that file, and load the kernel once with the network on." in str(caught.value)
    assert "hub.corp" not in str(caught.value)
    assert sorted(path for path in repo.rglob("*")) == before


def test_a_file_that_promises_nothing_is_left_out(repo):
    place = repo / "snapshots" / COMMIT / "build" / "torch-cpu"
    (place / "__init__.py").unlink()
    (place / "__init__.py").write_text("raise SystemExit\n")
    with pytest.raises(NotCachedError):
        kernels.get_kernel("acme/toy")


@pytest.mark.parametrize("blob", ["blobs/{etag}.part", "elsewhere/{etag}"])
def test_a_link_that_promises_nothing_is_left_out(repo, blob):
    """The name of a blob says what its bytes are: no other name and no other folder does."""
    link = repo / "snapshots" / COMMIT / "build" / "torch-cpu" / "__init__.py"
    data, etag = link.read_bytes(), link.readlink().name
    place = repo / blob.format(etag=etag)
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(data)
    link.unlink()
    link.symlink_to(f"../../../../{blob.format(etag=etag)}")
    with pytest.raises(NotCachedError):
        kernels.get_kernel("acme/toy")


def test_a_blob_that_may_not_be_read_says_what_to_do(repo, ordinary_user):
    place = repo / "snapshots" / COMMIT / "build" / "torch-cpu" / "data.bin"
    place.resolve().chmod(0)
    with pytest.raises(CacheError, match=r"data\.bin.*Let this user read it"):
        kernels.get_kernel("acme/toy")


def test_a_variant_whose_blobs_are_gone_hides_no_other(repo):
    other = repo / "snapshots" / COMMIT / "build" / "torch-cuda"
    other.mkdir()
    (other / "__init__.py").symlink_to(f"../../../../blobs/{'a' * 40}")
    assert kernels.get_kernel("acme/toy").VALUE == 4


def test_a_folder_that_is_named_by_no_commit_is_no_snapshot(
    repo, make_variant, make_snapshot, environment
):
    variant = make_variant(environment / "v2", {"__init__.py": "VALUE = 5\n"})
    make_snapshot(repo.parent, variant, "backup")
    assert kernels.get_kernel("acme/toy", version=1).VALUE == 4


def test_metadata_alone_is_no_variant(repo):
    (repo / "snapshots" / COMMIT / "build" / "torch-cpu" / "__init__.py").unlink()
    assert not kernels.has_kernel("acme/toy")


def test_who_was_never_asked_for_is_not_trusted(repo, environment):
    shutil.rmtree(environment / "home/.config")
    with pytest.raises(TrustError, match="was never asked"):
        kernels.get_kernel("acme/toy")
    assert kernels.get_kernel("acme/toy", trust_remote_code=True).VALUE == 4
