"""A directory hub: repositories as plain folders, each commit immutable.

::

    <root>/<owner>/<name>/
        snapshots/<commit>/{README.md,build/...,benchmarks/...}   the files, unchanged ones hard-linked
        trees/<commit>.json                                       the listing that the commit id hashes
        refs/heads/<name>  refs/tags/<name>                       one line: the commit
        refs/pr/<number>                                          the same, of a change that is proposed

Names of refs are percent-encoded. The commit id is the sha1 of the listing's bytes, and the
listing names its parent, so a commit proves its files and its history.

``<root>/<owner>/<name>/build/`` without ``refs`` is an unversioned repository: its listing is
computed when it is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_spec import unversioned
from kernel_spec.document import read_plain
from kernel_spec.errors import ConflictError, FormatError, IntegrityError
from kernel_spec.listing import (
    COMMIT_ID,
    FORMAT,
    Listing,
    commit_id,
    format_listing,
    parse_listing,
)
from kernel_spec.names import (
    RepoId,
    find_lookalike,
    parse_repo_id,
    parse_safe_path,
    path_fault,
    ref_fault,
)
from kernel_spec.wire import Ref, Refs, TreeFile

if TYPE_CHECKING:
    from kernel_spec.staging import HashedFile

__all__ = [
    "FORMAT",
    "DirectoryHub",
    "Listing",
    "branch_file",
    "check_names",
    "commit_id",
    "file_path",
    "find_branch",
    "format_listing",
    "has_repository",
    "parse_listing",
    "publish",
    "read_listing",
    "read_refs",
    "refs_stamp",
    "repositories",
]


# A change that is proposed is a branch that readers of branches do not see.
PROPOSAL = re.compile(r"refs/pr/([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class DirectoryHub:
    """A directory hub at a root directory."""

    root: Path


def repository_path(hub: DirectoryHub, repo: RepoId) -> Path:
    """Return the folder of a repository, which need not be there."""
    return hub.root / repo.owner / repo.name


def repositories(hub: DirectoryHub, owner: str | None = None) -> tuple[RepoId, ...]:
    """List the repositories, of one owner or of all, sorted."""
    found = []
    for each in _folders(hub.root) if owner is None else [owner]:
        for name in _folders(hub.root / each):
            try:
                repo = parse_repo_id(f"{each}/{name}")
            except FormatError:
                continue
            if has_repository(hub, repo):
                found.append(repo)
    return tuple(sorted(found))


def _folders(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []


def has_repository(hub: DirectoryHub, repo: RepoId) -> bool:
    """Say whether the repository is there, versioned or not."""
    folder = repository_path(hub, repo)
    return is_versioned(folder) or (folder / "build").is_dir()


def is_spelt_so(hub: DirectoryHub, repo: RepoId) -> bool:
    """Say whether the folders of a repository have these very names: a file system may take others for them."""
    owner = hub.root / repo.owner
    return repo.owner in _names_in(hub.root, repo.owner) and repo.name in _names_in(
        owner, repo.name
    )


def is_versioned(folder: Path) -> bool:
    """Say whether the folder of a repository has refs."""
    return (folder / "refs").is_dir()


def read_refs(hub: DirectoryHub, repo: RepoId) -> Refs:
    """Read branches and tags, sorted by name; an unversioned repository has one branch, ``main``.

    Raises:
        FormatError: a ref that is not a commit id.
        FileNotFoundError: no such repository.
    """
    folder = repository_path(hub, repo)
    try:
        branches = _read_ref_folder(f"{folder}/refs/heads")
    except FileNotFoundError:
        commit = commit_id(format_listing(unversioned.compute_listing(folder)))
        return Refs((Ref(unversioned.BRANCH, commit),), ())
    try:
        return Refs(branches, _read_ref_folder(f"{folder}/refs/tags"))
    except FileNotFoundError:
        return Refs(branches, ())


def _read_ref_folder(folder: str) -> tuple[Ref, ...]:
    refs = []
    with os.scandir(folder) as entries:
        # No ref begins with a dot; what does is left over from a network file system.
        names = [entry.name for entry in entries if entry.name[0] != "."]
    for name in names:
        try:
            refs.append(Ref(decode_ref(name), _read_ref(f"{folder}/{name}")))
        except FileNotFoundError:  # deleted since the folder was listed
            continue
    refs.sort(key=lambda ref: ref.name)
    return tuple(refs)


def _read_ref(place: str) -> str:
    commit = read_plain(Path(place)).removesuffix(b"\n").decode("ascii", "replace")
    if COMMIT_ID.fullmatch(commit) is None:
        raise FormatError(f"{place}: expected a commit id, found {commit!r}")
    return commit


def find_branch(hub: DirectoryHub, repo: RepoId, name: str) -> str | None:
    """Return the commit of a branch, or of a proposal ``refs/pr/<number>``; None where there is none.

    Raises:
        FormatError: it is not a commit id.
    """
    try:
        return _read_ref(f"{repository_path(hub, repo)}/refs/{branch_file(name)}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def branch_file(name: str) -> str:
    """Return where a branch, or a proposal, stands below ``refs``."""
    proposal = PROPOSAL.fullmatch(name)
    return f"pr/{proposal[1]}" if proposal else f"heads/{encode_ref(name)}"


def decode_ref(name: str) -> str:
    """Return the name of a ref from that of its file."""
    if "%" not in name:
        return name
    from urllib.parse import unquote

    return unquote(name)


def encode_ref(name: str) -> str:
    """Return the name of a ref's file: percent-encoded but for letters, digits and ``_.-~``."""
    from urllib.parse import quote

    return quote(name, safe="")


def refs_stamp(hub: DirectoryHub, repo: RepoId) -> tuple[int, ...]:
    """Return a value that changes whenever a ref is written; costs a few ``stat`` calls.

    Of an unversioned repository it changes when a variant is added, taken away or replaced, but
    not when somebody edits a file in place.

    Raises:
        FileNotFoundError: no such repository.
    """
    folder = repository_path(hub, repo)
    try:
        heads = (folder / "refs" / "heads").stat().st_mtime_ns
    except FileNotFoundError:
        return unversioned.stamp(folder)
    try:
        return (heads, (folder / "refs" / "tags").stat().st_mtime_ns)
    except FileNotFoundError:
        return (heads,)


def read_listing(hub: DirectoryHub, repo: RepoId, commit: str) -> Listing:
    """Read and verify the listing of a commit.

    Raises:
        FileNotFoundError: no such commit.
        IntegrityError: the listing's hash is not the commit id.
    """
    folder = repository_path(hub, repo)
    if COMMIT_ID.fullmatch(commit) is None:
        raise FileNotFoundError(f"{repo} has no commit {commit!r}: expected 40 hex digits")
    try:
        data = read_plain(folder / "trees" / f"{commit}.json")
    except FileNotFoundError as err:
        if not is_versioned(folder):
            listing = unversioned.compute_listing(folder)
            if commit_id(format_listing(listing)) == commit:
                return listing
        raise FileNotFoundError(f"{repo} in {hub.root} has no commit {commit}") from err
    found = commit_id(data)
    if found != commit:
        raise IntegrityError(
            f"{folder}/trees/{commit}.json: its bytes were changed; they hash to {found}"
        )
    return parse_listing(data)


def file_path(hub: DirectoryHub, repo: RepoId, commit: str, path: str) -> Path:
    """Return the place of a file of a commit on disk (it may have been tampered with).

    Raises:
        FormatError: the path would leave the snapshot.
    """
    relative = parse_safe_path(path)
    if COMMIT_ID.fullmatch(commit) is None:
        raise FormatError(f"expected a commit of 40 hex digits, found {commit!r}")
    folder = repository_path(hub, repo)
    if is_versioned(folder):
        return folder / "snapshots" / commit / relative
    return folder / relative


def publish(
    hub: DirectoryHub,
    repo: RepoId,
    files: Mapping[str, Path | TreeFile | HashedFile],
    *,
    branch: str,
    parent: str | None,
    tags: Iterable[str] = (),
) -> str:
    """Write one commit that holds exactly ``files`` and move the branch to it.

    Publishers of one repository wait for each other. One that is killed at any moment leaves the
    repository as it was; publishing again does the rest.

    Args:
        hub: where to.
        repo: the repository; made if it is not there.
        files: for each POSIX path in the repository, the file to take the bytes from; or one
            whose hashes are known; or the parent's own entry of that path, which stays. The latter
            two, and what the parent holds, are hard-linked.
        branch: the branch to move, or a proposal ``refs/pr/<number>``.
        parent: the commit that the branch must be at; None where the branch must not exist.
        tags: tags to set on the new commit; an existing tag on another commit is an error.

    Returns:
        The new commit; the parent where nothing would change. Where this very commit was made
        before, on the same parent, it is that one: asking again does no harm.

    Raises:
        ConflictError: the branch has moved, a tag exists elsewhere, or the repository is
            unversioned.
        FormatError: a path or ref name that is not allowed, a source that is not a file, or a new
            repository or owner whose name differs from another in case only.
        IntegrityError: a file that was to stay is not as the parent's listing says.
    """
    from kernel_spec import staging  # readers do not pay for it

    tags = tuple(dict.fromkeys(tags))
    check_names(files, (branch, *tags))
    folder = repository_path(hub, repo)
    if not is_versioned(folder) and (folder / "build").is_dir():
        raise ConflictError(
            f"{folder} is an unversioned repository (it has build and no refs), which a commit "
            "would hide; publish to another directory"
        )
    reserve(hub, repo)
    with staging.staging_folder(folder) as stage:
        refs = read_refs(hub, repo) if is_versioned(folder) else Refs((), ())
        current = find_branch(hub, repo, branch)
        if current is None or read_listing(hub, repo, current).parent != parent:
            _check_branch(repo, branch, current, parent)
        previous = None if parent is None else read_listing(hub, repo, parent)
        new = stage / "snapshot"
        staged = staging.stage_files(files, new, previous, folder / "snapshots" / str(parent))
        if previous is not None and parent is not None and previous.files == staged:
            commit = parent
        else:
            listing = Listing(parent, staged)
            data = format_listing(listing)
            commit = commit_id(data)
        if commit != current:
            _check_branch(repo, branch, current, parent)
        _check_tags(repo, refs, tags, commit)
        snapshot = folder / "snapshots" / commit
        # Also where nothing is new: publishing again repairs what was damaged.
        given = [file for file in staged if isinstance(files[file.path], Path)]
        if not snapshot.is_dir() or not all(
            staging.is_intact(snapshot / file.path, file) for file in given
        ):
            staging.move_folder(stage, new, snapshot)
        if commit != parent:
            staging.write_file(stage, folder / "trees" / f"{commit}.json", data)
        _write_refs(folder, stage, branch, tags, commit)
    return commit


def reserve(hub: DirectoryHub, repo: RepoId, *, owners: Iterable[str] = ()) -> None:
    """Make the folder of a repository, unless another, or that of another owner, has nearly its name.

    Args:
        hub: where.
        repo: the repository; nothing happens where its folder is there.
        owners: owners whose names are taken although they may have no folder yet.

    Raises:
        FormatError: a name differs from another in case only: people take one for the other, and some
            file systems do so, too.
    """
    hub.root.mkdir(parents=True, exist_ok=True)
    _make_folder(hub.root / repo.owner, f"the owner {repo.owner}", owners)
    _make_folder(repository_path(hub, repo), f"the repository {repo}")


def _make_folder(place: Path, what: str, taken: Iterable[str] = ()) -> None:
    from kernel_spec import staging

    above, name = place.parent, place.name
    if name in _names_in(above, name):
        return
    # Of two who make nearly the same name at once, one is the first.
    with staging.hold(above):
        if (other := find_lookalike(name, (*_names_in(above, name), *taken))) is not None:
            raise FormatError(
                f"{what} would differ from {other} in case only: choose another name, or let who "
                f"keeps this hub take {other} away if nobody uses it"
            )
        place.mkdir(exist_ok=True)


def _names_in(folder: Path, wanted: str) -> list[str]:
    """List the folders in a folder; where that is not allowed, the wanted one if it is there."""
    try:
        return _folders(folder)
    except PermissionError:
        return [wanted] if (folder / wanted).is_dir() else []


def check_names(paths: Iterable[str], refs: Iterable[str]) -> None:
    """See that these paths can stand in one commit, on every system, and that these are refs' names.

    Raises:
        FormatError: all that is wrong with them.
    """
    paths = sorted(paths)
    faults = [f"{name!r} cannot name a ref: {fault}" for name in refs if (fault := ref_fault(name))]
    faults += [f"unsafe path {path!r}: {fault}" for path in paths if (fault := path_fault(path))]
    # Some file systems do not tell the case of letters, or one way to write an accent from another.
    seen: dict[str, str] = {}
    for path in paths:
        same = seen.setdefault(_fold(path), path)
        if same != path:
            way = "case" if same.casefold() == path.casefold() else "how letters are encoded"
            faults.append(f"the paths {same!r} and {path!r} differ in {way} only")
    for path in paths:
        parts = _fold(path).split("/")
        above = (seen.get("/".join(parts[:size])) for size in range(1, len(parts)))
        faults += [f"{file!r} is a file and the folder of {path!r}" for file in above if file]
    if faults:
        raise FormatError("\n".join(faults))


def _fold(path: str) -> str:
    if path.isascii():
        return path.casefold()
    import unicodedata  # most paths are ASCII

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _check_branch(repo: RepoId, branch: str, current: str | None, parent: str | None) -> None:
    if current == parent:
        return
    found = "does not exist" if current is None else f"is at {current}"
    expected = "not to exist" if parent is None else f"at {parent}"
    raise ConflictError(
        f"{repo}: branch {branch} {found}, expected {expected}; somebody else has published: "
        "look at the branch and publish again"
    )


def _check_tags(repo: RepoId, refs: Refs, tags: tuple[str, ...], commit: str) -> None:
    taken = [ref for ref in refs.tags if ref.name in tags and ref.commit != commit]
    if taken:
        places = "; ".join(f"tag {ref.name} stands on {ref.commit}" for ref in taken)
        raise ConflictError(f"{repo}: {places}, not on {commit}; choose another tag")


def _write_refs(folder: Path, stage: Path, branch: str, tags: tuple[str, ...], commit: str) -> None:
    """Write the tags, then the branch: whoever is killed between them can publish again."""
    from kernel_spec import staging

    refs = folder / "refs"
    written = refs
    if not refs.exists():
        # A new repository has its first refs at once or not at all.
        written = stage / "refs"
        (written / "heads").mkdir(parents=True)
        (written / "tags").mkdir()
    for tag in tags:
        staging.write_ref(stage, written / "tags" / encode_ref(tag), commit)
    staging.write_ref(stage, written / branch_file(branch), commit)
    if written is not refs:
        staging.move_folder(stage, written, refs)
