import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.binary import (
    DeviceCode,
    ElfFacts,
    Symbol,
    parse_fatbin,
    read_device_code,
    read_elf,
)
from kernel_spec.errors import BinaryFormatError

BINARIES = Path(__file__).parents[2] / "fixtures" / "binary"
LIBRARIES = sorted(BINARIES.glob("*.so"))


def test_a_stripped_library_says_its_name_needs_and_symbols():
    facts = read_elf(BINARIES / "plain.so")
    assert facts == ElfFacts(
        machine="x86_64",
        soname="libplain.so.1",
        needed=("libc.so.6",),
        rpath=(),
        symbols=(
            Symbol("malloc", "GLIBC_2.2.5", "libc.so.6", False, "global"),
            Symbol("tiny_weak", None, None, True, "weak"),
            Symbol("tiny_allocate", None, None, True, "global"),
        ),
        version_needs=(("libc.so.6", "GLIBC_2.2.5"),),
        executable_stack=False,
    )


def test_run_paths_and_an_executable_stack_are_seen():
    facts = read_elf(BINARIES / "rpath.so")
    assert facts.rpath == ("$ORIGIN/lib", "/opt/tiny")
    assert facts.executable_stack
    assert facts.soname is None


def test_a_library_without_a_version_table_is_read():
    facts = read_elf(BINARIES / "unversioned.so")
    assert facts.symbols == (Symbol("tiny_answer", None, None, True, "global"),)
    assert facts.needed == facts.version_needs == ()


def test_versions_that_a_library_defines_name_no_other_library():
    facts = read_elf(BINARIES / "versioned.so")
    assert facts.symbols[0] == Symbol("tiny_answer", "TINY_1.0", None, True, "global")


def test_unique_symbols_are_told_apart():
    bindings = {symbol.name: symbol.binding for symbol in read_elf(BINARIES / "unique.so").symbols}
    assert bindings["_ZZ12tiny_countervE5value"] == "unique"
    assert bindings["_Z10tiny_countv"] == "global"


def test_the_images_of_a_fat_binary_are_listed_in_order():
    assert read_device_code(BINARIES / "device.so") == (
        DeviceCode("ptx", "8.0"),
        DeviceCode("cubin", "9.0a"),
        DeviceCode("cubin", "10.3f"),
        DeviceCode("ptx", "10.0f"),
        DeviceCode("ptx", "12.0"),
    )


def test_a_library_without_device_code_holds_none():
    assert read_device_code(BINARIES / "plain.so") == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF", b"MZ" + b"\0" * 500, b"#!/bin/sh\n", b"\x7fELF\x02\x01\x01" + b"\xff" * 57],
)
def test_what_is_no_elf_file_is_refused(tmp_path, data):
    path = tmp_path / "x.so"
    path.write_bytes(data)
    for read in (read_elf, read_device_code):
        with pytest.raises(BinaryFormatError, match=r"x\.so"):
            read(path)


def test_a_missing_file_is_missing(tmp_path):
    for read in (read_elf, read_device_code):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "x.so")


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_a_truncated_library_is_refused_at_every_length(tmp_path, library):
    data = library.read_bytes()
    path = tmp_path / "x.so"
    for size in range(0, len(data), 97):
        path.write_bytes(data[:size])
        for read in (read_elf, read_device_code):
            with pytest.raises(BinaryFormatError):
                read(path)


def test_a_library_without_section_headers_is_refused(tmp_path):
    data = bytearray((BINARIES / "device.so").read_bytes())
    data[0x28:0x30] = bytes(8)  # e_shoff
    data[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    path = tmp_path / "x.so"
    path.write_bytes(data)
    for read in (read_elf, read_device_code):
        with pytest.raises(BinaryFormatError, match="no section headers"):
            read(path)


def test_a_version_that_no_table_names_is_refused(tmp_path):
    data = bytearray((BINARIES / "plain.so").read_bytes())
    need = data.index(b"\x75\x1a\x69\x09")  # the hash of GLIBC_2.2.5, at the head of its record
    data[need + 6 : need + 8] = (7).to_bytes(2, "little")
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with pytest.raises(BinaryFormatError, match=r"malloc.*no table names"):
        read_elf(path)


def test_version_records_that_go_in_a_circle_are_refused(tmp_path):
    """A record says how many follow and where; that of zero bytes is the record itself."""
    data = bytearray((BINARIES / "plain.so").read_bytes())
    need = data.index(b"\x75\x1a\x69\x09")
    data[need + 12 : need + 16] = bytes(4)  # vna_next
    data[need - 14 : need - 12] = b"\xff\xff"  # vn_cnt of the library before it
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with pytest.raises(BinaryFormatError, match="more records than its"):
        read_elf(path)


@given(st.sampled_from(LIBRARIES), st.data())
def test_damaged_bytes_never_make_the_reader_fail_otherwise(tmp_path_factory, library, data):
    content = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    path.write_bytes(content)
    for read in (read_elf, read_device_code):
        try:
            facts = read(path)
        except BinaryFormatError:
            continue
        assert isinstance(facts, ElfFacts | tuple)


def image(kind, arch, payload, *, flags=0x11, header_size=64):
    header = struct.pack(
        "<HHIQIIHHIIIQ", kind, 0x101, header_size, len(payload), 0, 0, 8, 1, arch, 0, 0, flags
    )
    return header.ljust(header_size, b"\0") + payload


def container(*images):
    body = b"".join(images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_headers_of_any_size_other_kinds_and_padding_are_passed_over():
    data = (
        container(image(2, 75, b"x" * 24), image(8, 90, b"ir"))
        + b"\0" * 8
        + container(image(1, 100, b"ptx", flags=0x8011 | 1 << 21, header_size=80))
        + container()
        + container(image(16, 121, b"", flags=1 << 20, header_size=112))
    )
    assert parse_fatbin(data) == (
        DeviceCode("cubin", "7.5"),
        DeviceCode("ptx", "10.0f"),
        DeviceCode("cubin", "12.1a"),
    )


def test_machine_code_of_cuda_12_says_in_its_own_header_that_it_is_arch_specific():
    # The header flags of ptxas 12.8 for sm_90 and sm_90a; its ABI version is 7.
    codes = []
    for flags in (0x5A055A, 0x5A0D5A):
        cubin = bytearray(64)
        cubin[:9] = b"\x7fELF\x02\x01\x01\x33\x07"
        cubin[48:52] = flags.to_bytes(4, "little")
        codes += parse_fatbin(container(image(2, 90, bytes(cubin))))
    assert codes == [DeviceCode("cubin", "9.0"), DeviceCode("cubin", "9.0a")]


WHOLE = container(image(2, 75, b"x" * 24))


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[:8],
        WHOLE[:-1],
        WHOLE[:40],
        b"rubbish!" * 4,
        WHOLE + b"trailing",
        struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 8) + b"\0" * 24,
        container(image(2, 75, b"x", header_size=64)[:30]),
        container(struct.pack("<HHIQ", 2, 0x101, 0, 0) + b"\0" * 48),
        container(struct.pack("<HHIQ", 2, 0x101, 64, 2**63) + b"\0" * 48),
    ],
)
def test_damaged_containers_are_refused(data):
    with pytest.raises(BinaryFormatError, match="fat binary"):
        parse_fatbin(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_fat_binary_or_refused(data):
    with contextlib.suppress(BinaryFormatError):
        assert parse_fatbin(data) == ()
