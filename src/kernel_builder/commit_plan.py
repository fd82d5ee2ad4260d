"""What an upload changes on a branch: files to add, change and delete. Pure, and shown before it is done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_spec.amounts import format_size
from kernel_spec.blob import blob_id
from kernel_spec.wire import TreeFile

_VARIANT = re.compile(r"build/([^/]+)/.+")
# The sources that a variant can be built from; they go with the version, like a variant.
SOURCES = "src"
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
        files: what it holds; of one that does not exist, what it will begin with.
        start: the commit that one which does not exist will begin with, or None for nothing.
    """

    name: str
    commit: str | None
    files: tuple[TreeFile, ...] = ()
    start: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitPlan:
    """What one commit does to a branch.

    Attributes:
        branch: the branch as it stands; its commit becomes the parent.
        add: files that it does not hold.
        change: files that it holds with other bytes.
        delete: paths that go away.
        keep: paths that stay as they are.
        stale: variants that it holds and that are not here; they stay unless they are among
            ``delete``.
        differing: variants that are published with other bytes, and so are not to be changed
            unless that is asked for.
        withheld: benchmarks that are published with other bytes, and stay as they are.
    """

    branch: RemoteBranch
    add: tuple[LocalFile, ...]
    change: tuple[LocalFile, ...]
    delete: tuple[str, ...]
    keep: tuple[str, ...]
    stale: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the branch would stay as it is."""
        return not (self.add or self.change or self.delete)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitOptions:
    """How a commit is written.

    Attributes:
        message: what it is about; a directory hub keeps none.
        tags: tags that are set on it.
        private: whether a repository that is made for it is private.
        pull_request: ask the owner to take it over, rather than move the branch.
    """

    message: str
    tags: tuple[str, ...] = ()
    private: bool = False
    pull_request: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What came of a commit: its id, and the URL of the pull request that it is part of."""

    commit: str
    pull_request: str | None = None


def read_local_file(path: str, place: Path) -> LocalFile:
    """Read and hash a file that will be ``path`` in the repository."""
    data = place.read_bytes()
    return LocalFile(
        path=path,
        place=place,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        oid=blob_id(data),
    )


def plan_commit(
    branch: RemoteBranch,
    files: Iterable[LocalFile],
    *,
    prune: bool = False,
    replace: bool = False,
) -> CommitPlan:
    """Decide what a commit does to a branch so that it holds these files.

    What is published stays: variants and benchmarks that are not among the files unless ``prune``
    is set, benchmarks with other bytes unless ``replace`` is set. A variant among the files is
    published as a whole; where it was published with other bytes, it is ``differing``. The sources
    below ``src`` are treated as a variant of that name. Anything else
    that the files name is added or changed. A new branch begins with the files of another one, whose
    variants and benchmarks are not its own and go.
    """
    local = {file.path: file for file in files}
    remote = {file.path: file for file in branch.files}
    is_new = branch.commit is None
    variants, held = _wholes(local), _wholes(remote)
    stale = tuple(sorted(held - variants)) if variants and not is_new else ()
    add: list[LocalFile] = []
    change: list[LocalFile] = []
    delete: list[str] = []
    keep: list[str] = []
    withheld: list[str] = []
    for path, file in sorted(local.items()):
        if path not in remote:
            add.append(file)
        elif is_same(file, remote[path]):
            keep.append(path)
        elif _BENCHMARK.fullmatch(path) and not replace and not is_new:
            withheld.append(path)
        else:
            change.append(file)
    for path in sorted(remote.keys() - local.keys()):
        variant = _variant_of(path)
        is_benchmark = _BENCHMARK.fullmatch(path) is not None
        goes = variant in variants or variant in (stale if prune else ())
        goes = goes or (prune and bool(variants) and is_benchmark)
        goes = goes or (is_new and (variant is not None or is_benchmark))
        (delete if goes else keep).append(path)
    touched = {_variant_of(path) for path in (*(file.path for file in (*add, *change)), *delete)}
    differing = () if is_new else tuple(sorted(held & variants & touched))
    return CommitPlan(
        branch=branch,
        add=tuple(add),
        change=tuple(change),
        delete=tuple(delete),
        keep=tuple(sorted([*keep, *withheld])),
        stale=stale,
        differing=differing,
        withheld=tuple(withheld),
    )


def _variant_of(path: str) -> str | None:
    """Return the variant that a path is in; ``src`` for one of the sources."""
    if path.startswith(f"{SOURCES}/"):
        return SOURCES
    match = _VARIANT.fullmatch(path)
    return None if match is None else match[1]


def _wholes(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in map(_variant_of, paths) if name is not None)


def variants_of(branch: RemoteBranch) -> frozenset[str]:
    """Return the names of the variants that a branch holds."""
    return _wholes(file.path for file in branch.files) - {SOURCES}


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
        size = format_size(sum(file.size for file in (*plan.add, *plan.change)))
        counts = (
            f"{len(plan.add)} to add, {len(plan.change)} to change, {len(plan.delete)} to delete, "
            f"{len(plan.keep)} unchanged; {size} to send"
        )
        lines = [f"{branch.name} ({at}): {counts}"]
    lines += [f"  + {file.path}  {format_size(file.size)}" for file in plan.add]
    lines += [f"  ~ {file.path}  {format_size(file.size)}" for file in plan.change]
    lines += [f"  - {path}" for path in plan.delete]
    gone: Mapping[str, bool] = {
        name: any(_variant_of(path) == name for path in plan.delete) for name in plan.stale
    }
    lines += [
        f"  {name} is on the branch and not {'sent' if name == SOURCES else 'built here'}; it stays "
        "(--prune deletes it)"
        for name in plan.stale
        if not gone[name]
    ]
    lines += [
        f"  {path} is published with other bytes; it stays (--replace publishes yours)"
        for path in plan.withheld
    ]
    return "\n".join(lines)
