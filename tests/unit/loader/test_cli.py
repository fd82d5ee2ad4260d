"""The command ``kernels``: what it prints, its exit codes, one message per error."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import kernels
from kernels.cli import run
from kernels.errors import TrustError


@pytest.fixture
def call(capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def toy(publisher):
    publisher.publish("acme/toy", branch="v1", variants={"torch-cuda": {"a.py": ""}})
    return publisher.publish("acme/toy", branch="v2")


def test_version_and_help(call):
    assert call("--version") == (0, f"kernels {kernels.__version__}\n", "")
    code, out, _ = call("--help")
    assert code == 0
    assert all(verb in out for verb in ("cache", "info", "trust", "versions"))


@pytest.mark.parametrize(
    "verb", ["cache", "check", "download", "info", "lock", "trust", "update", "verify", "versions"]
)
def test_every_verb_has_help(call, verb):
    code, out, _ = call(verb, "--help")
    assert code == 0
    assert f"Usage: kernels {verb}" in out


@pytest.mark.parametrize("arguments", [("nonsense",), ("info",), ("info", "a/b", "--version", "x")])
def test_wrong_usage_is_2(call, arguments):
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert err
    assert "Traceback" not in err


def test_versions(call, toy):
    code, out, _ = call("versions", "acme/toy")
    assert code == 0
    assert out.startswith("Version 1:\n  torch-cuda: ")
    assert out.endswith("Version 2:\n  torch-cpu: fits, preferred\n")
    code, out, _ = call("versions", "acme/toy", "--json")
    document = json.loads(out)
    assert [entry["version"] for entry in document["versions"]] == [1, 2]
    assert document["versions"][1]["variants"] == [
        {"name": "torch-cpu", "fits": True, "reason": None}
    ]
    assert document["versions"][1]["commit"] == toy
    assert document["tags"] == []


def test_versions_lists_tags_by_number(call, publisher):
    publisher.publish("acme/toy", tags=("v1.10.0", "v1.9.0", "nightly"))
    assert call("versions", "acme/toy")[1].endswith("Tags: v1.9.0, v1.10.0, nightly\n")


def test_info_of_a_repository_and_of_a_path(call, toy, publisher):
    code, out, _ = call("info", "acme/toy")
    assert code == 0
    assert f"Repository: acme/toy\nRevision: {toy}\nName: toy\nVersion: 1\n" in out
    assert "Backends: cpu\n" in out
    assert "Upstream: -\n" in out
    assert json.loads(call("info", "acme/toy", "--version", "1", "--json")[1])["backends"] == [
        "cuda"
    ]
    kernels.install_kernel("acme/toy")
    assert call("info", "acme/toy") == (code, out, "")
    path = kernels.install_kernel("acme/toy")
    document = json.loads(call("info", str(path), "--json")[1])
    assert document["path"] == str(path)
    assert document["name"] == "toy"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("info", "acme/toi"), 1, "Did you mean acme/toy?"),
        (("info", "acme/toy", "--version", "7"), 1, "1, 2"),
        (("info", "toy"), 2, "owner/name"),
        (("versions", "acme/other"), 1, "no kernel"),
    ],
)
def test_an_error_is_one_message_without_a_traceback(call, toy, arguments, code, words):
    found, out, err = call(*arguments)
    assert found == code
    assert out == ""
    assert err.startswith("error: ")
    assert words in err
    assert "Traceback" not in err


def test_debug_shows_where_and_ends_as_without(call, toy):
    code, out, err = call("info", "acme/toi", "--debug")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("error: ")


def test_wrong_settings_are_wrong_usage(call, monkeypatch):
    monkeypatch.setenv("KERNELS_HUB", "nonsense")
    code, _, err = call("versions", "acme/toy")
    assert code == 2
    assert "KERNELS_HUB" in err


def test_trust_is_added_listed_and_removed(call, monkeypatch, environment):
    monkeypatch.setenv("KERNELS_HUB", "https://hub.corp bob=https://bob.example")
    code, out, err = call("trust", "list")
    assert (code, out) == (0, "")
    assert "nobody is trusted for good" in err
    assert json.loads(call("trust", "list", "--json")[1]) == []
    assert call("trust", "add", "acme") == (0, "trusting acme on https://hub.corp\n", "")
    assert call("trust", "add", "bob") == (0, "trusting bob on https://bob.example\n", "")
    assert call("trust", "add", "acme", "--hub", "https://other/")[0] == 0
    assert json.loads(call("trust", "list", "--json")[1]) == [
        {"owner": "acme", "hub": "https://hub.corp"},
        {"owner": "acme", "hub": "https://other"},
        {"owner": "bob", "hub": "https://bob.example"},
    ]
    code, _, err = call("trust", "remove", "bob", "--hub", "https://me:secret@other/")
    assert (code, err) == (1, "error: bob is not trusted on https://other.\n")
    assert call("trust", "remove", "acme", "--hub", "https://me:secret@other/")[0] == 0
    assert "acme on https://other" not in call("trust", "list")[1]
    assert call("trust", "remove", "acme")[0] == 0
    assert call("trust", "list")[1] == "bob on https://bob.example\n"
    code, _, err = call("trust", "remove", "acme")
    assert code == 1
    assert "acme is not trusted" in err
    assert call("trust", "add", "a/b")[0] == 2
    for verb in ("add", "remove"):
        code, _, err = call("trust", verb, "acme", "--hub", "nonsense")
        assert (code, "--hub: 'nonsense' is not a hub" in err, "KERNELS_HUB" in err) == (
            2,
            True,
            False,
        )
    (environment / "home/.config/kernels/trust.json").write_text("{")
    code, _, err = call("trust", "list")
    assert code == 2
    assert "trust.json" in err


def test_a_directory_hub_needs_no_trust(call, publisher):
    code, _, err = call("trust", "add", "acme")
    assert code == 2
    assert "trusted already" in err


def test_the_cache_is_listed_and_verified(call, toy):
    assert call("cache", "list")[1].startswith("0 variants, 0 bytes in ")
    assert call("cache", "verify") == (0, "0 variants verified, 0 damaged\n", "")
    path = kernels.install_kernel("acme/toy")
    [entry] = json.loads(call("cache", "list", "--json")[1])["variants"]
    assert entry["digest"] == path.parent.name
    assert entry["variant"] == "torch-cpu"
    assert entry["kernel"] == "toy"
    assert entry["repositories"] == ["acme/toy"]
    assert re.search(
        r" \d\d\d bytes  \d{4}-\d\d-\d\d  acme/toy  torch-cpu\n", call("cache", "list")[1]
    )
    assert entry["bytes"] == sum(file.stat().st_size for file in path.iterdir())
    assert call("cache", "verify")[0] == 0
    facts = (path / "__init__.py").stat()
    (path / "__init__.py").write_text("X" * facts.st_size)
    import os

    os.utime(path / "__init__.py", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    code, out, err = call("cache", "verify")
    assert code == 1
    assert "__init__.py: hash-mismatch" in out
    assert "1 variant verified, 1 damaged" in out
    assert "fetches them again" in err
    assert json.loads(call("cache", "verify", "--json")[1])["variants"][0]["ok"] is False
    (path.parent / "manifest.json").write_text("{}")
    assert call("cache", "list")[0] == 0
    assert call("cache", "verify")[0] == 1


def test_a_variant_that_no_listing_here_has_is_of_no_known_repository(call, toy, cache):
    kernels.install_kernel("acme/toy")
    shutil.rmtree(cache / "trees")
    [entry] = json.loads(call("cache", "list", "--json")[1])["variants"]
    assert (entry["repositories"], entry["kernel"]) == ([], "toy")
    assert call("cache", "list")[1].splitlines()[0].endswith("  ?/toy  torch-cpu")


def test_a_variant_is_trusted_for_good_by_its_digest(call, web, publisher):
    publisher.publish("bob/toy")
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy")
    digest = kernels.install_kernel("bob/toy", trust_remote_code=True).parent.name
    assert call("trust", "add", digest) == (0, f"trusting the variant {digest}\n", "")
    assert kernels.get_kernel("bob/toy").VALUE == 1
    publisher.publish("bob/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 666"}})
    with pytest.raises(TrustError):
        kernels.get_kernel("bob/toy", refresh=True)
    assert call("trust", "list")[1] == f"the variant {digest}\n"
    assert json.loads(call("trust", "list", "--json")[1]) == [{"digest": digest}]
    assert call("trust", "remove", digest)[0] == 0
    assert call("trust", "remove", digest)[0] == 1


@pytest.mark.parametrize("verb", ["versions", "info", "verify", "update"])
def test_what_is_no_repository_id_is_wrong_usage(verb, capsys):
    assert run([verb, "toy"]) == 2
    assert "owner/name" in capsys.readouterr().err


@pytest.fixture
def builder(monkeypatch):
    """A builder that finds a fault in every variant of a name that ends in ``bad``."""

    class Entry:
        @staticmethod
        def load():
            return lambda place: ["glibc too new"] if "cuda" in place.name else []

    monkeypatch.setattr("importlib.metadata.entry_points", lambda **which: [Entry])


def test_check_asks_the_builder_about_every_variant(call, publisher, builder, tmp_path):
    publisher.publish(
        "acme/toy", variants={n: {"__init__.py": f"# {n}"} for n in ("torch-cpu", "torch-cuda")}
    )
    out = "torch-cpu: ok\ntorch-cuda: glibc too new\n"
    assert call("check", "acme/toy") == (1, out, "")
    project = publisher.projects / "toy-0"
    assert call("check", str(project))[:2] == (1, out)
    assert call("check", str(project / "build" / "torch-cpu")) == (0, "torch-cpu: ok\n", "")
    _, out, err = call("check", "acme/toy", "--json", "--manylinux", "manylinux_2_28")
    assert json.loads(out)["variants"] == {"torch-cpu": [], "torch-cuda": ["glibc too new"]}
    assert "--manylinux" in err


def test_check_without_the_builder_says_what_to_install(call, publisher, monkeypatch):
    publisher.publish("acme/toy")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **which: [])
    code, out, err = call("check", "acme/toy")
    assert (code, out) == (1, "")
    assert "pip install 'kernels[builder]'" in err


def test_trust_is_told_to_programs_too(call, monkeypatch):
    monkeypatch.setenv("KERNELS_HUB", "https://hub.corp")
    expected = [{"owner": "acme", "hub": "https://hub.corp"}]
    for words in (("add", "acme"), ("list",), ("remove", "acme")):
        code, out, err = call("trust", *words, "--json")
        assert (code, json.loads(out), err) == (0, expected, "")
    assert call("trust", "list", "--json")[:2] == (0, "[]\n")


def test_trust_that_is_given_at_once_is_all_kept(tmp_path, monkeypatch):
    """Each reads, adds and writes; none writes over what another one has just added."""
    import threading

    from kernels.settings import read_settings
    from kernels.trust import editing_trusted, read_trusted, write_trusted

    config = read_settings().config

    def add(digest):
        with editing_trusted(config) as known:
            write_trusted(config, known._replace(digests=known.digests | {digest}))

    digests = [f"{number:064x}" for number in range(12)]
    threads = [threading.Thread(target=add, args=(digest,)) for digest in digests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_trusted(config).digests == set(digests)


def test_what_a_kernel_says_of_itself_cannot_steer_a_terminal(
    publisher, make_variant, tmp_path, capsys
):
    place = make_variant(tmp_path / "torch-cpu")
    metadata = json.loads((place / "metadata.json").read_text()) | {"license": "MIT\x1b[2J\ud800"}
    (place / "metadata.json").write_text(json.dumps(metadata))
    assert run(["info", str(place)]) == 0
    assert "License: MIT\\x1b[2J\\ud800\n" in capsys.readouterr().out
