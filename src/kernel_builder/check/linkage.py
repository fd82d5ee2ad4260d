"""The rules of how a library is linked: what it asks for, where it looks, what it leaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_builder.check.finding import Finding
from kernel_builder.check.subject import SharedLibrary, Subject, is_of_tvm_ffi
from kernel_builder.check.symbols import demangle, mentions_torch
from kernel_builder.policy import (
    read_shims,
    read_system_libraries,
    read_toolkit_libraries,
    read_torch_libraries,
    read_tvm_ffi_libraries,
    read_tvm_ffi_symbols,
)
from kernel_spec.variant import ArchVariant

# https://docs.oracle.com/cd/E19683-01/817-3677/chapter6-42444/index.html, and the gABI, figure 5-10.
_LOADS_MORE = frozenset({"DT_AUDIT", "DT_DEPAUDIT", "DT_FILTER", "DT_AUXILIARY", "DT_CONFIG"})
_SEARCHES = frozenset({"DT_RPATH", "DT_RUNPATH"})
# What each tag of the loader's is called where section headers describe the same table.
_SECTIONS = {
    "DT_SYMTAB": "SHT_DYNSYM",
    "DT_VERSYM": "SHT_GNU_versym",
    "DT_VERNEED": "SHT_GNU_verneed",
}
_DF_TEXTREL = 0x4
_WRITABLE_AND_EXECUTABLE = 0x2 | 0x1


def check_linkage(library: SharedLibrary, subject: Subject) -> Iterator[Finding]:
    """Find libraries that may not be asked for, search paths, leaks and a wrong machine."""
    facts = library.facts
    backend = subject.metadata.backend
    allowed = (
        read_system_libraries(facts.machine)
        | (read_tvm_ffi_libraries() if is_of_tvm_ffi(subject) else read_torch_libraries(backend))
        | read_toolkit_libraries(backend)
    )
    for needed in facts.needed:
        if needed not in allowed:
            yield Finding(
                file=library.file,
                rule="needed-library",
                symbol=needed,
                message=f"it is not sure to be there; a {backend.value} variant may ask for "
                f"{', '.join(sorted(allowed))}",
                fix="link it statically, or do without it",
            )
    yield from _check_providers(library, subject)
    for path in facts.rpath:
        yield Finding(
            file=library.file,
            rule="rpath",
            symbol=path,
            message="libraries would be looked for there, on every user's machine",
            fix="link without -rpath",
        )
    for symbol in facts.symbols:
        if symbol.binding == "unique":
            yield Finding(
                file=library.file,
                rule="gnu-unique",
                symbol=demangle(symbol.name),
                message="a GNU-unique symbol is shared with every other library in the process",
                fix="compile with -fno-gnu-unique",
            )
    if facts.executable_stack:
        yield Finding(
            file=library.file,
            rule="executable-stack",
            message="it asks for an executable stack, which hardened systems refuse",
            fix="link with -z noexecstack; in assembly files add a .note.GNU-stack section",
        )
    if isinstance(subject.variant, ArchVariant) and facts.machine != subject.variant.cpu:
        yield Finding(
            file=library.file,
            rule="machine",
            symbol=facts.machine,
            message=f"the variant is for {subject.variant.cpu}",
            fix=f"build it with a compiler for {subject.variant.cpu}",
        )


def _check_providers(library: SharedLibrary, subject: Subject) -> Iterator[Finding]:
    """Find what it uses without asking for it, so that it loads only after somebody who does."""
    facts = library.facts
    for provider in sorted({provider for provider, _ in facts.version_needs} - set(facts.needed)):
        yield _unasked(library, provider, "a version of its symbols is used")
    # These libraries give their symbols no versions, and keep them to those who ask.
    if is_of_tvm_ffi(subject):
        providers, name = read_tvm_ffi_libraries(), "libtvm_ffi.so"
        known = frozenset(read_tvm_ffi_symbols())
    else:
        providers = read_torch_libraries(subject.metadata.backend)
        known, name = frozenset(read_shims().since), "libtorch.so"
    if providers.intersection(facts.needed):
        return
    for symbol in library.undefined:
        if symbol.version is None and (symbol.name in known or mentions_torch(symbol.name)):
            yield _unasked(library, name, f"{demangle(symbol.name)} is used")
            return


def _unasked(library: SharedLibrary, provider: str, use: str) -> Finding:
    return Finding(
        file=library.file,
        rule="needed-library",
        symbol=provider,
        message=f"{use}, and the library is not asked for (DT_NEEDED): where nobody else has "
        "brought it in, the import fails",
        fix=f"link with {provider}",
    )


def check_segments(library: SharedLibrary, place: Path) -> Iterator[Finding]:
    """Find code that is written to, hidden dependencies, and section headers that lie.

    The other rules go by the section headers; the loader goes by the dynamic segment alone.

    Args:
        library: the library.
        place: where it lies; :func:`kernel_spec.binary.read_elf` has accepted it.
    """
    from elftools.elf.elffile import ELFFile

    with place.open("rb") as stream:
        elf = ELFFile(stream)
        tags = [
            (str(tag.entry.d_tag), int(tag.entry.d_val))
            for segment in elf.iter_segments("PT_DYNAMIC")
            for tag in segment.iter_tags()
        ]
        flags = [segment["p_flags"] for segment in elf.iter_segments("PT_LOAD")]
        sections = {section["sh_type"]: section["sh_addr"] for section in elf.iter_sections()}
    if any(
        tag == "DT_TEXTREL" or (tag == "DT_FLAGS" and value & _DF_TEXTREL) for tag, value in tags
    ):
        yield Finding(
            file=library.file,
            rule="text-relocation",
            message="the loader would have to write into its code, which hardened systems refuse",
            fix="compile every object with -fPIC; in assembly files call through @PLT",
        )
    if any(each & _WRITABLE_AND_EXECUTABLE == _WRITABLE_AND_EXECUTABLE for each in flags):
        yield Finding(
            file=library.file,
            rule="writable-code",
            message="a part of it is writable and executable at once",
            fix="link without -N and without sections that are both",
        )
    names = [tag for tag, _ in tags]
    for name in sorted(_LOADS_MORE.intersection(names)):
        yield Finding(
            file=library.file,
            rule="needed-library",
            symbol=name,
            message="it loads a library by another way than DT_NEEDED",
            fix="link without -f, -F, --audit and --depaudit",
        )
    facts = library.facts
    agree = names.count("DT_NEEDED") == len(facts.needed)
    agree = agree and bool(_SEARCHES.intersection(names)) == bool(facts.rpath)
    agree = agree and all(
        sections.get(_SECTIONS[tag]) == value for tag, value in tags if tag in _SECTIONS
    )
    if not agree:
        yield Finding(
            file=library.file,
            rule="unreadable",
            message="its section headers contradict what the loader reads, so nothing of it is proved",
            fix="build it again, and change no headers after the link",
        )
