"""Delivers a bundle: into a cache, as if a hub had been asked, or into a folder that is a hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kernel_spec import directory, publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.document import naming
from kernel_spec.errors import IntegrityError
from kernel_spec.names import RepoId
from kernel_spec.wire import Ref, Refs, TreeFile
from kernels.bundle.archive import Bundle, Packed, read_member, snapshot_path, verify_files
from kernels.bundle.scratch import scratch_folder
from kernels.errors import BundleError
from kernels.fetch import Wanted
from kernels.hub import Origin
from kernels.install import install
from kernels.settings import Settings, hubs_of
from kernels.store import Record, Store, read_record, read_tree, write_record, write_tree
from kernels.trees import variants_of
from kernels.trust import editing_trusted, write_trusted
from kernels.variant_dir import VariantDir


class Delivered(NamedTuple):
    """A variant of a bundle that is in the cache, and the hub that it counts as coming from."""

    kernel: Packed
    hub: str
    variant: VariantDir


class _Member(NamedTuple):
    """One kernel of a bundle in the place of the hub that it came from."""

    url: str
    bundle: Bundle
    kernel: Packed
    is_directory: bool = True

    def read_chunks(self, repo: RepoId, commit: str, file: TreeFile) -> Iterator[bytes]:
        """See :class:`kernels.hub.Sender`."""
        del repo, commit
        return read_member(self.bundle, snapshot_path(self.kernel, file.path))

    def origin_of(self, repo: RepoId, commit: str, path: str) -> Origin:
        """See :class:`kernels.hub.Sender`."""
        del repo, commit, path
        return Origin(str(self.bundle.path), "Copy the bundle again, or make it anew.")


def require_whole(bundle: Bundle) -> None:
    """Hash every file of a bundle.

    Raises:
        IntegrityError: naming every file that differs.
    """
    if faults := [f"  {name}: {fault}" for name, fault in verify_files(bundle)]:
        raise IntegrityError(
            "\n".join([f"{bundle.path} is damaged, nothing was installed:", *faults])
        )


def install_into_cache(bundle: Bundle, settings: Settings, *, trust: bool) -> list[Delivered]:
    """Install every variant, and remember what their hub says of them, as after an online load.

    Args:
        bundle: the bundle, which must be whole.
        settings: which cache, and which hubs its kernels will be looked for on.
        trust: consent for good to run the variants, by their digests.

    Raises:
        BundleError: the settings name no hub over the network for an owner.
        CacheError: the cache cannot be written.
        IntegrityError: the cache knows one of the commits with other files.
    """
    urls = {kernel.repo: _hub_of(kernel, settings) for kernel in bundle.kernels}
    store = Store(settings.cache)
    delivered = []
    for kernel in bundle.kernels:
        url = urls[kernel.repo]
        known = read_tree(store, url, kernel.repo, kernel.commit)
        if known is not None and _hashes(known) != _hashes(kernel.files):
            raise IntegrityError(
                f"{kernel.repo}: the cache {settings.cache} knows commit {kernel.commit} of {url} "
                f"with other files than {bundle.path} has; one of them is forged"
            )
        for name in kernel.variants:
            wanted = Wanted(
                hub=_Member(url, bundle, kernel),
                repo=kernel.repo,
                commit=kernel.commit,
                variant=name,
                files=variants_of(kernel.files)[name],
            )
            delivered.append(Delivered(kernel, url, install(store, wanted, settings.state)))
        if known is None:
            write_tree(store, url, kernel.repo, kernel.commit, kernel.files)
        _remember(store, url, kernel, bundle.path.stat().st_mtime)
    if trust:
        digests = {one.variant.digest for one in delivered}
        with editing_trusted(settings.config) as trusted:
            write_trusted(settings.config, trusted._replace(digests=trusted.digests | digests))
    return delivered


def _hashes(files: tuple[TreeFile, ...]) -> set[tuple[str, int, str]]:
    return {(f.path, f.size, f.oid) for f in files if f.path.startswith("build/")}


def _hub_of(kernel: Packed, settings: Settings) -> str:
    """Return the hub that a kernel counts as coming from: its own, if the settings name it."""
    addresses = hubs_of(settings, kernel.repo.owner)
    urls = [address.url for address in addresses if not address.url.lower().startswith("file:")]
    if not urls:
        raise BundleError(
            f"{kernel.repo}: KERNELS_HUB names only folders for {kernel.repo.owner!r}, and kernels "
            "of a folder are read there: install the bundle into it, with --hub FOLDER"
        )
    return kernel.hub if kernel.hub in urls else urls[0]


def _remember(store: Store, url: str, kernel: Packed, made: float) -> None:
    """Add the branches and tags of a kernel to the record of its repository."""
    record = read_record(store, url, kernel.repo) or Record(checked=made, refs=None)
    before = record.refs or Refs((), ())
    refs = Refs(
        _merge(before.branches, kernel.branches, kernel.commit),
        _merge(before.tags, kernel.tags, kernel.commit),
    )
    write_record(store, url, kernel.repo, record._replace(refs=refs))


def _merge(before: tuple[Ref, ...], names: Iterable[str], commit: str) -> tuple[Ref, ...]:
    commits = dict(before) | dict.fromkeys(names, commit)
    return tuple(Ref(name, commits[name]) for name in sorted(commits))


def install_into_hub(bundle: Bundle, root: Path) -> list[tuple[Packed, str]]:
    """Publish every kernel to a directory hub; readers of it see each branch before or after.

    Returns:
        Each kernel and its commit there.

    Raises:
        ConflictError: a tag stands elsewhere, or a repository there has no refs.
        IntegrityError: a file is not the one that its listing names.
    """
    root.mkdir(parents=True, exist_ok=True)
    hub = DirectoryHub(root)
    done = []
    with scratch_folder(root, ".bundle-") as folder:
        for index, kernel in enumerate(bundle.kernels):
            place = folder / str(index)
            files = dict(_extract(bundle, kernel, place))
            known = {}
            if directory.has_repository(hub, kernel.repo):
                refs = directory.read_refs(hub, kernel.repo)
                known = {ref.name: ref.commit for ref in refs.branches}
            commit = ""
            for number, branch in enumerate(kernel.heads):
                commit = publishing.publish(
                    hub,
                    kernel.repo,
                    files,
                    branch=branch,
                    parent=known.get(branch),
                    tags=() if number else kernel.tags,
                )
            done.append((kernel, commit))
    return done


def _extract(bundle: Bundle, kernel: Packed, place: Path) -> Iterator[tuple[str, Path]]:
    """Write the files of a kernel below a new folder; only safe paths get this far."""
    for file in bundle.listings[kernel.listing].files:
        target = place / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        with naming(target), target.open("wb") as stream:
            for block in read_member(bundle, snapshot_path(kernel, file.path)):
                stream.write(block)
        target.chmod(0o755 if file.executable else 0o644)
        yield file.path, target
