"""What is said to a hub over HTTP, against a stand-in for the client."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from kernel_builder.commit_plan import RemoteBranch, plan_commit, read_local_file
from kernel_builder.errors import UploadError
from kernel_builder.remote import open_remote
from kernel_builder.remote_http import HttpRemote
from kernel_spec.errors import ConflictError
from kernel_spec.names import parse_repo_id

REPO = parse_repo_id("me/my-op")
COMMIT = "c" * 40


def refusal(kind: type[HfHubHTTPError], status: int) -> HfHubHTTPError:
    request = httpx.Request("POST", "https://hub.example/api")
    return kind("refused", response=httpx.Response(status, request=request))


class StandIn:
    """Notes each call; raises where it is told to."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fail = fail

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **options: Any) -> Any:
            self.calls.append((name, options))
            if self.fail is not None:
                raise self.fail
            if name == "list_repo_refs":
                branch = SimpleNamespace(name="v1", target_commit=COMMIT)
                return SimpleNamespace(branches=[branch], tags=[])
            if name == "list_repo_tree":
                lfs = {"size": 3, "oid": "a" * 64, "pointerSize": 1}
                return [
                    RepoFile(path="README.md", size=1, oid="b" * 40),
                    RepoFile(path="build/x/y.so", size=3, oid="d" * 40, lfs=lfs),
                ]
            return SimpleNamespace(oid="e" * 40)

        return call


@pytest.fixture
def hub(monkeypatch):
    def make(fail: Exception | None = None, *, send_token: bool = True):
        stand_in = StandIn(fail)
        monkeypatch.setattr(HttpRemote, "_api", lambda self: stand_in)
        return HttpRemote("https://hub.example", send_token=send_token), stand_in

    return make


def test_what_the_hub_holds_is_read(hub) -> None:
    remote, _ = hub()
    assert remote.read_refs(REPO) == ({"v1": COMMIT}, {})
    card, library = remote.read_branch(REPO, "v1", COMMIT).files
    assert (card.sha256, card.oid) == (None, "b" * 40)
    assert library.sha256 == "a" * 64


def test_no_repository_is_an_empty_one(hub) -> None:
    remote, _ = hub(refusal(RepositoryNotFoundError, 404))
    assert remote.read_refs(REPO) == ({}, {})


def test_one_commit_with_its_parent(hub, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    remote, stand_in = hub()
    held = remote.read_branch(REPO, "v1", COMMIT)
    plan = plan_commit(held, [read_local_file("build/x/z.py", tmp_path / "f")])
    stand_in.calls.clear()
    assert remote.write_commit(REPO, plan, message="m", tags=("v1.0.0",)) == "e" * 40
    (commit, options), (tag, tag_options) = stand_in.calls
    assert (commit, tag) == ("create_commit", "create_tag")
    assert (options["parent_commit"], options["revision"]) == (COMMIT, "v1")
    assert options["repo_type"] == "kernel"
    assert tag_options["revision"] == "e" * 40


def test_a_new_branch_is_made_first(hub, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    remote, stand_in = hub()
    new = RemoteBranch(name="v1", commit=None)
    remote.write_commit(
        REPO, plan_commit(new, [read_local_file("a", tmp_path / "f")]), message="m", tags=()
    )
    assert [name for name, _ in stand_in.calls] == ["create_repo", "create_branch", "create_commit"]


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (412, ConflictError, "somebody else has published"),
        (401, UploadError, "hf auth login"),
        (403, UploadError, "you may not write there"),
        (500, UploadError, "refused"),
    ],
)
def test_refusals_say_what_to_do(hub, status: int, kind: type[Exception], message: str) -> None:
    remote, _ = hub(refusal(HfHubHTTPError, status))
    with pytest.raises(kind, match=message):
        remote.read_refs(REPO)


def test_the_token_goes_to_one_hub_alone(hub) -> None:
    api = open_remote("https://other.example/", token_hub="https://hub.example")._api()
    assert (api.endpoint, api.token) == ("https://other.example", False)
    assert open_remote("https://hub.example", token_hub="https://hub.example/")._api().token is None
    remote, _ = hub(refusal(HfHubHTTPError, 401), send_token=False)
    with pytest.raises(UploadError, match=r"HF_ENDPOINT=https://hub\.example"):
        remote.read_refs(REPO)


def test_a_hub_that_does_not_answer(monkeypatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UploadError, match=r"127\.0\.0\.1:\d+: cannot be reached"):
            open_remote(url, token_hub="https://hub.example").read_refs(REPO)


@pytest.mark.parametrize("failure", [ValueError("Expecting value"), TypeError("list indices")])
def test_a_page_that_is_no_hub(hub, failure: Exception) -> None:
    remote, _ = hub(failure)
    with pytest.raises(UploadError, match="does not answer as a hub does") as caught:
        remote.read_refs(REPO)
    assert caught.value.__cause__ is failure


def test_what_a_hub_says_is_one_line(hub) -> None:
    failure = refusal(HfHubHTTPError, 500)
    failure.args = ("Server error '500'\nFor more information check: https://x\n\nnope",)
    remote, _ = hub(failure)
    with pytest.raises(UploadError) as caught:
        remote.read_refs(REPO)
    assert str(caught.value).endswith(": Server error '500' nope")
