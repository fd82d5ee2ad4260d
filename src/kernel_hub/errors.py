"""The errors of the hub; each knows how it is told to a client.

KernelError
└── HubError                        .status, .code (X-Error-Code), .headers
    ├── RepositoryNotFoundError     404  RepoNotFound
    ├── RevisionNotFoundError       404  RevisionNotFound
    │   └── AmbiguousRevisionError       the beginning of several commits
    ├── EntryNotFoundError          404  EntryNotFound, names the commit it is missing at
    ├── RequestError                400  the request cannot be read
    ├── RequestTooLargeError        413
    ├── SlowClientError             408  nothing of the body comes
    ├── UnknownTokenError           401  no token, or none that this hub knows
    ├── ForbiddenError              403  the token does not give that right
    ├── TakenError                  409  there is one of that name
    ├── MovedError                  412  the branch is not at the commit that was expected
    ├── RangeError                  416  names the size
    ├── ReadOnlyError               501  NotImplemented
    ├── DamagedFileError            500  the bytes on disk are not those of the commit
    ├── TokenFileError              500  the file of tokens cannot be used
    └── ListenError                 the server cannot listen where it was told to
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kernel_spec.errors import KernelError
from kernel_spec.names import RepoId


class HubError(KernelError):
    """The root of the hub's errors.

    Attributes:
        status: the HTTP status that tells it.
        code: the ``X-Error-Code`` that clients choose their exception by, or None.
        headers: further headers of the answer.
    """

    status = 500
    code: str | None = None

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.headers: Mapping[str, str] = headers or {}


class RepositoryNotFoundError(HubError, LookupError):
    """No such repository here."""

    status = 404
    code = "RepoNotFound"


class RevisionNotFoundError(HubError, LookupError):
    """The repository has no such branch, tag or commit."""

    status = 404
    code = "RevisionNotFound"

    def __init__(self, repo: RepoId, revision: str, message: str = "") -> None:
        super().__init__(
            message
            or f"{repo} has no revision {revision[:100]!r}: it is no branch, no tag and no commit, "
            "and not the beginning of one."
        )
        self.repo = repo
        self.revision = revision


class AmbiguousRevisionError(RevisionNotFoundError):
    """A short hash with which more than one commit begins; clients take it for one that is not there."""

    def __init__(self, repo: RepoId, revision: str, commits: Collection[str]) -> None:
        shown = ", ".join(sorted(commits)[:3]) + (", ..." if len(commits) > 3 else "")
        super().__init__(
            repo,
            revision,
            f"{revision} is ambiguous: {len(commits)} commits of {repo} begin so ({shown}); "
            "give more digits.",
        )


class EntryNotFoundError(HubError, LookupError):
    """A commit has no such file or folder."""

    status = 404
    code = "EntryNotFound"

    def __init__(
        self, repo: RepoId, commit: str, path: str, *, kind: str = "file", before: str = ""
    ) -> None:
        # The commit lets the client remember that the file is missing there.
        super().__init__(
            f"{before}{repo} has no {kind} {path[:200]!r} at commit {commit}.",
            headers={"X-Repo-Commit": commit},
        )
        self.repo = repo
        self.commit = commit
        self.path = path


class RequestError(HubError, ValueError):
    """A request that cannot be read."""

    status = 400


class RequestTooLargeError(HubError):
    """A request body beyond the limit."""

    status = 413


class SlowClientError(HubError):
    """A client that begins to send and does not go on."""

    status = 408


class UnknownTokenError(HubError):
    """A write without a token, or with one that this hub does not know."""

    status = 401


class ForbiddenError(HubError):
    """A write that the token gives no right to."""

    status = 403


class TakenError(HubError):
    """There is something of that name already."""

    status = 409


class MovedError(HubError):
    """The branch is not at the commit that the client built on."""

    status = 412


class RangeError(HubError, ValueError):
    """A byte range that begins behind the end of the file."""

    status = 416

    def __init__(self, size: int) -> None:
        super().__init__(
            f"The range begins behind the end of the file, which has {size} bytes.",
            headers={"Content-Range": f"bytes */{size}"},
        )
        self.size = size


class ReadOnlyError(HubError):
    """A write to a hub that only reads."""

    status = 501
    code = "NotImplemented"


class DamagedFileError(HubError):
    """A file on disk does not have the bytes that its commit promises."""

    def __init__(self, repo: RepoId, commit: str, path: str) -> None:
        super().__init__(
            f"{repo} is damaged on this hub: {path!r} at commit {commit} is not as it was "
            f"published. The hub's log has the details, for its operator."
        )


class TokenFileError(HubError):
    """The file of tokens cannot be used; nobody may write until it can."""


class ListenError(HubError, OSError):
    """The server cannot listen at the address it was told to."""
