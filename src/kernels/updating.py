"""The story of ``kernels update``: asks the hubs again, and brings the cached kernels up to date.

A branch counts as used where a variant of the commit that it was at is in the cache; the fitting
variant of its new commit is then downloaded, so that the next load waits for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from kernel_spec.document import UNREADABLE, read_plain
from kernel_spec.errors import FormatError, KernelError
from kernel_spec.names import RepoId, parse_repo_id
from kernels.choose import obtain
from kernels.connect import open_hubs
from kernels.hub import Hub
from kernels.request import Request
from kernels.resolve import resolve
from kernels.revision import KernelRef
from kernels.settings import Settings
from kernels.source import read_refs
from kernels.store import Store, find_digest, read_record, read_tree
from kernels.trees import variants_of


class Updated(NamedTuple):
    """What became of one branch of a kernel.

    Attributes:
        repo: the repository.
        branch: the branch, or empty where the repository itself could not be asked for.
        before: the commit that it was at.
        after: the commit that it is at.
        error: why its kernel could not be brought here.
    """

    repo: RepoId
    branch: str
    before: str
    after: str
    error: KernelError | None = None


def update(repos: tuple[RepoId, ...], settings: Settings) -> Iterator[Updated]:
    """Ask the hubs for each repository, and download what its used branches now hold.

    Args:
        repos: which; none means every repository that the cache has a record of.
        settings: where the hubs and the cache are.
    """
    store = Store(settings.cache)
    for repo in repos or tuple(known_repositories(store)):
        used = {
            branch: commit
            for hub in open_hubs(repo, settings)
            for branch, commit in _used_branches(hub, repo, store)
        }
        try:
            _, refs = read_refs(repo, settings)
        except KernelError as err:
            yield Updated(repo, "", "", "", err)
            continue
        now = {ref.name: ref.commit for ref in refs.branches}
        for branch, commit in sorted(used.items()):
            after = now.get(branch, "")
            yield Updated(repo, branch, commit, after, _bring(repo, branch, settings))


def known_repositories(store: Store) -> list[RepoId]:
    """List the repositories that the cache has a record of, sorted."""
    found = set()
    for path in store.folder("refs").glob("*/*/*.json"):
        try:
            document = json.loads(read_plain(path))
            if document["refs"] is not None:
                found.add(parse_repo_id(document["repo"]))
        except (FormatError, *UNREADABLE):
            continue
    return sorted(found)


def _used_branches(hub: Hub, repo: RepoId, store: Store) -> Iterator[tuple[str, str]]:
    record = read_record(store, hub.url, repo)
    if record is None or record.refs is None:
        return
    for ref in record.refs.branches:
        files = read_tree(store, hub.url, repo, ref.commit) or ()
        digests = (find_digest(store, listing) for listing in variants_of(files).values())
        if any(d and (store.folder("variants") / d).is_dir() for d in digests):
            yield ref.name, ref.commit


def _bring(repo: RepoId, branch: str, settings: Settings) -> KernelError | None:
    try:
        found = resolve(
            KernelRef(repo, revision=branch), Request(settings=settings, check_arch=False)
        )
        if found.chosen is not None:
            obtain(found.chosen, settings)
    except KernelError as err:
        return err
    return None
