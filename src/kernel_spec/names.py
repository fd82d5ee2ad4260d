"""Names: repositories, kernels, ops, versions, tags, commits and safe paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

KERNEL_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}", re.ASCII)
VERSION_BRANCH = re.compile(r"v(0|[1-9][0-9]*)", re.ASCII)


@dataclass(frozen=True, order=True, slots=True)
class RepoId:
    """The id of a repository on a hub."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


def parse_repo_id(text: str) -> RepoId:
    """Read ``owner/name``: each part letters, digits, ``.``, ``_`` and ``-``, at most 96 in all.

    A part neither begins nor ends with ``-`` or ``.`` and holds no ``--`` or ``..``
    (the rules of huggingface_hub).

    Raises:
        FormatError: saying which rule is broken.
    """
    raise NotImplementedError


def module_name(kernel_name: str) -> str:
    """Return the Python module of a kernel: its name with ``_`` for ``-``."""
    return kernel_name.replace("-", "_")


def version_of_branch(branch: str) -> int | None:
    """Return N for a branch ``vN``, else None (``v04`` and ``v1_0`` are not versions)."""
    match = VERSION_BRANCH.fullmatch(branch)
    return None if match is None else int(match[1])


def choose_branch(branches: Iterable[str], version: int | None) -> str:
    """Choose the branch of a version, or the default one.

    Without a version: the highest ``vN`` (never ``v0`` unless it is the only one), else ``main``.

    Raises:
        FormatError: no such version (the message names those there are, by number), or neither
            a version nor ``main``.
    """
    raise NotImplementedError


def choose_tag(tags: Iterable[str], version_range: str) -> str:
    """Choose the newest tag ``vX.Y.Z`` in a range such as ``>=1.0.0,<2``.

    A bare ``1.1.2`` means exactly that one; a pre-release fits only where the range names one.

    Raises:
        FormatError: the range cannot be read, or nothing fits (the message names the tags).
    """
    raise NotImplementedError


def parse_safe_path(text: str) -> PurePosixPath:
    """Read a relative POSIX path that stays inside its root and is safe on every system.

    Raises:
        FormatError: empty, absolute, with ``.``, ``..``, ``.git``, a backslash, a drive letter,
            a control character, or a part that ends in a dot or blank.
    """
    raise NotImplementedError
