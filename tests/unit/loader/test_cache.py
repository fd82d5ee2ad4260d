"""The cache: damage is found before anything runs, repaired online, refused offline."""

from __future__ import annotations

import json
import os
import shutil

import pytest

import kernels
import kernels.verify
from kernel_spec import directory, publishing
from kernel_spec.errors import IntegrityError
from kernel_spec.names import RepoId
from kernels.errors import CacheError
from kernels.load import forget

FILES = {"torch-cpu": {"__init__.py": "from .a import VALUE\n", "a.py": "VALUE = 1\n"}}


@pytest.fixture
def installed(publisher):
    publisher.publish("acme/toy", variants=FILES)
    return kernels.install_kernel("acme/toy")


def change_one_byte(variant):
    path = variant / "a.py"
    before = path.stat()
    path.write_text("VALUE = 7\n")
    assert path.stat().st_size == before.st_size


def truncate(variant):
    (variant / "a.py").write_text("")


def leave_only_metadata(variant):
    for path in variant.iterdir():
        if path.name != "metadata.json":
            path.unlink()


def add_a_module(variant):
    (variant / "extra.py").write_text("raise SystemExit\n")


def replace_by_link(variant):
    shutil.copy(variant / "a.py", variant.parent.parent / "outside.py")
    (variant / "a.py").unlink()
    (variant / "a.py").symlink_to(variant.parent.parent / "outside.py")


def change_metadata(variant):
    document = json.loads((variant / "metadata.json").read_text())
    (variant / "metadata.json").write_text(json.dumps({**document, "license": "none"}))


def lose_the_manifest(variant):
    (variant.parent / "manifest.json").unlink()


def promise_other_bytes(variant):
    (variant / "a.py").write_text("VALUE = 7\n")
    manifest = (variant.parent / "manifest.json").read_text()
    (variant.parent / "manifest.json").write_text(manifest.replace(" 10,", " 11,"))


DAMAGES = {
    change_one_byte: "a.py",
    truncate: "a.py",
    leave_only_metadata: "__init__.py",
    add_a_module: "extra.py",
    replace_by_link: "a.py",
    change_metadata: "metadata.json",
    lose_the_manifest: "manifest.json",
    promise_other_bytes: "manifest.json",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_repaired_online_with_one_warning(installed, damage, warnings_of):
    damage(installed)
    toy = kernels.get_kernel("acme/toy")
    assert toy.VALUE == 1
    assert toy.__file__ == str(installed / "__init__.py")
    assert len(warnings_of()) == 1
    assert DAMAGES[damage] in warnings_of()[0]
    assert sorted(path.name for path in installed.iterdir()) == [
        "__init__.py",
        "a.py",
        "metadata.json",
    ]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_refused_offline_and_names_the_file(installed, publisher, damage, monkeypatch):
    damage(installed)
    shutil.rmtree(publisher.hub.root)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(IntegrityError, match=DAMAGES[damage]) as error:
        kernels.get_kernel("acme/toy")
    assert "nothing of it was executed" in str(error.value)


def test_bytecode_in_the_cache_is_no_damage(installed, warnings_of):
    (installed / "__pycache__").mkdir()
    (installed / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"junk")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert warnings_of() == []


def test_an_unchanged_file_is_not_hashed_again(installed, monkeypatch):
    monkeypatch.setattr(kernels.verify, "hash_file", None)
    assert kernels.get_kernel("acme/toy").VALUE == 1


def test_a_touched_file_is_hashed_once_and_the_receipt_renewed(installed, monkeypatch, warnings_of):
    os.utime(installed / "a.py")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert warnings_of() == []
    monkeypatch.setattr(kernels.verify, "hash_file", None)
    forget()
    kernels.get_kernel("acme/toy")


def test_a_read_only_cache_keeps_its_receipts_in_the_state_directory(
    installed, monkeypatch, environment
):
    """Writing is made to fail, because a superuser may write to any directory."""
    os.utime(installed / "a.py")
    write = kernels.verify.write_whole

    def refuse(path, data):
        if (environment / "cache") in path.parents:
            raise OSError(30, "Read-only file system", str(path))
        write(path, data)

    monkeypatch.setattr("kernels.verify.write_whole", refuse)
    monkeypatch.setattr("kernels.store.write_whole", refuse)
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert list((environment / "home/.local/state/kernels/receipts").iterdir())
    monkeypatch.setattr(kernels.verify, "hash_file", None)
    forget()
    assert kernels.get_kernel("acme/toy").VALUE == 1


def test_a_warm_load_writes_nothing(installed, cache):
    kernels.get_kernel("acme/toy")
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    forget()
    kernels.get_kernel("acme/toy")
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


def test_a_hub_whose_bytes_differ_from_its_listing_is_refused(publisher, cache):
    commit = publisher.publish("acme/toy", variants=FILES)
    path = directory.file_path(publisher.hub, RepoId("acme", "toy"), commit, "build/torch-cpu/a.py")
    for content in ("VALUE = 7\n", "", "VALUE = 1\n# more\n"):
        path.chmod(0o644)
        path.write_text(content)
        with pytest.raises(IntegrityError, match=r"build/torch-cpu/a\.py"):
            kernels.get_kernel("acme/toy")
    assert list((cache / "tmp").iterdir()) == []
    assert not (cache / "variants").exists()


def test_a_variant_that_contradicts_its_own_metadata_is_not_installed(
    publisher, make_variant, cache
):
    project = publisher.projects / "p"
    variant = make_variant(project / "build" / "torch-cpu", FILES["torch-cpu"])
    (variant / "a.py").write_text("VALUE = 9\n")
    paths = {
        path.relative_to(project).as_posix(): path for path in project.rglob("*") if path.is_file()
    }
    publishing.publish(publisher.hub, RepoId("acme", "toy"), paths, branch="v1", parent=None)
    with pytest.raises(IntegrityError, match=r"a\.py: expected hash"):
        kernels.get_kernel("acme/toy")
    assert not (cache / "variants").exists()
    assert list((cache / "tmp").iterdir()) == []


def test_an_unchanged_variant_of_a_new_commit_is_not_fetched_again(publisher):
    publisher.publish("acme/toy", variants=FILES)
    first = kernels.install_kernel("acme/toy")
    publisher.publish("acme/toy", variants={**FILES, "torch-cuda": {"a.py": ""}})
    assert kernels.install_kernel("acme/toy") == first


def test_the_leftovers_of_a_killed_install_are_cleared_away(publisher, cache):
    publisher.publish("acme/toy", variants=FILES)
    place = kernels.install_kernel("acme/toy").parent
    [lock] = (cache / "locks").iterdir()
    leftover = cache / "tmp" / f"{lock.stem}-killed" / "torch-cpu"
    leftover.mkdir(parents=True)
    shutil.rmtree(place)
    kernels.install_kernel("acme/toy")
    assert list((cache / "tmp").iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(publisher, cache, monkeypatch):
    publisher.publish("acme/toy", variants=FILES)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kernels.receive.os.fsync", full)
    with pytest.raises(CacheError, match="No space left"):
        kernels.get_kernel("acme/toy")
    assert list((cache / "tmp").iterdir()) == []
    assert not (cache / "variants").exists() or not list((cache / "variants").iterdir())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99}', '{"format": 1, "refs": 3}'])
def test_a_damaged_record_counts_as_absent(installed, cache, content, monkeypatch):
    [record] = (cache / "refs").rglob("*.json")
    record.write_text(content)
    assert kernels.get_kernel("acme/toy").VALUE == 1
    [tree] = (cache / "trees").rglob("*.json")
    tree.write_text(content)
    forget()
    assert kernels.get_kernel("acme/toy").VALUE == 1
