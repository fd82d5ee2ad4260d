"""``kernel-builder.lock``: everything that goes into a project's builds, by version and hash. Pure but for its file.

::

    {
      "format": 1,
      "inputs": {
        "cuda-13.0": {"kind": "wheels", "version": "13.0", "wheels": {"nvidia-nvvm": ...}},
        "torch": {"kind": "headers", "sha256": "...", "version": "2.13.0+cpu"}
      }
    }

Keys are sorted and nothing in it depends on who writes it, so equal inputs give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernel_builder.errors import LockError
from kernel_spec.document import write_json
from kernel_spec.whole_file import write_whole

FILE_NAME = "kernel-builder.lock"
FORMAT = 1

Inputs = Mapping[str, Mapping[str, Any]]


class Kind(StrEnum):
    """What an input is."""

    BUILDER = "builder"
    HEADERS = "headers"
    WHEELS = "wheels"
    # What the system brings and no lock can fetch: it is recorded, and a difference is told.
    SYSTEM = "system"


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """An input that is not as it was locked.

    Attributes:
        name: which.
        locked: how it was locked; None: it was not there.
        found: how it is now; None: it is not used any more.
    """

    name: str
    locked: Mapping[str, Any] | None
    found: Mapping[str, Any] | None

    @property
    def is_system(self) -> bool:
        """Whether it comes from the system, where no lock reaches."""
        return all(
            each is None or each.get("kind") == Kind.SYSTEM for each in (self.locked, self.found)
        )

    def __str__(self) -> str:
        if self.locked is None:
            return f"{self.name}: not in the lock; found {describe_input(self.found)}"
        if self.found is None:
            return f"{self.name}: not used any more; locked {describe_input(self.locked)}"
        return "\n".join(
            [f"{self.name}:", *(f"  {line}" for line in _changes(self.locked, self.found))]
        )


def describe_input(facts: Mapping[str, Any] | None) -> str:
    """Write an input in a few words: its version and the head of its hash."""
    facts = facts or {}
    words = [str(facts.get("version") or facts.get("origin") or "")]
    if "sha256" in facts:
        words.append(f"(sha256 {facts['sha256'][:12]})")
    return " ".join(word for word in words if word)


def _changes(locked: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for key in sorted({*locked, *found}):
        old, new = locked.get(key), found.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            lines += _changes(old, new, f"{prefix}{key}.")
        else:
            lines.append(f"{prefix}{key}: locked {_show(old)}, found {_show(new)}")
    return lines


def _show(value: Any) -> str:
    return (
        "nothing" if value is None else json.dumps(value) if isinstance(value, dict) else str(value)
    )


def format_lock(inputs: Inputs) -> bytes:
    """Write a lock."""
    return write_json(
        {"format": FORMAT, "inputs": {name: dict(facts) for name, facts in inputs.items()}}
    )


def parse_lock(data: bytes, file: str = FILE_NAME) -> dict[str, dict[str, Any]]:
    """Read a lock.

    Raises:
        LockError: it is no lock, or one of a later format.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise LockError(
            f"{file}: no JSON ({err}); restore it, or write it anew: kernel-builder lock"
        ) from err
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise LockError(
            f"{file}: expected a table with format and inputs; write it anew: kernel-builder lock"
        )
    if document["format"] != FORMAT:
        raise LockError(
            f"{file}: found format {document['format']}, this version reads {FORMAT}; build with the "
            "kernel-builder that wrote it, or write it anew: kernel-builder lock"
        )
    inputs = document.get("inputs")
    if not isinstance(inputs, dict) or not all(
        isinstance(facts, dict) and facts.get("kind") in list(Kind) for facts in inputs.values()
    ):
        raise LockError(
            f"{file}: inputs: expected a table of tables, each with a kind; write it anew: kernel-builder lock"
        )
    return inputs


def find_lock(project: Path) -> dict[str, dict[str, Any]] | None:
    """Read the lock of a project, or None where there is none.

    Raises:
        LockError: it is no lock, or cannot be read.
    """
    place = project / FILE_NAME
    try:
        return parse_lock(place.read_bytes(), str(place))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise LockError(f"{place}: cannot be read ({err.strerror})") from err


def write_lock(project: Path, inputs: Inputs) -> Path:
    """Write the lock of a project, whole or not at all."""
    place = project / FILE_NAME
    write_whole(place, format_lock(inputs))
    return place


def compare_inputs(locked: Inputs, found: Inputs, *, whole: bool) -> tuple[Drift, ...]:
    """Return what differs, sorted by name.

    Args:
        locked: what the lock says.
        found: what a build would use.
        whole: whether ``found`` is all that the project uses, so that more in the lock is a
            difference too.
    """
    names = {*found, *(locked if whole else ())}
    return tuple(
        Drift(name=name, locked=locked.get(name), found=found.get(name))
        for name in sorted(names)
        if locked.get(name) != found.get(name)
    )


def judge_drift(drifts: Iterable[Drift], *, strict: bool) -> list[str]:
    """Return what is to be told of differences that a build may live with.

    Args:
        drifts: the differences.
        strict: whether it may live with none.

    Raises:
        LockError: naming every difference that it cannot live with.
    """
    drifts = tuple(drifts)
    refused = [each for each in drifts if strict or not each.is_system]
    if refused:
        names = " ".join(each.name for each in refused)
        lines = [line for each in refused for line in str(each).splitlines()]
        raise LockError(
            "\n".join(
                [
                    f"{FILE_NAME}: what this build would use is not what was locked",
                    *(f"  {line}" for line in lines),
                    "build with what is locked, or take what is here, with --torch, --cuda and --cpu as "
                    f"for this build: kernel-builder update {names}",
                ]
            )
        )
    return [
        f"{FILE_NAME}: {' '.join(str(each).split())}; the bytes may differ from those of the lock's author"
        for each in drifts
    ]
