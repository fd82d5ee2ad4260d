"""Writes over HTTP, on a directory: who may, what becomes of it, what stays as it was."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel_hub.app import create_app
from kernel_hub.auth import add_token
from kernel_hub.service import operations
from kernel_hub.settings import HubSettings
from kernel_hub.store.uploads import Uploads
from kernel_spec.directory import file_path, read_listing, read_refs
from kernel_spec.names import RepoId

REPO = RepoId("acme", "toy")
API = "/api/kernels/acme/toy"
OBJECTS = "/kernels/acme/toy.git/info/lfs/objects"
BIG = b"\x7fELF" + bytes(2000)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def changed(data):
    return data[:-1] + b"x"


def add(path, data=b"x"):
    content = base64.b64encode(data).decode()
    return {"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}}


def large(path, data=BIG, **more):
    value = {"path": path, "algo": "sha256", "oid": sha256(data), "size": len(data)}
    return {"key": "lfsFile", "value": value | more}


def delete(path, key="deletedFile"):
    return {"key": key, "value": {"path": path}}


@pytest.fixture
def toy(desk):
    assert desk.create().status == 200
    assert (
        desk.commit(add("README.md"), add("build/torch-cpu/__init__.py", b"V = 1\n")).status == 200
    )
    return desk


WRITES = [
    ("POST", "/api/repos/create", {"type": "kernel", "organization": "acme", "name": "new"}),
    ("POST", f"{API}/branch/v1", {}),
    ("DELETE", f"{API}/branch/v1", {}),
    ("POST", f"{API}/tag/main", {"tag": "t"}),
    ("DELETE", f"{API}/tag/t", {}),
    ("POST", f"{API}/preupload/main", {"files": []}),
    ("POST", f"{API}/commit/main", b""),
    ("POST", f"{OBJECTS}/batch", {"operation": "upload", "objects": []}),
    ("POST", f"{OBJECTS}/verify", {"oid": "0" * 64, "size": 1}),
]


@pytest.mark.parametrize(("method", "target", "body"), WRITES)
def test_every_write_needs_the_right_token(toy, method, target, body):
    before = sorted(toy.root.rglob("*"))
    none = toy.ask(method, target, body, secret=None)
    assert none.status == 401
    assert "kernel-hub add-token" in none.json()["error"]
    wrong = toy.ask(method, target, body, secret="khub_wrong")
    assert wrong.status == 401
    assert wrong.headers["x-error-message"] == "Invalid credentials in Authorization header"
    other = toy.ask(method, target, body, secret=add_token(toy.tokens, name="o", owners=["other"]))
    assert other.status == 403
    assert "it is for repositories of other" in other.json()["error"]
    assert sorted(toy.root.rglob("*")) == before


@pytest.mark.parametrize(
    ("method", "target", "body"), [*WRITES, ("PUT", f"{OBJECTS}/{'0' * 64}", b"")]
)
def test_without_a_file_of_tokens_nobody_writes(desk, method, target, body):
    desk.app = create_app(HubSettings(root=desk.root))
    answer = desk.ask(method, target, body)
    assert (answer.status, answer.headers["x-error-code"]) == (501, "NotImplemented")
    assert "This hub is read-only" in answer.json()["error"]


def test_a_token_that_was_taken_away_is_of_no_use(toy):
    toy.tokens.write_text("")
    assert toy.commit(add("a")).status == 401
    toy.tokens.write_text("[[")
    assert toy.commit(add("a")).status == 500
    assert "a" not in toy.files()


def test_a_token_that_expired_says_when(toy):
    toy.tokens.write_text(toy.tokens.read_text() + "expires = 2024-02-29\n")
    answer = toy.ask("POST", f"{API}/branch/v1", {})
    assert (answer.status, "ci expired on 2024-02-29" in answer.json()["error"]) == (401, True)
    assert toy.ask("GET", f"{API}/refs", secret=None).status == 200, "reading needs none"


def test_who_am_i(desk):
    answer = desk.ask("GET", "/api/whoami-v2")
    assert (answer.status, answer.json()["name"]) == (200, "ci")
    assert [org["name"] for org in answer.json()["orgs"]] == ["acme"]
    assert desk.ask("GET", "/api/whoami-v2", secret="x").status == 401
    assert desk.secret not in answer.body.decode()


def test_a_repository_is_made_once_with_an_empty_main(desk):
    answer = desk.create()
    assert (answer.status, answer.json()["url"]) == (200, "http://hub.test:8600/kernels/acme/toy")
    assert desk.files() == {}
    again = desk.create()
    assert (again.status, again.json()["url"]) == (409, answer.json()["url"])
    assert desk.ask("GET", API, secret=None).json()["sha"] == desk.head()


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"type": "dataset"}, 400, "kernels only"),
        ({"visibility": "private"}, 400, "no private repositories"),
        ({"private": True}, 400, "no private repositories"),
        ({"organization": None}, 400, "OWNER/toy"),
        ({"name": "../x"}, 400, "not the id"),
        ({"name": None}, 400, "expected a text"),
        ({"organization": "other"}, 403, "may not write"),
    ],
)
def test_repositories_that_are_not_made(desk, change, status, said):
    answer = desk.create(**change)
    assert (answer.status, said in answer.json()["error"]) == (status, True)
    assert not list(desk.root.iterdir())


def test_branches_and_tags(toy):
    main = toy.head()
    assert toy.ask("POST", f"{API}/branch/v1", {}).status == 200
    assert toy.ask("POST", f"{API}/branch/v1", {}).status == 409
    assert toy.ask("POST", f"{API}/branch/feature%2Fx", {"startingPoint": "v1"}).status == 200
    assert toy.ask("POST", f"{API}/tag/v1", {"tag": "v1.0.0", "message": "m"}).status == 200
    assert toy.ask("POST", f"{API}/tag/v1", {"tag": "v1.0.0"}).status == 409
    refs = read_refs(toy.hub, REPO)
    assert {ref.name: ref.commit for ref in refs.branches} == dict.fromkeys(
        ["main", "v1", "feature/x"], main
    )
    assert [ref.name for ref in refs.tags] == ["v1.0.0"]
    for target in ("branch/v1", "branch/feature%2Fx", "tag/v1.0.0"):
        assert toy.ask("DELETE", f"{API}/{target}").status == 200
        gone = toy.ask("DELETE", f"{API}/{target}")
        assert (gone.status, gone.headers["x-error-code"]) == (404, "RevisionNotFound")
    assert toy.ask("DELETE", f"{API}/branch/main").status == 400
    assert toy.files()


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        ("branch/..%2F..%2Fx", {}, 400),
        ("branch/a%20b", {}, 400),
        ("branch/refs%2Fheads%2Fx", {}, 400),
        ("branch/" + "0" * 40, {}, 400),
        ("branch/x", {"startingPoint": "none"}, 404),
        ("branch/x", {"startingPoint": 1}, 400),
        ("branch/x", b"[]", 400),
        ("branch/x", b"{", 400),
        ("branch/x", b"[" * 100_000, 400),
        ("branch/x", b" " * (5 * 1024**2), 413),
        ("tag/none", {"tag": "x"}, 404),
        ("tag/main", {}, 400),
    ],
)
def test_refs_that_are_not_made(toy, target, body, status):
    before = read_refs(toy.hub, REPO)
    assert toy.ask("POST", f"{API}/{target}", body).status == status
    assert read_refs(toy.hub, REPO) == before


def test_which_way_a_file_comes_and_what_is_there(toy):
    sizes = {"README.md": 1, "empty": 0, "a.so": 10 * 1024**2, "b.so": 10 * 1024**2 + 1}
    files = [{"path": path, "sample": "", "size": size} for path, size in sizes.items()]
    answer = toy.ask("POST", f"{API}/preupload/main", {"files": files}).json()["files"]
    assert [(file["path"], file["uploadMode"]) for file in answer] == [
        ("README.md", "regular"),
        ("empty", "regular"),
        ("a.so", "regular"),
        ("b.so", "lfs"),
    ]
    assert not any(file["shouldIgnore"] for file in answer)
    blob = hashlib.sha1(b"blob 1\0x").hexdigest()
    assert [file.get("oid") for file in answer] == [blob, None, None, None]
    toy.restart(max_file_size=5)
    assert toy.ask("POST", f"{API}/preupload/main", {"files": files[-1:]}).status == 413
    assert toy.ask("POST", f"{API}/preupload/none", {"files": files}).status == 404
    for bad in ({}, {"files": [{}]}, {"files": [{"path": "a", "size": -1}]}, {"files": 1}):
        assert toy.ask("POST", f"{API}/preupload/main", bad).status == 400


def test_one_commit_of_many_operations(toy):
    parent = toy.head()
    assert toy.put(BIG).status == 200
    answer = toy.commit(
        delete("build", "deletedFolder"),
        add("build/torch-cuda/__init__.py", b""),
        large("build/torch-cuda/big.so"),
        add("odd ü#%?&+ name", "Käse".encode()),
        delete("README.md"),
        parent=parent,
    )
    assert answer.status == 200
    assert answer.json()["commitOid"] == toy.head()
    assert answer.json()["commitUrl"].endswith(f"/kernels/acme/toy/commit/{toy.head()}")
    assert toy.files() == {
        "build/torch-cuda/__init__.py": b"",
        "build/torch-cuda/big.so": BIG,
        "odd ü#%?&+ name": "Käse".encode(),
    }
    listing = read_listing(toy.hub, REPO, toy.head())
    assert listing.parent == parent
    assert toy.waiting() == [], "nothing is left over"


def test_a_stale_parent_is_a_conflict_and_the_same_again_is_not(toy):
    parent = toy.head()
    first = toy.commit(add("a"), parent=parent)
    again = toy.commit(add("a"), parent=parent)
    assert (again.status, again.json()["commitOid"]) == (200, first.json()["commitOid"])
    stale = toy.commit(add("b"), parent=parent)
    assert stale.status == 412
    assert "somebody else has published" in stale.json()["error"]
    assert toy.commit(add("b"), parent="0" * 40).status == 412
    assert toy.commit(add("b"), parent="v1").status == 400
    assert toy.head() == first.json()["commitOid"]
    assert toy.commit(add("a")).json()["commitOid"] == toy.head(), "nothing new, no commit"


def test_one_of_many_on_the_same_parent_wins(toy):
    parent = toy.head()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: toy.commit(add(f"f{n}"), parent=parent), range(16)))
    assert sorted(answer.status for answer in answers) == [200] + [412] * 15
    assert len(toy.files()) == 3


def test_without_a_parent_all_of_many_are_kept(toy):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: toy.commit(add(f"f{n}")), range(16)))
    assert {answer.status for answer in answers} == {200}
    assert {f"f{n}" for n in range(16)} <= toy.files().keys()


@pytest.mark.parametrize("key", ["deletedFile", "deletedFolder"])
def test_what_is_not_there_cannot_be_deleted(toy, key):
    answer = toy.commit(add("a"), delete("build/none", key))
    assert (answer.status, answer.headers["x-error-code"]) == (404, "EntryNotFound")
    assert "A file with this name doesn't exist" in answer.json()["error"]
    assert "a" not in toy.files()


@pytest.mark.parametrize(
    "lines",
    [
        [add("../escape")],
        [add("/etc/passwd")],
        [add("build/../../x")],
        [add("a\\b")],
        [add(".git/config")],
        [add("C:x")],
        [add("")],
        [add("a\0b")],
        [add("a"), add("A")],
        [add("caf\u00e9"), add("cafe\u0301")],
        [add("Stra\u00dfe"), add("STRASSE")],
        [add("README.md/x")],
        [add("x" * 300)],
        [add("/".join(["deep"] * 300))],
        [large("../big")],
        [delete("../README.md")],
        [{"key": "file", "value": {"path": "a", "content": "!!", "encoding": "base64"}}],
        [{"key": "file", "value": {"path": "a", "content": "x", "encoding": "rot13"}}],
        [{"key": "file", "value": {"path": "a", "content": "\ud800"}}],
        [{"key": "file", "value": {"path": "a"}}],
        [{"key": "file", "value": {"content": "x"}}],
        [{"key": "lfsFile", "value": {"path": "a", "oid": "../../x", "algo": "sha256"}}],
        [{"key": "lfsFile", "value": {"path": "a", "oid": "0" * 64, "algo": "md5"}}],
        [large("a", size=-1)],
        [large("never-uploaded.so")],
        [{"key": "symlink", "value": {"path": "a"}}],
        [{"key": "header", "value": {}}, add("a")],
        [{"key": "file"}],
        ["text"],
        [],
    ],
)
def test_commits_that_cannot_be(toy, lines):
    before = (toy.head(), sorted(path.name for path in toy.root.parent.rglob("*")))
    answer = toy.commit(*lines)
    assert answer.status == 400, answer.body
    assert (toy.head(), sorted(path.name for path in toy.root.parent.rglob("*")))[0] == before[0]
    assert toy.waiting() == []
    assert not (toy.root.parent / "escape").exists()


def test_a_commit_begins_with_its_header(toy):
    assert toy.commit(add("a"), header=False).status == 400
    assert toy.ask("POST", f"{API}/commit/main", b"").status == 400
    assert toy.ask("POST", f"{API}/commit/main", b"\xff\n").status == 400
    answer = toy.ask("POST", f"{API}/commit/none", b"")
    assert (answer.status, answer.headers["x-error-code"]) == (404, "RevisionNotFound")
    assert toy.ask("POST", "/api/kernels/acme/none/commit/main", b"").status == 404
    assert not (toy.root / "acme/none").exists()


def test_only_branches_are_committed_to(toy):
    toy.ask("POST", f"{API}/tag/main", {"tag": "v1.0.0"})
    for revision in ("v1.0.0", toy.head()):
        assert toy.commit(add("a"), branch=revision).status == 404
    assert toy.commit(add("a"), branch="refs%2Fheads%2Fmain").status == 200


def test_limits(toy, monkeypatch):
    monkeypatch.setattr(operations, "LINE_LIMIT", 1000)
    answer = toy.commit(add("a"), add("b", bytes(2000)))
    assert (answer.status, "Line 3" in answer.json()["error"]) == (413, True)
    monkeypatch.setattr(operations, "OPERATIONS_LIMIT", 3)
    assert toy.commit(*(add(f"f{n}") for n in range(4))).status == 413
    monkeypatch.setattr("kernel_hub.api.commit.BODY_LIMIT", 100)
    assert toy.commit(*(add(f"f{n}") for n in range(3))).status == 413
    assert toy.waiting() == []
    assert len(toy.files()) == 2


def test_a_file_within_a_commit_has_the_limit_of_any_other(toy):
    toy.restart(max_file_size=5)
    assert toy.commit(add("a", b"12345")).status == 200
    answer = toy.commit(add("b", b"123456"))
    assert (answer.status, "at most 5 bytes" in answer.json()["error"]) == (413, True)
    assert toy.waiting() == []


def test_a_full_disk_is_told_and_leaves_nothing(toy, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = toy.head()
    monkeypatch.setattr("kernel_spec.staging.stage_files", fail)
    answer = toy.commit(add("a"))
    assert (answer.status, "disk of this hub is full" in answer.json()["error"]) == (507, True)
    monkeypatch.undo()
    assert toy.head() == before
    assert toy.waiting() == []
    assert toy.commit(add("a")).status == 200


def test_who_leaves_before_the_end_has_changed_nothing(toy):
    before = toy.head()
    line = json.dumps({"key": "header", "value": {"summary": ""}}).encode() + b"\n"
    whole = line + json.dumps(add("a")).encode() + b"\n"
    assert toy.ask("POST", f"{API}/commit/main", whole, leaves=True).status == 400
    assert toy.put(BIG, leaves=True).status == 400
    assert toy.head() == before
    assert toy.waiting() == []


def test_large_files_come_before_their_commit(toy):
    wanted = {"oid": sha256(BIG), "size": len(BIG)}
    answer = toy.batch(wanted)
    assert answer.headers["content-type"] == "application/vnd.git-lfs+json"
    [entry] = answer.json()["objects"]
    assert entry["actions"]["verify"]["href"].endswith(f"{OBJECTS}/verify")
    assert toy.ask("POST", f"{OBJECTS}/verify", wanted).status == 400, "it has not come yet"
    assert toy.put(BIG).status == 200
    assert toy.ask("POST", f"{OBJECTS}/verify", wanted).status == 200
    assert toy.ask("POST", f"{OBJECTS}/verify", wanted | {"size": 1}).status == 400
    assert "actions" not in toy.batch(wanted).json()["objects"][0], "who comes again sends nothing"
    assert toy.commit(large("big.so", size=1)).status == 400
    assert toy.commit(large("big.so")).status == 200
    assert toy.waiting() == []
    assert "actions" not in toy.batch(wanted).json()["objects"][0]
    assert toy.ask("POST", f"{OBJECTS}/verify", wanted).status == 200
    copy = large("copy.so")
    del copy["value"]["size"]
    assert toy.commit(copy).status == 200
    assert toy.files()["copy.so"] == BIG


def test_large_files_on_a_file_system_without_links(toy, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(os, "link", refuse)
    assert toy.put(BIG).status == 200
    assert toy.commit(large("big.so")).status == 200
    assert toy.files()["big.so"] == BIG
    assert toy.waiting() == []


def test_a_large_file_is_replaced_by_another_of_its_size(toy):
    toy.put(BIG)
    assert toy.commit(large("a.so")).status == 200
    assert toy.commit(large("a.so", changed(BIG))).status == 400, "its bytes were not uploaded"
    assert toy.files()["a.so"] == BIG
    toy.put(changed(BIG))
    assert toy.commit(large("a.so", changed(BIG))).status == 200
    assert toy.files()["a.so"] == changed(BIG)


@pytest.mark.parametrize(
    ("sent", "status"), [(changed(BIG), 400), (BIG[:-1], 400), (BIG + b"x", 413), (b"", 400)]
)
def test_bytes_that_were_not_announced_are_not_kept(toy, sent, status):
    href = toy.href(BIG)
    answer = toy.ask("PUT", f"{href.path}?{href.query}", sent, secret=None)
    assert answer.status == status
    assert toy.waiting() == []
    assert toy.commit(large("big.so")).status == 400


def test_upload_urls_are_signed_for_one_object(toy, monkeypatch):
    href = toy.href(BIG)

    def put(path=href.path, query=href.query):
        return toy.ask("PUT", f"{path}?{query}", BIG, secret=None).status

    assert put(query="") == 403
    assert put(query=href.query.replace("size=", "size=1")) == 403
    assert put(path=href.path.replace(sha256(BIG), "0" * 64)) == 403
    assert put(path=href.path.replace("/toy.git", "/other.git")) == 403
    assert put(query=href.query[:-1]) == 403
    later = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: later)
    assert put() == 403
    assert toy.waiting() == []


def test_neither_tokens_nor_signatures_are_logged(toy, caplog):
    with caplog.at_level(logging.DEBUG):
        href = toy.href(BIG)
        toy.ask("PUT", f"{href.path}?{href.query}", BIG, secret=None)
        toy.commit(large("big.so"))
        toy.ask("GET", "/api/whoami-v2", secret="khub_somebody_elses")
    assert "signature=..." in caplog.text
    assert href.query.rpartition("signature=")[2] not in caplog.text
    assert toy.secret not in caplog.text
    assert "somebody_elses" not in caplog.text


def test_what_a_batch_refuses(toy):
    assert toy.batch({"oid": "x", "size": 1}).status == 400
    assert toy.batch({"oid": "0" * 64, "size": "1"}).status == 400
    assert toy.batch("x").status == 400
    assert toy.batch(operation="download").status == 501
    toy.restart(max_file_size=10)
    [entry] = toy.batch({"oid": sha256(BIG), "size": len(BIG)}).json()["objects"]
    assert entry["error"]["code"] == 413
    assert "at most 10 bytes" in entry["error"]["message"]


def test_what_killed_clients_left_is_swept(toy):
    toy.put(BIG)
    uploads = Uploads(toy.hub)
    folder = toy.root / "acme/toy/.uploads"
    (folder / "dead.part").write_bytes(b"x")
    (folder / "dead.commit").mkdir()
    (folder / "dead.commit/body").write_bytes(b"x")
    toy.restart()
    assert len(toy.waiting()) == 3, "they may be still coming"
    old = time.time() - 25 * 3600
    for place in folder.iterdir():
        os.utime(place, (old, old))
    (folder / "young.part").write_bytes(b"x")
    toy.restart()
    assert toy.waiting() == ["young.part"]
    uploads.sweep(REPO, older_than=0)
    assert toy.waiting() == []


def test_a_plain_folder_is_not_written_to(desk):
    (desk.root / "acme/toy/build/torch-cpu").mkdir(parents=True)
    (desk.root / "acme/toy/build/torch-cpu/__init__.py").write_bytes(b"")
    answer = desk.commit(add("a"))
    assert (answer.status, "plain folder" in answer.json()["error"]) == (400, True)
    assert desk.ask("POST", f"{API}/branch/v1", {}).status in (400, 404)
    assert desk.create().status == 409
    assert sorted(
        path.name for path in (desk.root / "acme/toy").iterdir() if path.name[0] != "."
    ) == ["build"]


def test_kept_files_that_are_damaged_stop_the_commit(toy):
    place = file_path(toy.hub, REPO, toy.head(), "README.md")
    place.unlink()
    before = toy.head()
    assert toy.commit(add("a")).status == 500
    assert toy.head() == before


def test_the_card_is_taken_as_it_is(desk):
    answer = desk.ask("POST", "/api/validate-yaml", {"content": "---\n---", "repoType": "kernel"})
    assert answer.json() == {"errors": [], "warnings": []}


def test_xet_is_refused_with_the_way_out(toy):
    answer = toy.ask("GET", f"{API}/xet-write-token/main")
    assert answer.status == 501
    assert "HF_HUB_DISABLE_XET=1" in answer.json()["error"]
