"""Writing to a directory hub by entries and by refs, as a server does."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_spec.directory import DirectoryHub, file_path, read_listing, read_refs, refs_stamp
from kernel_spec.errors import ConflictError, FormatError, IntegrityError
from kernel_spec.listing import hash_file
from kernel_spec.names import RepoId
from kernel_spec.publishing import publish
from kernel_spec.refs import RefKind, create_ref, create_repository, delete_ref
from kernel_spec.staging import HashedFile
from kernel_spec.wire import TreeFile

REPO = RepoId("acme", "toy")


@pytest.fixture
def hub(tmp_path):
    return DirectoryHub(tmp_path / "root")


@pytest.fixture
def source(tmp_path):
    def write(data, name="source"):
        place = tmp_path / name
        place.write_bytes(data)
        return place

    return write


@pytest.fixture
def first(hub, source):
    return publish(
        hub, REPO, {"a": source(b"a", "a"), "b": source(b"b", "b")}, branch="v1", parent=None
    )


def entries(hub, commit):
    return {file.path: file for file in read_listing(hub, REPO, commit).files}


def test_what_stays_is_linked_and_not_read(hub, source, first):
    stays = entries(hub, first)["a"]
    second = publish(hub, REPO, {"a": stays, "c": source(b"c")}, branch="v1", parent=first)
    assert entries(hub, second)["a"] == stays
    assert set(entries(hub, second)) == {"a", "c"}
    assert file_path(hub, REPO, first, "a").samefile(file_path(hub, REPO, second, "a"))


def test_what_stays_keeps_its_promise_without_links(hub, source, first, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
    held = entries(hub, first)
    second = publish(hub, REPO, {**held, "c": source(b"c")}, branch="v1", parent=first)
    assert file_path(hub, REPO, second, "a").read_bytes() == b"a"
    damaged = file_path(hub, REPO, second, "b")
    damaged.chmod(0o644)
    damaged.write_bytes(b"x")
    with pytest.raises(IntegrityError, match="bytes were changed"):
        publish(hub, REPO, held, branch="v1", parent=second)


def test_a_file_of_known_hashes_is_linked_and_not_read(hub, source, first):
    place = source(b"large", "large")
    place.chmod(0o444)
    size, oid, sha256 = hash_file(place)
    known = HashedFile(place, TreeFile(path="", size=size, oid=oid, sha256=sha256))
    second = publish(hub, REPO, {"x": known, "y": known}, branch="v1", parent=first)
    for path in "xy":
        assert file_path(hub, REPO, second, path).samefile(place)
        assert entries(hub, second)[path].sha256 == sha256
    wrong = HashedFile(place, TreeFile(path="", size=size + 1, oid=oid, sha256=sha256))
    with pytest.raises(IntegrityError, match="not as its commit says"):
        publish(hub, REPO, {"x": wrong}, branch="v1", parent=second)


def test_nobody_may_write_to_what_is_published(hub, source):
    tool = source(b"#!", "tool")
    tool.chmod(0o755)
    commit = publish(hub, REPO, {"a": source(b"a", "a"), "tool": tool}, branch="v1", parent=None)
    modes = [file_path(hub, REPO, commit, path).stat().st_mode & 0o777 for path in ("a", "tool")]
    assert modes == [0o444, 0o555]
    assert entries(hub, commit)["tool"].executable


@pytest.mark.parametrize("damage", ["missing", "longer", "link"])
def test_what_is_damaged_cannot_stay(hub, source, first, damage):
    place = file_path(hub, REPO, first, "a")
    place.unlink()
    if damage == "longer":
        place.write_bytes(b"aa")
    if damage == "link":
        place.symlink_to(source(b"a", "elsewhere"))
    with pytest.raises(IntegrityError, match="not as its commit says"):
        publish(hub, REPO, {**entries(hub, first), "c": source(b"c")}, branch="v1", parent=first)
    assert read_refs(hub, REPO).branches[0].commit == first


@pytest.mark.usefixtures("ordinary_user")
def test_what_cannot_be_looked_at_is_not_called_damaged(hub, source, first):
    folder = file_path(hub, REPO, first, "a").parent
    mode = folder.stat().st_mode
    folder.chmod(0)
    try:
        with pytest.raises(PermissionError, match=str(folder)):
            publish(
                hub, REPO, {**entries(hub, first), "c": source(b"c")}, branch="v1", parent=first
            )
    finally:
        folder.chmod(mode)
    assert read_refs(hub, REPO).branches[0].commit == first


def test_the_same_commit_again_is_the_same_commit(hub, source, first):
    files = {**entries(hub, first), "c": source(b"c")}
    second = publish(hub, REPO, files, branch="v1", parent=first)
    assert publish(hub, REPO, files, branch="v1", parent=first) == second
    assert read_refs(hub, REPO).branches[0].commit == second
    with pytest.raises(ConflictError, match="branch v1 is at"):
        publish(hub, REPO, {"c": source(b"other")}, branch="v1", parent=first)
    publish(hub, REPO, {"c": source(b"d")}, branch="v1", parent=second)
    with pytest.raises(ConflictError, match="branch v1 is at"):
        publish(hub, REPO, files, branch="v1", parent=first)


def test_a_new_repository_has_an_empty_main(hub):
    commit = create_repository(hub, REPO)
    assert [(ref.name, ref.commit) for ref in read_refs(hub, REPO).branches] == [("main", commit)]
    assert read_listing(hub, REPO, commit).files == ()
    assert file_path(hub, REPO, commit, "x").parent.is_dir()
    with pytest.raises(ConflictError, match="exists"):
        create_repository(hub, REPO)


@pytest.mark.parametrize("kind", RefKind)
def test_refs_are_made_once_and_taken_away(hub, first, kind):
    before = refs_stamp(hub, REPO)
    create_ref(hub, REPO, kind, "feature/x", first)
    made = refs_stamp(hub, REPO)
    names = [ref.name for ref in (*read_refs(hub, REPO).branches, *read_refs(hub, REPO).tags)]
    assert names.count("feature/x") == 1
    with pytest.raises(ConflictError, match="another"):
        create_ref(hub, REPO, kind, "feature/x", first)
    delete_ref(hub, REPO, kind, "feature/x")
    gone = refs_stamp(hub, REPO)
    assert "feature/x" not in str(read_refs(hub, REPO))
    assert len({before, made, gone}) == 3, "readers see each of them"
    with pytest.raises(FileNotFoundError):
        delete_ref(hub, REPO, kind, "feature/x")


def test_refs_that_cannot_be(hub, first):
    for name in ("", "..", "../../x", "a b", "x.lock"):
        with pytest.raises(FormatError):
            create_ref(hub, REPO, RefKind.BRANCH, name, first)
        with pytest.raises(FormatError):
            delete_ref(hub, REPO, RefKind.TAG, name)
    with pytest.raises(FileNotFoundError):
        create_ref(hub, REPO, RefKind.TAG, "x", "0" * 40)
    with pytest.raises(FileNotFoundError):
        create_ref(hub, RepoId("acme", "none"), RefKind.TAG, "x", first)


def test_one_of_many_makes_the_branch(hub, first):
    def make(_):
        try:
            create_ref(hub, REPO, RefKind.BRANCH, "v2", first)
        except ConflictError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(make, range(16))) == 1
