"""Pull requests: who may ask, what becomes of the commit, when it is taken over."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_hub.auth import Right, add_token
from kernel_hub.store import proposals
from kernel_spec import refs
from kernel_spec.directory import DirectoryHub, find_branch
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId

API = "/api/kernels/acme/toy"


def add(path, data=b"x"):
    content = base64.b64encode(data).decode()
    return {"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}}


@pytest.fixture
def toy(desk):
    """A repository with one file, and beside its writer two who may only propose changes to it."""
    assert desk.create().status == 200
    assert desk.commit(add("a.txt", b"a")).status == 200
    for name in ("guest", "other"):
        secret = add_token(desk.tokens, name=name, owners=["acme"], may=Right.PROPOSE)
        setattr(desk, name, secret)
    return desk


def propose(toy, *lines, **more):
    return toy.commit(*lines, query="?create_pr=1", secret=toy.guest, **more)


def details(toy, number=1):
    return toy.ask("GET", f"{API}/discussions/{number}?diff=1", secret=None).json()


def close(toy, number, status="closed", **rest):
    return toy.ask("POST", f"{API}/discussions/{number}/status", {"status": status}, **rest)


def merge(toy, number=1, **rest):
    return toy.ask("POST", f"{API}/discussions/{number}/merge", **rest)


def test_a_proposal_changes_no_branch_until_it_is_taken_over(toy):
    base = toy.head()
    answer = propose(toy, add("b.txt", b"b"))
    assert answer.status == 200, answer.json()
    commit = answer.json()["commitOid"]
    assert answer.json()["pullRequestUrl"].endswith("/kernels/acme/toy/discussions/1")
    assert (toy.head(), toy.files()) == (base, {"a.txt": b"a"})
    listed = toy.ask("GET", f"{API}/refs?include_prs=1").json()
    assert listed["pullRequests"] == [
        {"name": "refs/pr/1", "ref": "refs/pr/1", "targetCommit": commit}
    ]
    assert [ref["name"] for ref in listed["branches"]] == ["main"]
    assert toy.ask("GET", f"{API}/revision/refs%2Fpr%2F1").json()["sha"] == commit
    assert toy.ask("GET", "/kernels/acme/toy/resolve/refs%2Fpr%2F1/b.txt").body == b"b"
    assert merge(toy).status == 200
    assert (toy.head(), toy.files()) == (commit, {"a.txt": b"a", "b.txt": b"b"})
    assert merge(toy).status == 200, "asking again does no harm"


def test_what_is_told_of_a_proposal(toy):
    propose(toy, add("b.txt"))
    told = details(toy)
    assert (told["status"], told["author"], told["title"]) == ("open", {"name": "guest"}, "m")
    assert (told["changes"], told["filesWithConflicts"]) == ({"base": "main"}, [])
    merge(toy)
    assert details(toy)["changes"] == {"base": "main", "mergeCommitId": toy.head()}
    assert details(toy)["status"] == "merged"


def test_who_may_only_propose_changes_nothing(toy):
    before = toy.head()
    propose(toy, add("b.txt"))
    refused = [
        toy.commit(add("c.txt"), secret=toy.guest),
        toy.ask(
            "POST",
            "/api/repos/create",
            {"type": "kernel", "organization": "acme", "name": "n"},
            secret=toy.guest,
        ),
        toy.ask("POST", f"{API}/branch/v1", {}, secret=toy.guest),
        toy.ask("POST", f"{API}/tag/main", {"tag": "t"}, secret=toy.guest),
        toy.ask("DELETE", f"{API}/tag/t", secret=toy.guest),
        merge(toy, secret=toy.guest),
        close(toy, 1, secret=toy.other),
        toy.commit(add("c.txt"), branch="refs%2Fpr%2F1", secret=toy.other),
    ]
    assert [answer.status for answer in refused] == [403] * len(refused)
    assert "may propose changes to acme/toy" in refused[0].json()["error"]
    assert toy.head() == before
    role = toy.ask("GET", "/api/whoami-v2", secret=toy.guest).json()["auth"]["accessToken"]["role"]
    assert role == "read"


@pytest.mark.parametrize("secret", [None, "khub_wrong"])
def test_strangers_propose_nothing(toy, secret):
    answer = toy.commit(add("b.txt"), query="?create_pr=1", secret=secret)
    assert answer.status == 401
    assert proposals.list_proposals(toy.hub, proposals_repo(toy)) == ()


def proposals_repo(toy):
    from kernel_spec.names import RepoId

    return RepoId("acme", "toy")


def test_further_commits_go_to_the_proposal_until_it_is_closed(toy):
    first = propose(toy, add("b.txt", b"1")).json()["commitOid"]
    again = toy.commit(add("b.txt", b"2"), branch="refs%2Fpr%2F1", parent=first, secret=toy.guest)
    assert again.status == 200
    stale = toy.commit(add("b.txt", b"3"), branch="refs%2Fpr%2F1", parent=first, secret=toy.guest)
    assert stale.status == 412
    assert close(toy, 1, secret=toy.guest).json()["newStatus"]["data"] == {"status": "closed"}
    late = toy.commit(add("b.txt", b"4"), branch="refs%2Fpr%2F1", secret=toy.guest)
    assert (late.status, late.json()["error"]) == (400, "acme/toy: refs/pr/1 is closed.")
    assert merge(toy).status == 400
    assert close(toy, 1, status="open").status == 200
    assert merge(toy).status == 200
    assert toy.files()["b.txt"] == b"2"
    assert close(toy, 1).status == 400, "it was taken over"


def test_a_branch_that_moved_is_not_overwritten(toy):
    propose(toy, add("b.txt"))
    toy.commit(add("c.txt"))
    here = toy.head()
    answer = merge(toy)
    assert (answer.status, "Propose the change anew" in answer.json()["error"]) == (412, True)
    assert toy.head() == here
    assert details(toy)["filesWithConflicts"] is True
    of_another = find_branch(toy.hub, proposals_repo(toy), "refs/pr/1")
    answer = propose(toy, add("d.txt"), parent=of_another)
    assert answer.status == 412
    assert f"the branch main is at {here}, not at the parent {of_another}" in answer.json()["error"]
    assert propose(toy, add("d.txt"), parent=here).status == 200
    assert merge(toy, 2).status == 404, "the number of a proposal that failed is not given again"
    assert merge(toy, 3).status == 200


def test_one_of_two_proposals_for_the_same_place_is_taken_over(toy):
    with ThreadPoolExecutor(8) as pool:
        urls = list(
            pool.map(lambda n: propose(toy, add(f"{n}.txt")).json()["pullRequestUrl"], range(8))
        )
    numbers = sorted(int(url.rpartition("/")[2]) for url in urls)
    assert numbers == list(range(1, 9))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: merge(toy, n).status, numbers))
    assert sorted(found) == [200] + [412] * 7
    assert len(toy.files()) == 2


def test_a_proposal_for_a_version(toy):
    toy.ask("POST", f"{API}/branch/v1", {})
    toy.commit(add("v1.txt"), branch="v1")
    assert propose(toy, add("b.txt"), branch="v1").status == 200
    assert details(toy)["changes"]["base"] == "v1"
    merge(toy)
    assert toy.files("v1").keys() == {"a.txt", "v1.txt", "b.txt"}
    assert toy.files().keys() == {"a.txt"}
    toy.ask("DELETE", f"{API}/branch/v1")
    assert propose(toy, add("c.txt"), branch="v1").status == 404


@pytest.mark.parametrize("lines", [(), (add("../x"),), (add("A.TXT"),)])
def test_a_commit_that_cannot_be_leaves_no_proposal(toy, lines):
    assert propose(toy, *lines).status == 400
    assert toy.ask("GET", f"{API}/refs?include_prs=1").json()["pullRequests"] == []
    assert merge(toy).status == 404


def test_a_hub_that_is_killed_within_merge_goes_on(toy, monkeypatch):
    propose(toy, add("b.txt"))

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(proposals, "set_status", die)
    with pytest.raises(KeyboardInterrupt):
        merge(toy)
    monkeypatch.undo()
    assert "b.txt" in toy.files()
    toy.restart()
    told = details(toy)
    assert (told["status"], told["filesWithConflicts"]) == ("open", [])
    assert merge(toy).status == 200
    assert details(toy)["status"] == "merged"


def test_a_hub_that_is_killed_while_it_makes_one_has_none(toy, monkeypatch):
    monkeypatch.setattr(proposals, "write_ref", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        proposals.make_proposal(
            toy.hub,
            proposals_repo(toy),
            title="t",
            description="",
            author="x",
            branch="main",
            base=toy.head(),
        )
    monkeypatch.undo()
    assert merge(toy).status == 404
    assert propose(toy, add("b.txt")).json()["pullRequestUrl"].endswith("/2")


def test_they_are_listed_by_status_and_author(toy):
    for name in "bcd":
        propose(toy, add(f"{name}.txt"))
    toy.commit(add("e.txt"), query="?create_pr=1")
    close(toy, 2)

    def numbers(query=""):
        answer = toy.ask("GET", f"{API}/discussions{query}", secret=None).json()
        assert answer["count"] == len(answer["discussions"])
        return [entry["num"] for entry in answer["discussions"]]

    assert numbers() == numbers("?type=pull_request&status=all") == [4, 3, 2, 1]
    assert numbers("?status=open&author=guest") == [3, 1]
    assert numbers("?status=closed") == [2]
    assert numbers("?type=discussion") == []
    assert toy.ask("GET", f"{API}/discussions?p=-1").status == 400
    assert toy.ask("GET", f"{API}/discussions?status=merged").status == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "discussions/9", None, 404),
        ("GET", "discussions/x", None, 400),
        ("GET", "discussions/99999999999", None, 400),
        ("POST", "discussions/0/merge", None, 404),
        ("POST", "discussions/1/status", {"status": "merged"}, 400),
        ("POST", "discussions", {"title": "talk"}, 501),
        ("POST", "discussions", {"pullRequest": True}, 400),
        ("POST", "discussions/1/comment", {"comment": "hi"}, 501),
        ("POST", "commit/refs%2Fpr%2F9", b"", 404),
        ("POST", "commit/refs%2Fpr%2F1?create_pr=1", b"", 400),
        ("POST", "branch/refs%2Fpr%2F2", {}, 400),
        ("DELETE", "branch/refs%2Fpr%2F1", {}, 404),
    ],
)
def test_what_is_refused(toy, method, path, body, status):
    made = toy.ask("POST", f"{API}/discussions", {"title": "t", "pullRequest": True})
    assert made.json()["num"] == 1
    if path == "commit/refs%2Fpr%2F1?create_pr=1":
        answer = toy.commit(add("b.txt"), branch="refs%2Fpr%2F1", query="?create_pr=1")
    else:
        answer = toy.ask(method, f"{API}/{path}", b"" if body is None else body)
    assert answer.status == status, answer.json()
    assert merge(toy).status == 400, "it proposes nothing yet"


def test_nobody_has_too_many_open_ones(toy, monkeypatch):
    monkeypatch.setattr("kernel_hub.proposing.OPEN_LIMIT", 2)
    assert [propose(toy, add(f"{n}.txt")).status for n in range(3)] == [200, 200, 400]
    assert toy.commit(add("x.txt"), query="?create_pr=1", secret=toy.other).status == 200
    close(toy, 1)
    assert propose(toy, add("b.txt")).status == 200


def test_a_damaged_record_is_for_the_log_of_the_operator(toy, caplog):
    propose(toy, add("b.txt"))
    place = toy.root / "acme/toy/proposals/1.json"
    for text in ("{", "[]", json.dumps({"number": 1})):
        place.write_text(text)
        answer = toy.ask("GET", f"{API}/discussions/1")
        assert (answer.status, "damaged" in answer.json()["error"]) == (500, True)
    assert "proposals/1.json" in caplog.text
    assert str(toy.root) not in answer.json()["error"]


def test_moving_a_branch_is_for_what_was_made_on_top_of_it(toy):
    repo, base = proposals_repo(toy), toy.head()
    toy.commit(add("b.txt"))
    with pytest.raises(refs.ConflictError, match="is gone, not at"):
        refs.move_branch(toy.hub, repo, "v9", parent=base, commit=base)
    with pytest.raises(FileNotFoundError):
        refs.move_branch(toy.hub, repo, "main", parent=toy.head(), commit="0" * 40)


@pytest.mark.parametrize(
    "text", ["[" * 3000 + "]" * 3000, "[]", "5", "{}", "1e999", '{"created": 1}']
)
def test_a_proposal_that_cannot_be_read_is_a_fault_of_the_folder(tmp_path, text):
    hub, repo = DirectoryHub(tmp_path), RepoId("acme", "toy")
    folder = tmp_path / "acme/toy"
    for place in ("refs/pr/1", "proposals/1.json"):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_text(f"{'a' * 40}\n" if place.startswith("refs") else text)
    with pytest.raises(FormatError, match=r"1\.json: not a proposal"):
        proposals.find_proposal(hub, repo, 1)
