import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.drafts import (
    Use,
    draft_of,
    find_doubt,
    put_op_id,
    put_pieces,
    read_use,
    read_uses,
    takes_draft,
    uses_plainly,
)
from kernel_builder.environment import Environment
from kernel_builder.toolchain.cpu import CpuToolchain, Family
from kernel_builder.toolchain.link import LinkKit
from kernel_builder.units import CompileUnit
from kernel_spec.backend import BackendKind

OP_ID = "_my_kit_cpu_0123456789ab"
DRAFT = draft_of(OP_ID)
PLAIN = b"""#include "registration.h"
// TORCH_EXTENSION_NAME is the namespace.
STABLE_TORCH_LIBRARY_EXPAND( TORCH_EXTENSION_NAME , ops) { ops.def("f() -> ()"); }
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME,
                                 CPU, ops) { ops.impl("f", TORCH_BOX(&f)); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
UNIT = CompileUnit(source="b.cpp", component=None, backend=BackendKind.CPU)
ENVIRONMENT = Environment(
    toolchain=CpuToolchain(
        command=("/usr/bin/g++",),
        family=Family.GCC,
        version="g++ 12",
        cpu="x86_64",
        identity="i",
        files={},
        shared=(),
    ),
    torch=None,
    libraries=(),
    python_include=None,
    kit=LinkKit(system=Path("/s"), framework=Path("/f"), compat=Path("/c")),
)


def make_object(
    *, text: str = DRAFT, code: bytes = b"\xc3", symbol_at: int = 1, **more: tuple[bytes, int]
) -> bytes:
    """Write an ELF object of 64 bits with code, a text, a table of one symbol, and more sections.

    Args:
        text: what ``.rodata.str1.1`` holds.
        code: what ``.text`` holds.
        symbol_at: where in ``.strtab`` the symbol's name begins.
        more: further sections: what they hold, and their flags.
    """
    strings = f"\0PyInit_{text}\0".encode()
    sections: list[tuple[str, int, int, bytes, int]] = [
        ("", 0, 0, b"", 0),
        (".text", 1, 6, code, 0),
        (".rodata.str1.1", 1, 0x32, text.encode() + b"\0", 0),
        (".symtab", 2, 0, bytes(24) + struct.pack("<IBBHQQ", symbol_at, 18, 0, 1, 0, 1), 4),
        (".strtab", 3, 0, strings, 0),
    ]
    sections += [(f".{name}", 1, flags, held, 0) for name, (held, flags) in more.items()]
    names = b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, 0, names, 0))
    body, headers, place, name_at = b"", b"", 64, 0
    for name, kind, flags, held, link in sections:
        size = len(held) if kind else 0
        entry = 24 if kind == 2 else 0
        headers += struct.pack(
            "<IIQQQQIIQQ", name_at, kind, flags, 0, place, size, link, 0, 1, entry
        )
        body, place, name_at = body + held, place + size, name_at + len(name) + 1
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack(
        "<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, place, 0, 64, 0, 0, 64, len(sections), len(sections) - 1
    )
    return ident + header + body + headers


def test_a_draft_has_the_length_of_the_id_and_is_no_id_of_its_own() -> None:
    assert len(DRAFT) == len(OP_ID)
    assert draft_of("_my_kit_cpu_ffffffffffff") == DRAFT
    assert DRAFT.startswith("_my_kit_cpu_")
    tail = DRAFT.removeprefix("_my_kit_cpu_")
    assert tail.isalnum()
    assert len(set(tail)) == len(tail)
    assert not set(tail) & set("0123456789abcdef")


def test_the_id_takes_the_place_of_its_draft() -> None:
    content = make_object()
    assert find_doubt(content, DRAFT) is None
    assert put_op_id(content, OP_ID) == make_object(text=OP_ID)
    assert DRAFT.encode() in content


@pytest.mark.parametrize("at", range(9))
def test_four_bytes_of_a_text_that_was_taken_apart_are_seen(at: int) -> None:
    piece = DRAFT[-12:].encode()[at : at + 4]
    doubt = find_doubt(make_object(code=b"\x48\xb8" + piece + b"\xc3"), DRAFT)
    assert doubt == "the compiler took the text of its name apart"


@pytest.mark.parametrize(
    ("content", "doubt"),
    [
        (make_object(text=OP_ID), "the object does not hold its name"),
        (make_object(code=DRAFT.encode()), "its name stands in section .text"),
        (make_object(note=(DRAFT.encode(), 2)), "its name stands in section .note"),
        (make_object(note=(b"", 0)) + DRAFT.encode(), "its name stands in section headers"),
        (make_object(debug_info=(b"x", 1 << 11)), "section .debug_info hides what it holds"),
        (make_object(**{"gnu.lto_f": (b"x", 0)}), "section .gnu.lto_f hides what it holds"),
        # The last letter of the draft, or its end from the third letter, is the name of something else.
        (make_object(symbol_at=31), "another name is stored as a part of its name"),
        (make_object(symbol_at=11), "another name is stored as a part of its name"),
    ],
)
def test_where_it_is_not_sure_the_id_is_not_put(content: bytes, doubt: str) -> None:
    assert find_doubt(content, DRAFT) == doubt


def test_the_name_itself_may_be_the_end_of_another() -> None:
    assert find_doubt(make_object(symbol_at=8), DRAFT) is None


def test_what_is_no_object_is_doubted() -> None:
    doubt = find_doubt(b"BC\xc0\xde" + DRAFT.encode(), DRAFT)
    assert doubt is not None
    assert doubt.startswith("the object cannot be read: ")


# What g++ makes of a text in two pieces of sixteen bytes that overlap, and of its last letter.
def make_pieces(name: str, *, more: bytes = b"") -> bytes:
    text = name.encode()
    return make_object(text=name, code=b"\x48" + text[:16] + text[-16:] + text[-1:] + more)


OTHER_ID = draft_of(OP_ID)[:-12] + "fedcba987654"


def test_two_objects_tell_where_the_pieces_of_a_name_are() -> None:
    assert find_doubt(make_pieces(DRAFT), DRAFT) is not None
    put = put_pieces(make_pieces(DRAFT), OP_ID, sibling=make_pieces(OTHER_ID), sibling_id=OTHER_ID)
    assert put == make_pieces(OP_ID)


@pytest.mark.parametrize(
    "sibling",
    [
        make_pieces(OTHER_ID, more=b"\0"),  # another length
        make_pieces(OTHER_ID)[:-1] + b"\1",  # a difference where no letter stands
        make_pieces(OTHER_ID).replace(OTHER_ID[-12:].encode(), b"fedcba987650"),  # another letter
    ],
)
def test_objects_that_differ_in_more_than_the_name_tell_nothing(sibling: bytes) -> None:
    content = make_pieces(DRAFT)
    assert put_pieces(content, OP_ID, sibling=sibling, sibling_id=OTHER_ID) is None


def test_asking_torch_for_an_op_by_its_whole_name_is_a_plain_use() -> None:
    asked = b'static const auto op = dispatcher.findSchemaOrThrow( KERNEL_OP("f") , "");\n'
    assert read_use(asked) is Use.PLAIN
    assert read_use(PLAIN + asked) is Use.PLAIN
    for other in (
        b'constexpr auto h = hash(KERNEL_OP("f"));',
        b"findSchemaOrThrow(KERNEL_OP(NAME), x);",
        b"#define findSchemaOrThrow(NAME, MORE) hash(NAME)",
    ):
        assert read_use(asked + other + b"\n") is Use.OTHER


def test_the_macros_of_registration_are_plain_uses() -> None:
    assert read_use(PLAIN) is Use.PLAIN
    assert read_use(PLAIN.replace(b"STABLE_", b"")) is Use.PLAIN
    assert read_use(b"int f();") is Use.NONE
    assert read_use(b"  // after TORCH_EXTENSION_NAME\nint f();") is Use.NONE


@pytest.mark.parametrize(
    "line",
    [
        b"const char* name = KERNEL_QUOTE(TORCH_EXTENSION_NAME);",
        b"constexpr auto hash = fnv(KERNEL_QUOTE(TORCH_EXTENSION_NAME));",
        b'm.def(KERNEL_QUOTE(TORCH_EXTENSION_NAME) "::g() -> ()");',
        b"namespace TORCH_EXTENSION_NAME {}",
        b"#define NAME TORCH_EXTENSION_NAME",
        b"MY_REGISTER_EXTENSION(TORCH_EXTENSION_NAME)",
        b"TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME_, ops) {}",
        b"/* it goes on */ use(TORCH_EXTENSION_NAME);",
        b"  // the end of a comment */ use(TORCH_EXTENSION_NAME);",
        b"f(TVM_FFI_EXTENSION_NAME);",
        # Macros of the author's own that have the names of ours, however they are written.
        b"#define REGISTER_EXTENSION(NAME) constexpr auto size = sizeof(#NAME);",
        b"# define \\\nTORCH_LIBRARY_EXPAND(NAME, LIBRARY) void f() {}",
        b"#define TORCH_LIBRARY(ns, m) constexpr char c = #ns[12];",
        b"#define KERNEL_QUOTE(NAME) hash(#NAME)",
        b"#define C10_STRINGIZE(x) hash(#x)",
    ],
)
def test_any_other_use_is_told_apart(line: bytes) -> None:
    assert read_use(PLAIN + line + b"\n") is Use.OTHER


def takes(stage: Path, unit: CompileUnit = UNIT, environment: Environment = ENVIRONMENT) -> bool:
    return takes_draft(unit, read_uses(["a.h"], stage), environment, stage)


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    (tmp_path / "b.cpp").write_bytes(PLAIN)
    (tmp_path / "a.h").write_text("void f();\n")
    return tmp_path


def test_what_registers_ops_is_compiled_under_a_draft(stage: Path) -> None:
    assert takes(stage)
    (stage / "a.h").write_text("#define MINE TORCH_EXTENSION_NAME\n")
    assert not takes(stage)
    (stage / "a.h").write_bytes(PLAIN)
    (stage / "b.cpp").write_text('#include "a.h"\n')
    assert takes(stage)


def test_what_does_not_name_its_ops_needs_no_draft(stage: Path) -> None:
    (stage / "b.cpp").write_text("void f() {}\n")
    assert not takes(stage)


@pytest.mark.parametrize(
    "changes", [{"family": Family.CLANG}, {"cpu": "aarch64"}], ids=["clang", "aarch64"]
)
def test_only_objects_that_were_proved_equal_take_a_draft(
    stage: Path, changes: dict[str, object]
) -> None:
    other = replace(ENVIRONMENT.toolchain, **changes)  # type: ignore[arg-type]
    assert not takes(stage, environment=replace(ENVIRONMENT, toolchain=other))


@pytest.mark.parametrize(
    "changes",
    [
        {"cxx_flags": ("-DNAME=TORCH_EXTENSION_NAME",)},
        {"backend_flags": ("-UREGISTER_EXTENSION", "-O3")},
    ],
)
def test_flags_that_speak_of_the_name_are_a_use_of_it(
    stage: Path, changes: dict[str, tuple[str, ...]]
) -> None:
    assert not takes(stage, replace(UNIT, **changes))  # type: ignore[arg-type]


def test_what_was_read_may_use_the_name_plainly_alone(stage: Path, tmp_path: Path) -> None:
    own = tmp_path / "gen"
    own.mkdir()
    header = own / "registration.h"
    header.write_text("#define REGISTER_EXTENSION(NAME)\n")
    foreign = tmp_path / "dependency.h"
    foreign.write_text("#define TORCH_LIBRARY(ns, m)\n")

    def plainly(*paths: str) -> bool:
        return uses_plainly(paths, stage=stage, own=own)

    read = ["b.cpp", "a.h", "gen/registration.h", str(header), str(foreign)]
    assert plainly(*read)
    (stage / "other.cpp").write_text("use(TORCH_EXTENSION_NAME);\n")
    assert not plainly(*read, "other.cpp")
    foreign.write_text("#undef REGISTER_EXTENSION\n")
    assert not plainly(*read)
