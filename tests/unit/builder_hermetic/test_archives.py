"""Archives that are not what they should be: nothing of them may reach the disk or a build."""

import hashlib
import io
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder import archives
from kernel_builder.archives import (
    ArchiveStore,
    copy_archive,
    download,
    fetch_tree,
    hash_file,
    hash_tree,
    unpack,
)
from kernel_builder.errors import ArchiveError


def tar(place: Path, *members: tuple[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> Path:
    with tarfile.open(place, mode) as file:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                file.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return place


def link(target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_only_what_is_asked_for_is_unpacked(tmp_path: Path, mode: str) -> None:
    archive = tar(
        tmp_path / "a",
        ("lib-1.0/include/lib/a.h", b"a"),
        ("./lib-1.0/include/b.h", b"b"),
        ("lib-1.0/includes/c.h", b"c"),
        ("lib-1.0/docs/link", link("/etc/passwd")),
        ("lib-1.0/tests/../../../x", b"x"),
        mode=mode,
    )
    target = tmp_path / "t"
    target.mkdir()
    unpack(archive, ("lib-1.0/include",), target, name="lib")
    assert tree(target) == {"lib-1.0/include/lib/a.h": b"a", "lib-1.0/include/b.h": b"b"}


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("include/../../x.h", b"x", "leads out of it"),
        ("include/l.h", link("../secret"), "is a link"),
        ("include/l.h", link("include/a.h", tarfile.LNKTYPE), "is a link"),
        ("include/dev", link("", tarfile.CHRTYPE), "a device"),
        ("include/pipe", link("", tarfile.FIFOTYPE), "a device"),
        ("include/a\\..\\x.h", b"x", "leads out of it"),
    ],
)
def test_what_is_unsafe_is_refused(
    tmp_path: Path, path: str, content: bytes | tarfile.TarInfo, said: str
) -> None:
    archive = tar(tmp_path / "a", ("include/a.h", b"a"), (path, content))
    target = tmp_path / "deep" / "t"
    target.mkdir(parents=True)
    with pytest.raises(ArchiveError, match=said):
        unpack(archive, ("include",), target, name="lib")
    assert set(tree(tmp_path)) <= {"a", "deep/t/include/a.h"}


def test_absolute_paths_are_refused(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a", ("/include/a.h", b"a"))
    (tmp_path / "t").mkdir()
    with pytest.raises(ArchiveError, match="leads out of it"):
        unpack(archive, (".",), tmp_path / "t", name="lib")


def test_every_fault_is_named(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a", ("i/a", link("x")), ("i/b", link("y")), ("i/c.h", b""))
    (tmp_path / "t").mkdir()
    with pytest.raises(ArchiveError) as caught:
        unpack(archive, ("i", "other"), tmp_path / "t", name="lib")
    for each in ("'i/a'", "'i/b'", "no directory 'other'"):
        assert each in str(caught.value)


def test_links_in_zip_archives_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "a.zip"
    with zipfile.ZipFile(place, "w") as file:
        file.writestr("include/a.h", "a")
        info = zipfile.ZipInfo("include/l.h")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, "/etc/passwd")
    (tmp_path / "t").mkdir()
    with pytest.raises(ArchiveError, match=r"'include/l\.h' is a link"):
        unpack(place, ("include",), tmp_path / "t", name="lib")


def test_a_wheel_is_an_archive(tmp_path: Path) -> None:
    place = tmp_path / "lib-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as file:
        file.writestr("lib/include/a.h", "a")
        file.writestr("lib/__init__.py", "")
    (tmp_path / "t").mkdir()
    unpack(place, ("lib/include",), tmp_path / "t", name="lib")
    assert tree(tmp_path / "t") == {"lib/include/a.h": b"a"}


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x1f\x8b\x08garbage"])
def test_what_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "t").mkdir()
    with pytest.raises(ArchiveError, match=r"lib: .*/a cannot be unpacked"):
        unpack(tmp_path / "a", ("include",), tmp_path / "t", name="lib")


def test_bombs_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tar(tmp_path / "a", *((f"i/{n}.h", bytes(5000)) for n in range(10)))
    for limit in ("LARGEST_TREE", "MOST_FILES"):
        target = tmp_path / limit
        target.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(archives, limit, 9)
            with pytest.raises(ArchiveError, match="more than 9"):
                unpack(archive, ("i",), target, name="lib")


def keep(archive: Path) -> Callable[[Path], None]:
    return lambda target: copy_archive(archive, target, name="lib")


def refuse(_: Path) -> None:
    raise AssertionError("fetched though it is kept")


def test_an_archive_is_fetched_once_and_unpacked_again_without(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a", ("i/a.h", b"a"), ("j/b.h", b"b"))
    store = ArchiveStore(tmp_path / "store")
    sha256 = hash_file(archive)
    first = fetch_tree(store, sha256, ("i",), name="lib", get=keep(archive))
    assert fetch_tree(store, sha256, ("i",), name="lib", get=refuse) == first
    second = fetch_tree(store, sha256, ("j",), name="lib", get=refuse)
    assert (tree(first), tree(second)) == ({"i/a.h": b"a"}, {"j/b.h": b"b"})
    assert not list(tmp_path.rglob(".*"))


def test_another_hash_is_refused_and_nothing_kept(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a", ("i/a.h", b"a"))
    store = ArchiveStore(tmp_path / "store")
    with pytest.raises(ArchiveError) as caught:
        fetch_tree(store, "0" * 64, ("i",), name="lib", get=keep(archive))
    assert hash_file(archive) in str(caught.value)
    assert "expected " + "0" * 64 in str(caught.value)
    place = store.tree("0" * 64, ("i",))
    assert [path for path in store.root.rglob("*") if path.is_file()] == [
        place.with_name(f"{place.name}.lock")
    ]


def test_a_kept_archive_that_was_changed_is_fetched_again(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a", ("i/a.h", b"a"))
    store = ArchiveStore(tmp_path / "store")
    sha256 = hash_file(archive)
    store.archive(sha256).parent.mkdir(parents=True)
    store.archive(sha256).write_bytes(b"half an arch")
    assert tree(fetch_tree(store, sha256, ("i",), name="lib", get=keep(archive)))
    assert hash_file(store.archive(sha256)) == sha256


def test_many_at_once_fetch_once(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a", ("i/a.h", b"a"))
    store = ArchiveStore(tmp_path / "store")
    sha256 = hash_file(archive)
    calls: list[Path] = []

    def get(target: Path) -> None:
        calls.append(target)
        copy_archive(archive, target, name="lib")

    def fetch() -> None:
        fetch_tree(store, sha256, ("i",), name="lib", get=get)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(calls) == 1


def test_without_a_network_it_says_what_to_fetch(tmp_path: Path) -> None:
    # Port 1 of this machine, where nothing listens.
    with pytest.raises(
        ArchiveError, match=r"http://127\.0\.0\.1:1/a\.tgz cannot be fetched .*--source lib=FILE"
    ):
        download("http://127.0.0.1:1/a.tgz", tmp_path / "a", name="lib")


def test_a_tree_is_told_from_another_by_names_and_bytes(tmp_path: Path) -> None:
    seen = set()
    for name, content in (("a", "1"), ("a", "2"), ("b", "1")):
        root = tmp_path / f"{name}{content}"
        (root / "i").mkdir(parents=True)
        (root / "i" / name).write_text(content)
        (root / "other").write_text(name)
        seen.add(hash_tree(root, ["i"]))
    assert len(seen) == 3
    assert hashlib.sha256().hexdigest() == hash_tree(tmp_path, [])
