"""Changes that are proposed: who asks for which commit to be taken over onto which branch.

::

    <root>/<owner>/<name>/proposals/<number>.json   title, author, branch, where that was, status
    <root>/<owner>/<name>/refs/pr/<number>          the commit that is proposed

Numbers are given once. A proposal without a ref is one whose hub was killed while it was made: it is
not there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from kernel_spec.directory import DirectoryHub, find_branch, repository_path
from kernel_spec.document import UNREADABLE
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId
from kernel_spec.staging import staging_folder, write_file, write_ref

FOLDER = "proposals"
TITLE_LIMIT = 200
TEXT_LIMIT = 10_000


class Status(StrEnum):
    """What became of a proposal."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A change that somebody asks to be taken over.

    Attributes:
        number: its number in the repository, from 1.
        title: one line.
        description: more about it.
        author: the name of the token that made it.
        branch: the branch that it is for.
        base: where that branch was.
        created: when it was made, in UTC.
        status: what became of it.
        commit: what is proposed; the base as long as nothing is.
    """

    number: int
    title: str
    description: str
    author: str
    branch: str
    base: str
    created: datetime
    status: Status = Status.OPEN
    commit: str = ""

    @property
    def ref(self) -> str:
        """The name of its ref."""
        return f"refs/pr/{self.number}"


def make_proposal(
    hub: DirectoryHub,
    repo: RepoId,
    *,
    title: str,
    description: str,
    author: str,
    branch: str,
    base: str,
) -> Proposal:
    """Make a proposal that proposes nothing yet, under the next number."""
    folder = repository_path(hub, repo)
    with staging_folder(folder) as stage:
        made = Proposal(
            number=max(_numbers(folder), default=0) + 1,
            title=title[:TITLE_LIMIT],
            description=description[:TEXT_LIMIT],
            author=author,
            branch=branch,
            base=base,
            created=datetime.now(UTC).replace(microsecond=0),
            commit=base,
        )
        _write(folder, stage, made)
        write_ref(stage, folder / made.ref, base)
    return made


def set_status(hub: DirectoryHub, repo: RepoId, proposal: Proposal, status: Status) -> Proposal:
    """Write down what became of a proposal."""
    changed = replace(proposal, status=status)
    folder = repository_path(hub, repo)
    with staging_folder(folder) as stage:
        _write(folder, stage, changed)
    return changed


def remove_proposal(hub: DirectoryHub, repo: RepoId, proposal: Proposal) -> None:
    """Take back a proposal whose commit could not be made; its number is not given again."""
    folder = repository_path(hub, repo)
    with staging_folder(folder):
        (folder / proposal.ref).unlink(missing_ok=True)


def find_proposal(hub: DirectoryHub, repo: RepoId, number: int) -> Proposal | None:
    """Return a proposal, or None.

    Raises:
        FormatError: what is written down of it cannot be read.
    """
    place = _place(repository_path(hub, repo), number)
    commit = find_branch(hub, repo, f"refs/pr/{number}")
    if commit is None:
        return None
    try:
        table = json.loads(place.read_bytes())
        table["created"] = datetime.fromisoformat(table["created"])
        table["status"] = Status(table["status"])
        return Proposal(**{**table, "commit": commit})
    except FileNotFoundError:
        return None
    except UNREADABLE as err:
        raise FormatError(f"{place}: not a proposal as this hub writes it: {err}") from err


def list_proposals(hub: DirectoryHub, repo: RepoId) -> tuple[Proposal, ...]:
    """Return the proposals, the newest first.

    Raises:
        FormatError: what is written down of one cannot be read.
    """
    numbers = sorted(_numbers(repository_path(hub, repo)), reverse=True)
    found = (find_proposal(hub, repo, number) for number in numbers)
    return tuple(proposal for proposal in found if proposal is not None)


def _numbers(folder: Path) -> list[int]:
    return [int(place.stem) for place in (folder / FOLDER).glob("*.json") if place.stem.isdigit()]


def _write(folder: Path, stage: Path, proposal: Proposal) -> None:
    table = asdict(proposal) | {"created": proposal.created.isoformat()}
    del table["commit"]
    data = json.dumps(table, indent=1, ensure_ascii=False).encode() + b"\n"
    write_file(stage, _place(folder, proposal.number), data)


def _place(folder: Path, number: int) -> Path:
    return folder / FOLDER / f"{number}.json"
