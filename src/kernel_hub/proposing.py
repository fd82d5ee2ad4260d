"""The story of a proposal: made at a branch, committed to, then taken over or closed.

Its commits are made on top of the branch, so that taking it over moves the branch and nothing else.
Where the branch has moved meanwhile, it is refused: the change is to be made anew on what is there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kernel_hub.errors import MovedError, RequestError, RevisionNotFoundError
from kernel_hub.publisher import Publisher
from kernel_hub.service.operations import CommitRequest
from kernel_hub.service.revision import HEADS
from kernel_hub.store import proposals
from kernel_hub.store.proposals import Proposal, Status
from kernel_spec import refs
from kernel_spec.directory import PROPOSAL, DirectoryHub
from kernel_spec.errors import ConflictError
from kernel_spec.names import RepoId

# So many open ones of one author; each may hold as much as a commit.
OPEN_LIMIT = 50


class Proposing:
    """Makes proposals in the repositories of a directory hub, and takes them over."""

    def __init__(self, hub: DirectoryHub, publisher: Publisher) -> None:
        self._hub = hub
        self._publisher = publisher

    def open(
        self, repo: RepoId, revision: str, *, title: str, description: str, author: str
    ) -> Proposal:
        """Make a proposal for a branch, which proposes nothing yet.

        Raises:
            RepositoryNotFoundError, RevisionNotFoundError: there is no such branch.
            RequestError: the repository has no versions, it is for a proposal, or the author has too
                many that are open.
        """
        if PROPOSAL.fullmatch(revision):
            raise RequestError(f"{revision} is a proposal itself: commit to it without create_pr.")
        waiting = [
            each for each in self.list(repo) if each.author == author and each.status is Status.OPEN
        ]
        if len(waiting) >= OPEN_LIMIT:
            raise RequestError(
                f"{repo} has {len(waiting)} open proposals of {author}; close some of them first."
            )
        return proposals.make_proposal(
            self._hub,
            repo,
            title=title,
            description=description,
            author=author,
            branch=revision.removeprefix(HEADS),
            base=self._publisher.get_head(repo, revision),
        )

    def propose(
        self, repo: RepoId, revision: str, request: CommitRequest, folder: Path, *, author: str
    ) -> Proposal:
        """Make a proposal for a branch that holds one commit.

        Args:
            repo: the repository.
            revision: the branch.
            request: what to do.
            folder: a place for links to large files while this is under way.
            author: the name of the token.

        Raises:
            HubError: as for open, and for Publisher.commit; no proposal is left then.
        """
        made = self.open(
            repo, revision, title=request.summary, description=request.description, author=author
        )
        try:
            if request.parent not in (None, made.base):
                raise MovedError(
                    f"{repo}: the branch {made.branch} is at {made.base}, not at the parent "
                    f"{request.parent}: look at the branch and propose again."
                )
            commit = self._publisher.commit(repo, made.ref, request, folder)
        except BaseException:
            with suppress(OSError):
                proposals.remove_proposal(self._hub, repo, made)
            raise
        return replace(made, commit=commit)

    def get(self, repo: RepoId, number: int) -> Proposal:
        """Return a proposal.

        Raises:
            RepositoryNotFoundError: no such repository.
            RevisionNotFoundError: no such proposal.
        """
        self._publisher.refuse_plain(repo)
        found = proposals.find_proposal(self._hub, repo, number)
        if found is None:
            raise RevisionNotFoundError(repo, f"refs/pr/{number}")
        return found

    def list(self, repo: RepoId) -> tuple[Proposal, ...]:
        """Return the proposals of a repository, the newest first.

        Raises:
            RepositoryNotFoundError: no such repository.
        """
        self._publisher.refuse_plain(repo)
        return proposals.list_proposals(self._hub, repo)

    def find_conflict(self, repo: RepoId, proposal: Proposal) -> str | None:
        """Say why an open proposal cannot be taken over, or None."""
        try:
            head = self._publisher.get_head(repo, proposal.branch)
        except RevisionNotFoundError:
            return f"the branch {proposal.branch} is gone"
        if head not in (proposal.base, proposal.commit):
            return f"the branch {proposal.branch} has moved to {head} since"
        return None

    def merge(self, repo: RepoId, number: int) -> Proposal:
        """Take a proposal over: its branch is where the proposal is then.

        Asking again does no harm, also where the hub was killed in between.

        Raises:
            RepositoryNotFoundError, RevisionNotFoundError: there is no such proposal.
            RequestError: it is closed, or proposes nothing.
            MovedError: the branch has moved since.
        """
        found = self.get(repo, number)
        if found.status is Status.MERGED:
            return found
        if found.status is Status.CLOSED or found.commit == found.base:
            why = "is closed" if found.status is Status.CLOSED else "proposes no change yet"
            raise RequestError(f"{repo}: {found.ref} {why}.")
        try:
            refs.move_branch(self._hub, repo, found.branch, parent=found.base, commit=found.commit)
        except ConflictError as err:
            raise MovedError(
                f"{err}; it was when {found.ref} was made. Propose the change anew on top of it."
            ) from err
        return proposals.set_status(self._hub, repo, found, Status.MERGED)

    def set_open(self, repo: RepoId, number: int, *, is_open: bool) -> Proposal:
        """Close a proposal, or open it again.

        Raises:
            RepositoryNotFoundError, RevisionNotFoundError: there is no such proposal.
            RequestError: it was taken over.
        """
        found = self.get(repo, number)
        if found.status is Status.MERGED:
            raise RequestError(f"{repo}: {found.ref} was taken over already.")
        status = Status.OPEN if is_open else Status.CLOSED
        return proposals.set_status(self._hub, repo, found, status)
