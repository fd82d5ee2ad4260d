"""Who may write: the file of tokens, and the command that adds to it."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from kernel_hub.auth import Right, TokenFile, add_token, hash_secret, read_tokens
from kernel_hub.cli import cli
from kernel_hub.errors import TokenFileError
from kernel_hub.signer import Signer


@pytest.fixture
def place(tmp_path):
    return tmp_path / "tokens.toml"


def test_the_file_has_the_hash_and_not_the_secret(place):
    secret = add_token(place, name="ci", owners=["acme", "ml"])
    assert secret.startswith("khub_")
    assert len(secret) > 40
    assert secret not in place.read_text()
    assert place.stat().st_mode & 0o777 == 0o600
    token = TokenFile(place).find(secret)
    assert (token.name, token.owners) == ("ci", {"acme", "ml"})
    assert TokenFile(place).find(secret + "x") is None
    assert TokenFile(place).find(token.sha256) is None, "the hash is no key"


def test_tokens_are_added_and_taken_away_while_the_hub_runs(place):
    first = add_token(place, name="one", owners=["acme"])
    tokens = TokenFile(place)
    assert tokens.find(first)
    second = add_token(place, name="two", owners=["acme"])
    assert tokens.find(second).name == "two"
    assert tokens.find(first).name == "one"
    text = place.read_text()
    place.write_text(text[: text.index("[[token]]")])
    assert tokens.find(first) is None
    assert tokens.find(second) is None


def test_a_broken_file_lets_nobody_in(place):
    secret = add_token(place, name="one", owners=["acme"])
    tokens = TokenFile(place)
    assert tokens.find(secret)
    place.write_text(place.read_text() + "[[token")
    with pytest.raises(TokenFileError, match=r"tokens\.toml: not TOML: .*\[\[token\]\] tables"):
        tokens.find(secret)
    place.unlink()
    with pytest.raises(TokenFileError, match=r"cannot be read .*kernel-hub add-token makes it"):
        tokens.find(secret)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX modes")
def test_a_file_that_others_may_write_is_refused(place):
    add_token(place, name="one", owners=["acme"])
    place.chmod(0o620)
    with pytest.raises(TokenFileError, match="chmod 600"):
        TokenFile(place).read()


def test_every_fault_of_the_file_is_named(place):
    place.write_text(
        f"""
[[token]]
name = "a b"
sha256 = "khub_itself"
owners = []
[[token]]
name = "twin"
sha256 = "{"0" * 64}"
owners = ["acme"]
admin = true
[[token]]
name = "twin"
sha256 = "{"0" * 64}"
owners = ["../x"]
[[token]]
name = "four"
sha256 = "{"1" * 64}"
owners = [["acme"]]
[[token]]
name = "five"
sha256 = "{"2" * 64}"
owners = "acme"
"""
    )
    with pytest.raises(TokenFileError) as caught:
        read_tokens(place)
    message = str(caught.value)
    for part in ("token 1: name", "token 1: sha256", "token 1: owners", "token 2: expected"):
        assert part in message
    for number in (3, 4, 5):
        assert f"token {number}: owners" in message
    assert "token 1: name: expected letters, digits, '_', '.' and '-', found 'a b'" in message
    assert "token 5: owners: expected a list of owners' names, found 'acme'" in message
    assert "two tokens have one name" in message
    assert "khub_itself" not in message


@pytest.mark.parametrize(("name", "owner"), [("", "acme"), ("a b", "acme"), ("x", "../y")])
def test_names_that_cannot_be(place, name, owner):
    with pytest.raises(TokenFileError):
        add_token(place, name=name, owners=[owner])
    assert not place.exists()


def test_owners_of_tokens_do_not_differ_in_case_alone(place):
    """Who holds the token of the one would be taken for the other; what is there already goes on working."""
    add_token(place, name="ci", owners=["acme"])
    before = place.read_bytes()
    for owners in (["Acme"], ["x", "X"]):
        with pytest.raises(TokenFileError, match="differ in case only"):
            add_token(place, name="other", owners=owners)
    assert place.read_bytes() == before
    place.write_text(before.decode().replace('"acme"', '"acme", "ACME"'))
    assert add_token(place, name="more", owners=["ACME"])


def test_a_name_is_given_once(place):
    add_token(place, name="ci", owners=["acme"])
    before = place.read_bytes()
    with pytest.raises(TokenFileError, match="has a token ci"):
        add_token(place, name="ci", owners=["acme"])
    assert place.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(place):
    missing = place.parent / "none" / "tokens.toml"
    with pytest.raises(TokenFileError, match=r"tokens\.toml: its folder does not exist; make it"):
        add_token(missing, name="ci", owners=["acme"])
    assert not missing.parent.exists()


def test_the_command_prints_the_token_once(place):
    done = CliRunner().invoke(cli, ["add-token", str(place), "ci", "--owner", "acme"])
    assert done.exit_code == 0
    [token] = read_tokens(place)
    assert hash_secret(done.output.strip()) == token.sha256
    assert CliRunner().invoke(cli, ["add-token", str(place), "x"]).exit_code == 2


def test_a_token_may_be_to_propose_only_and_for_some_days(place):
    words = ["add-token", str(place), "guest", "--owner", "acme", "--propose", "--days", "1"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    add_token(place, name="ci", owners=["acme"])
    guest, ci = read_tokens(place)
    today = datetime.now(UTC).date()
    assert (guest.may, guest.expires, guest.is_expired()) == (Right.PROPOSE, today, False)
    assert replace(guest, expires=today - timedelta(days=1)).is_expired()
    assert (ci.may, ci.expires, ci.is_expired()) == (Right.WRITE, None, False)
    assert CliRunner().invoke(cli, [*words[:-1], "0"]).exit_code == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('may = "everything"', "token 1: may: expected write or propose"),
        ("may = [1]", "token 1: may: expected write or propose"),
        ('expires = "2027-01-31"', "token 1: expires: expected a day"),
        ("expires = 2027-01-31T00:00:00", "token 1: expires: expected a day"),
        ("scope = 1", "token 1: expected name, sha256 and owners"),
    ],
)
def test_a_right_or_a_day_that_cannot_be_read_lets_nobody_in(place, line, said):
    secret = add_token(place, name="ci", owners=["acme"])
    place.write_text(place.read_text() + line + "\n")
    with pytest.raises(TokenFileError, match=said):
        TokenFile(place).find(secret)


def test_a_signature_is_for_one_action(place):
    signer = Signer()
    good = signer.sign("put", "acme/toy", "a" * 64, "5", "100")
    assert signer.is_signed(good, "put", "acme/toy", "a" * 64, "5", "100")
    assert not signer.is_signed(good, "put", "acme/toy", "a" * 64, "51", "00")
    assert not signer.is_signed("é", "put", "acme/toy", "a" * 64, "5", "100")
    assert not Signer().is_signed(good, "put", "acme/toy", "a" * 64, "5", "100")


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ([], False),
        (["--host", "0.0.0.0"], True),
        (["--host", "0.0.0.0", "--public-url", "https://hub.example"], False),
        (["--host", "0.0.0.0", "--public-url", "http://hub.example"], True),
    ],
)
def test_tokens_without_encryption_are_warned_of(place, monkeypatch, tmp_path, options, warned):
    add_token(place, name="ci", owners=["acme"])
    monkeypatch.setattr("kernel_hub.server.serve", lambda *_, **__: None)
    done = CliRunner().invoke(cli, ["serve", str(tmp_path), "--tokens", str(place), *options])
    assert done.exit_code == 0
    assert ("unencrypted" in done.output) is warned


def test_a_hub_does_not_start_with_a_file_that_it_cannot_use(place, tmp_path):
    done = CliRunner().invoke(cli, ["serve", str(tmp_path), "--tokens", str(place)])
    assert isinstance(done.exception, TokenFileError)


def test_an_owner_is_no_repository(place):
    with pytest.raises(TokenFileError, match=r"--owner acme/toy: .*before the slash"):
        add_token(place, name="ci", owners=["acme/toy"])
    assert not place.exists()


def test_the_command_says_which_version_it_is():
    said = CliRunner().invoke(cli, ["--version"])
    assert said.exit_code == 0
    assert said.output.startswith("kernel-hub 0.")
