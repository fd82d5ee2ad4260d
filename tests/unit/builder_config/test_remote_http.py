"""What is said to a hub over HTTP, against a stand-in for the client."""

from __future__ import annotations

import socket
import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from kernel_builder.commit_plan import (
    CommitOptions,
    RemoteBranch,
    plan_commit,
    read_local_file,
)
from kernel_builder.errors import UploadError
from kernel_builder.remote import open_remote, read_hub
from kernel_builder.remote_http import HttpRemote
from kernel_spec.errors import ConflictError, UsageError
from kernel_spec.names import parse_repo_id
from kernels.errors import SettingsError
from kernels.hub_address import HubAddress
from kernels.settings import NETWORK_VARIABLES

REPO = parse_repo_id("me/my-op")
COMMIT = "c" * 40
MAIN = "0" * 40


def refusal(kind: type[HfHubHTTPError], status: int, said: str | None = None) -> HfHubHTTPError:
    request = httpx.Request("POST", "https://hub.example/api")
    return kind("refused", response=httpx.Response(status, request=request), server_message=said)


class StandIn:
    """Notes each call; raises where it is told to: everywhere, or at the call of a name."""

    def __init__(self, fail: Exception | None = None, at: str | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fail = fail
        self.at = at
        self.branches = {"v1": COMMIT}
        self.private = False

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **options: Any) -> Any:
            self.calls.append((name, options))
            if self.fail is not None and self.at in (None, name):
                raise self.fail
            if name == "create_repo":
                self.branches["main"] = MAIN
            if name == "list_repo_refs":
                branches = [
                    SimpleNamespace(name=n, target_commit=c) for n, c in self.branches.items()
                ]
                return SimpleNamespace(branches=branches, tags=[])
            if name == "list_repo_tree":
                lfs = {"size": 3, "oid": "a" * 64, "pointerSize": 1}
                return [
                    RepoFile(path="README.md", size=1, oid="b" * 40),
                    RepoFile(path="build/x/y.so", size=3, oid="d" * 40, lfs=lfs),
                ]
            if name == "repo_info":
                return SimpleNamespace(private=self.private)
            return SimpleNamespace(oid="e" * 40, pr_url="https://hub.example/discussions/1")

        return call

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@pytest.fixture
def hub(monkeypatch, tmp_path):
    def make(fail: Exception | None = None, *, at: str | None = None, send_token: bool = True):
        stand_in = StandIn(fail, at)
        monkeypatch.setattr(HttpRemote, "_api", lambda self: stand_in)
        monkeypatch.setattr(HttpRemote, "_fitting_transfer", lambda *_: nullcontext())
        notes = tmp_path / "uploads"
        return HttpRemote("https://hub.example", send_token=send_token, notes=notes), stand_in

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


@pytest.fixture
def source(tmp_path: Path):
    (tmp_path / "f").write_text("x")
    return lambda path: read_local_file(path, tmp_path / "f")


def test_one_commit_with_its_parent(hub, source) -> None:
    remote, stand_in = hub()
    held = remote.read_branch(REPO, "v1", COMMIT)
    plan = plan_commit(held, [source("build/x/z.py")])
    stand_in.calls.clear()
    options = CommitOptions(message="m", tags=("v1.0.0",))
    assert remote.write_commit(REPO, plan, options).commit == "e" * 40
    (commit, options), (tag, tag_options) = stand_in.calls
    assert (commit, tag) == ("create_commit", "create_tag")
    assert (options["parent_commit"], options["revision"]) == (COMMIT, "v1")
    assert options["repo_type"] == "kernel"
    assert tag_options["revision"] == "e" * 40


def test_a_new_branch_appears_with_its_commit(hub, source) -> None:
    remote, stand_in = hub()
    new = RemoteBranch(name="v2", commit=None, start=MAIN)
    remote.write_commit(REPO, plan_commit(new, [source("a")]), CommitOptions(message="m"))
    assert stand_in.names == ["create_branch", "create_commit", "create_branch", "delete_branch"]
    scratch, commit, branch, gone = (options for _, options in stand_in.calls)
    assert scratch["branch"].startswith("uploading-v2-")
    assert scratch["revision"] == MAIN
    assert (commit["revision"], commit["parent_commit"]) == (scratch["branch"], MAIN)
    assert (branch["branch"], branch["revision"]) == ("v2", "e" * 40)
    assert gone["branch"] == scratch["branch"]


def test_a_new_repository_is_made_first_and_its_main_committed_to(hub, source) -> None:
    remote, stand_in = hub()
    stand_in.branches.clear()
    new = RemoteBranch(name="main", commit=None)
    options = CommitOptions(message="m", private=True)
    remote.write_commit(REPO, plan_commit(new, [source("a")]), options)
    assert stand_in.names == ["create_repo", "list_repo_refs", "create_commit"]
    assert stand_in.calls[0][1]["private"] is True
    assert stand_in.calls[-1][1]["parent_commit"] == MAIN


def test_who_was_faster_with_a_new_branch_keeps_it(hub, source) -> None:
    remote, stand_in = hub()
    new = RemoteBranch(name="v1", commit=None)
    with pytest.raises(ConflictError, match="somebody else has published"):
        remote.write_commit(REPO, plan_commit(new, [source("a")]), CommitOptions(message="m"))
    assert "create_commit" not in stand_in.names


def test_the_branch_of_another_name_goes_also_when_the_commit_fails(hub, source) -> None:
    remote, stand_in = hub(refusal(HfHubHTTPError, 500), at="create_commit")
    new = RemoteBranch(name="v2", commit=None, start=MAIN)
    with pytest.raises(UploadError):
        remote.write_commit(REPO, plan_commit(new, [source("a")]), CommitOptions(message="m"))
    assert stand_in.names[-1] == "delete_branch"


def test_a_tag_that_fails_says_that_the_commit_stands(hub, source) -> None:
    remote, _ = hub(refusal(HfHubHTTPError, 500), at="create_tag")
    plan = plan_commit(remote.read_branch(REPO, "v1", COMMIT), [source("a")])
    with pytest.raises(UploadError, match=f"v1 is at {'e' * 40} now, but then"):
        remote.write_commit(REPO, plan, CommitOptions(message="m", tags=("v1.0.0",)))


def test_a_pull_request_makes_nothing(hub, source) -> None:
    remote, stand_in = hub()
    plan = plan_commit(remote.read_branch(REPO, "v1", COMMIT), [source("a")])
    stand_in.calls.clear()
    options = CommitOptions(message="m", pull_request=True)
    written = remote.write_commit(REPO, plan, options)
    assert written.pull_request == "https://hub.example/discussions/1"
    assert stand_in.names == ["create_commit"]
    assert stand_in.calls[0][1]["create_pr"] is True
    new = plan_commit(RemoteBranch(name="v9", commit=None, start=MAIN), [source("a")])
    with pytest.raises(UploadError, match="no branch v9 to ask for a change of"):
        remote.write_commit(REPO, new, options)


def test_a_client_that_is_too_old_is_named(hub, source) -> None:
    remote, _ = hub(ValueError("Invalid repo type, must be one of"), at="create_commit")
    plan = plan_commit(remote.read_branch(REPO, "v1", COMMIT), [source("a")])
    with pytest.raises(UploadError, match="huggingface_hub>=2"):
        remote.write_commit(REPO, plan, CommitOptions(message="m"))


def test_a_token_that_the_hub_does_not_know_is_told_from_none(hub, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "khub_mistyped")
    remote, _ = hub(refusal(HfHubHTTPError, 401))
    with pytest.raises(UploadError, match="does not know the token that was sent") as caught:
        remote.read_refs(REPO)
    assert "khub_mistyped" not in str(caught.value)


def test_the_words_of_the_hub_are_shown_and_not_the_address_of_its_api(hub) -> None:
    remote, _ = hub(refusal(HfHubHTTPError, 507, "The disk of this hub is full."))
    with pytest.raises(UploadError) as caught:
        remote.read_refs(REPO)
    assert (
        str(caught.value) == f"{REPO} at https://hub.example: The disk of this hub is full. (507)"
    )


@pytest.mark.parametrize(
    "held",
    [RemoteBranch(name="v1", commit=COMMIT), RemoteBranch(name="v2", commit=None, start=MAIN)],
)
def test_what_is_to_be_private_goes_to_no_public_repository(hub, source, held) -> None:
    remote, stand_in = hub()
    plan, options = plan_commit(held, [source("a")]), CommitOptions(message="m", private=True)
    with pytest.raises(UploadError, match=r"everybody can read it.*Nothing was published"):
        remote.write_commit(REPO, plan, options)
    assert stand_in.names == ["repo_info"]
    stand_in.private = True
    assert remote.write_commit(REPO, plan, options).commit == "e" * 40


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (412, ConflictError, "somebody else has published"),
        (401, UploadError, "asks who you are.*hf auth login"),
        (403, UploadError, "you may not write there"),
        (500, UploadError, "refused"),
    ],
)
def test_refusals_say_what_to_do(
    hub, monkeypatch, status: int, kind: type[Exception], message: str
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    remote, _ = hub(refusal(HfHubHTTPError, status))
    with pytest.raises(kind, match=message):
        remote.read_refs(REPO)


def test_the_token_goes_to_one_hub_alone(hub, tmp_path) -> None:
    def open_api(url: str, token_hub: str) -> Any:
        hub = read_hub(url, origin="--hub")
        return open_remote(hub, token_hub=token_hub, cache=tmp_path)._api()  # type: ignore[attr-defined]

    api = open_api("https://other.example/", "https://hub.example")
    assert (api.endpoint, api.token) == ("https://other.example", False)
    assert open_api("https://hub.example", "https://hub.example/").token is None
    remote, _ = hub(refusal(HfHubHTTPError, 401), send_token=False)
    with pytest.raises(UploadError, match=r"HF_ENDPOINT=https://hub\.example"):
        remote.read_refs(REPO)


def test_a_hub_that_does_not_answer(tmp_path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        hub = HubAddress(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UploadError, match=r"127\.0\.0\.1:\d+: cannot be reached \(.*\)$"):
            open_remote(hub, token_hub="https://hub.example", cache=tmp_path).read_refs(REPO)


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


@pytest.fixture
def environment(monkeypatch):
    """Set variables for the real session of huggingface_hub."""
    for name in NETWORK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    huggingface_hub.close_session()
    yield monkeypatch.setenv
    huggingface_hub.close_session()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "ftp://proxy:1"),
        ("HTTPS_PROXY", "http://proxy:port"),
        ("SSL_CERT_FILE", "/nonexistent.pem"),
        ("HF_TOKEN", "hf_\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ],
)
def test_a_setting_that_the_client_cannot_use_is_named(environment, tmp_path, name, value) -> None:
    environment(name, value)
    remote = HttpRemote("http://127.0.0.1:9", send_token=True, notes=tmp_path)
    with pytest.raises(SettingsError, match=name) as caught:
        remote.read_refs(REPO)
    assert caught.value.exit_code == 2


def test_a_token_file_that_cannot_be_read_is_named(environment, monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path))
    remote = HttpRemote("http://127.0.0.1:9", send_token=True, notes=tmp_path)
    with pytest.raises(SettingsError, match=str(tmp_path)):
        remote.read_refs(REPO)


class Gate(BaseHTTPRequestHandler):
    """Notes what a client shows of itself; knows no branches, and answers 404 to all else."""

    shown: list[str | None]

    def do_GET(self) -> None:
        self.shown.append(self.headers["authorization"])
        found = self.path.endswith("/refs")
        body = b'{"branches": [], "tags": [], "converts": []}' if found else b"{}"
        self.send_response(200 if found else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def gate():
    handler = type("Gate", (Gate,), {"shown": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", handler.shown
        server.shutdown()


def test_the_password_of_a_hub_goes_to_it_and_into_no_message(environment, gate, tmp_path) -> None:
    address, shown = gate
    hub = read_hub(f"http://me:s3cret@{address}/", origin="--hub")
    remote = open_remote(hub, token_hub="https://t", cache=tmp_path)
    assert remote.url == f"http://{address}"
    assert remote.read_refs(REPO) == ({}, {})
    assert shown == ["Basic bWU6czNjcmV0"]
    with pytest.raises(UploadError) as refused:
        remote.read_branch(REPO, "v1", COMMIT)
    with pytest.raises(UsageError) as malformed:
        read_hub("https://me:s3/cret@hub", origin="--hub")
    for caught in (refused, malformed):
        assert "cret" not in str(caught.value)
    assert remote.url in str(refused.value)
