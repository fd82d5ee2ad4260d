"""A directory on disk as the store: nothing is served that its commit does not promise."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_hub.app import create_app
from kernel_hub.settings import HubSettings
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernel_spec.publishing import publish

REPO = RepoId("acme", "toy")
FILE = "/kernels/acme/toy/resolve/v1/build/torch-cpu/__init__.py"


@pytest.fixture
def disk(tmp_path, call_app):
    root, sources = tmp_path / "root", tmp_path / "sources"
    sources.mkdir()
    (tmp_path / "secret").write_bytes(b"VERSION = 1\n")

    def commit(files, *, branch, parent=None, tags=()):
        places = {}
        for number, (path, data) in enumerate(files.items()):
            places[path] = sources / str(number)
            places[path].write_bytes(data)
        return publish(DirectoryHub(root), REPO, places, branch=branch, parent=parent, tags=tags)

    files = {"build/torch-cpu/__init__.py": b"VERSION = 1\n", "README.md": b"# Toy\n"}
    v1 = commit(files, branch="v1", tags=["v1.0.0"])
    app = create_app(HubSettings(root=root))

    def ask(method, target, **rest):
        return call_app(app, method, target, **rest)

    snapshot = root / "acme/toy/snapshots" / v1
    place = snapshot / "build/torch-cpu/__init__.py"
    return SimpleNamespace(
        root=root, commit=commit, files=files, v1=v1, ask=ask, snapshot=snapshot, place=place
    )


def test_serves_what_was_published(disk):
    answer = disk.ask("GET", FILE)
    assert (answer.status, answer.body) == (200, b"VERSION = 1\n")
    assert answer.headers["x-repo-commit"] == disk.v1


def test_the_server_sends_whole_files_from_disk_and_parts_itself(disk):
    whole = disk.ask("GET", FILE, pathsend=True)
    assert Path(whole.pathsend).samefile(disk.place)
    assert whole.body == b"VERSION = 1\n"
    part = disk.ask("GET", FILE, pathsend=True, headers={"Range": "bytes=0-6"})
    assert (part.pathsend, part.body) == (None, b"VERSION")


def test_parts_larger_than_a_chunk(disk, monkeypatch):
    monkeypatch.setattr("kernel_hub.api.resolve.CHUNK", 3)
    assert disk.ask("GET", FILE, headers={"Range": "bytes=1-9"}).body == b"ERSION = "


def test_a_new_commit_is_seen_at_once(disk):
    assert disk.ask("GET", FILE).body == b"VERSION = 1\n"
    newer = disk.commit(
        disk.files | {"build/torch-cpu/__init__.py": b"VERSION = 1.1\n"},
        branch="v1",
        parent=disk.v1,
    )
    answer = disk.ask("GET", FILE)
    assert (answer.body, answer.headers["x-repo-commit"]) == (b"VERSION = 1.1\n", newer)
    assert disk.ask("GET", FILE.replace("/v1/", f"/{disk.v1}/")).body == b"VERSION = 1\n"


def test_a_repository_that_goes_away_is_not_found(disk):
    assert disk.ask("GET", FILE).status == 200
    shutil.rmtree(disk.root / "acme/toy")
    answer = disk.ask("GET", FILE)
    assert (answer.status, answer.headers["x-error-code"]) == (404, "RepoNotFound")


def test_owners(disk):
    assert disk.ask("GET", "/api/organizations/acme/overview").status == 200
    for owner in ("none", "..", "%2e", "acme%2ftoy"):
        assert disk.ask("GET", f"/api/organizations/{owner}/overview").status == 404


def test_commits_by_their_beginning(disk):
    def sha(repo, revision):
        return disk.ask("GET", f"/api/kernels/{repo}/revision/{revision}").json().get("sha")

    assert sha("acme/toy", disk.v1[:7]) == disk.v1
    disk.commit(disk.files | {"b": b""}, branch="v1", parent=disk.v1)
    (disk.root / "acme/toy/trees" / f"{disk.v1[:9]}-note.txt").write_bytes(b"")
    assert sha("acme/toy", disk.v1[:7]) == disk.v1
    assert sha("acme/toy", "0" * 7) is None
    (disk.root / "dev/toy/build").mkdir(parents=True)
    commit = sha("dev/toy", "main")
    assert sha("dev/toy", commit[:10]) == commit


def test_time_of_a_commit(disk):
    os.utime(disk.snapshot, (0, datetime(2026, 1, 2, tzinfo=UTC).timestamp()))
    answer = disk.ask("GET", "/api/kernels/acme/toy/revision/v1")
    assert answer.json()["lastModified"] == "2026-01-02T00:00:00.000Z"


@pytest.mark.parametrize("served_before", [False, True])
def test_edited_files_are_not_served(disk, served_before, caplog):
    if served_before:
        assert disk.ask("GET", FILE).status == 200
    disk.place.chmod(0o644)
    disk.place.write_bytes(b"VERSION = 6\n")
    answer = disk.ask("GET", FILE)
    assert answer.status == 500
    assert "is not as it was published" in answer.json()["error"]
    # Where things lie on the hub's disk is for its log.
    assert str(disk.root) not in answer.body.decode()
    assert str(disk.place) in caplog.text


@pytest.mark.parametrize("data", [b"", b"VERSION = 1\n" * 2])
def test_files_of_another_length_are_not_served(disk, data):
    disk.place.chmod(0o644)
    disk.place.write_bytes(data)
    assert disk.ask("HEAD", FILE).status == 500


def test_links_out_of_a_snapshot_are_not_followed(disk, tmp_path):
    # The very bytes that were promised, but from elsewhere.
    disk.place.unlink()
    disk.place.symlink_to(tmp_path / "secret")
    assert disk.ask("GET", FILE).status == 500


def test_linked_folders_are_not_followed(disk, tmp_path):
    shutil.move(disk.snapshot / "build", tmp_path / "elsewhere")
    (disk.snapshot / "build").symlink_to(tmp_path / "elsewhere")
    assert disk.ask("GET", FILE).status == 500


def test_files_beside_the_listing_are_not_there(disk, tmp_path):
    (disk.snapshot / "extra.txt").write_bytes(b"x")
    (disk.snapshot / "link.txt").symlink_to(tmp_path / "secret")
    for name in ("extra.txt", "link.txt", "..%2f..%2frefs%2fheads%2fv1", "../../refs/heads/v1"):
        assert disk.ask("GET", f"/kernels/acme/toy/resolve/v1/{name}").status == 404
    tree = disk.ask("GET", "/api/kernels/acme/toy/tree/v1")
    assert [entry["path"] for entry in tree.json()] == ["README.md", "build"]


def test_a_missing_file_is_damage_not_absence(disk):
    disk.place.unlink()
    assert disk.ask("GET", FILE).status == 500


def test_an_edited_listing_is_refused(disk, caplog):
    place = disk.root / "acme/toy/trees" / f"{disk.v1}.json"
    place.chmod(0o644)
    place.write_bytes(place.read_bytes().replace(b"README", b"readme"))
    answer = disk.ask("GET", "/api/kernels/acme/toy/tree/v1")
    assert answer.status == 500
    assert str(disk.root) not in answer.body.decode()
    assert str(place) in caplog.text


def test_a_repository_linked_from_another_disk(disk, tmp_path):
    shutil.move(disk.root / "acme/toy", tmp_path / "moved")
    (disk.root / "acme/toy").symlink_to(tmp_path / "moved")
    assert disk.ask("GET", FILE).body == b"VERSION = 1\n"


def test_a_project_folder_is_served_as_it_is_now(disk):
    place = disk.root / "dev/toy/build/torch-cpu/__init__.py"
    place.parent.mkdir(parents=True)
    target = "/kernels/dev/toy/resolve/main/build/torch-cpu/__init__.py"
    for data in (b"VERSION = 1\n", b"VERSION = 22\n"):
        place.write_bytes(data)
        assert disk.ask("GET", target).body == data
    (place.parent.parent.parent / "secret.key").write_bytes(b"x")
    assert disk.ask("GET", "/kernels/dev/toy/resolve/main/secret.key").status == 404
    answer = disk.ask("GET", f"/api/kernels/dev/toy/revision/{'0' * 40}")
    assert answer.headers["x-error-code"] == "RevisionNotFound"


@pytest.mark.parametrize(
    "target", ["refs", "revision/v1", "revision/" + "a" * 40, "revision/aaaaaaa", "tree/v1"]
)
def test_a_plain_file_where_an_owner_would_be_is_no_repository(disk, target):
    (disk.root / "README.md").write_text("not an owner")
    answer = disk.ask("GET", f"/api/kernels/README.md/toy/{target}")
    assert answer.status == 404
    assert answer.headers["x-error-code"] == "RepoNotFound"
