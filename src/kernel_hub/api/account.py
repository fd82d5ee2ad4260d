"""Who somebody is: accounts, of which this hub has none yet, and organizations."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.bearer import find_token
from kernel_hub.api.failure import answer_error
from kernel_hub.api.hub import Hub
from kernel_hub.api.url import get_parameter
from kernel_hub.auth import Right
from kernel_spec.wire import Organization, format_organization


def whoami(hub: Hub, request: Request) -> Response:
    """``GET /api/whoami-v2``: the holder of a token; where there are none, nobody."""
    if hub.writing is None:
        return answer_error(401, "This hub has no accounts: reading needs no token.")
    token = find_token(hub, request)
    owners = [
        {"type": "org", "name": owner, "fullname": owner, "roleInOrg": "write"}
        for owner in sorted(token.owners)
    ]
    return JSONResponse(
        {
            "type": "user",
            "id": token.name,
            "name": token.name,
            "fullname": token.name,
            "email": None,
            "isPro": False,
            "orgs": owners,
            "auth": {
                "type": "access_token",
                "accessToken": {
                    "displayName": token.name,
                    "role": "write" if token.may is Right.WRITE else "read",
                },
            },
        }
    )


def get_organization(hub: Hub, request: Request) -> Response:
    """``GET /api/organizations/{owner}/overview``: above all whether it is a trusted publisher."""
    owner = get_parameter(request, "owner")
    trusted = owner in hub.settings.trusted_owners
    if not (trusted or hub.catalogue.store.has_owner(owner)):
        return answer_error(404, f"This hub has no organization {owner[:100]!r}.")
    organization = Organization(name=owner, full_name=owner, trusted_publisher=trusted)
    return JSONResponse(format_organization(organization))


def no_harnesses(_hub: Hub, _request: Request) -> Response:
    """``GET /api/agent-harnesses``: clients ask once per process and take 404 for none."""
    return answer_error(404, "This hub knows of no harnesses.")
