"""The route table: every path that the hub answers, and the application made of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kernel_hub.api import account, failure, repository, resolve, tree
from kernel_hub.api.access import Edge
from kernel_hub.api.request import Hub, RawPathRouting
from kernel_hub.service.catalogue import Catalogue
from kernel_hub.service.store import Store
from kernel_hub.settings import HubSettings
from kernel_hub.store.directory import DirectoryStore
from kernel_spec.errors import KernelError

Handler = Callable[[Hub, Request], Response | Awaitable[Response]]

READ = ("GET", "HEAD")
OTHER_TYPES = ("models", "datasets", "spaces")
WRITE = ("POST", "PUT", "PATCH", "DELETE")

# Parameters are as sent, percent-encoded. The first row that fits counts.
ROUTES: tuple[tuple[tuple[str, ...], str, Handler], ...] = (
    (READ, "/api/whoami-v2", account.whoami),
    (READ, "/api/agent-harnesses", account.no_harnesses),
    (READ, "/api/organizations/{owner}/overview", account.get_organization),
    (READ, "/api/kernels/{owner}/{name}", repository.get_info),
    (READ, "/api/kernels/{owner}/{name}/revision/{revision}", repository.get_info),
    (READ, "/api/kernels/{owner}/{name}/refs", repository.get_refs),
    (READ, "/api/kernels/{owner}/{name}/commits/{revision}", repository.get_commits),
    (READ, "/api/kernels/{owner}/{name}/tree/{revision}", tree.get_tree),
    (READ, "/api/kernels/{owner}/{name}/tree/{revision}/{path:path}", tree.get_tree),
    (("POST",), "/api/kernels/{owner}/{name}/paths-info/{revision}", tree.get_paths),
    (READ, "/api/kernels/{owner}/{name}/xet-write-token/{revision}", failure.refuse_write),
    (READ, "/kernels/{owner}/{name}/resolve/{revision}/{path:path}", resolve.get_file),
    *((READ, f"/api/{other}/{{rest:path}}", failure.refuse_type) for other in OTHER_TYPES),
    *((READ, f"/{other}/{{rest:path}}", failure.refuse_type) for other in OTHER_TYPES),
    (READ, "/{owner}/{name}/resolve/{rest:path}", failure.refuse_type),
    (READ, "/{rest:path}", failure.no_such_route),
    (WRITE, "/{rest:path}", failure.refuse_write),
)


def create_app(settings: HubSettings, store: Store | None = None) -> Starlette:
    """Make the hub's application.

    Args:
        settings: what to serve and to whom.
        store: where repositories are kept; None for the directory of the settings.
    """
    hub = Hub(settings, Catalogue(store or DirectoryStore(settings.root)))
    app = Starlette(
        routes=[
            Route(path, partial(handler, hub), methods=list(methods))
            for methods, path, handler in ROUTES
        ],
        middleware=[Middleware(Edge), Middleware(RawPathRouting)],
        exception_handlers={
            KernelError: failure.answer_kernel_error,
            HTTPException: failure.answer_http_error,
        },
    )
    # A redirect would hide a client's wrong URL, and the raw path may not be joined up again.
    app.router.redirect_slashes = False
    return app
