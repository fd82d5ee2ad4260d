"""Which commit a revision means."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_spec.names import COMMIT, SHORT_COMMIT, version_of_branch
from kernel_spec.wire import Ref, Refs

HEADS = "refs/heads/"
TAGS = "refs/tags/"


def find_ref(refs: Refs, revision: str) -> str | None:
    """Return the commit of a branch or tag, by its short or full name; a branch goes first."""
    if revision.startswith(HEADS):
        return _find(refs.branches, revision.removeprefix(HEADS))
    if revision.startswith(TAGS):
        return _find(refs.tags, revision.removeprefix(TAGS))
    return _find(refs.branches, revision) or _find(refs.tags, revision)


def is_full_commit(revision: str) -> bool:
    """Say whether the revision can only be a commit: clients take such a one as immutable."""
    return COMMIT.fullmatch(revision) is not None


def is_short_commit(revision: str) -> bool:
    """Say whether the revision may be the beginning of a commit: seven hex digits or more."""
    return SHORT_COMMIT.fullmatch(revision) is not None


def default_commit(refs: Refs) -> str | None:
    """Return the commit of ``main``, else of the highest version, else of the last branch."""
    main = _find(refs.branches, "main")
    if main is not None or not refs.branches:
        return main
    newest = max(refs.branches, key=lambda ref: (version_of_branch(ref.name) or -1, ref.name))
    return newest.commit


def _find(refs: Iterable[Ref], name: str) -> str | None:
    return next((ref.commit for ref in refs if ref.name == name), None)
