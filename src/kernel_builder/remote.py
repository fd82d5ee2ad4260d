"""Where kernels are published: one Protocol, and the hub that an upload goes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from kernel_builder.commit_plan import CommitOptions, CommitPlan, RemoteBranch, Written
from kernel_spec.errors import UsageError
from kernel_spec.names import RepoId
from kernels.hub_address import HubAddress, hide_credentials, parse_hub, parse_hubs


class Remote(Protocol):
    """A hub that can be written to."""

    @property
    def url(self) -> str:
        """The hub's URL."""

    @property
    def is_directory(self) -> bool:
        """Whether the hub is a folder."""

    def read_refs(self, repo: RepoId) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Read the commits of branches and of tags, by name; both empty where there is no such repo."""

    def read_branch(self, repo: RepoId, name: str, commit: str | None) -> RemoteBranch:
        """Read what a branch holds; a commit of None means that it does not exist."""

    def read_new_branch(self, repo: RepoId, name: str, branches: Mapping[str, str]) -> RemoteBranch:
        """Read what a branch will begin with that is not among the branches."""

    def read_file(self, repo: RepoId, commit: str, path: str) -> bytes:
        """Read a file of a commit; whether its bytes are those of the listing is not checked."""

    def find_left_over(self, repo: RepoId, branches: Iterable[str]) -> tuple[str, ...]:
        """Return those of the branches that uploads left which were cut off."""

    def remove_left_over(self, repo: RepoId, branches: Iterable[str]) -> None:
        """Delete such branches; one that has gone meanwhile is no error."""

    def write_commit(self, repo: RepoId, plan: CommitPlan, options: CommitOptions) -> Written:
        """Write one commit onto its parent, and set tags on it.

        A branch that did not exist appears with the whole commit, or not at all.

        Raises:
            ConflictError: the branch has moved, or a tag stands elsewhere.
            UploadError: the hub refuses.
        """


def choose_hub(
    stated: str | None, *, owner: str, hubs: str | None, default: str | None
) -> HubAddress:
    """Choose the hub of an owner: what ``--hub`` states, else that of ``KERNELS_HUB``, else the default.

    Of ``KERNELS_HUB`` the first hub that is bound to this owner is taken, else the first that is bound to
    nobody. The public hub is never meant unless it is named: publishing cannot be undone.

    Args:
        stated: the URL of ``--hub``, or None.
        owner: the owner of the repository.
        hubs: the text of ``KERNELS_HUB``, or None.
        default: the URL that ``HF_ENDPOINT`` states, or None.

    Raises:
        UsageError: no hub is named, or what names it is no URL of one.
        SettingsError: ``KERNELS_HUB`` cannot be read.
    """
    if stated is not None:
        return read_hub(stated, origin="--hub")
    listed = parse_hubs(hubs or "")
    bound = [hub for hub in listed if owner in hub.owners]
    for hub in (*bound, *(hub for hub in listed if not hub.owners)):
        return hub
    if default is not None:
        return read_hub(default, origin="HF_ENDPOINT")
    raise UsageError(
        "to which hub? No hub is configured: give --hub file:///a/folder for a hub that is a folder, "
        "--hub https://... for another, or --hub https://huggingface.co for the public one; KERNELS_HUB "
        "and HF_ENDPOINT set it for good"
    )


def read_hub(url: str, *, origin: str) -> HubAddress:
    """Read the ``file://``, ``http://`` or ``https://`` URL of a hub.

    Args:
        url: the URL; a user and password in it are percent-encoded.
        origin: the option or variable that it comes from, which a message names.

    Raises:
        UsageError: it is none.
    """
    hub = parse_hub(url)
    if hub is None:
        hint = f"; write file://{url}" if url.startswith("/") else ""
        raise UsageError(
            f"{origin} {hide_credentials(url)}: expected a file:///, https:// or http:// URL, "
            f"a password in it percent-encoded{hint}"
        )
    return hub


def open_remote(hub: HubAddress, *, token_hub: str, cache: Path) -> Remote:
    """Return a hub that can be written to; asks it nothing yet.

    Args:
        hub: where it is.
        token_hub: the only hub that the user's Hugging Face token is sent to.
        cache: the builder's cache, where uploads over HTTP note what they make for a while.
    """
    if hub.url.startswith("file:"):
        from kernel_builder.remote_directory import open_directory_remote

        return open_directory_remote(hub.url)
    from kernel_builder.remote_http import HttpRemote

    trusted = parse_hub(token_hub)
    return HttpRemote(
        hub.url,
        send_token=trusted is not None and hub.url == trusted.url,
        credentials=hub.credentials,
        notes=cache / "uploads",
    )
