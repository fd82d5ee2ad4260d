"""What an upload changes on a branch: files to add, change and delete. Pure, and shown before it is done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_spec.wire import TreeFile

_VARIANT = re.compile(r"build/([^/]+)/.+")
_BENCHMARK = re.compile(r"benchmarks/benchmark[^/]*\.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalFile:
    """A file to be published.

    Attributes:
        path: its POSIX path in the repository.
        place: where its bytes are.
        size: its size in bytes.
        sha256: the hash of its bytes, hex.
        oid: its git blob id, hex.
    """

    path: str
    place: Path
    size: int
    sha256: str
    oid: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteBranch:
    """A branch as it stands on a hub.

    Attributes:
        name: its name.
        commit: where it is, or None where it does not exist.
        files: what it holds.
    """

    name: str
    commit: str | None
    files: tuple[TreeFile, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitPlan:
    """What one commit does to a branch.

    Attributes:
        branch: the branch as it stands; its commit becomes the parent.
        add: files that it does not hold.
        change: files that it holds with other bytes.
        delete: paths that go away.
        keep: paths that stay as they are.
        stale: variants that it holds and that are not built any more; they stay unless they are
            among ``delete``.
    """

    branch: RemoteBranch
    add: tuple[LocalFile, ...]
    change: tuple[LocalFile, ...]
    delete: tuple[str, ...]
    keep: tuple[str, ...]
    stale: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the branch would stay as it is."""
        return not (self.add or self.change or self.delete)


def read_local_file(path: str, place: Path) -> LocalFile:
    """Read and hash a file that will be ``path`` in the repository."""
    data = place.read_bytes()
    header = f"blob {len(data)}\0".encode()
    return LocalFile(
        path=path,
        place=place,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        oid=hashlib.sha1(header + data, usedforsecurity=False).hexdigest(),
    )


def plan_commit(
    branch: RemoteBranch, files: Iterable[LocalFile], *, prune: bool = False
) -> CommitPlan:
    """Decide what a commit does to a branch so that it holds these files.

    A variant among the files replaces the one of its name as a whole, and so do the benchmarks. Variants
    that are not among them stay, unless ``prune`` is set; anything else on the branch stays.
    """
    local = {file.path: file for file in files}
    variants = {match[1] for path in local if (match := _VARIANT.fullmatch(path))}
    remote = {file.path: file for file in branch.files}
    held = {match[1] for path in remote if (match := _VARIANT.fullmatch(path))}
    stale = tuple(sorted(held - variants)) if variants else ()
    add: list[LocalFile] = []
    change: list[LocalFile] = []
    delete: list[str] = []
    keep: list[str] = []
    for path, file in sorted(local.items()):
        if path not in remote:
            add.append(file)
        elif is_same(file, remote[path]):
            keep.append(path)
        else:
            change.append(file)
    for path in sorted(remote.keys() - local.keys()):
        match = _VARIANT.fullmatch(path)
        owner = match[1] if match else None
        goes = owner in variants or (prune and owner in stale)
        goes = goes or (bool(variants) and _BENCHMARK.fullmatch(path) is not None)
        (delete if goes else keep).append(path)
    return CommitPlan(
        branch=branch,
        add=tuple(add),
        change=tuple(change),
        delete=tuple(delete),
        keep=tuple(sorted(keep)),
        stale=stale,
    )


def is_same(file: LocalFile, remote: TreeFile) -> bool:
    """Say whether a hub holds these very bytes."""
    if remote.sha256 is not None:
        return remote.sha256 == file.sha256 and remote.size == file.size
    return remote.oid == file.oid


def format_plan(plan: CommitPlan) -> str:
    """Write a plan: a line for the branch, one for each file that changes, one for each stale variant."""
    branch = plan.branch
    at = f"at {branch.commit[:12]}" if branch.commit else "new"
    if plan.is_empty:
        lines = [f"{branch.name} ({at}): nothing to change"]
    else:
        counts = (
            f"{len(plan.add)} to add, {len(plan.change)} to change, {len(plan.delete)} to delete"
        )
        lines = [f"{branch.name} ({at}): {counts}"]
    lines += [f"  + {file.path}  {format_size(file.size)}" for file in plan.add]
    lines += [f"  ~ {file.path}  {format_size(file.size)}" for file in plan.change]
    lines += [f"  - {path}" for path in plan.delete]
    gone: Mapping[str, bool] = {
        name: any(path.startswith(f"build/{name}/") for path in plan.delete) for name in plan.stale
    }
    lines += [
        f"  {name} is on the branch and not built here; it stays (--prune deletes it)"
        for name in plan.stale
        if not gone[name]
    ]
    return "\n".join(lines)


def format_size(size: int) -> str:
    """Write a number of bytes for people."""
    if size >= 1_000_000:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.1f} kB" if size >= 1000 else f"{size} bytes"
