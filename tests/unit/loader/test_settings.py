"""What the environment says, and what it cannot say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.errors import SettingsError
from kernels.hub_address import HubAddress, parse_hubs
from kernels.settings import (
    PUBLIC_HUB,
    VARIABLES,
    fingerprint,
    hubs_of,
    read_settings,
)

HOME = {"HOME": "/home/ada"}


def test_defaults():
    settings = read_settings(HOME)
    assert settings.cache == Path("/home/ada/.cache/huggingface/kernels")
    assert settings.hubs == (HubAddress(PUBLIC_HUB),)
    assert settings.ref_ttl == 600
    assert not settings.offline
    assert settings.telemetry
    assert settings.overrides == {}
    assert settings.config == Path("/home/ada/.config/kernels")
    assert settings.state == Path("/home/ada/.local/state/kernels")


@pytest.mark.parametrize(
    ("environ", "cache"),
    [
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/kernels"),
        ({"XDG_CACHE_HOME": "/c", "HF_HOME": "/hf"}, "/hf/kernels"),
        ({"HF_HOME": "/hf", "KERNELS_CACHE": "/k"}, "/k"),
        ({"KERNELS_CACHE": ""}, "/home/ada/.cache/huggingface/kernels"),
        ({"KERNELS_CACHE": "/a/../k"}, "/k"),
    ],
)
def test_the_place_of_the_cache(environ, cache):
    assert read_settings(HOME | environ).cache == Path(cache)


@pytest.mark.parametrize("text", ["1", "true", "YES", "on", " ON "])
def test_flags_as_huggingface_hub_reads_them(text):
    assert read_settings(HOME | {"HF_HUB_OFFLINE": text}).offline
    for name in ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        assert not read_settings(HOME | {name: text}).telemetry


@pytest.mark.parametrize("text", ["", "0", "no", "off", "false"])
def test_flags_that_are_off(text):
    assert not read_settings(HOME | {"HF_HUB_OFFLINE": text}).offline


def test_the_endpoint_is_the_hub_where_none_is_named():
    settings = read_settings(HOME | {"HF_ENDPOINT": "https://hub.corp/"})
    assert settings.hubs == (HubAddress("https://hub.corp"),)
    assert settings.token_hub == "https://hub.corp"


def test_hubs_and_their_owners():
    text = "acme,ml=https://hub.corp/x?a=b  file:///srv/kernels\nhttps://huggingface.co/"
    assert parse_hubs(text) == (
        HubAddress("https://hub.corp/x?a=b", frozenset({"acme", "ml"})),
        HubAddress("file:///srv/kernels"),
        HubAddress("https://huggingface.co"),
    )
    settings = read_settings(HOME | {"KERNELS_HUB": text})
    assert [hub.url for hub in hubs_of(settings, "ml")] == ["https://hub.corp/x?a=b"]
    assert [hub.url for hub in hubs_of(settings, "bob")] == ["file:///srv/kernels", PUBLIC_HUB]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/srv/kernels", "write file:///srv/kernels"),
        ("hub.corp", "expected an https://"),
        ("ftp://hub", "expected an https://"),
        ("acme=hub", "expected an https://"),
    ],
)
def test_what_is_no_hub_is_named(text, words):
    with pytest.raises(SettingsError, match=words) as error:
        read_settings(HOME | {"KERNELS_HUB": text})
    assert "KERNELS_HUB" in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["ten", "-1", "inf", "nan"])
def test_the_life_of_a_record_is_a_number_of_seconds(text):
    with pytest.raises(SettingsError, match=f"KERNELS_REF_TTL.*{text}"):
        read_settings(HOME | {"KERNELS_REF_TTL": text})
    assert read_settings(HOME | {"KERNELS_REF_TTL": "1.5"}).ref_ttl == 1.5


def test_the_fingerprint_changes_with_every_variable_that_is_read():
    class Recorder(dict):
        def __init__(self) -> None:
            super().__init__(HOME)
            self.read: set[str] = set()

        def get(self, key, default=None):
            self.read.add(key)
            return super().get(key, default)

    environ = Recorder()
    read_settings(environ)
    assert environ.read == set(VARIABLES)
    assert all(fingerprint({}) != fingerprint({name: "x"}) for name in VARIABLES)


def test_the_older_name_of_the_cache_counts_where_the_newer_is_not_set():
    old = {"HOME": "/h", "HF_KERNELS_CACHE": "/old"}
    assert read_settings(old).cache == Path("/old")
    assert read_settings({**old, "KERNELS_CACHE": "/new"}).cache == Path("/new")


def test_the_lock_of_a_job_is_an_absolute_path(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read_settings({"HOME": "/h", "KERNELS_LOCK": "a.lock"}).lock == tmp_path / "a.lock"
    assert read_settings({"HOME": "/h", "KERNELS_LOCK": " "}).lock is None
