"""Pins of torch releases, and what is taken out of a wheel by them."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import random
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import refresh_torch_releases as refresh
import toy_torch
from filelock import FileLock

from kernel_builder import kept
from kernel_builder.errors import ToolchainError
from kernel_builder.kept import keep_tree
from kernel_builder.toolchain import torch_headers
from kernel_builder.toolchain.packed import (
    Part,
    Piece,
    list_defined,
    read_bytes,
    unpack_entries,
    unpack_piece,
)
from kernel_builder.toolchain.torch_headers import fetch_torch_headers, read_pinned_exports
from kernel_builder.toolchain.torch_releases import (
    PinnedTorch,
    parse_release,
    read_torch_releases,
)
from kernel_builder.toolchain.wheel_parts import WheelSpans
from kernel_spec.version import MajorMinor

PINNED = read_torch_releases("x86_64")
MACHINES = ("x86_64", "aarch64")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_torch.make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def pinned(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> PinnedTorch:
    scratch = tmp_path_factory.mktemp("scratch")
    return parse_release(toy_torch.describe(wheel, scratch))


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for what else is written to the disk of this machine."""
    monkeypatch.setattr(kept, "find_syncfs", lambda: lambda _: 0)


@pytest.fixture
def given(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the parts of the toy in the place of pip and a package index; keep what was asked for."""
    asked: list[str] = []

    def read(spans: WheelSpans, **_: object) -> Sequence[Part]:
        asked.append(str(spans))
        data = wheel.read_bytes()
        return [
            Part(each.offset, data[each.offset : each.offset + each.length]) for each in spans.spans
        ]

    monkeypatch.setattr(torch_headers, "fetch_spans", read)
    return asked


def test_the_newest_of_the_pinned_releases_comes_first() -> None:
    releases = [each.release for each in PINNED]
    assert releases == sorted(set(releases), reverse=True)
    assert MajorMinor(2, 11) in releases
    assert all(each.version.startswith(f"{each.release}.") for each in PINNED)
    assert len({each.key for each in PINNED}) == len(PINNED)


def test_each_processor_has_the_same_releases() -> None:
    versions = [[each.version for each in read_torch_releases(machine)] for machine in MACHINES]
    assert versions[0] == versions[1]
    wheels = {each.wheel for machine in MACHINES for each in read_torch_releases(machine)}
    assert len(wheels) == 2 * len(PINNED)


def test_a_release_that_is_pinned_anew_leaves_the_others_as_they_are() -> None:
    text = refresh.TARGET.read_text("utf-8")
    rows = refresh.split_rows(text)
    assert refresh.join_rows(rows) == text
    added = '\n[[release]]\nversion = "3.0.0"\n'
    assert refresh.join_rows({(MajorMinor(3, 0), "aarch64"): added, **rows}) == text.replace(
        "\n[[release]]\n", f"{added}\n[[release]]\n", 1
    )


def test_a_machine_without_pins_has_no_releases() -> None:
    assert read_torch_releases("riscv64") == ()


def test_little_is_fetched_of_each_release() -> None:
    for each in (pinned for machine in MACHINES for pinned in read_torch_releases(machine)):
        assert each.file.endswith(f"_{each.machine}.whl")
        assert sum(span.length for span in each.spans) < 20_000_000


@pytest.mark.parametrize("fact", ["wheel", "headers_sha256", "exports_sha256"])
def test_the_directory_in_the_store_changes_with_what_is_pinned(fact: str) -> None:
    changed = dataclasses.replace(PINNED[0], **{fact: "0" * 64})  # type: ignore[arg-type]
    assert changed.key != PINNED[0].key


def test_headers_version_and_exports_are_kept(
    pinned: PinnedTorch, given: list[str], tmp_path: Path
) -> None:
    told: list[str] = []
    torch = fetch_torch_headers(
        pinned, store=tmp_path, variables={}, on_fetch=lambda what, *_: told.append(what)
    )
    assert torch.root == tmp_path / pinned.key
    assert torch.build.version == f"{toy_torch.VERSION}+cu130"
    for path, text in toy_torch.HEADERS.items():
        assert (torch.root / path.removeprefix("torch/")).read_text() == text
    expected = {name for names in toy_torch.EXPORTS.values() for name in names}
    assert read_pinned_exports(torch) == expected
    lines = (torch.root / "exports.txt").read_text().splitlines()
    assert lines == sorted(lines)
    assert told[0] == "torch 2.11.0 (headers) is not here yet"
    assert told[-1] == f"torch 2.11.0 (headers) is in {torch.root}"


def test_what_is_kept_is_not_fetched_again(
    pinned: PinnedTorch, given: list[str], tmp_path: Path
) -> None:
    for _ in range(2):
        fetch_torch_headers(pinned, store=tmp_path, variables={})
    assert given == ["torch 2.11.0"]


@pytest.mark.parametrize(
    ("fact", "said"), [("headers_sha256", "its headers"), ("exports_sha256", "its list of exports")]
)
def test_what_is_not_as_pinned_is_not_kept(
    pinned: PinnedTorch, given: list[str], tmp_path: Path, fact: str, said: str
) -> None:
    other = dataclasses.replace(pinned, **{fact: "0" * 64})  # type: ignore[arg-type]
    with pytest.raises(ToolchainError, match=f"{said} have sha256 .*, expected 0000") as caught:
        fetch_torch_headers(other, store=tmp_path, variables={})
    # A backend whose toolchain cannot be had is passed over; this one is not.
    assert caught.type is ToolchainError
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_who_waits_for_another_build_says_so(
    pinned: PinnedTorch, given: list[str], tmp_path: Path
) -> None:
    told: list[str] = []
    other = FileLock(tmp_path / f"{pinned.key}.lock")

    def hear(what: str, *_: int) -> None:
        told.append(what)
        other.release()  # the other build is done now, or was killed

    other.acquire()
    fetch_torch_headers(pinned, store=tmp_path, variables={}, on_fetch=hear)
    assert told[0] == "torch 2.11.0 (headers): another build is fetching them; waiting for it"
    assert given == ["torch 2.11.0"]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """What is written into a file says no place of its own."""

    def make(scratch: Path) -> None:
        (scratch / "tree").mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        keep_tree(tmp_path / "torch", make)
    assert caught.value.filename == str(tmp_path / "torch")
    assert [path.name for path in tmp_path.iterdir()] == ["torch.lock"]


def make_two(scratch: Path) -> None:
    (scratch / "tree" / "include").mkdir(parents=True)
    (scratch / "tree" / "include" / "a.h").write_text("int a;")
    (scratch / "tree" / "link").symlink_to("nowhere")


@pytest.mark.parametrize("way", ["together", "one by one", "together is refused"])
def test_a_tree_is_on_the_disk_before_it_has_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    target = tmp_path / "torch"
    synced: list[str] = []

    def sync(descriptor: int) -> int:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(place.name)
        assert place == tmp_path or not target.exists()
        return 0

    def refuse(_: int) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    ways = {"together": sync, "one by one": None, "together is refused": refuse}
    monkeypatch.setattr(kept, "find_syncfs", lambda: ways[way])
    monkeypatch.setattr(os, "fsync", sync)
    keep_tree(target, make_two)
    expected = ["tree"] if way == "together" else ["a.h", "include", "tree"]
    assert sorted(synced[:-1]) == expected
    assert synced[-1] == tmp_path.name
    assert (target / "include" / "a.h").read_text() == "int a;"


def test_a_tree_that_cannot_be_put_on_the_disk_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(kept, "find_syncfs", lambda: fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        keep_tree(tmp_path / "torch", make_two)
    assert caught.value.filename in (None, str(tmp_path / "torch"))
    assert [path.name for path in tmp_path.iterdir()] == ["torch.lock"]


def test_what_a_killed_fetch_left_is_removed(
    pinned: PinnedTorch, given: list[str], tmp_path: Path
) -> None:
    left = tmp_path / f".{pinned.key}-left" / "tree" / "include"
    left.mkdir(parents=True)
    fetch_torch_headers(pinned, store=tmp_path, variables={})
    assert not left.exists()


def test_a_piece_in_the_middle_of_packed_bytes(wheel: Path, pinned: PinnedTorch) -> None:
    """The names of the toy's large library are unpacked from a block that begins within a byte."""
    (library,) = (each for each in pinned.libraries if each.name == "libtorch_cpu.so")
    assert library.names.bit % 8 != 0
    assert library.names.skip > 0
    start = library.names.bit // 8
    names = unpack_piece([Part(start, wheel.read_bytes()[start:])], library.names)
    with zipfile.ZipFile(wheel) as archive:
        whole = archive.read("torch/lib/libtorch_cpu.so")
    assert len(names) == library.names.size
    assert whole.find(names) > 1 << 17


def test_a_piece_outside_of_the_parts() -> None:
    part = Part(100, bytes(50))
    assert read_bytes([part], 110, 112) == b"\0\0"
    for start, end in ((90, 110), (140, 151), (160, None)):
        with pytest.raises(ValueError, match="in no part that is here"):
            read_bytes([part], start, end)


def test_a_piece_that_is_damaged_or_too_short() -> None:
    packed = zlib.compressobj(wbits=-15)
    data = packed.compress(b"a" * 100) + packed.flush()
    assert unpack_piece([Part(0, data)], Piece(0, 10, 90)) == b"a" * 90
    with pytest.raises(ValueError, match="has 100 bytes"):
        unpack_piece([Part(0, data)], Piece(0, 10, 91))
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack_piece([Part(0, b"\xff" * 100)], Piece(0, 0, 10))


def write_zip(place: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Write entries and return them without the directory behind them."""
    with zipfile.ZipFile(place, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
        return place.read_bytes()[: archive.start_dir]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_entries_that_lie_together(tmp_path: Path, method: int) -> None:
    entries = {"a/b.h": random.Random(3).randbytes(5000), "a/c/d.h": b"", "a/e.h": b"x" * 70000}
    data = write_zip(tmp_path / "x.zip", {"a/": b"", **entries}, method)
    assert dict(unpack_entries(data, "a")) == entries


@pytest.mark.parametrize(
    "name", ["a/../../etc/passwd", "/a/b.h", "b/a.h", "a\\b.h", "a/c:b.h", "a/b\udcff.h", "ab/c.h"]
)
def test_an_entry_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    data = write_zip(tmp_path / "x.zip", {"a/0123456789012345": b""})
    wanted = name.encode("utf-8", "surrogateescape")
    changed = data.replace(b"a/0123456789012345", wanted.ljust(18, b"h"))
    with pytest.raises(ValueError, match="is not below a"):
        list(unpack_entries(changed, "a"))


def test_entries_that_are_damaged(tmp_path: Path) -> None:
    data = write_zip(tmp_path / "x.zip", {"a/b.h": b"int x;" * 100})
    sizes = slice(22, 26)
    assert int.from_bytes(data[sizes], "little") == 600
    larger = data[:22] + (599).to_bytes(4, "little") + data[26:]
    faults = {
        data[:20]: "not whole",
        data[:-1]: "expected an entry",
        b"PK\5\6" + data[4:]: "expected an entry",
        data[:6] + b"\x01" + data[7:]: "expected an entry",
        data[:6] + b"\x08" + data[7:]: "expected an entry",
        data[:8] + b"\x0c" + data[9:]: "packed in way 12",
        data[:-9] + b"\xff" * 9: "b.h'",
        larger: "599 bytes that its header says",
    }
    for changed, said in faults.items():
        with pytest.raises(ValueError, match=said):
            list(unpack_entries(changed, "a"))


def test_a_table_of_symbols_that_is_damaged() -> None:
    with pytest.raises(ValueError, match="23 bytes is not whole"):
        list_defined(bytes(23), b"\0")
    past_the_end = (9).to_bytes(4, "little") + bytes(2) + b"\1\0" + bytes(16)
    with pytest.raises(ValueError, match="not found"):
        list_defined(past_the_end, b"\0name\0")
