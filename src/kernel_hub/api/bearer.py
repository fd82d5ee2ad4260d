"""Who sends a request, by the token that it bears, and what they may do."""

from __future__ import annotations

from starlette.requests import Request

from kernel_hub.api.hub import Hub, Writing
from kernel_hub.auth import Right, Token
from kernel_hub.errors import ForbiddenError, UnknownTokenError
from kernel_hub.store.proposals import Proposal
from kernel_spec.names import RepoId


def find_token(hub: Hub, request: Request) -> Token:
    """Return the token that a request bears.

    Raises:
        ReadOnlyError: this hub has none.
        UnknownTokenError: it bears none, or one that this hub does not know.
    """
    writing = hub.get_writing()
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        raise UnknownTokenError(
            "Writing to this hub needs a token; its operator makes one (kernel-hub add-token), and "
            "`hf auth login` or HF_TOKEN gives it to the client."
        )
    token = writing.tokens.find(secret.strip())
    if token is None:
        raise UnknownTokenError("Invalid credentials in Authorization header")
    if token.is_expired():
        raise UnknownTokenError(
            f"The token {token.name} expired on {token.expires}; the hub's operator makes a new one "
            "(kernel-hub add-token)."
        )
    return token


def get_writer(hub: Hub, request: Request, repo: RepoId) -> tuple[Writing, Token]:
    """Return how to write to a repository, if the bearer of the request may.

    Raises:
        ReadOnlyError, UnknownTokenError: as for find_token.
        ForbiddenError: the token is for other owners, or to propose changes only.
    """
    writing, token = get_proposer(hub, request, repo)
    if token.may is not Right.WRITE:
        raise ForbiddenError(
            f"The token {token.name} may propose changes to {repo} (create_pr=True), and make none."
        )
    return writing, token


def get_proposer(hub: Hub, request: Request, repo: RepoId) -> tuple[Writing, Token]:
    """Return how to write to a repository, if the bearer of the request may at least propose a change.

    Raises:
        ReadOnlyError, UnknownTokenError: as for find_token.
        ForbiddenError: the token is for other owners.
    """
    token = find_token(hub, request)
    if repo.owner not in token.owners:
        owners = ", ".join(sorted(token.owners))
        raise ForbiddenError(
            f"The token {token.name} may not write to {repo}: it is for repositories of {owners}."
        )
    return hub.get_writing(), token


def refuse_others(token: Token, repo: RepoId, proposal: Proposal) -> None:
    """Refuse who may only propose where the proposal is another's.

    Raises:
        ForbiddenError: it is.
    """
    if token.may is not Right.WRITE and proposal.author != token.name:
        raise ForbiddenError(f"{proposal.ref} of {repo} is not of the token {token.name}.")
