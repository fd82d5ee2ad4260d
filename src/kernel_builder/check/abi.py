"""The check of every library of a variant against interfaces of one's own choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.check.finding import Finding
from kernel_builder.check.glibc import check_symbol_versions
from kernel_builder.check.macos import check_macos, is_mac_library
from kernel_builder.check.python_abi import check_python_abi
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.check.torch_abi import check_stable_abi
from kernel_builder.policy import find_policy
from kernel_spec.binary import read_elf
from kernel_spec.errors import BinaryFormatError
from kernel_spec.per_torch import parse_per_torch
from kernel_spec.version import MajorMinor

_SUFFIXES = frozenset({".so", ".pyd", ".dylib", ".dll"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Interfaces:
    """What libraries may ask for.

    Attributes:
        manylinux: the policy of PEP 600, such as ``manylinux_2_28``.
        python: the oldest Python whose stable ABI counts.
        torch: the version of torch's stable ABI; None: all of torch may be asked for.
        macos: the oldest macOS that libraries for it must run on.
    """

    manylinux: str
    python: tuple[int, int]
    torch: MajorMinor | None
    macos: tuple[int, int] = (15, 0)


def list_libraries(directory: Path) -> tuple[Path, ...]:
    """Return the libraries of a variant, whatever they are called."""
    return tuple(
        path for path in sorted(directory.rglob("*")) if path.is_file() and path.suffix in _SUFFIXES
    )


def is_for_one_torch(library: Path) -> bool:
    """Say whether a library is a per-torch one, which may ask for all of its torch, by its name.

    Beside one lies the main library of the same id; ``kernel-builder check`` looks up the rest.
    """
    op_id = library.name.partition(".")[0]
    main = library.with_name(f"{op_id}.abi3.so")
    return parse_per_torch(library.name) is not None and main.is_file()


def check_abi(directory: Path, interfaces: Interfaces) -> Iterator[Finding]:
    """Find what the libraries of a variant ask for that is not sure to be there.

    It goes by what the dynamic loader reads, so a stripped library is judged like any other. What
    cannot be read is a finding. Of a library for macOS its oldest macOS alone is judged.
    """
    for place in list_libraries(directory):
        file = place.relative_to(directory).as_posix()
        try:
            if is_mac_library(place.read_bytes()[:4]):
                yield from check_macos(file, place, interfaces.macos)
                continue
            library = SharedLibrary(file=file, facts=read_elf(place))
        except (BinaryFormatError, OSError) as err:
            yield Finding(
                file=file,
                rule="unreadable",
                message=f"the library cannot be read here, so nothing of it is proved: {err}",
                fix="build it again; of other systems than Linux and macOS nothing is judged here",
            )
            continue
        caps = find_policy(interfaces.manylinux, library.facts.machine)
        if caps is None:
            yield Finding(
                file=file,
                rule="machine",
                symbol=library.facts.machine,
                message=f"{interfaces.manylinux} says nothing of this machine",
                fix="name a policy that has it",
            )
        else:
            yield from check_symbol_versions(library, caps)
        yield from check_python_abi(library, interfaces.python)
        if interfaces.torch is not None and not is_for_one_torch(place):
            yield from check_stable_abi(library, interfaces.torch)
