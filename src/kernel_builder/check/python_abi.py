"""The rule that one library serves every Python from 3.9 on: the stable ABI and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from kernel_builder.check.finding import Finding
from kernel_builder.check.subject import SharedLibrary

BASELINE = (3, 9)
PREFIXES = ("Py", "_Py")


def check_python_abi(
    library: SharedLibrary, oldest: tuple[int, int] = BASELINE
) -> Iterator[Finding]:
    """Find symbols of Python that are not in its stable ABI, or came after the oldest that counts."""
    since = read_stable_symbols()
    baseline = ".".join(str(number) for number in oldest)
    for symbol in library.undefined:
        if not symbol.name.startswith(PREFIXES):
            continue
        added = since.get(symbol.name)
        if added is None:
            yield Finding(
                file=library.file,
                rule="python-abi",
                symbol=symbol.name,
                message="it is not in Python's stable ABI and may be gone in another Python",
                fix="call a function of the limited API (docs.python.org/3/c-api/stable.html)",
            )
        elif added > oldest:
            yield Finding(
                file=library.file,
                rule="python-abi",
                symbol=symbol.name,
                message=f"it is in Python's stable ABI since {added[0]}.{added[1]}, "
                f"and Python {baseline} must do",
                fix=f"call a function that the limited API of {baseline} has",
            )


@cache
def read_stable_symbols() -> Mapping[str, tuple[int, int]]:
    """Read which Python first has each symbol of the stable ABI."""
    import abi3info

    entries = (*abi3info.FUNCTIONS.values(), *abi3info.DATAS.values())
    return {entry.symbol.name: (entry.added.major, entry.added.minor) for entry in entries}
