"""A kernel as it lies on a hub: its revisions and variants, each file checked against the hub's listing."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_builder.commit_plan import RemoteBranch
from kernel_builder.errors import RebuildError
from kernel_builder.remote import Remote
from kernel_spec.blob import is_promised
from kernel_spec.errors import KernelError, UsageError
from kernel_spec.metadata import FILE_NAME, Metadata, parse_metadata
from kernel_spec.names import RepoId, choose_branch


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A variant as it lies on a hub.

    Attributes:
        name: its name.
        metadata: what it says of itself.
        files: its files, by their paths in it.
    """

    name: str
    metadata: Metadata
    files: dict[str, bytes]


def find_branch(repo: RepoId, remote: Remote, revision: str | None) -> RemoteBranch:
    """Read what a revision of a repository holds.

    Raises:
        UsageError: there is no such repository or revision.
    """
    branches, tags = remote.read_refs(repo)
    if not branches:
        raise UsageError(f"{repo} is not at {remote.url}; name its hub: --hub URL")
    try:
        name = revision or choose_branch(branches, None)
    except KernelError as err:
        raise UsageError(f"{repo} at {remote.url}: {err}") from err
    commit = branches.get(name) or tags.get(name)
    if commit is None and len(name) == 40:
        commit = name
    if commit is None:
        raise UsageError(
            f"{repo} at {remote.url}: no revision {name}; it has {', '.join(sorted({*branches, *tags}))}"
        )
    return remote.read_branch(repo, name, commit)


def choose_variants(repo: RepoId, branch: RemoteBranch, wanted: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the wanted variants of a revision, in order; empty: all of them.

    Raises:
        UsageError: it has none, or not all of those.
    """
    names = {file.path.split("/")[1] for file in branch.files if file.path.startswith("build/")}
    unknown = sorted(wanted - names)
    if unknown or not names:
        missing = f"no variant {', '.join(unknown)}" if unknown else "no variants"
        have = f"; it has {', '.join(sorted(names))}" if names else ""
        raise UsageError(f"{repo} {branch.name}: {missing}{have}")
    return tuple(sorted(wanted or names))


def read_published(repo: RepoId, remote: Remote, branch: RemoteBranch, variant: str) -> Published:
    """Read the files of a published variant, each checked against the hub's listing.

    Raises:
        RebuildError: one has other bytes, or the variant does not say what it is.
    """
    assert branch.commit is not None
    top = f"build/{variant}/"
    files: dict[str, bytes] = {}
    faults = []
    for entry in branch.files:
        if not entry.path.startswith(top):
            continue
        data = remote.read_file(repo, branch.commit, entry.path)
        if not is_promised(entry, data):
            faults.append(
                f"{entry.path}: its bytes are not those of the listing of {branch.commit[:12]}"
            )
        files[entry.path.removeprefix(top)] = data
    if faults:
        raise RebuildError(
            "\n".join([f"{repo} at {remote.url} was changed after it was published:", *faults])
        )
    try:
        metadata = parse_metadata(files.get(FILE_NAME, b""))
    except KernelError as err:
        raise RebuildError(f"{repo} {variant}: {FILE_NAME} cannot be read: {err}") from err
    return Published(name=variant, metadata=metadata, files=files)
