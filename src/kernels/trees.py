"""The files of a commit below ``build/``, and its status: from the cache, or asked for once per host."""

from __future__ import annotations

from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile
from kernels.connect import reach
from kernels.errors import NotCachedError
from kernels.hub import BUILD_FOLDER, Hub
from kernels.redirect import STATUS_NAME
from kernels.revision import KernelRef
from kernels.settings import Settings
from kernels.store import Store, read_tree, write_tree


def tree_of(hub: Hub, repo: RepoId, commit: str, settings: Settings) -> tuple[TreeFile, ...]:
    """Return the files of a commit.

    Raises:
        NotCachedError: offline, and the cache does not hold them.
    """
    store = Store(settings.cache)
    files = read_tree(store, hub.url, repo, commit)
    if files is None:
        if reach(hub, repo, settings).offline:
            raise not_cached(KernelRef(repo, revision=commit), settings)
        if hub.is_directory:
            return _ask_tree(hub, repo, commit, store)
        from kernels.single_flight import ask_once

        return ask_once(
            store,
            ("tree", hub.url, str(repo), commit),
            lambda: read_tree(store, hub.url, repo, commit),
            lambda: _ask_tree(hub, repo, commit, store),
        )
    return files


def _ask_tree(hub: Hub, repo: RepoId, commit: str, store: Store) -> tuple[TreeFile, ...]:
    # One listing of everything costs no more requests than two of what is looked for.
    files = tuple(file for file in hub.read_tree(repo, commit) if _is_looked_for(file.path))
    write_tree(store, hub.url, repo, commit, files)
    return files


def _is_looked_for(path: str) -> bool:
    return path == STATUS_NAME or path.startswith(f"{BUILD_FOLDER}/")


def variants_of(files: tuple[TreeFile, ...]) -> dict[str, tuple[TreeFile, ...]]:
    """Group the files below ``build/`` by variant; paths from the variant's root."""
    variants: dict[str, list[TreeFile]] = {}
    for file in files:
        folder, _, rest = file.path.partition("/")
        name, slash, path = rest.partition("/")
        if folder == BUILD_FOLDER and slash:
            variants.setdefault(name, []).append(file._replace(path=path))
    return {name: tuple(variants[name]) for name in sorted(variants)}


def not_cached(ref: KernelRef, settings: Settings) -> NotCachedError:
    """Return the error that says what to do about something that is not in the cache, offline."""
    return NotCachedError(
        str(ref.repo),
        f"{ref} is not in the cache, and {settings.offline_cause} forbids asking a hub. "
        "Load it once with the network on, with the same KERNELS_CACHE and KERNELS_HUB; "
        "LOCAL_KERNELS or get_local_kernel load a copy on disk.",
    )
