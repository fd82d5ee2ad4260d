"""The answers that clients read, over a store in memory."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import pytest

from kernel_hub.app import create_app
from kernel_hub.settings import HubSettings
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId
from kernel_spec.wire import Ref, parse_organization, parse_refs, parse_tree

SO = "build/torch210-cu128-x86_64-linux/toy.abi3.so"


def test_nobody_is_logged_in(toy):
    answer = toy.ask("GET", "/api/whoami-v2")
    assert answer.status == 401
    assert "no accounts" in answer.json()["error"]


@pytest.mark.parametrize(("owner", "trusted"), [("acme", True), ("other", False)])
def test_trust_is_what_the_operator_says(toy, owner, trusted):
    toy.store.commit(RepoId("other", "toy"), "v1", {"a": b""})
    answer = toy.ask("GET", f"/api/organizations/{owner}/overview")
    assert answer.status == 200
    assert parse_organization(answer.json()).trusted_publisher is trusted


def test_unknown_organization(toy):
    assert toy.ask("GET", "/api/organizations/nobody/overview").status == 404


def test_refs(toy):
    answer = toy.ask("GET", "/api/kernels/acme/toy/refs").json()
    refs = parse_refs(answer)
    assert refs.branches == (
        Ref("feature/x", toy.slash),
        Ref("main", toy.main),
        Ref("v1", toy.v1),
        Ref("v2", toy.v2),
    )
    assert refs.tags == (Ref("v1.0.0", toy.v1),)
    assert answer["converts"] == []
    assert "pullRequests" not in answer
    answer = toy.ask("GET", "/api/kernels/acme/toy/refs?include_prs=1").json()
    assert answer["pullRequests"] == []


def test_info_is_of_the_default_branch_or_the_revision(toy):
    info = toy.ask("GET", "/api/kernels/acme/toy").json()
    assert (info["id"], info["sha"], info["private"]) == ("acme/toy", toy.main, False)
    assert info["lastModified"] == "2026-01-31T12:00:00.000Z"
    # huggingface_hub 1.10 fails on a kernel with siblings.
    assert "siblings" not in info
    assert toy.ask("GET", "/api/kernels/acme/toy/revision/v2").json()["sha"] == toy.v2


def test_a_kernel_answers_to_the_name_of_a_model_too(toy):
    assert toy.ask("GET", "/api/models/acme/toy").json()["sha"] == toy.main
    answer = toy.ask("GET", "/acme/toy/resolve/v1/run.sh")
    assert (answer.status, answer.body) == (200, b"echo\n")


def test_default_branch_without_main_is_the_highest_version(toy):
    repo = RepoId("acme", "versions")
    for branch in ("v2", "v10", "v9"):
        toy.store.commit(repo, branch, {"a": branch.encode()})
    sha = toy.ask("GET", "/api/kernels/acme/versions").json()["sha"]
    assert sha == toy.store.branches[repo]["v10"]


@pytest.mark.parametrize(
    ("revision", "branch"),
    [
        ("v1", "v1"),
        ("v1.0.0", "v1"),
        ("refs%2Fheads%2Fv2", "v2"),
        ("refs%2Ftags%2Fv1.0.0", "v1"),
        ("feature%2Fx", "slash"),
        ("feature%2fx", "slash"),
        ("refs%2Fheads%2Ffeature%2Fx", "slash"),
    ],
)
def test_revisions(toy, revision, branch):
    answer = toy.ask("GET", f"/api/kernels/acme/toy/revision/{revision}")
    assert answer.json()["sha"] == getattr(toy, branch)


def test_commits_as_revisions(toy):
    def sha(revision):
        return toy.ask("GET", f"/api/kernels/acme/toy/revision/{revision}")

    assert sha(toy.v1).json()["sha"] == toy.v1
    assert sha(toy.v1[:7]).json()["sha"] == toy.v1
    for revision in (toy.v1[:6], toy.v1[:7].upper(), "0" * 40, "0" * 12, toy.v1 + "0"):
        answer = sha(revision)
        assert (answer.status, answer.headers["x-error-code"]) == (404, "RevisionNotFound")


def test_ambiguous_short_commit(toy):
    listing = toy.store.commits[toy.repo, toy.v1]
    for number, end in enumerate("ab"):
        toy.store.commits[toy.repo, "1234567" + end * 33] = listing
        toy.store.branches[toy.repo][f"twin{number}"] = "1234567" + end * 33
    twins = ["1234567" + end * 33 for end in "ab"]
    answer = toy.ask("GET", "/api/kernels/acme/toy/revision/1234567")
    assert (answer.status, answer.headers["x-error-code"]) == (404, "RevisionNotFound")
    said = answer.json()["error"]
    assert said.startswith("1234567 is ambiguous: 2 commits of acme/toy begin so")
    assert all(twin in said for twin in twins)
    assert toy.ask("GET", "/api/kernels/acme/toy/revision/1234567b").status == 200


@pytest.fixture
def many(toy):
    for name in ("acme/norm", "acme/Toy-2", "bee/toy"):
        toy.store.commit(RepoId(*name.split("/")), "v1", {"a": name.encode()})
    toy.store.branches[RepoId("bee", "empty")] = {}
    toy.store.tags[RepoId("bee", "empty")] = {}
    return toy


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["acme/Toy-2", "acme/norm", "acme/toy", "bee/empty", "bee/toy"]),
        ("?author=acme", ["acme/Toy-2", "acme/norm", "acme/toy"]),
        ("?author=acme&search=TOY&full=true", ["acme/Toy-2", "acme/toy"]),
        ("?search=bee%2f", ["bee/empty", "bee/toy"]),
        ("?author=nobody", []),
        ("?cursor=acme%2Ftoy", ["bee/empty", "bee/toy"]),
    ],
)
@pytest.mark.parametrize("kind", ["kernels", "models"])
def test_kernels_are_listed(many, kind, query, names):
    answer = many.ask("GET", f"/api/{kind}{query}")
    assert (answer.status, "link" in answer.headers) == (200, False)
    assert [entry["id"] for entry in answer.json()] == names


def test_what_a_listing_says_of_each(many):
    listed = {entry["id"]: entry for entry in many.ask("GET", "/api/kernels").json()}
    assert listed["acme/toy"] == many.ask("GET", "/api/kernels/acme/toy").json()
    assert listed["bee/empty"]["sha"] is listed["bee/empty"]["lastModified"] is None


def test_pages_of_a_listing(many):
    path, names = "/api/kernels?limit=2&author=acme", []
    while path:
        answer = many.ask("GET", path)
        names += [entry["id"] for entry in answer.json()]
        link = answer.headers.get("link")
        path = link and link.removeprefix("<http://hub.test:8600").partition(">")[0]
    assert names == ["acme/Toy-2", "acme/norm", "acme/toy"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=x", "limit=9999999999", "sort=likes"]
)
def test_a_listing_that_cannot_be_made_is_refused(many, query):
    answer = many.ask("GET", f"/api/kernels?{query}")
    assert answer.status == 400
    assert query.partition("=")[0] in answer.json()["error"]


def test_a_damaged_repository_is_left_out_of_the_listing_and_logged(many, caplog):
    def read_refs(repo, read=many.store.read_refs):
        if repo.name == "norm":
            raise FormatError("refs/heads/v1: expected a commit id")
        return read(repo)

    many.store.read_refs = read_refs
    listed = [entry["id"] for entry in many.ask("GET", "/api/kernels?author=acme").json()]
    assert listed == ["acme/Toy-2", "acme/toy"]
    assert "acme/norm: refs/heads/v1" in caplog.text


def test_tree_of_a_folder_has_directories(toy):
    answer = toy.ask("GET", "/api/kernels/acme/toy/tree/v1/build?recursive=false&expand=false")
    assert [(entry["type"], entry["path"]) for entry in answer.json()] == [
        ("directory", "build/torch-cpu"),
        ("directory", "build/torch210-cu128-x86_64-linux"),
    ]
    assert all(len(entry["oid"]) == 40 for entry in answer.json())


def test_recursive_tree_is_everything(toy, v1_files):
    answer = toy.ask("GET", f"/api/kernels/acme/toy/tree/{toy.v1}?recursive=true")
    assert {file.path for file in parse_tree(answer.json())} == set(v1_files)
    directories = [e["path"] for e in answer.json() if e["type"] == "directory"]
    assert directories == ["build", "build/torch-cpu", "build/torch210-cu128-x86_64-linux"]


def test_tree_path_may_be_encoded_whole(toy):
    plain = toy.ask("GET", "/api/kernels/acme/toy/tree/v1/build/torch-cpu").json()
    coded = toy.ask("GET", "/api/kernels/acme/toy/tree/v1/build%2Ftorch-cpu").json()
    assert plain == coded
    assert [e["path"] for e in plain] == [
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/metadata.json",
    ]
    slash = toy.ask("GET", "/api/kernels/acme/toy/tree/feature%2Fx/build").json()
    assert [e["path"] for e in slash] == ["build/a"]


@pytest.mark.parametrize("path", ["nothing", "README.md", "buil", "build/torch"])
def test_tree_of_what_is_no_folder(toy, path):
    answer = toy.ask("GET", f"/api/kernels/acme/toy/tree/main/{path}")
    assert (answer.status, answer.headers["x-error-code"]) == (404, "EntryNotFound")
    assert answer.headers["x-repo-commit"] == toy.main


def test_binary_files_are_large_files(toy, v1_files):
    entries = toy.ask("GET", "/api/kernels/acme/toy/tree/v1?recursive=true").json()
    by_path = {entry["path"]: entry for entry in entries}
    data = v1_files[SO]
    sha256 = hashlib.sha256(data).hexdigest()
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(data)}\n"
    ).encode()
    assert by_path[SO]["lfs"] == {
        "oid": sha256,
        "size": len(data),
        "pointerSize": len(pointer),
    }
    blob = b"blob %d\0" % len(pointer) + pointer
    assert by_path[SO]["oid"] == hashlib.sha1(blob).hexdigest()
    assert "lfs" not in by_path["run.sh"]
    # `printf 'echo\n' | git hash-object --stdin`
    assert by_path["run.sh"]["oid"] == "fa11a6a9c54797a8f68963af8ffc4d92bbffc660"


def test_pages(toy, monkeypatch):
    monkeypatch.setattr("kernel_hub.api.tree.ENTRIES_PER_PAGE", 3)
    whole, target = [], "/api/kernels/acme/toy/tree/v1?recursive=true"
    pages = 0
    while target:
        answer = toy.ask("GET", target)
        whole += answer.json()
        pages += 1
        link = answer.headers.get("link", "")
        target = link.removeprefix("<http://hub.test:8600").removesuffix('>; rel="next"')
        # A branch that moves between two pages does not matter.
        toy.store.commit(toy.repo, "v1", {str(pages): b""})
    assert pages == 3
    assert len(whole) == len({entry["path"] for entry in whole}) == 8
    assert {e["path"] for e in whole if e["path"].startswith("build/torch-cpu/")}


def test_pages_behind_a_proxy(toy, monkeypatch, call_app):
    monkeypatch.setattr("kernel_hub.api.tree.ENTRIES_PER_PAGE", 1)
    settings = HubSettings(root=Path("unused"), public_url="https://hub.corp/kernels/")
    answer = call_app(create_app(settings, toy.store), "GET", "/api/kernels/acme/toy/tree/v1")
    assert answer.headers["link"].startswith("<https://hub.corp/kernels/api/kernels/acme/toy/tree/")


@pytest.mark.parametrize(
    "query", ["cursor=x", "cursor=-1", "cursor=%C2%B2", "recursive=perhaps", "cursor=" + "9" * 5000]
)
def test_unreadable_queries(toy, query):
    assert toy.ask("GET", f"/api/kernels/acme/toy/tree/v1?{query}").status == 400


def test_expanded_tree_names_the_commit_that_changed_each_file(toy, v1_files):
    newer = toy.store.commit(toy.repo, "v1", v1_files | {"run.sh": b"echo 2\n", "new": b""})
    entries = toy.ask("GET", "/api/kernels/acme/toy/tree/v1?expand=true").json()
    changed = {entry["path"]: entry["lastCommit"]["id"] for entry in entries}
    assert changed == {"build": toy.v1, "new": newer, "run.sh": newer}
    titles = {entry["path"]: entry["lastCommit"]["title"] for entry in entries}
    assert titles == {
        "build": "Add 5 files",
        "new": "Add 1 file, Change 1 file",
        "run.sh": "Add 1 file, Change 1 file",
    }


def test_commits(toy, monkeypatch):
    first = toy.store.commit(toy.repo, "long", {"f": b"0"})
    ids = [first, *(toy.store.commit(toy.repo, "long", {"f": b"%d" % n}) for n in range(1, 5))]
    monkeypatch.setattr("kernel_hub.api.repository.COMMITS_PER_PAGE", 2)
    seen, target = [], "/api/kernels/acme/toy/commits/long"
    while target:
        answer = toy.ask("GET", target)
        seen += answer.json()
        link = answer.headers.get("link", "")
        target = link.removeprefix("<http://hub.test:8600").removesuffix('>; rel="next"')
    assert [commit["id"] for commit in seen] == ids[::-1]
    assert seen[-1]["title"] == "Add 1 file"
    assert seen[0]["title"] == "Change 1 file"
    assert seen[-1]["date"] == "2026-01-31T16:00:00.000Z"


def test_history_ends_where_the_store_dropped_it(toy):
    commit = toy.store.commit(toy.repo, "v3", {"a": b""}, parent="e" * 40)
    answer = toy.ask("GET", "/api/kernels/acme/toy/commits/v3")
    assert [(entry["id"], entry["title"]) for entry in answer.json()] == [
        (commit, "Hold 1 file; the commit before is gone")
    ]


def test_paths_info(toy):
    body = b"paths=run.sh&paths=build%2Ftorch-cpu&paths=nothing&paths=run.sh&expand=false"
    answer = toy.ask("POST", "/api/kernels/acme/toy/paths-info/v1", body=body)
    assert [(e["type"], e["path"]) for e in answer.json()] == [
        ("file", "run.sh"),
        ("directory", "build/torch-cpu"),
    ]


def test_paths_info_expanded(toy):
    answer = toy.ask(
        "POST", "/api/kernels/acme/toy/paths-info/v1", body=b"paths=run.sh&expand=true"
    )
    assert answer.json()[0]["lastCommit"]["id"] == toy.v1


def test_snapshots_are_read_once(toy):
    for _ in range(3):
        toy.ask("GET", "/api/kernels/acme/toy/tree/v1")
        toy.ask("HEAD", "/kernels/acme/toy/resolve/v1/run.sh")
    assert toy.store.listings_read == 1


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/api/repos/create"),
        ("DELETE", "/api/repos/delete"),
        ("POST", "/api/kernels/acme/toy/branch/v3"),
        ("POST", "/api/kernels/acme/toy/preupload/main"),
        ("POST", "/api/kernels/acme/toy/commit/main"),
        ("POST", "/kernels/acme/toy.git/info/lfs/objects/batch"),
        ("PUT", "/kernels/acme/toy/resolve/v1/run.sh"),
        ("GET", "/api/kernels/acme/toy/xet-write-token/main"),
    ],
)
def test_writes_are_refused_with_a_reason(toy, method, target):
    answer = toy.ask(method, target, body=b"x" * 100)
    assert answer.status == 501
    assert "This hub is read-only" in answer.headers["x-error-message"]
    assert answer.json()["error"] == answer.headers["x-error-message"]


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/api/kernels/acme/none", 404, "RepoNotFound"),
        ("/api/kernels/acme/none/refs", 404, "RepoNotFound"),
        ("/api/kernels/acme/-bad-/refs", 404, "RepoNotFound"),
        ("/api/kernels/acme/toy/tree/none", 404, "RevisionNotFound"),
        ("/kernels/acme/none/resolve/v1/run.sh", 404, "RepoNotFound"),
        ("/kernels/acme/toy/resolve/none/run.sh", 404, "RevisionNotFound"),
        ("/kernels/acme/toy/resolve/v1/none", 404, "EntryNotFound"),
        ("/api/models/acme/none", 404, "RepoNotFound"),
        ("/api/datasets/acme/toy", 404, "RepoNotFound"),
        ("/acme/none/resolve/main/config.json", 404, "RepoNotFound"),
        ("/acme/toy/resolve/main/config.json", 404, "EntryNotFound"),
        ("/datasets/acme/toy/resolve/main/a", 404, "RepoNotFound"),
        ("/api/agent-harnesses", 404, None),
        ("/", 404, None),
        ("/api/kernels?sort=likes", 400, None),
        ("/api/kernels/", 404, None),
        ("/kernels/acme/toy", 404, None),
    ],
)
def test_errors_have_a_code_a_body_and_an_id(toy, target, status, code):
    answer = toy.ask("GET", target)
    assert (answer.status, answer.headers.get("x-error-code")) == (status, code)
    assert answer.json()["error"]
    assert answer.headers["x-request-id"]
    assert answer.headers["x-error-message"]


def test_request_ids_differ(toy):
    ids = {toy.ask("GET", "/api/whoami-v2").headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5


def test_access_log(toy, caplog):
    caplog.set_level(logging.INFO, "kernel_hub.access")
    answer = toy.ask("GET", "/kernels/acme/toy/resolve/feature%2Fx/build%2Fa?download=1")
    line = json.loads(caplog.messages[-1])
    assert line.pop("ms") > 0
    assert line == {
        "method": "GET",
        "path": "/kernels/acme/toy/resolve/feature%2Fx/build%2Fa",
        "query": "download=1",
        "status": 200,
        "bytes": 1,
        "id": answer.headers["x-request-id"],
    }


def test_a_crash_is_a_500_that_tells_nothing(toy, monkeypatch, caplog):
    def crash(_repo):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(toy.store, "read_refs", crash)
    caplog.set_level(logging.INFO)
    answer = toy.ask("GET", "/api/kernels/acme/toy/refs")
    assert answer.status == 500
    assert "secret" not in answer.body.decode()
    assert answer.headers["x-request-id"] in answer.json()["error"]
    assert "secret detail" in caplog.text
    assert json.loads(caplog.messages[-1])["status"] == 500
