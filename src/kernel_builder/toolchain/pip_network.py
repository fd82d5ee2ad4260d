"""How pip reaches the network, by its own settings, for what is read of a package index without it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder.errors import CommandError
from kernel_builder.process import run

if TYPE_CHECKING:
    import ssl
    from urllib.request import OpenerDirector

_SECONDS = 60
# A line of `pip config list`: global.proxy='http://proxy:3128'.
_SETTING = re.compile(r"""([\w:.-]+)\.([\w-]+)=(['"].*['"])""")
# What counts for `pip download`, the last of them most; :env: is what PIP_… variables say.
_SECTIONS = ("global", "download", ":env:")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipNetwork:
    """What pip's own settings say of the network: its files and its variables.

    ``trusted-host`` is not among them. With it pip does without certificates; here it is then the
    whole wheel that pip downloads, whose hash is pinned as those of its parts are.

    Attributes:
        proxy: the URL of the proxy for all schemes; None: what the usual variables say.
        cert: certificates of authorities, a file or a directory; None: those of the system.
        client_cert: a file with the certificate that this machine shows, and its key.
    """

    proxy: str | None = None
    cert: str | None = None
    client_cert: str | None = None


def read_pip_network(variables: Mapping[str, str]) -> PipNetwork:
    """Ask pip for its settings; those of a pip that does not answer are none.

    Args:
        variables: the environment of pip.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    plain = {**variables, "PIP_QUIET": "0", "PIP_VERBOSE": "0"}
    try:
        said = run(command, variables=plain, timeout=_SECONDS).output
    except CommandError:
        said = ""
    return parse_pip_network(said)


def parse_pip_network(text: str) -> PipNetwork:
    """Read what ``pip config list`` says: a line ``section.name='value'`` for each setting."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        match = _SETTING.fullmatch(line)
        if match is None or match[1] not in found:
            continue
        try:
            value = ast.literal_eval(match[3])
        except (SyntaxError, ValueError):
            continue
        if isinstance(value, str) and value:  # pip passes over empty ones
            found[match[1]][match[2]] = value
    merged = {name: value for section in _SECTIONS for name, value in found[section].items()}
    return PipNetwork(
        proxy=merged.get("proxy"), cert=merged.get("cert"), client_cert=merged.get("client-cert")
    )


def choose_proxies(variables: Mapping[str, str], proxy: str | None = None) -> dict[str, str]:
    """Return the URL of the proxy for each scheme, as pip chooses it.

    Args:
        variables: the environment of pip.
        proxy: the one that pip's own settings name, which comes before all others.
    """
    lower = {name.lower(): text for name, text in variables.items() if text}
    found = {}
    for scheme in ("http", "https"):
        named = (lower.get(name) for name in (f"{scheme}_proxy", "all_proxy"))
        text = proxy or next((each for each in named if each), None)
        if text is not None:
            found[scheme] = text if "://" in text else f"http://{text}"
    return found


def open_like_pip(variables: Mapping[str, str]) -> OpenerDirector:
    """Open HTTP as pip would: with its proxies and its certificates; urllib minds no_proxy.

    Args:
        variables: the environment of pip.

    Raises:
        ValueError: pip's way cannot be gone here; the message says why.
    """
    from urllib.request import HTTPSHandler, ProxyHandler, build_opener

    network = read_pip_network(variables)
    proxies = choose_proxies(variables, network.proxy)
    if odd := [text for text in proxies.values() if not text.startswith(("http:", "https:"))]:
        raise ValueError(f"its proxy is of another kind than HTTP ({odd[0].partition(':')[0]})")
    context = _read_certificates(network, variables)
    return build_opener(ProxyHandler(proxies), HTTPSHandler(context=context))


def _read_certificates(network: PipNetwork, variables: Mapping[str, str]) -> ssl.SSLContext:
    import ssl

    # In pip's own order: what it speaks HTTP by lets its variables come before the setting.
    stated = (
        variables.get("REQUESTS_CA_BUNDLE"),
        variables.get("CURL_CA_BUNDLE"),
        network.cert,
        variables.get("SSL_CERT_FILE"),
    )
    named = next((Path(text).expanduser() for text in stated if text), None)
    what = f"certificates {named}"
    try:
        if named is not None and named.is_dir():
            context = ssl.create_default_context(capath=str(named))
        else:
            context = ssl.create_default_context(cafile=None if named is None else str(named))
        if network.client_cert is not None:
            own = Path(network.client_cert).expanduser()
            what = f"certificate {own}"
            # Nobody is asked for the password of a key.
            context.load_cert_chain(own, password="")
    except OSError as err:
        raise ValueError(f"{what}: {err}") from err
    return context
