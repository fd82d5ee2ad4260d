"""Ranges over tags, short hashes, and repositories that have moved."""

from __future__ import annotations

import pytest

import kernels
from kernel_spec import publishing
from kernel_spec.errors import UsageError
from kernel_spec.names import RepoId
from kernels.errors import (
    NotCachedError,
    RedirectError,
    RevisionNotFoundError,
    VersionNotFoundError,
)
from kernels.load import forget


def source(value):
    return {"torch-cpu": {"__init__.py": f"VALUE = {value}\n"}}


@pytest.fixture
def tagged(publisher):
    """Return a repository whose tag vX.Y.Z holds VALUE = XYZ."""
    for tag in ("1.0.0", "1.1.2", "1.2.0rc1", "2.0.0"):
        value = int("".join(filter(str.isdigit, tag)))
        publisher.publish("acme/toy", branch="main", variants=source(value), tags=(f"v{tag}",))
    return publisher


@pytest.mark.parametrize(
    ("version", "value"),
    [
        (">=1.0.0,<2", 112),
        ("1.1.2", 112),
        ("==1.0.0", 100),
        (">=1.2.0rc1,<2", 1201),
        ("~=1.0", 112),
        (">=1", 200),
    ],
)
def test_a_range_takes_the_newest_tag_in_it(tagged, version, value):
    assert value == kernels.get_kernel("acme/toy", version=version).VALUE
    assert kernels.has_kernel("acme/toy", version=version)
    assert kernels.install_kernel("acme/toy", version=version).name == "torch-cpu"
    [variant] = kernels.get_kernel_variants("acme/toy", version=version)
    assert (variant.name, variant.variant.variant_str) == ("torch-cpu", "torch-cpu")


def test_a_range_that_fits_nothing_names_the_tags(tagged):
    with pytest.raises(VersionNotFoundError, match=r"v1\.0\.0, v1\.1\.2, v1\.2\.0rc1, v2\.0\.0"):
        kernels.get_kernel("acme/toy", version=">=3")
    assert not kernels.has_kernel("acme/toy", version=">=3")
    with pytest.raises(VersionNotFoundError, match=r"version=3, means the branch v3"):
        kernels.get_kernel("acme/toy", version="3")


def test_a_range_where_nobody_sets_tags_leads_to_the_branches(publisher):
    for version in (1, 2):
        publisher.publish("acme/toy", branch=f"v{version}", variants=source(version))
    with pytest.raises(VersionNotFoundError, match=r"version=2 takes the branch v2"):
        kernels.get_kernel("acme/toy", version=">=1")


def test_what_is_no_range_is_wrong_usage(tagged):
    for text in ("^1.0", "", "latest"):
        with pytest.raises(UsageError, match="a version or a range"):
            kernels.get_kernel("acme/toy", version=text)


def test_a_new_tag_is_seen_by_the_next_call(tagged):
    assert kernels.get_kernel("acme/toy", version=">=1").VALUE == 200
    tagged.publish("acme/toy", branch="main", variants=source(210), tags=("v2.1.0",))
    assert kernels.get_kernel("acme/toy", version=">=1").VALUE == 210


def test_a_short_hash_must_be_unique(publisher, monkeypatch):
    commit = publisher.publish("acme/toy")
    twin = commit[:9] + "f" * 31
    trees = publisher.hub.root / "acme/toy/trees"
    (trees / f"{twin}.json").write_text("{}")
    publisher.publish("acme/toy", variants=source(2))
    assert kernels.get_kernel("acme/toy", revision=commit[:10]).VALUE == 1
    with pytest.raises(RevisionNotFoundError) as error:
        kernels.get_kernel("acme/toy", revision=commit[:7])
    assert commit in str(error.value)
    assert twin in str(error.value)
    with pytest.raises(RevisionNotFoundError, match="no branch, tag or commit"):
        kernels.get_kernel("acme/toy", revision=commit[:6])


def moved_to(publisher, old, text, branch="main"):
    publisher.publish(old, branch=branch, variants={}, extra={"kernel-status.toml": text})


def test_a_moved_repository_is_followed_and_told_of(publisher, warnings_of):
    publisher.publish("bob/new", branch="v1")
    publisher.publish("bob/new", branch="v2", variants=source(2))
    moved_to(publisher, "acme/old", 'kind = "redirect"\ndestination = "bob/new"\n')
    moved_to(publisher, "acme/older", 'kind = "redirect"\ndestination = "acme/old"\n')
    assert kernels.get_kernel("acme/old").VALUE == 2
    assert kernels.get_kernel("acme/older", version=1).VALUE == 1
    assert kernels.has_kernel("acme/older")
    assert kernels.get_kernel("acme/old") is kernels.get_kernel("bob/new")
    assert warnings_of()[0] == "acme/old has moved to bob/new: ask for it by that name"
    publisher.publish("bob/new", branch="v3", variants=source(3))
    assert kernels.get_kernel("acme/old").VALUE == 3
    moved_to(
        publisher,
        "acme/pinned",
        'kind = "redirect"\ndestination = "bob/new"\nrevision = "v1"\n',
    )
    assert kernels.get_kernel("acme/pinned", version=2).VALUE == 1


def test_a_move_that_the_cache_tells_otherwise_is_asked_for_again(web, publisher, cache):
    publisher.publish("bob/new")
    publisher.publish("bob/evil", variants=source(666))
    moved_to(publisher, "acme/old", 'kind = "redirect"\ndestination = "bob/new"\n')
    assert kernels.get_kernel("acme/old", trust_remote_code=True).VALUE == 1
    (kept,) = (cache / "status").iterdir()
    assert kept.read_text() == 'kind = "redirect"\ndestination = "bob/new"\n'
    kept.write_text('kind = "redirect"\ndestination = "bob/evil"\n')
    kernels.load.forget()
    assert kernels.get_kernel("acme/old", trust_remote_code=True).VALUE == 1
    assert "bob/new" in kept.read_text()


def test_a_repository_that_moves_later_is_followed_by_the_next_call(publisher):
    publisher.publish("acme/old", branch="v1")
    publisher.publish("bob/new", branch="v1", variants=source(2))
    assert kernels.get_kernel("acme/old").VALUE == 1
    moved_to(publisher, "acme/old", 'kind = "redirect"\ndestination = "bob/new"\n', branch="v1")
    assert kernels.get_kernel("acme/old").VALUE == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "redirect"\ndestination = "acme/a"\n', "circle: acme/a -> acme/a"),
        ('kind = "redirect"\ndestination = "bob/b"\n', "circle: acme/a -> bob/b -> acme/a"),
        ('kind = "redirect"\n', "expected destination"),
        ('kind = "redirect"\ndestination = "nowhere"\n', "owner/name"),
        ("kind = [", "expected TOML"),
    ],
)
def test_a_move_to_nowhere_says_so(publisher, text, words):
    moved_to(publisher, "acme/a", text)
    moved_to(publisher, "bob/b", 'kind = "redirect"\ndestination = "acme/a"\n')
    with pytest.raises(RedirectError, match=words) as error:
        kernels.get_kernel("acme/a")
    assert isinstance(error.value, LookupError)
    assert isinstance(error.value, ValueError)


def test_a_status_beyond_any_reason_is_not_read(web, publisher):
    moved_to(publisher, "acme/a", "#" * (1 << 20))
    with pytest.raises(RedirectError, match=r"kernel-status\.toml has 1048576 bytes"):
        kernels.get_kernel("acme/a")
    assert not [line for line in web.requests if "resolve" in line]


def test_a_status_of_another_kind_changes_nothing(publisher):
    publisher.publish("acme/toy", extra={"kernel-status.toml": 'kind = "archived"\n'})
    assert kernels.get_kernel("acme/toy").VALUE == 1


def test_a_move_is_remembered_offline_and_trust_is_asked_of_the_new_owner(web, monkeypatch):
    publisher_hub = web.hub
    project = publisher_hub.root.parent / "status"
    project.mkdir()
    (project / "s").write_text('kind = "redirect"\ndestination = "bob/new"\n')
    publishing.publish(
        publisher_hub,
        RepoId("acme", "old"),
        {"kernel-status.toml": project / "s"},
        branch="main",
        parent=None,
    )
    with pytest.raises(LookupError, match="bob/new"):
        kernels.get_kernel("acme/old")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    forget()
    with pytest.raises(NotCachedError, match="bob/new"):
        kernels.get_kernel("acme/old")
    asked = len(web.requests)
    with pytest.raises(NotCachedError):
        kernels.get_kernel("acme/old")
    assert len(web.requests) == asked


def test_the_owner_of_the_new_place_must_be_trusted(web, publisher):
    publisher.publish("bob/new", branch="v1")
    moved_to(publisher, "acme/old", 'kind = "redirect"\ndestination = "bob/new"\n')
    with pytest.raises(ValueError, match=r"bob/new was not loaded.*kernels trust add bob"):
        kernels.get_kernel("acme/old")
    with pytest.raises(ValueError, match="bob/new was not loaded"):
        kernels.get_kernel("acme/old", trust_remote_code=["acme/old"])
    assert kernels.get_kernel("acme/old", trust_remote_code=["bob/new"]).VALUE == 1


def test_names_like_the_wanted_one_are_suggested_over_http(web, publisher):
    publisher.publish("acme/toy")
    listing = b'[{"id": "acme/toy"}, {"id": "acme/other"}]'
    web.fault = lambda path: (200, {}, listing) if path.startswith("/api/kernels?") else None
    with pytest.raises(LookupError, match="Did you mean acme/toy"):
        kernels.get_kernel("acme/tpy")
    for answer in (OSError("gone"), (200, {}, b"{"), (404, {}, b"{}"), (200, {}, b"[" * (2 << 20))):
        web.fault = lambda path, it=answer: it if path.startswith("/api/kernels?") else None
        with pytest.raises(LookupError, match="no kernel 'acme/tpy'"):
            kernels.get_kernel("acme/tpy")


def test_an_error_of_the_hub_is_one_error(web, publisher):
    """No sixty lines of the http client before it."""
    import httpx2

    web.fault = lambda path: httpx2.ConnectError("no route to host")
    with pytest.raises(ConnectionError, match="no route to host") as error:
        kernels.get_kernel("acme/toy")
    assert "file:///" in str(error.value)
    assert "LOCAL_KERNELS" in str(error.value)
    web.fault = lambda path: None
    publisher.publish("acme/toy")
    with pytest.raises(VersionNotFoundError) as missing:
        kernels.get_kernel("acme/toy", version=7)
    for found in (error.value, missing.value):
        assert found.__cause__ is None
        assert found.__suppress_context__ or found.__context__ is None


def test_a_traceback_ends_where_the_package_was_called(publisher):
    import traceback

    publisher.publish("acme/toy")
    calls = (
        lambda: kernels.get_kernel("acme/none"),
        lambda: kernels.install_kernel("acme/toy", version=9),
        lambda: kernels.load_kernel("acme/toy", "nowhere.lock"),
        lambda: kernels.get_local_kernel("/nowhere"),
    )
    for call in calls:
        with pytest.raises((LookupError, FileNotFoundError)) as error:
            call()
        whole = traceback.format_exception(error.value)
        assert len("".join(whole).splitlines()) < 16, whole


def test_an_unknown_version_offline_is_no_question_of_the_cache(web, publisher, monkeypatch):
    publisher.publish("acme/toy", branch="main")
    publisher.publish("acme/toy", branch="v1")
    kernels.install_kernel("acme/toy", version=1)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(VersionNotFoundError, match="available versions: 1"):
        kernels.get_kernel("acme/toy", version=7)
