"""Requests that mean harm or nonsense: none reads past its snapshot, none takes a lot."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "path",
    [
        b"../run.sh",
        b"..%2frun.sh",
        b"%2e%2e/run.sh",
        b"%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        b"build/../run.sh",
        b"./run.sh",
        b"/run.sh",
        b"%2frun.sh",
        b"run.sh%00",
        b"run.sh%00.py",
        b"run.sh/",
        b"RUN.SH",
        b"build",
        b"build/",
        b"",
        b"%252e%252e/run.sh",
        b"..\\run.sh",
        b"..%5crun.sh",
        b"a" * 60_000,
        b"a/" * 30_000,
    ],
)
def test_only_exact_names_of_files_are_found(toy, path):
    answer = toy.ask("GET", b"/kernels/acme/toy/resolve/v1/" + path)
    assert (answer.status, answer.headers["x-error-code"]) == (404, "EntryNotFound")
    assert len(answer.headers["x-error-message"]) < 1000
    tree = toy.ask("GET", b"/api/kernels/acme/toy/tree/v1/..%2f" + path)
    assert tree.status == 404


@pytest.mark.parametrize("path", [b"%ff", b"%c3%28", b"\xff", b"run\xc3\xa4"])
def test_paths_that_are_no_utf8(toy, path):
    for target in (b"/kernels/acme/toy/resolve/v1/", b"/api/kernels/acme/toy/tree/v1/"):
        assert toy.ask("GET", target + path).status == 400


@pytest.mark.parametrize(
    "repo",
    [
        b"../..",
        b"%2e%2e/%2e%2e",
        b"acme/..",
        b"acme%2ftoy/x",
        b"acme/to%00y",
        b"acme/" + b"t" * 5000,
    ],
)
def test_names_that_no_repository_has(toy, repo):
    for target in (b"/kernels/" + repo + b"/resolve/v1/a", b"/api/kernels/" + repo + b"/refs"):
        answer = toy.ask("GET", target)
        assert (answer.status, answer.headers["x-error-code"]) == (404, "RepoNotFound")


@pytest.mark.parametrize("owner", [b"..", b"%2e%2e", b"%2f", b".", b"a%00"])
def test_owners_that_nobody_has(toy, owner):
    assert toy.ask("GET", b"/api/organizations/" + owner + b"/overview").status == 404


@pytest.mark.parametrize(
    "revision", [b"..", b"%2e%2e%2f", b"refs%2Fheads%2F..%2Fv1", b"%00", b"v" * 9000]
)
def test_revisions_that_are_none(toy, revision):
    answer = toy.ask("GET", b"/api/kernels/acme/toy/revision/" + revision)
    assert (answer.status, answer.headers["x-error-code"]) == (404, "RevisionNotFound")


def test_names_with_other_letters(toy):
    toy.store.commit(toy.repo, "käse", {"dir/ä b%.md": b"x"})
    answer = toy.ask("GET", "/kernels/acme/toy/resolve/k%C3%A4se/dir/%C3%A4%20b%25.md")
    assert answer.body == b"x"
    assert answer.headers["content-disposition"].endswith("%C3%A4%20b%25.md")
    answer = toy.ask("GET", "/kernels/acme/toy/resolve/k%C3%A4se/%C3%A4")
    assert answer.headers["x-error-message"].isascii()


def test_line_ends_do_not_reach_a_header(toy):
    answer = toy.ask("GET", "/kernels/acme/toy/resolve/v1/a%0d%0aX-Evil:%201")
    assert answer.status == 404
    assert not {"\r", "\n"} & set(answer.headers["x-error-message"])
    assert "x-evil" not in answer.headers


def test_control_characters_do_not_reach_a_header(toy):
    """The server sends no answer at all whose header holds one."""
    answer = toy.ask("GET", "/kernels/acme/toy/resolve/v1/a%00%01%7f.py")
    assert answer.status == 404
    assert all(" " <= letter <= "~" for letter in answer.headers["x-error-message"])


FORM = "/api/kernels/acme/toy/paths-info/v1"


def test_forms_are_bounded_while_they_come(toy):
    taken = []

    def endless():
        for number in range(100):
            taken.append(number)
            yield b"paths=" + b"a" * 100_000

    answer = toy.ask("POST", FORM, chunks=endless())
    assert answer.status == 413
    assert toy.ask("POST", FORM, body=b"&".join([b"paths=a"] * 20_000)).status == 413


@pytest.mark.parametrize("body", [b"paths=%ff", b"\xff", b"expand=perhaps"])
def test_forms_that_cannot_be_read(toy, body):
    assert toy.ask("POST", FORM, body=body).status == 400


def test_empty_form(toy):
    assert toy.ask("POST", FORM).json() == []


def test_who_sends_nothing_more_is_told_and_let_go(toy, monkeypatch):
    monkeypatch.setattr("kernel_hub.api.body.IDLE_SECONDS", 0.05)
    answer = toy.ask("POST", "/api/kernels/acme/toy/paths-info/v1", body=b"paths=", stalls=True)
    assert (answer.status, "Nothing of the body came" in answer.json()["error"]) == (408, True)
