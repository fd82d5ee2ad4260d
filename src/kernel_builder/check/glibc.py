"""The rule that a library runs on older systems: no symbol version above manylinux's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kernel_builder.check.finding import Finding
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.check.symbols import demangle
from kernel_builder.policy import (
    VersionCaps,
    parse_symbol_version,
    read_system_libraries,
    read_version_caps,
)

_FIX = "link it with kernel-builder, whose stubs hide newer versions"


def check_symbol_versions(
    library: SharedLibrary, caps: VersionCaps | None = None
) -> Iterator[Finding]:
    """Find symbol versions of the C and C++ libraries that are too new.

    The version records count, even where no symbol is left that uses them: the loader refuses a
    library whose records cannot be met.

    Args:
        library: the library.
        caps: the newest versions that count; None: those that every variant must keep to.
    """
    facts = library.facts
    caps = caps or read_version_caps()
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for need in facts.version_needs:
        users[need] = []
    for symbol in library.undefined:
        if symbol.version is not None and symbol.library is not None:
            users[symbol.library, symbol.version].append(symbol.name)
    system = read_system_libraries(facts.machine)
    for (provider, version), names in sorted(users.items()):
        if provider not in system:
            continue
        complaint = _judge(version, caps)
        for name in sorted(names) if complaint and names else [provider] * bool(complaint):
            yield Finding(
                file=library.file,
                rule="symbol-version",
                symbol=f"{demangle(name)}@{version}" if name != provider else version,
                message=f"{provider} of {caps.name} lacks it: {complaint}",
                fix=_FIX,
            )


def _judge(version: str, caps: VersionCaps) -> str | None:
    parsed = parse_symbol_version(version)
    if parsed is None or parsed.family not in caps.newest:
        return f"{version} is not among {', '.join(sorted(caps.newest))}"
    return None if caps.allow(parsed) else f"the newest there is {caps.describe(parsed.family)}"
