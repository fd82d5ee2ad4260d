"""The protocol of the public Hub, read with the session of ``huggingface_hub``.

It is opened at the first question, which a warm cache never asks (:mod:`kernels.http_session`). One
``GET`` per file at the commit: sizes and hashes come from the listing, so no ``HEAD`` is needed.

The token of the user is for one hub, the one that ``HF_ENDPOINT`` names. It is not sent to the
other hubs of ``KERNELS_HUB``.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from kernel_spec.document import UNREADABLE
from kernel_spec.errors import WireError
from kernel_spec.names import COMMIT, RepoId
from kernel_spec.wire import (
    Organization,
    Refs,
    TreeFile,
    parse_organization,
    parse_refs,
    parse_tree,
)
from kernels.errors import EntryNotFoundError, HubUnreachableError, RevisionNotFoundError
from kernels.http_session import PACKED, Session, ask, errors_of, open_session
from kernels.hub import Origin
from kernels.hub_address import hide_secrets
from kernels.hub_refusal import next_pause, refused, too_slow, unreachable
from kernels.hub_token import read_token
from kernels.waiting import TooSlowError, Wait

# Seconds: to connect and between two reads.
TIMEOUT = 15.0
# A suggestion is worth no longer wait.
LISTING_TIMEOUT = 3.0
LISTING_BYTES = 1 << 20
# Seconds to wait before each further attempt, where the hub asks for no other pause.
PAUSES = (0.3, 1.2)

# A hub that answers without end, in size, pages or time, is as good as one that does not answer.
ANSWER_BYTES = 64 << 20
PAGES = 10_000
LISTED_FILES = 200_000
LISTED_SECONDS = 600.0
# So long its head, and each next piece of its body, may take. Once the body took so long, its
# average must be at least this many bytes a second.
PATIENCE_SECONDS = 60.0
SLOWEST = 1024


@dataclass(frozen=True, kw_only=True)
class HttpHub:
    """A hub that is asked over http(s).

    Attributes:
        url: its URL, without a slash at the end and without credentials.
        send_token: whether it is the hub that the user's token is for.
        credentials: ``user:password`` that the settings have for it, percent-encoded; go before the token.
        user_agent: what the calling library adds to the header of that name.
        telemetry: whether that header may describe this machine.
        session: makes the session; for tests.
        pauses: seconds to wait before each further attempt.
    """

    url: str
    send_token: bool = False
    credentials: str = field(default="", repr=False)
    user_agent: str | Mapping[str, str] | None = None
    telemetry: bool = True
    session: Callable[[], Session] = open_session
    pauses: tuple[float, ...] = PAUSES
    is_directory: bool = False

    def read_refs(self, repo: RepoId) -> Refs:
        """See :class:`kernels.hub.Hub`."""
        return parse_refs(self._get_json(f"/api/kernels/{repo}/refs", repo)[0])

    def read_tree(self, repo: RepoId, commit: str, below: str = "") -> tuple[TreeFile, ...]:
        """See :class:`kernels.hub.Hub`; follows the pages of the listing."""
        folder = f"/{quote(below, safe='')}" if below else ""
        url: str | None = (
            f"/api/kernels/{repo}/tree/{quote(commit, safe='')}{folder}?recursive=true&expand=false"
        )
        files: dict[str, TreeFile] = {}
        asked: set[str] = set()
        until = time.monotonic() + LISTED_SECONDS
        while url is not None:
            endless = len(asked) == PAGES or len(files) > LISTED_FILES or time.monotonic() > until
            if url in asked or endless:
                raise WireError(
                    f"{self.url}: its listing of {repo} at {commit} has no end: {hide_secrets(url)}"
                )
            asked.add(url)
            try:
                answer, url = self._get_json(url, repo, revision=commit)
            except EntryNotFoundError:
                return ()
            for file in parse_tree(answer):
                if file.path in files:
                    raise WireError(
                        f"{self.url}: its listing of {repo} at {commit} has {file.path!r} twice"
                    )
                files[file.path] = file
        above = (folder.as_posix() for path in files for folder in PurePosixPath(path).parents)
        if (both := next((path for path in above if path in files), None)) is not None:
            raise WireError(
                f"{self.url}: its listing of {repo} at {commit} has {both!r} as a file and a folder"
            )
        return tuple(files.values())

    def find_commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """See :class:`kernels.hub.Hub`: the hub itself knows what is unique."""
        url = f"/api/kernels/{repo}/revision/{quote(revision, safe='')}"
        try:
            answer, _ = self._get_json(url, repo, revision=revision)
        except RevisionNotFoundError:
            return ()
        commit = answer.get("sha") if isinstance(answer, dict) else None
        if not isinstance(commit, str) or COMMIT.fullmatch(commit) is None:
            raise WireError(f"{self.url}{url}: expected an object with a commit 'sha'.")
        return (commit,)

    def read_chunks(self, repo: RepoId, commit: str, file: TreeFile) -> Iterator[bytes]:
        """See :class:`kernels.hub.Hub`."""
        url = f"{self.url}/kernels/{repo}/resolve/{commit}/{quote(file.path)}"
        session = self._session
        headers = {**self._headers, "accept-encoding": "identity"}
        try:
            with self._stream(url, wait := _wait(), headers=headers) as response:
                if response.status_code != 200:
                    raise refused(self.url, response, repo, commit)
                # In pieces as they come: a larger one would hide how slowly they do.
                yield from self._in_time(response.iter_bytes(), url, wait)
        except HubUnreachableError:
            raise
        except errors_of(session) as err:
            raise unreachable(self.url, url, err) from None

    def origin_of(self, repo: RepoId, commit: str, path: str) -> Origin:
        """See :class:`kernels.hub.Sender`."""
        del repo, commit, path
        return Origin(self.url, "Publish the kernel again, or ask who runs the hub.")

    def read_organization(self, owner: str) -> Organization | None:
        """See :class:`kernels.hub.Hub`."""
        url = f"/api/organizations/{quote(owner, safe='')}/overview"
        try:
            answer, _ = self._get_json(url, None)
        except EntryNotFoundError:
            return None
        return parse_organization(answer)

    def stamp(self, repo: RepoId) -> tuple[int, ...] | None:
        """See :class:`kernels.hub.Hub`: only asking tells."""
        del repo
        return None

    def find_similar(self, repo: RepoId) -> tuple[str, ...]:
        """See :class:`kernels.hub.Hub`: asks once, and shortly, what else the owner has."""
        from difflib import get_close_matches

        url = f"{self.url}/api/kernels?author={quote(repo.owner, safe='')}&limit=200"
        session = self._session
        body = b""
        try:
            with self._stream(url, _short_wait()) as response:
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > LISTING_BYTES:
                        return ()
            ids = [str(entry["id"]) for entry in json.loads(body)]
        except errors_of(session, *UNREADABLE):
            return ()
        return tuple(get_close_matches(str(repo), ids, n=3))

    def has_model(self, repo: RepoId) -> bool:
        """See :class:`kernels.hub.Hub`: asks once, and shortly."""
        session = self._session
        try:
            url = f"{self.url}/api/models/{repo}"
            with self._stream(url, _short_wait()) as response:
                return int(response.status_code) == 200
        except errors_of(session):
            return False

    @contextmanager
    def _stream(
        self, url: str, wait: Wait, *, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """Ask, and follow redirects; the body of the answer is still to be read.

        The session would read all that a redirect itself says, and that may have no end.

        Raises:
            HubUnreachableError: the wait is over, here or while the caller reads the body.
            ConnectionError: too many redirects, or one that gives up encryption; beside the
                errors of the session.
        """
        try:
            said = self._headers if headers is None else headers
            with ask(self._session, url, wait, said) as response:
                yield response
        except errors_of(self._session, TooSlowError):
            # The last read may have run out of time itself: that is no reason to ask again.
            if not wait.is_over:
                raise
            raise too_slow(self.url, f"kept {url} waiting for {wait.whole:.0f} s") from None

    def _get_json(
        self, url: str, repo: RepoId | None, *, revision: str = ""
    ) -> tuple[Any, str | None]:
        """Ask one question; return the answer and the URL of the next page, if there is one."""
        full = url if "://" in url else f"{self.url}{url}"
        if not full.startswith(f"{self.url}/"):
            raise WireError(
                f"{self.url} continues its listing at another place: {hide_secrets(full)}"
            )
        response, body = self._get(full)
        if response.status_code != 200:
            raise refused(self.url, response, repo, revision)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError) as err:
            raise WireError(
                f"{hide_secrets(full)}: expected JSON, found {body[:80].decode(errors='replace')!r}. "
                "Is this the URL of a hub?"
            ) from err
        following = response.links.get("next", {}).get("url")
        return answer, following

    def _get(self, url: str) -> tuple[Any, bytes]:
        """Ask one question; return the response and its body."""
        session = self._session
        for pause in (*self.pauses, None):
            try:
                with self._stream(url, wait := _wait()) as response:
                    body = b"".join(self._in_bounds(response.iter_bytes(), url, wait))
            except HubUnreachableError:
                raise
            except errors_of(session) as err:
                if pause is None:
                    # Its message holds the reason; the sixty lines of the client add nothing.
                    raise unreachable(self.url, url, err) from None
                time.sleep(pause)
                continue
            if (again := next_pause(response, pause)) is None:
                return response, body
            time.sleep(again)
        raise AssertionError("the last attempt returns or raises")

    def _in_bounds(self, chunks: Iterator[bytes], url: str, wait: Wait) -> Iterator[bytes]:
        size = 0
        for chunk in self._in_time(chunks, url, wait):
            size += len(chunk)
            if size > ANSWER_BYTES:
                raise WireError(
                    f"{hide_secrets(url)}: the answer has more than {ANSWER_BYTES >> 20} MiB."
                )
            yield chunk

    def _in_time(self, chunks: Iterator[bytes], url: str, wait: Wait) -> Iterator[bytes]:
        """Pass the bytes on for as long as they come at a bearable pace."""
        spent, size = 0.0, 0
        while True:
            # Only the hub's time counts, not what the receiver does with a chunk.
            asked = time.monotonic()
            wait.begin()
            chunk = next(chunks, None)
            spent += time.monotonic() - asked
            if chunk is None:
                return
            size += len(chunk)
            if spent > PATIENCE_SECONDS and size < spent * SLOWEST:
                raise too_slow(self.url, f"sent {size} bytes of {url} in {spent:.0f} s")
            yield chunk

    @cached_property
    def _session(self) -> Session:
        return self.session()

    @cached_property
    def _headers(self) -> dict[str, str]:
        from kernels.system import detect
        from kernels.user_agent import format_user_agent

        agent = format_user_agent(
            self.user_agent, detect() if self.telemetry else None, telemetry=self.telemetry
        )
        headers = {"user-agent": agent, "accept-encoding": PACKED}
        # Not huggingface_hub's build_hf_headers: to describe this machine, that asks the hub of
        # HF_ENDPOINT first.
        if self.credentials:
            joined = b64encode(unquote_to_bytes(self.credentials)).decode()
            return headers | {"authorization": f"Basic {joined}"}
        token = read_token(self.url) if self.send_token else None
        return headers | ({"authorization": f"Bearer {token}"} if token else {})


def _wait() -> Wait:
    return Wait(read=TIMEOUT, whole=PATIENCE_SECONDS)


def _short_wait() -> Wait:
    return Wait(read=LISTING_TIMEOUT, whole=LISTING_TIMEOUT)
