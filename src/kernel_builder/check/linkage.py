"""The rules of how a library is linked: what it asks for, where it looks, what it leaks."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.check.finding import Finding
from kernel_builder.check.subject import SharedLibrary, Subject
from kernel_builder.check.symbols import demangle
from kernel_builder.policy import (
    read_system_libraries,
    read_toolkit_libraries,
    read_torch_libraries,
)
from kernel_spec.variant import ArchVariant


def check_linkage(library: SharedLibrary, subject: Subject) -> Iterator[Finding]:
    """Find libraries that may not be asked for, search paths, leaks and a wrong machine."""
    facts = library.facts
    backend = subject.metadata.backend
    allowed = (
        read_system_libraries(facts.machine)
        | read_torch_libraries(backend)
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
