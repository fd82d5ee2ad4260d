"""The route table: every path that the hub answers, and the application made of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kernel_hub.api import (
    account,
    commit,
    discussions,
    failure,
    repository,
    resolve,
    tree,
    upload,
    write,
)
from kernel_hub.api.access import Edge
from kernel_hub.api.hub import Hub, Writing
from kernel_hub.api.url import RawPathRouting
from kernel_hub.auth import TokenFile
from kernel_hub.proposing import Proposing
from kernel_hub.publisher import Publisher
from kernel_hub.service.catalogue import Catalogue
from kernel_hub.service.store import Store
from kernel_hub.settings import HubSettings
from kernel_hub.signer import Signer
from kernel_hub.store.directory import DirectoryStore
from kernel_hub.store.uploads import Uploads
from kernel_spec.directory import DirectoryHub
from kernel_spec.errors import KernelError
from kernel_spec.names import group_lookalikes

Handler = Callable[[Hub, Request], Response | Awaitable[Response]]

log = logging.getLogger("kernel_hub")

READ = ("GET", "HEAD")
OTHER_TYPES = ("models", "datasets", "spaces")
WRITE = ("POST", "PUT", "PATCH", "DELETE")

REPOSITORY: tuple[tuple[tuple[str, ...], str, Handler], ...] = (
    (READ, "", repository.get_info),
    (READ, "/revision/{revision}", repository.get_info),
    (READ, "/refs", repository.get_refs),
    (READ, "/commits/{revision}", repository.get_commits),
    (READ, "/tree/{revision}", tree.get_tree),
    (READ, "/tree/{revision}/{path:path}", tree.get_tree),
    (("POST",), "/paths-info/{revision}", tree.get_paths),
    (READ, "/xet-write-token/{revision}", failure.refuse_xet),
    (("POST",), "/branch/{ref}", write.create_branch),
    (("DELETE",), "/branch/{ref}", write.delete_branch),
    (("POST",), "/tag/{ref}", write.create_tag),
    (("DELETE",), "/tag/{ref}", write.delete_tag),
    (("POST",), "/preupload/{revision}", upload.preupload),
    (("POST",), "/commit/{revision}", commit.create_commit),
    (READ, "/discussions", discussions.list_discussions),
    (("POST",), "/discussions", discussions.create_discussion),
    (READ, "/discussions/{number}", discussions.get_discussion),
    (("POST",), "/discussions/{number}/merge", discussions.merge),
    (("POST",), "/discussions/{number}/status", discussions.change_status),
)
FILES: tuple[tuple[tuple[str, ...], str, Handler], ...] = (
    (READ, "/resolve/{revision}/{path:path}", resolve.get_file),
    (("POST",), ".git/info/lfs/objects/batch", upload.batch),
    (("POST",), ".git/info/lfs/objects/verify", upload.verify_large),
    (("PUT",), ".git/info/lfs/objects/{oid}", upload.put_large),
)


def _list_routes() -> Iterator[tuple[tuple[str, ...], str, Handler]]:
    """Yield every route; the first one that fits counts. Parameters are as sent, percent-encoded.

    A kernel can also be asked for as a model, which is all that huggingface_hub before 2.0 can
    commit to.
    """
    yield READ, "/api/whoami-v2", account.whoami
    yield READ, "/api/agent-harnesses", account.no_harnesses
    yield READ, "/api/organizations/{owner}/overview", account.get_organization
    yield ("POST",), "/api/repos/create", write.create_repository
    yield ("POST",), "/api/validate-yaml", upload.validate_card
    for kind, prefix in (("kernels", "/kernels"), ("models", "")):
        yield READ, f"/api/{kind}", repository.list_repositories
        for methods, path, handler in REPOSITORY:
            yield methods, f"/api/{kind}/{{owner}}/{{name}}{path}", handler
        for methods, path, handler in FILES:
            yield methods, f"{prefix}/{{owner}}/{{name}}{path}", handler
    for other in OTHER_TYPES:
        yield READ, f"/api/{other}/{{rest:path}}", failure.refuse_type
        yield READ, f"/{other}/{{rest:path}}", failure.refuse_type
    yield READ, "/{rest:path}", failure.no_such_route
    yield WRITE, "/{rest:path}", failure.refuse_write


def create_app(settings: HubSettings, store: Store | None = None) -> Starlette:
    """Make the hub's application.

    Args:
        settings: what to serve and to whom.
        store: where repositories are kept; None for the directory of the settings.

    Raises:
        TokenFileError: the file of tokens cannot be used.
    """
    catalogue = Catalogue(store or DirectoryStore(settings.root))
    hub = Hub(settings, catalogue, _open_writing(settings, catalogue))
    _warn_of_lookalikes(hub)
    app = Starlette(
        routes=[
            Route(path, partial(handler, hub), methods=list(methods))
            for methods, path, handler in _list_routes()
        ],
        middleware=[Middleware(Edge), Middleware(RawPathRouting)],
        exception_handlers={
            KernelError: failure.answer_kernel_error,
            OSError: failure.answer_system_error,
            HTTPException: failure.answer_http_error,
        },
    )
    # A redirect would hide a client's wrong URL, and the raw path may not be joined up again.
    app.router.redirect_slashes = False
    return app


def _warn_of_lookalikes(hub: Hub) -> None:
    """Tell of owners, and repositories of one owner, whose names differ in case only; they go on working."""
    repositories = hub.catalogue.store.list_repositories(None)
    owners = {repo.owner for repo in repositories} | hub.settings.trusted_owners
    if hub.writing is not None:
        owners = owners.union(*(token.owners for token in hub.writing.tokens.read()))
    groups = group_lookalikes(owners)
    for owner in sorted({repo.owner for repo in repositories}):
        groups += group_lookalikes(str(repo) for repo in repositories if repo.owner == owner)
    for group in groups:
        log.warning("%s differ in case only: people take one for the other", " and ".join(group))


def _open_writing(settings: HubSettings, catalogue: Catalogue) -> Writing | None:
    if settings.tokens is None:
        return None
    tokens = TokenFile(settings.tokens)
    tokens.read()
    directory = DirectoryHub(settings.root.resolve())
    uploads = Uploads(directory)
    uploads.sweep_all()
    publisher = Publisher(directory, catalogue, uploads, settings.trusted_owners)
    return Writing(publisher, Proposing(directory, publisher), tokens, Signer())
