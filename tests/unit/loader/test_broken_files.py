"""What the loader does with files that are not what they should be, and with odd arguments."""

from __future__ import annotations

import errno
import os
import shutil
import sys

import pytest

import kernels
import kernels.load
from kernel_spec.errors import FormatError, IntegrityError, KernelError, MetadataError, UsageError
from kernels.errors import (
    CacheError,
    HubUnreachableError,
    KernelImportError,
    NotAKernelError,
    NotCachedError,
    RepoNotFoundError,
    SettingsError,
)

SPECIAL = ("fifo", "directory", "gone")


def spoil(path, kind):
    """Put something in the place of a file."""
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("file", ["refs/heads/v1", "build/torch-cpu/__init__.py"])
def test_a_hub_folder_with_something_else_in_place_of_a_file(publisher, kind, file):
    commit = publisher.publish()
    folder = publisher.hub.root / "acme/toy"
    spoil(folder / file if file.startswith("refs") else folder / "snapshots" / commit / file, kind)
    with pytest.raises(KernelError) as caught:
        kernels.get_kernel("acme/toy")
    assert isinstance(caught.value, HubUnreachableError) or kind == "gone"


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_local_variant_whose_metadata_is_no_file(make_variant, tmp_path, kind):
    place = make_variant(tmp_path / "torch-cpu")
    spoil(place / "metadata.json", kind)
    with pytest.raises(NotAKernelError):
        kernels.get_local_kernel(tmp_path)


def test_local_metadata_of_endless_depth(make_variant, tmp_path):
    place = make_variant(tmp_path / "torch-cpu")
    (place / "metadata.json").write_text("[" * 200_000)
    with pytest.raises(MetadataError, match="not JSON"):
        kernels.get_local_kernel(place)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name")
def test_a_local_file_whose_name_is_not_utf8(make_variant, tmp_path):
    place = make_variant(tmp_path / "torch-cpu", digest=False)
    with open(os.fsencode(place) + b"/\xff.py", "w"):  # noqa: PTH123 - a name of bytes
        pass
    with pytest.raises(FormatError, match="not UTF-8"):
        kernels.get_local_kernel(place)


CORRUPT = {
    "deep": b"[" * 100_000,
    "array": b"[]",
    "empty": b"",
    "infinite": b'{"format": 1, "variant": "x", "checked": 1e999, "trusted": 5, "trust_checked": 0,'
    b' "refs": null, "files": [["a", 1e999, "x", null, false]]}',
    "lists": b'{"format": 99, "variant": "x", "files": []}',
    "fifo": None,
}


@pytest.mark.parametrize("content", CORRUPT.values(), ids=CORRUPT)
@pytest.mark.parametrize(
    "pattern",
    [
        "trees/*/*/*/*.json",
        "refs/*/*/*.json",
        "variants/*/manifest.json",
        "variants/*/receipt.json",
    ],
)
def test_a_corrupt_document_of_the_cache_is_made_anew(publisher, cache, pattern, content):
    publisher.publish()
    kernels.get_kernel("acme/toy")
    kernels.load.forget()
    (document,) = cache.glob(pattern)
    document.unlink()
    if content is None:
        os.mkfifo(document)
    else:
        document.write_bytes(content)
    assert kernels.get_kernel("acme/toy").VALUE == 1


def test_source_that_is_changed_between_verifying_and_importing_is_not_run(publisher, cache):
    """Even where size and time are as the receipt has them."""
    publisher.publish(
        variants={
            "torch-cpu": {
                "__init__.py": "def late():\n    from . import a\n    return a.X\n",
                "a.py": "X = 1\n",
            }
        }
    )
    kernel = kernels.get_kernel("acme/toy")
    (source,) = cache.glob("variants/*/torch-cpu/a.py")
    times = source.stat()
    source.write_text("X = 2\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(IntegrityError, match="was changed since"):
        kernel.late()


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing"])
def test_what_is_in_the_place_of_a_cached_variant_makes_way(publisher, cache, tmp_path, kind):
    publisher.publish()
    place = kernels.install_kernel("acme/toy").parent
    shutil.rmtree(place)
    elsewhere = tmp_path / "elsewhere"
    if kind == "file":
        place.write_text("x")
    elif kind == "link":
        elsewhere.mkdir()
        (elsewhere / "kept").touch()
        place.symlink_to(elsewhere)
    else:
        place.symlink_to(elsewhere)
    kernels.load.forget()
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert place.is_dir()
    assert not place.is_symlink()
    assert not list((cache / "tmp").iterdir())
    assert kind != "link" or (elsewhere / "kept").exists()


@pytest.mark.usefixtures("ordinary_user")
def test_an_unreadable_cache(publisher, cache):
    publisher.publish()
    kernels.get_kernel("acme/toy")
    kernels.load.forget()
    (cache / "variants").chmod(0)
    try:
        with pytest.raises(CacheError, match="KERNELS_CACHE"):
            kernels.get_kernel("acme/toy")
    finally:
        (cache / "variants").chmod(0o755)


@pytest.mark.parametrize("offline", [False, True], ids=["online", "offline"])
@pytest.mark.parametrize("refused", ["variant", "manifest", "source", "failing disk"])
@pytest.mark.usefixtures("ordinary_user")
def test_an_installed_variant_that_cannot_be_read_stays_where_it_is(
    publisher, cache, monkeypatch, refused, offline
):
    publisher.publish()
    kernels.get_kernel("acme/toy")
    kernels.load.forget()
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        publisher.hub.root.rename(publisher.hub.root.with_name("away"))
    [place] = (cache / "variants").iterdir()
    path = {
        "variant": place / "torch-cpu",
        "source": place / "torch-cpu" / "__init__.py",
    }.get(refused, place / "manifest.json")
    mode = path.stat().st_mode
    words = "Permission denied"
    if refused == "failing disk":
        words = fail_to_read(path, monkeypatch)
    else:
        # Another time of change than that of its receipt lets it be hashed.
        os.utime(path)
        path.chmod(0)
    try:
        with pytest.raises(CacheError) as caught:
            kernels.install_kernel("acme/toy")
    finally:
        path.chmod(mode)
    assert f"{path}: cannot be read: {words}" in str(caught.value)
    assert f"move {place} away" in str(caught.value)
    assert list((cache / "variants").iterdir()) == [place]
    assert path.exists()
    assert not (cache / "tmp").exists() or not list((cache / "tmp").iterdir())


def fail_to_read(path, monkeypatch):
    """Let the disk have an error where a file is; return the system's words for it."""
    truly, words = os.open, os.strerror(errno.EIO)

    def read(name, *args, **more):
        if str(name) == str(path):
            raise OSError(errno.EIO, words, str(name))
        return truly(name, *args, **more)

    monkeypatch.setattr(os, "open", read)
    return words


@pytest.mark.parametrize("document", ["refs/*/acme/toy.json", "trees/*/acme/toy/*.json"])
@pytest.mark.usefixtures("ordinary_user")
def test_a_document_of_the_cache_that_cannot_be_read_is_said_to_be_so(
    publisher, cache, monkeypatch, warnings_of, document
):
    """Offline "it is not in the cache" alone would send people to fetch what they have."""
    publisher.publish()
    kernels.get_kernel("acme/toy")
    kernels.load.forget()
    publisher.hub.root.rename(publisher.hub.root.with_name("away"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (path,) = cache.glob(document)
    path.chmod(0)
    for _ in range(2):
        with pytest.raises(NotCachedError):
            kernels.get_kernel("acme/toy")
    [said] = warnings_of()
    assert said == f"{path} cannot be read and counts as absent: Permission denied"
    path.chmod(0o644)
    assert kernels.get_kernel("acme/toy").VALUE == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"repo_id": None}, "repo_id"),
        ({"repo_id": ["acme/toy"]}, "repo_id"),
        ({"repo_id": b"acme/toy"}, "repo_id"),
        ({"revision": 1}, "revision"),
        ({"revision": ["main"]}, "revision"),
        ({"version": True}, "version"),
        ({"version": "^1"}, "version"),
        ({"version": [1]}, "version"),
        ({"backend": ["cpu"]}, "backend"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(publisher, arguments, named):
    publisher.publish()
    with pytest.raises(UsageError, match=named):
        kernels.get_kernel(**{"repo_id": "acme/toy", **arguments})


def test_a_path_of_a_wrong_type_is_named():
    with pytest.raises(UsageError, match="path"):
        kernels.get_local_kernel(5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KERNELS_HUB", "file://"),
        ("KERNELS_HUB", "file://relative"),
        ("KERNELS_HUB", "http://"),
        ("KERNELS_HUB", "https:///acme"),
        ("KERNELS_HUB", "http://[hub"),
        ("KERNELS_HUB", "http://hub:port"),
        ("KERNELS_HUB", "owner="),
        ("HF_ENDPOINT", "hub.corp"),
        ("HF_ENDPOINT", "http://[hub"),
        ("KERNELS_CACHE", "~nosuchuser/cache"),
        ("KERNELS_CACHE", "/tmp/\udcff"),
        ("LOCAL_KERNELS", "acme/toy=~nosuchuser/toy"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name):
        kernels.get_kernel("acme/toy")


def test_a_relative_cache_where_the_current_directory_is_gone(publisher, monkeypatch, tmp_path):
    publisher.publish()
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    shutil.rmtree(gone)
    assert kernels.get_kernel("acme/toy").VALUE == 1
    monkeypatch.setenv("KERNELS_CACHE", "cache")
    with pytest.raises(SettingsError, match=r"KERNELS_CACHE.*absolute"):
        kernels.get_kernel("acme/toy")


def test_a_user_without_a_home(publisher, monkeypatch, tmp_path):
    publisher.publish()
    monkeypatch.delenv("HOME")

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", no_home)
    with pytest.raises(SettingsError, match="HOME"):
        kernels.get_kernel("acme/toy")
    for name in ("HF_HUB_CACHE", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    assert kernels.get_kernel("acme/toy").VALUE == 1


def test_source_that_cannot_be_read_is_an_import_error_that_says_why(publisher, monkeypatch):
    publisher.publish()

    def refuse(self, path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("kernels.importer._SourceLoader.get_data", refuse)
    with pytest.raises(KernelImportError, match=r"__init__\.py cannot be read: Permission denied"):
        kernels.get_kernel("acme/toy")


def test_a_hub_with_folders_of_others_still_says_what_is_missing(publisher, monkeypatch):
    publisher.publish()

    def refuse(hub):
        raise PermissionError(13, "Permission denied", str(hub.root / "private"))

    monkeypatch.setattr("kernel_spec.directory.repositories", refuse)
    with pytest.raises(RepoNotFoundError, match="acme/tpy"):
        kernels.get_kernel("acme/tpy")


@pytest.mark.parametrize(
    ("variant", "path", "sha256"),
    [
        ("torch-cpu", "a\\nb", "0" * 64),
        ("torch-cpu", "\\ud800", "0" * 64),
        ("torch-cpu", "a.py", "\\ud800"),
        ("\\u0000", "a.py", "0" * 64),
        ("\\ud800", "a.py", "0" * 64),
        ("..", "a.py", "0" * 64),
        ("", "a.py", "0" * 64),
    ],
)
def test_a_manifest_that_names_what_cannot_be_is_made_anew(publisher, cache, variant, path, sha256):
    publisher.publish()
    kernels.get_kernel("acme/toy")
    kernels.load.forget()
    (manifest,) = cache.glob("variants/*/manifest.json")
    manifest.write_text(
        f'{{"format": 1, "variant": "{variant}", "files": [["{path}", 3, "{sha256}"]]}}'
    )
    assert kernels.get_kernel("acme/toy").VALUE == 1
