"""Bodies of writes with every part of them replaced by nonsense: refused, and nothing fails or stays."""

from __future__ import annotations

import copy
import json
import shutil

import pytest

from kernel_hub.service.received import load_received
from kernel_spec import directory

API = "/api/kernels/acme/toy"
OBJECTS = "/kernels/acme/toy.git/info/lfs/objects"
HASH = "0" * 64
BODIES = {
    "/api/repos/create": {
        "type": "kernel",
        "organization": "acme",
        "name": "new",
        "visibility": "public",
    },
    f"{API}/branch/v9": {"startingPoint": "main"},
    f"{API}/tag/main": {"tag": "v9", "message": "m"},
    f"{API}/preupload/main": {"files": [{"path": "a", "size": 1, "sample": "AA=="}]},
    f"{API}/discussions": {"title": "t", "description": "d", "pullRequest": True},
    f"{API}/discussions/1/status": {"status": "closed"},
    f"{OBJECTS}/batch": {
        "operation": "upload",
        "hash_algo": "sha256",
        "objects": [{"oid": HASH, "size": 1}],
    },
    f"{OBJECTS}/verify": {"oid": HASH, "size": 1},
}
LINES = [
    {"key": "header", "value": {"summary": "s", "description": "d", "parentCommit": None}},
    {"key": "file", "value": {"path": "a", "content": "eA==", "encoding": "base64"}},
    {"key": "lfsFile", "value": {"path": "b", "algo": "sha256", "oid": HASH, "size": 1}},
    {"key": "deletedFile", "value": {"path": "README.md"}},
]
HALF = "half \ud800 of a character"
NONSENSE = [HALF, None, True, -1, 1.5, 10**30, [], ["x"], {}, {"x": 1}, "", "\0", "x" * 100_000]


def places(value, path=()):
    """Yield the path of every part of a document."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


def changed(document, path, value):
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


@pytest.fixture
def toy(desk):
    desk.create()
    added = {"key": "file", "value": {"path": "README.md", "content": "x"}}
    assert desk.commit(added).status == 200
    assert desk.ask("POST", f"{API}/discussions", BODIES[f"{API}/discussions"]).status == 200
    return desk


def nonsense(document):
    """Yield what replaces a part, and the document with it there."""
    for path in places(document):
        for value in NONSENSE:
            yield value, changed(document, path, value)


@pytest.mark.parametrize("target", BODIES)
def test_a_body_of_nonsense_is_answered(toy, target):
    for value, body in nonsense(BODIES[target]):
        answer = toy.ask("POST", target, body)
        assert answer.status < 500 or answer.status == 501, body  # what this hub does not do
        assert answer.status != 200 or value is not HALF


@pytest.mark.parametrize("query", ["", "?create_pr=1"])
def test_a_commit_of_nonsense_is_answered(toy, query):
    for _, lines in nonsense(LINES):
        assert 400 <= toy.commit(*lines, header=False, query=query).status < 500, lines
    assert toy.files() == {"README.md": b"x"}
    assert toy.waiting() == []


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[" * 100_000,
        b'{"a": "\xff"}',
        b'{"a": "\\uD800"}',
        b'{"\\udfff": 1}',
        b'[{"a": ["\\udc00\\ud800"]}]',
        '{"a": 1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"9" * 5000,
    ],
)
def test_what_is_no_json_that_can_be_written_again(data):
    with pytest.raises(ValueError, match=r"."):
        load_received(data)


def test_whole_characters_are_taken_however_they_are_spelt():
    document = {"a": "käse 🧀", "\U0001f9c0": [1]}
    assert load_received(json.dumps(document).encode()) == document
    assert load_received(bytearray(json.dumps(document, ensure_ascii=False).encode())) == document


def test_repositories_do_not_differ_in_case_alone(desk):
    assert desk.create().status == 200
    for name in ("Toy", "TOY"):
        answer = desk.create(name=name)
        assert (answer.status, "differ from toy in case" in answer.json()["error"]) == (400, True)
    assert desk.create(name="toys").status == 200
    assert sorted(place.name for place in (desk.root / "acme").iterdir() if place.is_dir()) == [
        "toy",
        "toys",
    ]


def test_owners_do_not_differ_in_case_alone(desk, caplog):
    assert desk.create().status == 200
    entry = desk.tokens.read_text()
    desk.tokens.write_text(entry.replace('["acme"]', '["acme", "Acme", "ml", "ML"]'))
    answer = desk.create(organization="Acme")
    assert (answer.status, "Acme would differ from acme" in answer.json()["error"]) == (400, True)
    assert str(desk.root).encode() not in answer.body
    desk.restart(trusted_owners=frozenset({"ML"}))
    answer = desk.create(organization="ml")
    assert (answer.status, "ml would differ from ML" in answer.json()["error"]) == (400, True)
    assert desk.create(organization="ML").status == 200
    assert sorted(place.name for place in desk.root.iterdir() if place.is_dir()) == ["ML", "acme"]
    told = [record.getMessage() for record in caplog.records]
    assert "Acme and acme differ in case only: people take one for the other" in told


def test_owners_and_repositories_that_differ_in_case_from_before_go_on_and_are_told(desk, caplog):
    desk.create()
    for twin in ("Acme/toy", "acme/Toy"):
        (desk.root / twin).parent.mkdir(exist_ok=True)
        shutil.copytree(desk.root / "acme/toy", desk.root / twin)
    entry = desk.tokens.read_text()
    desk.tokens.write_text(entry.replace('["acme"]', '["acme", "Acme"]'))
    desk.restart(trusted_owners=frozenset({"acme"}))
    told = [record.getMessage() for record in caplog.records]
    for pair in ("Acme and acme", "acme/Toy and acme/toy"):
        assert f"{pair} differ in case only: people take one for the other" in told
    assert desk.ask("POST", "/api/kernels/Acme/toy/branch/v2", {}).status == 200
    assert desk.create(organization="Acme", name="more").status == 200


def test_a_file_system_that_takes_one_name_for_another_lets_nobody_write_to_it(desk, monkeypatch):
    """There ``acme`` opens the folder ``Acme``; a listing shows the name that it was given."""
    desk.create()

    def folders(place):
        return ["Acme"] if place == desk.root else ["toy"]

    monkeypatch.setattr(directory, "_folders", folders)
    assert desk.ask("POST", f"{API}/branch/v2", {}).status == 404
    answer = desk.create()
    assert (answer.status, "acme would differ from Acme" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("name", ["HEAD", "-x", "--force"])
def test_names_that_git_takes_for_something_else(toy, name):
    assert toy.ask("POST", f"{API}/branch/{name}", {}).status == 400
    assert toy.ask("POST", f"{API}/tag/main", {"tag": name}).status == 400
