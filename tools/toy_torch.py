"""A wheel that is laid out as torch's is, for tests: headers, a version, libraries of nothing but tables.

What a build takes out of torch's wheels is taken out of this one likewise, so that tests need neither
torch nor a network.
"""

import random
import struct
import tomllib
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import refresh_torch_releases as refresh

VERSION = "2.11.0"
NAME = f"torch-{VERSION}-cp311-cp311-manylinux_2_28_x86_64.whl"
HEADERS = {
    "torch/include/torch/headeronly/version.h": "#define TORCH_VERSION_MINOR 11\n",
    "torch/include/ATen/core/Tensor.h": "namespace at { class Tensor; }\n" * 50,
    "torch/include/torch/script.h": "",
}
EXPORTS = {
    "libc10.so": ("_ZN3c105ErrorE",),
    "libc10_cuda.so": ("_ZN3c104cuda6streamE",),
    "libtorch.so": ("_ZN5torch4noneE",),
    "libtorch_cpu.so": tuple(f"_ZN2at4_ops{number}add4callE" for number in range(5000)),
    "libtorch_cuda.so": ("_ZN2at4cuda6handleE", "_ZN2at4cuda5otherE"),
}
MISSING = "_ZN2at7missingE"

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def make_library(defined: tuple[str, ...], *, hashes: int = 0) -> bytes:
    """Make a shared library of a symbol table, bytes that repeat nothing, and the names, in this order.

    Args:
        defined: the names that it defines; it asks for one more.
        hashes: how many bytes lie between, as a table of hashes does in torch's own.
    """
    names, symbols = bytearray(b"\0"), bytearray(_SYMBOL.pack(0, 0, 0, 0, 0, 0))
    for name in (*defined, MISSING):
        symbols += _SYMBOL.pack(len(names), 0x12, 0, int(name in defined), 0, 0)
        names += name.encode() + b"\0"
    labels = b"\0.dynsym\0.dynstr\0.shstrtab\0"
    # Seven bits of each: with eight, they would not be packed at all.
    between = bytes(byte & 127 for byte in random.Random(7).randbytes(hashes))
    at = _HEADER.size
    text_at = at + len(symbols) + len(between)
    label_at = text_at + len(names)
    sections = [
        (0, 0, 0, 0, 0, 0, 0),
        (labels.index(b".dynsym"), 11, at, len(symbols), 2, 1, _SYMBOL.size),
        (labels.index(b".dynstr"), 3, text_at, len(names), 0, 0, 0),
        (labels.index(b".shstrtab"), 3, label_at, len(labels), 0, 0, 0),
    ]
    table = b"".join(
        _SECTION.pack(name, kind, 0, 0, offset, size, link, info, 1, entry)
        for name, kind, offset, size, link, info, entry in sections
    )
    head = _HEADER.pack(
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"),
        *(3, 62, 1, 0, 0, label_at + len(labels), 0),
        *(_HEADER.size, 0, 0, _SECTION.size, len(sections), 3),
    )
    return head + symbols + between + names + labels + table


def make_wheel(directory: Path) -> Path:
    """Write the wheel into a directory."""
    info = f"torch-{VERSION}.dist-info"
    place = directory / NAME
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("torch/version.py", f"__version__ = '{VERSION}+cu130'\n")
        archive.writestr("torch/include/", "")
        for path, text in HEADERS.items():
            archive.writestr(path, text)
        for name, defined in EXPORTS.items():
            hashes = 1 << 17 if name == "libtorch_cpu.so" else 0
            archive.writestr(f"torch/lib/{name}", make_library(defined, hashes=hashes))
        archive.writestr("torch/rest.bin", random.Random(2).randbytes(1 << 20))
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux_2_28_x86_64\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return place


def describe(wheel: Path, scratch: Path) -> dict[str, Any]:
    """Return the pin of the wheel, as a row of ``torch-releases.toml``, found as those of torch's are."""
    small = {"NEAR": 1 << 14, "GAP": 1 << 10, "BEFORE": (1 << 16,)}
    with patch.multiple(refresh, **small):
        text = refresh.describe(wheel, VERSION, "x86_64", scratch)
    (row,) = tomllib.loads(text)["release"]
    return dict(row)
