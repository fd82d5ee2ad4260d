"""What is said of two builds that are not the same."""

import struct

from kernel_builder.differences import compare_bytes, compare_files


def elf(sections: dict[str, bytes], flags: int = 0) -> bytes:
    """Write a little ELF file: a header, these sections, their names, and their table."""
    names = b"\0"
    body = b""
    rows = [struct.pack("<IIQQQQIIQQ", *([0] * 10))]
    for name, data in (*sections.items(), (".shstrtab", None)):
        at = len(names)
        names += name.encode() + b"\0"
        content = names if data is None else data
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ",
                at,
                3 if data is None else 1,
                0,
                0,
                64 + len(body),
                len(content),
                0,
                0,
                1,
                0,
            )
        )
        body += content
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        62,
        1,
        0,
        0,
        64 + len(body),
        flags,
        64,
        0,
        0,
        64,
        len(rows),
        len(rows) - 1,
    )
    return head + body + b"".join(rows)


def test_the_same_files() -> None:
    assert compare_files({"a": b"1"}, {"a": b"1"}) == ()


def test_files_of_one_side_alone() -> None:
    found = compare_files({"a": b""}, {"b": b""})
    assert [str(each) for each in found] == ["a:\n  only published", "b:\n  only rebuilt"]


def test_libraries_come_first() -> None:
    found = compare_files(
        {"a.json": b"{}", "z.so": b"1"},
        {"a.json": b"[]", "z.so": b"2"},
    )
    assert [each.path for each in found] == ["z.so", "a.json"]


def test_the_section_of_a_library_is_named() -> None:
    old = elf({".text": b"code", ".data": b"1234", ".old": b""})
    new = elf({".text": b"cope", ".data": b"1234", ".new": b""})
    lines = compare_bytes("x.so", old, new)
    assert lines[0] == (
        "section .text: 4 bytes published, 4 rebuilt; the first difference is at byte 2"
    )
    assert "section .old: only published" in lines
    assert "section .new: only rebuilt" in lines
    assert not any(".data" in line for line in lines)


def test_what_is_around_the_sections() -> None:
    (line,) = compare_bytes("x.so", elf({".text": b"a"}, 1), elf({".text": b"a"}, 2))
    assert line.startswith("no section differs, but what is around them")


def test_half_a_library() -> None:
    whole = elf({".text": b"code"})
    assert compare_bytes("x.so", whole[:80], whole)[0] == "the published one is no whole library"
    assert compare_bytes("x.so", whole, b"")[0] == "the rebuilt one is no whole library"


def test_keys_of_json() -> None:
    old = b'{"id": "a", "digest": {"files": {"x.so": "1", "y": "2"}}}'
    new = b'{"id": "a", "digest": {"files": {"x.so": "3", "y": "2"}}, "more": true}'
    assert compare_bytes("metadata.json", old, new) == [
        'digest.files.x.so: published "1", rebuilt "3"',
        "more: published nothing, rebuilt true",
    ]


def test_json_that_means_the_same() -> None:
    (line,) = compare_bytes("metadata.json", b'{"a": 1}', b'{"a":1}')
    assert "line 1" in line


def test_lines_of_a_text() -> None:
    (line,) = compare_bytes("a.py", b"a\nb\nc\n", b"a\nB\nC\n")
    assert line == "line 2: published 'b', rebuilt 'B'"


def test_bytes_that_are_no_text() -> None:
    (line,) = compare_bytes("a.bin", b"\xff\x00", b"\xff\x00\x01")
    assert line == "2 bytes published, 3 rebuilt; the first difference is at byte 2"
