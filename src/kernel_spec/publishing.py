"""Publishing to a directory hub: one commit that holds exactly the given files, onto a branch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_spec import staging
from kernel_spec.directory import (
    DirectoryHub,
    branch_file,
    encode_ref,
    find_branch,
    folder_names,
    is_versioned,
    read_listing,
    read_refs,
    repository_path,
)
from kernel_spec.errors import ConflictError, FormatError
from kernel_spec.listing import Listing, commit_id, format_listing
from kernel_spec.names import RepoId, find_lookalike, path_fault, ref_fault
from kernel_spec.staging import HashedFile
from kernel_spec.wire import Refs, TreeFile


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
    repository as it was; what is unfinished goes with the next one. Publishing again does the rest.

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
        tree = folder / "trees" / f"{commit}.json"
        if not snapshot.exists() and not tree.exists():
            staging.begin_commit(stage, commit)
        # Also where nothing is new: publishing again repairs what was damaged.
        given = [file for file in staged if isinstance(files[file.path], Path)]
        if not snapshot.is_dir() or not all(
            staging.is_intact(snapshot / file.path, file) for file in given
        ):
            staging.move_folder(stage, new, snapshot)
        if commit != parent:
            staging.write_file(stage, tree, data)
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
    above, name = place.parent, place.name
    if name in folder_names(above, name):
        return
    # Of two who make nearly the same name at once, one is the first.
    with staging.hold(above):
        if (other := find_lookalike(name, (*folder_names(above, name), *taken))) is not None:
            raise FormatError(
                f"{what} would differ from {other} in case only: choose another name, or let who "
                f"keeps this hub take {other} away if nobody uses it"
            )
        place.mkdir(exist_ok=True)


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
