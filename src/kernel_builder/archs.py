"""Device architectures: reading them, and which of a component's a toolkit compiles. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_CAPABILITY = re.compile(r"(0|[1-9][0-9]*)\.([0-9])([af]?)(\+PTX)?", re.ASCII)


class Dropped(StrEnum):
    """Why an architecture is not compiled."""

    BAD_SYNTAX = "bad-syntax"
    COVERED = "covered"
    NO_TARGET = "no-target"
    NOT_A_TARGET = "not-a-target"
    NO_SUCH_KIND = "no-such-kind"


_WORDS = {
    Dropped.BAD_SYNTAX: "it is no capability",
    Dropped.COVERED: "another one serves every target that it could serve",
    Dropped.NO_TARGET: "the toolkit has no target that it could serve",
    Dropped.NOT_A_TARGET: "the toolkit's list does not have it",
    Dropped.NO_SUCH_KIND: "the toolkit has no code of that kind for it",
}


@dataclass(frozen=True, slots=True)
class Capability:
    """A CUDA capability such as ``9.0a`` or ``12.1+PTX``.

    Attributes:
        major: the first number.
        minor: the second, one digit.
        suffix: ``a`` (this architecture alone), ``f`` (its family), or nothing.
        ptx: whether intermediate code for later devices is wanted too.
    """

    major: int
    minor: int
    suffix: str = ""
    ptx: bool = False

    @property
    def base(self) -> tuple[int, int]:
        """The capability without suffix and PTX."""
        return self.major, self.minor

    @property
    def number(self) -> str:
        """How nvcc writes it: ``90a``."""
        return f"{self.major}{self.minor}{self.suffix}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix}{'+PTX' if self.ptx else ''}"


@dataclass(frozen=True, slots=True)
class DroppedArch:
    """An architecture that is asked for and not compiled."""

    arch: str
    why: Dropped

    def __str__(self) -> str:
        return f"{self.arch} is not compiled: {_WORDS[self.why]}"


@dataclass(frozen=True, slots=True)
class Intersection:
    """What of a component's architectures is compiled, and what is not.

    Attributes:
        archs: what is compiled, in natural order; empty where nothing is left.
        dropped: what is not, by name.
    """

    archs: tuple[str, ...]
    dropped: tuple[DroppedArch, ...]


def parse_capability(text: str) -> Capability | None:
    """Read a capability; None where it is none."""
    match = _CAPABILITY.fullmatch(text)
    if match is None:
        return None
    return Capability(int(match[1]), int(match[2]), match[3], match[4] is not None)


def sort_capabilities(found: Iterable[Capability]) -> tuple[Capability, ...]:
    """Order capabilities by their numbers; one with a suffix follows the one without."""
    return tuple(sorted(set(found), key=lambda each: (*each.base, each.suffix, each.ptx)))


def intersect_capabilities(sources: Iterable[str], targets: Iterable[str]) -> Intersection:
    """Decide which of a component's capabilities are compiled by a toolkit.

    A source with a suffix wants its own base among the targets, which serves nobody else then.
    Each other target takes the highest source that is not above it: of the same major version,
    unless that source brings PTX.

    Args:
        sources: the ``cuda-capabilities`` of the component.
        targets: the toolkit's list; PTX in it counts for nothing here.
    """
    texts = sorted(set(sources))
    parsed = {text: parse_capability(text) for text in texts}
    dropped = [DroppedArch(text, Dropped.BAD_SYNTAX) for text in texts if parsed[text] is None]
    asked = [each for each in parsed.values() if each is not None]
    with_ptx = {(each.base, each.suffix) for each in asked if each.ptx}
    bases = {each.base for each in map(parse_capability, targets) if each is not None}
    plain = sorted({each.base for each in asked if not each.suffix})
    special = {each.base for each in asked if each.suffix} & bases
    taken = {(each.base, each.suffix) for each in asked if each.suffix and each.base in special}
    for target in bases - special:
        fitting = [base for base in plain if _serves(base, target, with_ptx)]
        if fitting:
            taken.add((max(fitting), ""))
    for each in asked:
        if (each.base, each.suffix) in taken:
            continue
        if each.suffix:
            why = Dropped.NOT_A_TARGET
        elif any(_serves(each.base, target, with_ptx) for target in bases):
            why = Dropped.COVERED
        else:
            why = Dropped.NO_TARGET
        dropped.append(DroppedArch(str(each), why))
    archs = (Capability(*base, suffix, (base, suffix) in with_ptx) for base, suffix in taken)
    return Intersection(
        archs=tuple(str(each) for each in sort_capabilities(archs)),
        dropped=tuple(sorted(dropped, key=lambda each: each.arch)),
    )


def _serves(
    source: tuple[int, int], target: tuple[int, int], with_ptx: set[tuple[tuple[int, int], str]]
) -> bool:
    return source <= target and (source[0] == target[0] or (source, "") in with_ptx)


def expected_code(archs: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Say which images a library with these architectures holds.

    Returns:
        The capabilities of its machine code, and those of its PTX.
    """
    found = [each for each in map(parse_capability, archs) if each is not None]
    names = [(str(each).removesuffix("+PTX"), each.ptx) for each in found]
    return frozenset(name for name, _ in names), frozenset(name for name, ptx in names if ptx)


def gencode_flags(archs: Iterable[str]) -> tuple[str, ...]:
    """Compose the ``-gencode`` flags of a file, in natural order."""
    found = sort_capabilities(each for each in map(parse_capability, archs) if each is not None)
    flags = []
    for each in found:
        code = f"sm_{each.number}"
        code = f"[{code},compute_{each.number}]" if each.ptx else code
        flags.append(f"-gencode=arch=compute_{each.number},code={code}")
    return tuple(flags)
