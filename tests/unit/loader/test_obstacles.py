"""Something else where a folder should be, in the cache, in a hub and beside them: an error of ours, within a second."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from contextlib import contextmanager
from functools import partial

import pytest

import kernels
import kernels.load
from kernel_spec.errors import KernelError
from kernels.cli import run
from kernels.errors import (
    CacheError,
    HubUnreachableError,
    NotAKernelError,
    NotCachedError,
    RepoNotFoundError,
    SettingsError,
)

OBSTACLES = ["file", "fifo", "link to nothing", "link to itself"]
LOCKED_AWAY = "unreadable"


@pytest.fixture(params=[*OBSTACLES, LOCKED_AWAY])
def put(request):
    """Put an obstacle in the place of what is there."""
    undo, links = [], []

    def place(path):
        if request.param == LOCKED_AWAY:
            request.getfixturevalue("ordinary_user")
            path.chmod(0)
            undo.append(path)
            return request.param
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.parent.mkdir(exist_ok=True)
        match request.param:
            case "file":
                path.write_text("x")
            case "fifo":
                os.mkfifo(path)
            case "link to nothing":
                path.symlink_to(path.parent / "nothing" / "such")
            case _:
                path.symlink_to(path.name)
                links.append(path)
        return request.param

    yield place
    for path in undo:
        path.chmod(0o755)
    # Modules were imported from below it, and hypothesis looks where each module's file is.
    for path in links:
        if path.is_symlink():
            path.unlink()


@contextmanager
def a_second():
    """Interrupt whatever waits longer."""

    def interrupt(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def message_of(kind):
    """Load the kernel; return what an error of that kind says where it cannot be loaded."""
    try:
        assert kernels.get_kernel("acme/toy").VALUE == 1
    except kind as err:
        return str(err)
    return ""


@pytest.fixture
def cached(publisher, cache):
    """Fill the cache from a directory hub, and forget what this process knows of it."""
    publisher.publish(
        variants={"torch-cpu": {"__init__.py": "from .a import VALUE\n", "a.py": "VALUE = 1\n"}}
    )
    kernels.get_kernel("acme/toy")
    (cache / "tmp").mkdir(exist_ok=True)
    kernels.load.forget()
    return cache


@pytest.fixture
def said(capsys):
    """Run a command; return its exit code and its output, which is JSON whatever happens."""

    def ask(*words):
        code = run([*words, "--json"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert code in (0, 1, 2)
        return code, json.loads(out)

    return ask


FOLDERS = [
    "",
    ".",
    "locks",
    "tmp",
    "refs",
    "trees",
    "variants",
    "variants/*",
    "variants/*/torch-cpu",
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_in_the_place_of_a_folder_of_the_cache(cached, put, folder):
    (place,) = cached.parent.glob(f"store-v1/{folder}".rstrip("/")) if folder else [cached.parent]
    kind = put(place)
    with a_second():
        message = message_of(CacheError)
    if message:
        assert str(place) in message
        assert "KERNELS_CACHE" in message
        said = f"{place} is no folder" in message or f"{place}: it is no folder" in message
        assert said or kind == LOCKED_AWAY
    if folder.startswith("variants/") and kind != LOCKED_AWAY:
        # What is the cache's own and can be had again is put right.
        assert kernels.get_kernel("acme/toy").VALUE == 1
        assert place.is_dir()
        assert not place.is_symlink()


@pytest.mark.parametrize(
    "words",
    [("cache", "list"), ("cache", "verify"), ("cache", "prune", "--yes"), ("doctor", "acme/toy")],
)
@pytest.mark.parametrize("folder", ["", "locks", "variants", "variants/*"])
def test_commands_say_so_too(cached, put, said, folder, words):
    (place,) = cached.parent.glob(f"store-v1/{folder}".rstrip("/")) if folder else [cached.parent]
    put(place)
    with a_second():
        code, answer = said(*words)
    # What could not be pruned is told with each thing.
    kept = [each["error"] for each in answer.get("removals", ()) if each["error"]]
    assert code == 0 or "error" in answer or kept or words[0] == "doctor" or words[1] == "verify"


@pytest.mark.parametrize("kind", ["fifo", "/dev/zero"])
def test_a_list_of_the_cache_does_not_wait_for_metadata(cached, said, kind):
    (place,) = cached.glob("variants/*/torch-cpu/metadata.json")
    place.unlink()
    os.mkfifo(place) if kind == "fifo" else place.symlink_to(kind)
    with a_second():
        code, answer = said("cache", "list")
    assert code == 0
    assert answer


@pytest.mark.parametrize(
    "folder",
    [
        "acme",
        "acme/toy",
        "acme/toy/refs",
        "acme/toy/refs/heads",
        "acme/toy/trees",
        "acme/toy/snapshots",
        "acme/toy/snapshots/*/build",
    ],
)
def test_in_the_place_of_a_folder_of_a_hub(publisher, put, monkeypatch, tmp_path, folder):
    """It is no "there is none", by which the other hub of the list would come to have the name."""
    publisher.publish()
    shutil.copytree(publisher.hub.root, tmp_path / "other")
    monkeypatch.setenv("KERNELS_HUB", f"{publisher.url} file://{tmp_path / 'other'}")
    (place,) = publisher.hub.root.glob(folder)
    put(place)
    with a_second(), pytest.raises(HubUnreachableError, match=str(publisher.hub.root)) as caught:
        kernels.get_kernel("acme/toy")
    assert place.name in str(caught.value)


def test_a_repository_that_is_not_there_is_still_looked_for_elsewhere(
    publisher, monkeypatch, tmp_path
):
    publisher.publish()
    (tmp_path / "first" / "acme" / "empty").mkdir(parents=True)
    monkeypatch.setenv("KERNELS_HUB", f"file://{tmp_path / 'first'} {publisher.url}")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    with pytest.raises(RepoNotFoundError):
        kernels.get_kernel("acme/empty")


@pytest.mark.parametrize("folder", [".config", ".config/kernels"])
@pytest.mark.usefixtures("web")
def test_in_the_place_of_where_consent_is_kept(publisher, put, said, environment, folder):
    tmp_path = environment
    publisher.publish("stranger/toy")
    (tmp_path / "home/.config/kernels").mkdir(parents=True)
    put(tmp_path / "home" / folder)
    with a_second(), pytest.raises(KernelError) as caught:
        kernels.get_kernel("stranger/toy")
    assert "stranger" in str(caught.value) or isinstance(caught.value, SettingsError)
    with a_second():
        for words in (("trust", "list"), ("trust", "add", "bob", "--hub", "https://hub.corp")):
            said(*words)


@pytest.mark.parametrize(
    "folder", ["home", "home/.cache", "home/.cache/huggingface", "home/.cache/huggingface/token"]
)
def test_in_the_place_of_the_token(web, publisher, put, monkeypatch, folder):
    tmp_path = publisher.hub.root.parent
    token = tmp_path / "home/.cache/huggingface/token"
    token.parent.mkdir(parents=True)
    token.write_text("hf_word")
    monkeypatch.setenv("HF_ENDPOINT", web.URL)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(token))
    publisher.publish()
    put(tmp_path / folder)
    with a_second():
        message = message_of(SettingsError)
    assert not message or "HF_TOKEN" in message
    assert "hf_word" not in message


@pytest.fixture
def snapshot(make_variant, make_snapshot, monkeypatch, tmp_path):
    """Return the repository in a cache of the published client that can be loaded from it alone."""
    commit = "c" * 40
    repo = make_snapshot(tmp_path / "hub-cache", make_variant(tmp_path / "variant"), commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "v1").write_text(commit)
    monkeypatch.setenv("HF_HUB_CACHE", str(repo.parent))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("KERNELS_HUB", "https://hub.corp")
    return repo


@pytest.mark.parametrize(
    "part", ["", "refs", "refs/v1", "snapshots", "snapshots/*", "snapshots/*/build", "blobs"]
)
def test_in_the_place_of_what_the_published_client_cached(snapshot, put, part):
    """Its cache is a read-only source: what of it cannot be read is as good as not there."""
    (place,) = snapshot.glob(part) if part else [snapshot]
    put(place)
    load = partial(kernels.get_kernel, "acme/toy", trust_remote_code=True)
    with a_second():
        if part.startswith("refs"):
            # A snapshot says its version itself.
            assert load().VALUE == 1
            return
        with pytest.raises(NotCachedError):
            load()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("info", "acme/nothing"), 1),
        (("versions", "no-owner"), 2),
        (("cache", "lst"), 2),
        (("info",), 2),
    ],
)
def test_with_json_a_failure_is_json_too(publisher, said, words, code):
    publisher.publish()
    found, answer = said(*words)
    assert found == code
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"type", "message"}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told_as_such(publisher, monkeypatch, number):
    """NFS without its lock daemon; where the system knows no flock at all, filelock makes do."""
    publisher.publish()
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with a_second(), pytest.raises(CacheError, match=r"keeps no locks.*a local disk"):
        kernels.get_kernel("acme/toy")


GIVEN = [
    ("lock",),
    ("download",),
    ("verify",),
    ("info",),
    ("doctor",),
    ("check",),
    ("bundle", "list"),
    ("bundle", "verify"),
    ("bundle", "install"),
]


@pytest.mark.parametrize("kind", ["fifo", "/dev/zero", "link to itself"])
@pytest.mark.parametrize("words", GIVEN, ids=" ".join)
def test_in_the_place_of_what_a_command_is_given(publisher, said, tmp_path, words, kind):
    place = tmp_path / "given"
    os.mkfifo(place) if kind == "fifo" else place.symlink_to(kind if "/" in kind else place.name)
    with a_second():
        code, answer = said(*words, str(place))
    assert code in (1, 2)
    assert "given" in answer["error"]["message"]


@pytest.mark.parametrize("variable", ["KERNELS_LOCK", "LOCAL_KERNELS", "KERNELS_HUB", "none"])
@pytest.mark.parametrize("kind", ["fifo", "/dev/zero", "link to itself"])
def test_in_the_place_of_what_a_setting_names(publisher, monkeypatch, tmp_path, variable, kind):
    publisher.publish()
    place = tmp_path / "given"
    os.mkfifo(place) if kind == "fifo" else place.symlink_to(kind if "/" in kind else place.name)
    value = {"LOCAL_KERNELS": f"acme/toy={place}", "KERNELS_HUB": f"file://{place}"}
    monkeypatch.setenv(variable, value.get(variable, str(place)))
    load = partial(kernels.get_local_kernel, place)
    if variable != "none":
        load = partial(kernels.get_kernel, "acme/toy")
    with a_second(), pytest.raises(KernelError, match="given"):
        load()


@pytest.mark.usefixtures("ordinary_user")
def test_a_path_of_somebody_else_is_told_as_such(make_variant, tmp_path):
    make_variant(tmp_path / "theirs" / "build" / "torch-cpu")
    (tmp_path / "theirs").chmod(0)
    try:
        with pytest.raises(NotAKernelError, match="that this user can read"):
            kernels.get_local_kernel(tmp_path / "theirs")
    finally:
        (tmp_path / "theirs").chmod(0o755)
