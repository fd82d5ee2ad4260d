"""The public Hub's protocol: how often it is asked, what it is told, what its answers mean."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from email.utils import formatdate

import httpx2
import pytest

import kernels
import kernels.source
from kernel_spec.errors import IntegrityError, WireError, WrongTypeError
from kernel_spec.names import RepoId
from kernels import trust
from kernels.errors import (
    HubAccessError,
    HubUnreachableError,
    NotCachedError,
    RepoNotFoundError,
    RevisionNotFoundError,
    TrustError,
)
from kernels.load import forget

FILES = {
    "torch-cpu": {
        "__init__.py": "from .a import VALUE\n",
        "a.py": "VALUE = 1\n",
        "data.bin": b"\0\1",
    }
}


@pytest.fixture
def commit(publisher, web):
    return publisher.publish("acme/toy", variants=FILES)


@pytest.fixture
def later(monkeypatch):
    """Move the clock of the loader."""

    def move(seconds: float) -> None:
        now = time.time() + seconds
        monkeypatch.setattr("kernels.answers.time.time", lambda: now)

    return move


def test_a_cold_load_asks_each_thing_once(web, commit):
    assert kernels.get_kernel("acme/toy").VALUE == 1
    prefix = f"GET /kernels/acme/toy/resolve/{commit}/build/torch-cpu"
    assert sorted(web.requests) == sorted(
        [
            "GET /api/kernels/acme/toy/refs",
            f"GET /api/kernels/acme/toy/tree/{commit}?recursive=true&expand=false",
            "GET /api/organizations/acme/overview",
            f"{prefix}/metadata.json",
            f"{prefix}/__init__.py",
            f"{prefix}/a.py",
            f"{prefix}/data.bin",
        ]
    )


def test_while_the_record_is_fresh_nothing_is_asked(web, commit):
    toy = kernels.get_kernel("acme/toy")
    web.requests.clear()
    assert kernels.get_kernel("acme/toy") is toy
    forget()  # as a new process would
    assert kernels.get_kernel("acme/toy") is toy
    assert kernels.get_kernel("acme/toy", version=1) is toy
    assert kernels.get_kernel("acme/toy", revision=commit) is toy
    assert web.requests == []


def test_refresh_asks(web, commit):
    kernels.get_kernel("acme/toy")
    web.requests.clear()
    kernels.get_kernel("acme/toy", refresh=True)
    assert web.requests == [
        "GET /api/kernels/acme/toy/refs",
        "GET /api/organizations/acme/overview",
    ]


def test_an_old_record_is_renewed(web, commit, publisher, later):
    kernels.get_kernel("acme/toy")
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 2\n"}})
    assert kernels.get_kernel("acme/toy").VALUE == 1
    later(601)
    assert kernels.get_kernel("acme/toy").VALUE == 2


def test_a_clock_that_went_back_makes_a_record_old(web, commit, later):
    kernels.get_kernel("acme/toy")
    web.requests.clear()
    later(-3600)
    forget()
    kernels.get_kernel("acme/toy")
    assert "GET /api/kernels/acme/toy/refs" in web.requests


def test_the_life_of_a_record_is_a_setting(web, commit, monkeypatch):
    monkeypatch.setenv("KERNELS_REF_TTL", "0")
    kernels.get_kernel("acme/toy")
    web.requests.clear()
    kernels.get_kernel("acme/toy")
    assert "GET /api/kernels/acme/toy/refs" in web.requests


def test_a_version_that_the_record_lacks_is_asked_for(web, commit, publisher):
    kernels.get_kernel("acme/toy")
    publisher.publish(
        "acme/toy", branch="v2", variants={"torch-cpu": {"__init__.py": "VALUE = 2\n"}}
    )
    assert kernels.get_kernel("acme/toy", version=2).VALUE == 2


def test_a_repository_that_was_not_there_is_asked_for_again(web, publisher):
    with pytest.raises(RepoNotFoundError):
        kernels.get_kernel("acme/toy")
    publisher.publish("acme/toy", variants=FILES)
    assert kernels.get_kernel("acme/toy").VALUE == 1


@pytest.mark.parametrize(
    "fault", [httpx2.ConnectError("refused"), (503, {}, b""), (429, {"retry-after": "3600"}, b"")]
)
def test_an_old_record_stands_in_for_a_hub_that_gives_no_answer(
    web, commit, later, warnings_of, fault
):
    toy = kernels.get_kernel("acme/toy")
    later(7200)
    web.fault = lambda path: fault
    assert kernels.get_kernel("acme/toy") is toy
    asked = len(web.requests)
    assert kernels.get_kernel("acme/toy") is toy
    assert len(web.requests) == asked, "a silent hub is not asked at every call"
    assert len(warnings_of()) == 1
    assert "2 hours ago" in warnings_of()[0]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, "RepoNotFound"), RepoNotFoundError),
        ((401, "RepoNotFound"), RepoNotFoundError),
        ((404, ""), RepoNotFoundError),
        ((401, ""), HubAccessError),
        ((403, "GatedRepo"), HubAccessError),
        ((410, ""), HubAccessError),
    ],
)
def test_a_refusal_is_an_error_whatever_the_record_says(web, commit, later, answer, error):
    kernels.get_kernel("acme/toy")
    later(601)
    status, code = answer
    web.fault = lambda path: (status, {"x-error-code": code} if code else {}, b"")
    with pytest.raises(error):
        kernels.get_kernel("acme/toy")


def test_what_the_hub_says_of_a_refusal_is_told(web, commit):
    web.fault = lambda path: (403, {"x-error-message": "this kernel is gated: ask acme"}, b"")
    with pytest.raises(HubAccessError, match="this kernel is gated: ask acme"):
        kernels.get_kernel("acme/toy")


def test_without_a_record_an_unreachable_hub_is_named(web, commit):
    web.fault = lambda path: httpx2.ConnectError("connection refused")
    with pytest.raises(
        HubUnreachableError, match=r"http://hub\.test cannot be reached: connection refused"
    ):
        kernels.get_kernel("acme/toy")
    with pytest.raises(HubUnreachableError):
        kernels.has_kernel("acme/toy")
    web.fault = lambda path: (429, {"retry-after": "60"}, b"")
    with pytest.raises(HubUnreachableError, match=r"rate limit.*60 s") as error:
        kernels.get_kernel("acme/toy")
    assert error.value.status == 429


def test_a_passing_fault_is_tried_again(web, commit):
    faults = [(503, {}, b""), httpx2.ReadTimeout("slow")]
    web.fault = lambda path: faults.pop() if faults else None
    assert kernels.get_kernel("acme/toy").VALUE == 1


def test_a_broken_download_is_tried_again_and_else_leaves_nothing(web, commit, cache):
    broken = ["once"]
    web.fault = lambda path: (
        httpx2.ReadError("reset") if path.endswith("a.py") and broken and broken.pop() else None
    )
    assert kernels.get_kernel("acme/toy").VALUE == 1
    web.fault = lambda path: httpx2.ReadError("reset") if path.endswith("a.py") else None
    import shutil

    shutil.rmtree(cache)
    forget()
    with pytest.raises(HubUnreachableError, match="reset"):
        kernels.get_kernel("acme/toy")
    assert list((cache / "tmp").iterdir()) == []


@pytest.mark.parametrize("body", [b"", b"VALUE = 6\n", b"VALUE = 1\nimport os\n"])
def test_other_bytes_than_the_listing_promises_are_refused(web, commit, cache, body):
    web.fault = lambda path: (200, {}, body) if path.endswith("a.py") else None
    with pytest.raises(IntegrityError, match=r"a\.py"):
        kernels.get_kernel("acme/toy")
    assert not (cache / "variants").exists()


def test_a_rate_limit_is_waited_for_as_long_as_the_hub_asks(web, commit, monkeypatch):
    slept = []
    monkeypatch.setattr("kernels.fetch.time.sleep", slept.append)
    limits = [(429, {"retry-after": "7"}, b""), (429, {"retry-after": "6"}, b"")]
    web.fault = lambda path: limits.pop() if path.endswith("a.py") and limits else None
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert slept == [6, 7]


def test_a_rate_limit_may_be_told_as_a_date(web, commit, monkeypatch):
    slept = []
    monkeypatch.setattr("kernels.fetch.time.sleep", slept.append)
    dates = [formatdate(time.time() + 9, usegmt=True), formatdate(0, usegmt=True), "soon"]
    web.fault = lambda path: (
        (429, {"retry-after": dates.pop(0)}, b"") if path.endswith("a.py") and dates else None
    )
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert len(slept) == 3
    assert 7 < slept[0] <= 9
    # A date that has passed, and what cannot be read: the loader's own pause.
    assert slept[1] == 0
    assert 0 < slept[2] < 60


def test_a_failed_download_does_not_go_on_with_the_other_files(web, publisher):
    files = {f"f{number:02}.py": "" for number in range(60)}
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "", **files}})

    def fault(path):
        if path.endswith("f00.py"):
            return 403, {}, b""
        if ".py" in path:
            threading.Event().wait(0.02)
        return None

    web.fault = fault
    with pytest.raises(HubAccessError, match=r"f00\.py"):
        kernels.get_kernel("acme/toy")
    assert sum(".py" in request for request in web.requests) < 40


def test_what_is_no_hub_is_named(web, commit):
    web.fault = lambda path: (200, {}, b"<html>login</html>")
    with pytest.raises(WireError, match="Is this the URL of a hub"):
        kernels.get_kernel("acme/toy")


def test_the_hub_is_asked_which_commit_a_few_digits_mean(web, publisher, commit, monkeypatch):
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 2\n"}})
    said = {"sha": commit}
    web.fault = lambda path: (
        (200, {}, json.dumps(said).encode()) if f"/revision/{commit[:8]}" in path else None
    )
    assert kernels.get_kernel("acme/toy", revision=commit[:8]).VALUE == 1
    asked = [line for line in web.requests if "/revision/" in line]
    assert asked == [f"GET /api/kernels/acme/toy/revision/{commit[:8]}"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    forget()
    assert kernels.get_kernel("acme/toy", revision=commit[:8]).VALUE == 1
    assert len([line for line in web.requests if "/revision/" in line]) == 1


def test_the_hub_is_asked_where_a_pull_request_is(web, commit):
    web.fault = lambda path: (
        (200, {}, json.dumps({"sha": commit}).encode())
        if "/revision/refs%2Fpr%2F1" in path
        else None
    )
    assert kernels.get_kernel("acme/toy", revision="refs/pr/1").VALUE == 1
    with pytest.raises(RevisionNotFoundError, match="no branch, tag or commit 'pr/1'"):
        kernels.get_kernel("acme/toy", revision="pr/1")


@pytest.mark.parametrize("said", [{}, [], {"sha": 7}, {"sha": "main"}, {"sha": "../../etc"}])
def test_an_answer_that_is_no_commit_is_not_used(web, commit, said):
    web.fault = lambda path: (200, {}, json.dumps(said).encode()) if "/revision/" in path else None
    with pytest.raises(WireError, match="commit 'sha'"):
        kernels.get_kernel("acme/toy", revision="0123456")


def test_digits_that_the_hub_does_not_know_are_no_commit(web, commit):
    web.fault = lambda path: (
        (404, {"x-error-code": "RevisionNotFound"}, b"{}") if "/revision/" in path else None
    )
    with pytest.raises(RevisionNotFoundError, match="no branch, tag or commit '0123456'"):
        kernels.get_kernel("acme/toy", revision="0123456")


def test_a_commit_needs_no_refs(web, commit):
    assert kernels.get_kernel("acme/toy", revision=commit).VALUE == 1
    assert not any(request.endswith("/refs") for request in web.requests)
    with pytest.raises(RevisionNotFoundError):
        kernels.get_kernel("acme/toy", revision="0" * 40)


def test_a_commit_whose_listing_is_not_here_is_not_asked_for_offline(
    web, commit, cache, monkeypatch
):
    assert kernels.get_kernel("acme/toy").VALUE == 1
    shutil.rmtree(cache / "trees")
    forget()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(web.requests)
    for arguments in ({}, {"version": 1}, {"revision": commit}):
        with pytest.raises(NotCachedError):
            kernels.get_kernel("acme/toy", **arguments)
    assert len(web.requests) == asked


def test_pages_of_a_listing_are_followed(web, commit):
    tree = f"/api/kernels/acme/toy/tree/{commit}?recursive=true&expand=false"

    def page(path):
        if not path.startswith(tree):
            return None
        entries = json.loads(web._answer(tree.partition("?")[0])[2])
        start = int(path.partition("&cursor=")[2] or 0)
        link = f'<{web.URL}{tree}&cursor={start + 1}>; rel="next"'
        return (
            200,
            {"link": link} if start + 1 < len(entries) else {},
            json.dumps(entries[start : start + 1]).encode(),
        )

    web.fault = page
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert sum("/tree/" in request for request in web.requests) == 4


def test_offline_asks_nothing(web, commit, monkeypatch, later):
    toy = kernels.get_kernel("acme/toy")
    web.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    later(1e8)
    assert kernels.get_kernel("acme/toy") is toy
    assert kernels.get_kernel("acme/toy", version=1) is toy
    with pytest.raises(NotCachedError):
        kernels.get_kernel("acme/other")
    assert web.requests == []


def test_the_repository_is_found_on_the_second_hub_without_asking_the_first_again(
    web, commit, monkeypatch
):
    absent = lambda path: None  # noqa: E731
    monkeypatch.setenv("KERNELS_HUB", f"{web.URL}/empty {web.URL}")
    web.fault = lambda path: (
        (404, {"x-error-code": "RepoNotFound"}, b"") if path.startswith("/empty") else absent(path)
    )
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert any("/empty/" in request for request in web.requests)
    web.requests.clear()
    forget()
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert web.requests == []


def test_what_one_hub_says_of_a_commit_is_no_word_on_another_hub(web, commit, monkeypatch):
    kernels.get_kernel("acme/toy", revision=commit)
    monkeypatch.setenv("KERNELS_HUB", f"{web.URL}/other")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotCachedError):
        kernels.get_kernel("acme/toy", revision=commit)


# --- trust


@pytest.fixture
def stranger(publisher, web):
    return publisher.publish("bob/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 5\n"}})


def test_a_stranger_is_refused_before_anything_is_installed(web, stranger, cache):
    with pytest.raises(TrustError, match="does not name 'bob' a trusted") as error:
        kernels.get_kernel("bob/toy")
    assert "trust_remote_code=True" in str(error.value)
    assert "kernels trust add bob" in str(error.value)
    assert isinstance(error.value, ValueError)
    assert not (cache / "variants").exists()


def test_an_owner_that_is_no_organization_is_a_stranger(web, publisher, stranger):
    web.fault = lambda path: (404, {}, b"") if "overview" in path else None
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy")


def test_has_kernel_needs_no_trust(web, stranger):
    assert kernels.has_kernel("bob/toy")


@pytest.mark.parametrize("consent", [True, ["x/y", "bob/toy"]])
def test_consent_is_for_one_call(web, stranger, consent):
    assert kernels.get_kernel("bob/toy", trust_remote_code=consent).VALUE == 5
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy")
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy", trust_remote_code=["bob/other"])


@pytest.mark.parametrize("consent", ["bob/toy", "bob/toy, acme/toy", "True", 1, None])
def test_what_is_neither_a_truth_nor_a_list_of_ids_is_no_consent(stranger, consent):
    """A text would hold every part of itself."""
    with pytest.raises(WrongTypeError, match="True, False or a list"):
        kernels.get_kernel("bob/toy", trust_remote_code=consent)
    # Nor where a caller within the package does not check it.
    with pytest.raises(TrustError, match="True, False or a list"):
        trust.consented(RepoId("bob", "toy"), consent)


@pytest.mark.parametrize("said", ["yes", 1, ["bob"], {"bob": True}])
def test_nothing_but_true_in_a_record_is_trust(web, stranger, cache, said):
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy")
    (record,) = cache.glob("refs/*/bob/toy.json")
    document = json.loads(record.read_text())
    assert document["trusted"] is False
    record.write_text(json.dumps({**document, "trusted": said}))
    forget()
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy")


def test_lasting_consent_is_for_an_owner_on_a_hub(web, stranger, environment):
    config = environment / "home/.config/kernels"

    def trusting(url):
        return trust.Trusted(frozenset({trust.TrustedOwner("bob", url)}))

    trust.write_trusted(config, trusting("https://elsewhere"))
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy")
    trust.write_trusted(config, trusting(web.URL))
    assert kernels.get_kernel("bob/toy").VALUE == 5


@pytest.mark.parametrize("fault", [httpx2.ConnectError("x"), (429, {}, b""), (500, {}, b"")])
def test_no_answer_about_trust_is_not_reported_as_distrust(web, commit, fault, later):
    web.fault = lambda path: fault if "overview" in path else None
    with pytest.raises(HubUnreachableError):
        kernels.get_kernel("acme/toy")
    web.fault = lambda path: None
    toy = kernels.get_kernel("acme/toy")
    web.fault = lambda path: fault if "overview" in path else None
    later(601)
    assert kernels.get_kernel("acme/toy") is toy


def test_offline_the_recorded_answer_decides(web, commit, stranger, monkeypatch):
    kernels.get_kernel("acme/toy")
    kernels.get_kernel("bob/toy", trust_remote_code=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    with pytest.raises(TrustError, match="was never asked"):
        kernels.get_kernel("bob/toy")


def test_trust_that_was_withdrawn_holds_at_the_next_record(web, commit, later):
    kernels.get_kernel("acme/toy")
    web.trusted.clear()
    assert kernels.get_kernel("acme/toy").VALUE == 1
    later(601)
    with pytest.raises(TrustError):
        kernels.get_kernel("acme/toy")


# --- what is told


def test_the_header_describes_the_client_and_the_machine(web, commit):
    kernels.get_kernel("acme/toy", user_agent={"diffusers": "0.42"})
    agent = web.headers[0]["user-agent"]
    assert agent.startswith("diffusers/0.42; kernels/0.18.2")
    assert "platform/" in agent
    assert "backend/" in agent
    assert "file_type/kernel" in agent


def test_without_telemetry_the_header_is_legal_and_says_only_the_client(web, commit, monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    kernels.get_kernel("acme/toy", user_agent="secret/1")
    assert {headers["user-agent"] for headers in web.headers} == {f"kernels/{kernels.__version__}"}


def test_the_token_goes_only_to_the_endpoint_it_is_for(web, commit, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    kernels.get_kernel("acme/toy")
    assert all("authorization" not in headers for headers in web.headers)
    monkeypatch.setenv("HF_ENDPOINT", web.URL)
    kernels.get_kernel("acme/toy", refresh=True)
    assert web.headers[-1]["authorization"] == "Bearer hf_secret"


def test_a_path_that_leaves_the_variant_is_refused(web, commit, monkeypatch, environment):
    def evil(path):
        if "/tree/" not in path:
            return None
        entries = json.loads(web._answer(path.partition("?")[0])[2])
        entries.append({**entries[0], "path": "build/torch-cpu/../../../../evil.py"})
        return 200, {}, json.dumps(entries).encode()

    web.fault = evil
    with pytest.raises(ValueError, match=r"evil\.py"):
        kernels.get_kernel("acme/toy")
    assert not list(environment.rglob("evil.py"))


def test_huggingface_hub_is_not_imported_while_the_cache_is_warm(publisher, monkeypatch):
    publisher.publish("acme/toy")
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        monkeypatch.delitem(sys.modules, name)
    kernels.get_kernel("acme/toy")
    assert "huggingface_hub" not in sys.modules
