from kernel_builder.policy import SymbolVersion, parse_symbol_version, read_version_caps
from kernel_builder.toolchain.stubs import (
    Export,
    Library,
    cap_library,
    format_assembly,
    format_version_script,
)


def _export(name: str, version: str, *, default: bool = True, kind: str = "function") -> Export:
    return Export(name=name, version=version, default=default, kind=kind, size=8, weak=False)


def _cap(*exports: Export, soname: str = "libc.so.6") -> dict[str, dict[str, str]]:
    made = cap_library(Library(soname=soname, exports=exports), read_version_caps())
    return {each.soname: {one.name: one.version for one in each.exports} for each in made}


def test_the_newest_version_within_the_cap_is_taken() -> None:
    assert _cap(
        _export("memcpy", "GLIBC_2.2.5", default=False),
        _export("memcpy", "GLIBC_2.14"),
        _export("pow", "GLIBC_2.2.5", default=False),
        _export("pow", "GLIBC_2.29"),
    ) == {"libc.so.6": {"memcpy": "GLIBC_2.14", "pow": "GLIBC_2.2.5"}}


def test_versions_compare_by_number_not_by_text() -> None:
    found = _cap(_export("f", "GLIBC_2.4", default=False), _export("f", "GLIBC_2.17"))
    assert found == {"libc.so.6": {"f": "GLIBC_2.17"}}


def test_what_is_only_new_is_left_out() -> None:
    assert _cap(_export("strlcpy", "GLIBC_2.38"), _export("puts", "GLIBC_2.2.5")) == {
        "libc.so.6": {"puts": "GLIBC_2.2.5"}
    }


def test_private_symbols_are_left_out() -> None:
    assert _cap(_export("__secret", "GLIBC_PRIVATE")) == {}


def test_what_glibc_2_34_merged_goes_back_to_its_library() -> None:
    found = _cap(
        _export("pthread_create", "GLIBC_2.2.5", default=False),
        _export("pthread_create", "GLIBC_2.34"),
        _export("dlopen", "GLIBC_2.2.5", default=False),
        _export("dlopen", "GLIBC_2.34"),
        _export("shm_open", "GLIBC_2.2.5", default=False),
        _export("shm_open", "GLIBC_2.34"),
        _export("openpty", "GLIBC_2.2.5", default=False),
        _export("openpty", "GLIBC_2.34"),
        _export("puts", "GLIBC_2.2.5"),
    )
    assert {soname: list(names) for soname, names in found.items()} == {
        "libc.so.6": ["puts"],
        "libdl.so.2": ["dlopen"],
        "libpthread.so.0": ["pthread_create"],
        "librt.so.1": ["shm_open"],
        "libutil.so.1": ["openpty"],
    }


def test_other_libraries_keep_their_symbols() -> None:
    found = _cap(
        _export("f", "GLIBC_2.2.5", default=False), _export("f", "GLIBC_2.34"), soname="libm.so.6"
    )
    assert found == {"libm.so.6": {"f": "GLIBC_2.2.5"}}


def test_assembly_and_script_hold_each_symbol_with_its_kind() -> None:
    library = Library(
        soname="libx.so.1",
        exports=(_export("run", "X_1.0"), _export("table", "X_1.1", kind="object")),
    )
    assembly = format_assembly(library)
    assert '.type "run",@function' in assembly
    assert '.type "table",@object' in assembly
    assert '.size "table",8' in assembly
    assert '.section .note.GNU-stack,"",@progbits' in assembly
    assert format_version_script(library) == (
        'X_1.0 { global:\n  "run";\n};\nX_1.1 { global:\n  "table";\n};\n'
    )


def test_symbol_versions_parse() -> None:
    assert parse_symbol_version("GLIBCXX_3.4.24") == SymbolVersion("GLIBCXX", (3, 4, 24))
    assert parse_symbol_version("GLIBC_PRIVATE") is None
    assert parse_symbol_version("libcudart.so.13") is None
    caps = read_version_caps()
    assert caps.allow(SymbolVersion("GLIBC", (2, 28)))
    assert not caps.allow(SymbolVersion("GLIBC", (2, 29)))
    assert not caps.allow(SymbolVersion("GOMP", (4, 0)))
    assert caps.describe("GLIBCXX") == "GLIBCXX_3.4.24"
