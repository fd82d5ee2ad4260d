"""Keeps what was found of a variant's libraries, so that each is read once per machine and not per process.

A verdict lies beside its variant, in ``variants/<digest>/links-<host>.json``, or in the user's
state directory where the cache cannot be written. ``<host>`` names all that it depends on: another
torch, C library or Python means reading again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernel_spec.compat import Reason
from kernel_spec.document import UNREADABLE, read_plain
from kernel_spec.system import System
from kernels.linkage.host import Host, fingerprint, read_host
from kernels.linkage.verdict import SharedSymbol, Verdict, holds_libraries
from kernels.store import write_whole

FORMAT = 3

# Verdicts of this process, by digest and host.
_known: dict[tuple[str, str], Verdict] = {}


def judge_variant(
    root: Path, files: Sequence[str], digest: str, system: System, *, keep_in: Sequence[Path] = ()
) -> Verdict:
    """Judge a verified variant; a repeat costs one small file, or nothing in the same process.

    Args:
        root: the variant's directory.
        files: the POSIX paths of its files.
        digest: the name of its whole content.
        system: this machine; its devices do not matter here.
        keep_in: the folders that a verdict may lie in, the first that can be written is used.
    """
    if not holds_libraries(files) or system.os != "linux":
        return Verdict()
    host = _host(system)
    key = (digest, fingerprint(host))
    if (known := _known.get(key)) is not None:
        return known
    paths = [folder / f"links-{key[1]}.json" for folder in keep_in]
    verdict = next((found for path in paths if (found := _read(path, digest)) is not None), None)
    if verdict is None:
        # Most processes find a verdict, and need not know how one is reached.
        from kernels.linkage.judge import judge_libraries

        verdict = judge_libraries(root, files, host)
        _write(paths, digest, verdict)
    _known[key] = verdict
    return verdict


@cache
def _host(system: System) -> Host:
    return read_host(system)


def forget() -> None:
    """Forget the verdicts of this process."""
    _known.clear()
    _host.cache_clear()


def _read(path: Path, digest: str) -> Verdict | None:
    try:
        document = json.loads(read_plain(path))
        if document["format"] != FORMAT or document["digest"] != digest:
            return None
        return Verdict(
            reasons=_parse_reasons(document["reasons"]),
            archs=tuple(map(str, document["archs"])),
            shared=tuple(SharedSymbol(str(p), str(n), int(s)) for p, n, s in document["shared"]),
            per_torch=_parse_reasons(document["per_torch"]),
        )
    except UNREADABLE:
        return None


def _parse_reasons(entries: Sequence[tuple[object, object]]) -> tuple[Reason, ...]:
    return tuple(Reason(str(kind), str(text)) for kind, text in entries)


def _write(paths: Sequence[Path], digest: str, verdict: Verdict) -> None:
    document = {
        "format": FORMAT,
        "digest": digest,
        "reasons": list(verdict.reasons),
        "archs": list(verdict.archs),
        "shared": list(verdict.shared),
        "per_torch": list(verdict.per_torch),
    }
    for path in paths:
        try:
            write_whole(path, json.dumps(document).encode() + b"\n")
        except OSError:
            continue
        return
