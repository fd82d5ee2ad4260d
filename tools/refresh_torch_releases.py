"""Write toolchain/torch-releases.toml: what of each torch wheel its headers and export lists are.

    python tools/refresh_torch_releases.py [--machine aarch64] 2.14.1 2.13.0 ...

pip downloads the wheel of each release for one Python, from the user's package index. The offsets are
those of its zip directory and of the section headers of its libraries; what a build would then take out
of the wheel is compared with what zipfile and pyelftools find in it, before anything is written. Another
wheel of the same minor release and processor is replaced, all others stay.
"""

import argparse
import hashlib
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile

from kernel_builder.toolchain.packed import Part, Piece, unpack_entries, unpack_piece
from kernel_builder.toolchain.torch_headers import hash_listing, list_exports
from kernel_builder.toolchain.torch_releases import parse_release
from kernel_spec.binary import read_elf
from kernel_spec.version import MajorMinor, parse_major_minor
from kernel_spec.whole_file import write_whole

TARGET = Path(__file__).parents[1] / "src/kernel_builder/toolchain/torch-releases.toml"
MACHINES = ("x86_64", "aarch64")
PYTHON = "cp311"
# A wheel without CUDA lacks two of them.
LIBRARIES = ("libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so")
HEADERS = "torch/include/"
# Ranges with less than this between them are one.
GAP = 1 << 20
# How far before a table of names a block to begin at is looked for. The table of hashes that lies
# before it repeats next to nothing.
BEFORE = (1 << 18, 1 << 17, 1 << 19, 1 << 20)
# Tables that end before this are unpacked from the beginning of their library.
NEAR = 1 << 24
MARK = "\n[[release]]\n"
HEAD = """\
# Releases of torch that per-torch libraries are compiled for: of each wheel, the bytes that hold its
# headers and the names that its libraries define. toolchain/torch_releases.py reads this file, and
# tools/refresh_torch_releases.py writes it from the wheels.
#
# spans: bytes of the wheel, all that is read of it. headers: the entries of torch/include, which lie
# together, and one hash of what is in them. A piece of a packed entry is [bit of the wheel, bytes
# unpacked before it, its bytes]. exports: the hash of the names that the libraries define.
"""


class Packed(NamedTuple):
    """An entry of a wheel: where its packed bytes begin, how many they are, and how it is packed."""

    begin: int
    size: int
    info: zipfile.ZipInfo


class Wheel:
    """A whole wheel on this machine."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.archive = zipfile.ZipFile(place)
        self.stream = place.open("rb")

    def read(self, begin: int, end: int) -> bytes:
        """Read bytes of it."""
        self.stream.seek(begin)
        return self.stream.read(end - begin)

    def find(self, info: zipfile.ZipInfo) -> Packed:
        """Find the packed bytes of an entry: its local header has a length of its own."""
        header = self.read(info.header_offset, info.header_offset + 30)
        begin = info.header_offset + 30
        begin += int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return Packed(begin, info.compress_size, info)


def download(release: str, machine: str, target: Path) -> Path:
    """Fetch the wheel of a release."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--python-version", PYTHON[2:], "--implementation", "cp"]
    command += ["--abi", PYTHON, "--platform", f"manylinux_2_28_{machine}", "--dest", str(target)]
    subprocess.run([*command, f"torch==={release}"], check=True, stdout=sys.stderr)
    (wheel,) = target.glob("*.whl")
    return wheel


def find_headers(wheel: Wheel) -> tuple[int, int, str]:
    """Return where the entries of the headers begin and end, and one hash of what is in them."""
    entries = [each for each in wheel.archive.infolist() if each.filename.startswith(HEADERS)]
    begin = min(each.header_offset for each in entries)
    packed = [wheel.find(each) for each in entries]
    end = max(each.begin + each.size for each in packed)
    links = [each.filename for each in entries if stat.S_ISLNK(each.external_attr >> 16)]
    assert not links, f"links among the headers: {links}"
    expected = {
        each.filename: hashlib.sha256(wheel.archive.read(each)).hexdigest()
        for each in entries
        if not each.is_dir()
    }
    found = dict(unpack_entries(wheel.read(begin, end), HEADERS.rstrip("/")))
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in found.items()}
    assert digests == expected, "the headers do not lie together"
    return begin, end, hash_listing(digests)


def find_piece(wheel: Wheel, packed: Packed, at: int, data: bytes) -> Piece:
    """Return from which block on a piece of an entry comes out right.

    Args:
        packed: the entry.
        at: where the piece begins in the unpacked entry.
        data: its bytes.
    """
    if at + len(data) <= NEAR:
        return Piece(packed.begin * 8, at, len(data))
    for before in BEFORE:
        start, end = locate(wheel, packed, (at - before, at + len(data)))
        raw = wheel.read(start, end)
        whole = int.from_bytes(raw, "little")
        shifted = [(whole >> bit).to_bytes(len(raw), "little") for bit in range(8)]
        for byte in range(min(1 << 17, len(raw))):
            for bit, each in enumerate(shifted):
                unpacked = try_block(each[byte : byte + 4096]) and try_block(each[byte:])
                skip = unpacked.find(data) if unpacked else -1
                if skip >= 0:
                    return Piece((start + byte) * 8 + bit, skip, len(data))
    raise SystemExit(f"{packed.info.filename}: no block before byte {at} to begin at")


def try_block(data: bytes) -> bytes:
    """Unpack what may be blocks; nothing where it is soon seen that it is none."""
    try:
        return zlib.decompressobj(-15, zdict=bytes(32768)).decompress(data)
    except zlib.error:
        return b""


def locate(wheel: Wheel, packed: Packed, unpacked: tuple[int, int]) -> tuple[int, int]:
    """Return between which bytes of the wheel a range of an unpacked entry lies."""
    unpacking = zlib.decompressobj(-15)
    done, places = 0, []
    for start in range(packed.begin, packed.begin + packed.size, 4096):
        end = min(start + 4096, packed.begin + packed.size)
        done += len(unpacking.decompress(wheel.read(start, end)))
        if not places and done >= unpacked[0]:
            places.append(start)
        if done >= unpacked[1]:
            return places[0], min(end + 4096, packed.begin + packed.size)
    return places[0], packed.begin + packed.size


def describe_library(wheel: Wheel, name: str, scratch: Path) -> tuple[dict[str, Piece], set[str]]:
    """Return where the two tables of a library lie, and the names that it defines."""
    info = wheel.archive.getinfo(f"torch/lib/{name}")
    wheel.archive.extract(info, scratch)
    library = scratch / info.filename
    packed = wheel.find(info)
    pieces = {}
    with library.open("rb") as stream:
        sections = {each.name: each.header for each in ELFFile(stream).iter_sections()}
        for key, section in (("symbols", ".dynsym"), ("names", ".dynstr")):
            header = sections[section]
            stream.seek(header["sh_offset"])
            data = stream.read(header["sh_size"])
            pieces[key] = find_piece(wheel, packed, header["sh_offset"], data)
    names = {each.name for each in read_elf(library).symbols if each.defined} - {""}
    library.unlink()
    return pieces, names


def write(piece: Piece) -> str:
    """Write a piece as a row of TOML."""
    return f"[{piece.bit}, {piece.skip}, {piece.size}]"


def measure(wheel: Wheel, piece: Piece) -> tuple[int, int]:
    """Return the bytes of the wheel that a piece needs."""
    begin = piece.bit // 8
    step, end = 1 << 12, begin
    while True:
        end += step
        part = Part(begin, wheel.read(begin, end))
        try:
            unpack_piece([part], piece)
        except ValueError:
            continue
        return begin, end


def join(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that overlap or lie near each other."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if joined and begin - joined[-1][1] < GAP:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def describe(place: Path, release: str, machine: str, scratch: Path) -> str:
    """Write the table of one release.

    Args:
        place: its wheel.
        release: its version, without a local part.
        machine: the processor that it is for.
        scratch: a directory for its libraries, one after the other.
    """
    wheel = Wheel(place)
    begin, end, headers = find_headers(wheel)
    info = wheel.archive.getinfo("torch/version.py")
    version = find_piece(wheel, wheel.find(info), 0, wheel.archive.read(info))
    there = {each.rpartition("/")[2] for each in wheel.archive.namelist()}
    libraries = {
        name: describe_library(wheel, name, scratch) for name in LIBRARIES if name in there
    }
    tables = [piece for pieces, _ in libraries.values() for piece in pieces.values()]
    spans = join([(begin, end), *(measure(wheel, piece) for piece in (version, *tables))])
    names = set[str]().union(*(each for _, each in libraries.values()))
    exports = "".join(f"{name}\n" for name in sorted(names)).encode()
    with place.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    lines = ["", "[[release]]", f'version = "{release}"', f'machine = "{machine}"']
    lines += [f'file = "{place.name}"', f'wheel = "{sha256}"']
    lines += [f'exports = "{hashlib.sha256(exports).hexdigest()}"']
    lines += [f"version-file = {write(version)}", "spans = ["]
    for first, last in spans:
        digest = hashlib.sha256(wheel.read(first, last)).hexdigest()
        words = f'offset = {first}, length = {last - first}, sha256 = "{digest}"'
        lines.append(f"  {{ {words} }},")
    lines += ["]", f'headers = {{ bytes = [{begin}, {end}], sha256 = "{headers}" }}']
    lines += ["", "[release.libraries]"]
    for name, (pieces, _) in libraries.items():
        words = ", ".join(f"{key} = {write(piece)}" for key, piece in pieces.items())
        lines.append(f'"{name}" = {{ {words} }}')
    text = "\n".join([*lines, ""])
    (row,) = tomllib.loads(text)["release"]
    parts = [Part(first, wheel.read(first, last)) for first, last in spans]
    assert list_exports(parse_release(row), parts) == exports, f"torch {release}: its exports"
    return text


def split_rows(text: str) -> dict[tuple[MajorMinor, str], str]:
    """Return the tables of the file by release and processor, each as it is written."""
    rows = {}
    for each in text.split(MARK)[1:]:
        (row,) = tomllib.loads(MARK + each)["release"]
        rows[parse_major_minor(row["version"]), row["machine"]] = MARK + each
    return rows


def join_rows(rows: dict[tuple[MajorMinor, str], str]) -> str:
    """Write the file: the newest release first, and of one release the processors as in ``MACHINES``."""
    order = sorted(rows, key=lambda key: (key[0], -MACHINES.index(key[1])), reverse=True)
    return HEAD + "".join(rows[key] for key in order)


def main(arguments: Sequence[str]) -> None:
    """Write the file whole."""
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("--machine", action="append", choices=MACHINES)
    options.add_argument("releases", nargs="+")
    chosen = options.parse_args(arguments)
    rows = split_rows(TARGET.read_text("utf-8"))
    for release in chosen.releases:
        for machine in chosen.machine or MACHINES:
            with tempfile.TemporaryDirectory() as temporary:
                scratch = Path(temporary)
                wheel = download(release, machine, scratch / "wheel")
                row = describe(wheel, release, machine, scratch)
            rows[parse_major_minor(release), machine] = row
    write_whole(TARGET, join_rows(rows).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
