"""The environment variables of the loader, read when a call is made, as one frozen value.

====================  =============================================================
KERNELS_CACHE         where kernels are kept; default ``$HF_HOME/kernels``
KERNELS_HUB           hubs, separated by blanks, each ``[owner,owner=]URL``
KERNELS_LOAD          ``allow`` (default); ``cached-only``: ask no hub; ``never``: load no kernel
                      of a hub, only paths
KERNELS_LOCK          a ``kernels.lock``: kernels of a hub are loaded as it says, and no others
KERNELS_REF_TTL       seconds for which a hub's answer counts as fresh; default 600
LOCAL_KERNELS         ``owner/name=path`` entries, separated by colons
DISABLE_KERNEL_MAPPING
                      every layer keeps its own forward, whatever kernel is mapped to it
HF_KERNELS_CACHE      what older clients called KERNELS_CACHE
HF_HOME               default ``$XDG_CACHE_HOME/huggingface``
HF_HUB_CACHE          the published client's cache; default ``$HF_HOME/hub``
HF_ENDPOINT           the hub where KERNELS_HUB names none
HF_HUB_OFFLINE        never ask a hub
HF_HUB_DISABLE_TELEMETRY, DISABLE_TELEMETRY, DO_NOT_TRACK
                      say nothing of this machine to a hub
XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME
                      roots of the defaults
====================  =============================================================

Tokens, proxies and a company's certificates are read by ``huggingface_hub``; where it cannot use them,
NETWORK_VARIABLES says which may be meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kernel_spec.errors import FormatError
from kernel_spec.names import parse_repo_id
from kernels.errors import SettingsError
from kernels.hub_address import (
    HubAddress,
    hide_credentials,
    hide_secrets,
    parse_hub,
    parse_hubs,
    show_refused,
)

PUBLIC_HUB = "https://huggingface.co"
DEFAULT_REF_TTL = 600.0
VARIABLES = (
    "KERNELS_CACHE",
    "KERNELS_HUB",
    "KERNELS_LOAD",
    "KERNELS_LOCK",
    "KERNELS_REF_TTL",
    "LOCAL_KERNELS",
    "DISABLE_KERNEL_MAPPING",
    "HF_KERNELS_CACHE",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_HUB_DISABLE_TELEMETRY",
    "DISABLE_TELEMETRY",
    "DO_NOT_TRACK",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "HOME",
)

NETWORK_VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
# What huggingface_hub takes for the user's token before the file of ``hf auth login``.
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
# Before both, where RESOURCE_VARIABLE is set, it exchanges the identity of a CI job for a token.
RESOURCE_VARIABLE = "HF_OIDC_RESOURCE"
_IDENTITY_VARIABLES = ("HF_OIDC_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
# An entry begins where "owner/name=" begins, so that a path may hold colons.
_OVERRIDE_START = re.compile(r"(?:^|:)(?=[\w.-]+/[\w.-]+=)", re.ASCII)


class Settings(NamedTuple):
    """What the environment says.

    Attributes:
        cache: the root of the cache.
        hubs: where kernels are looked for, in order.
        token_hub: the only http hub that the user's Hugging Face token is sent to.
        ref_ttl: seconds for which a hub's answer counts as fresh.
        offline: never ask a hub over the network.
        offline_cause: which setting or argument says so; empty where none does.
        never: load no kernel of a hub at all.
        lock: the lock file that says which commits are loaded.
        kernel_mapping: whether layers of models get the kernels that are mapped to them.
        telemetry: whether the user agent may describe this machine.
        overrides: the path that stands for a repository, by id.
        config: where lasting consent is kept.
        state: where receipts of an unwritable cache are kept.
        snapshots: where the published client may have left kernels.
    """

    cache: Path
    hubs: tuple[HubAddress, ...]
    token_hub: str
    ref_ttl: float
    offline: bool
    telemetry: bool
    overrides: Mapping[str, Path]
    config: Path
    state: Path
    snapshots: tuple[Path, ...]
    offline_cause: str = ""
    never: bool = False
    lock: Path | None = None
    kernel_mapping: bool = True

    def without_network(self, cause: str) -> Settings:
        """Return the same for a call that asks no hub; ``cause`` says why, where the environment does not."""
        return self._replace(offline=True, offline_cause=self.offline_cause or cause)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: a variable that cannot be read, with what was expected.
    """
    env = os.environ if environ is None else environ
    text = env.get("HF_ENDPOINT", "").strip() or PUBLIC_HUB
    if (endpoint := parse_hub(text)) is None:
        raise SettingsError(f"HF_ENDPOINT: expected an https:// URL, found {show_refused(text)}.")

    def old_cache() -> Path:
        return _directory(env, "HF_KERNELS_CACHE", lambda: _hf_home(env) / "kernels")

    cache = _directory(env, "KERNELS_CACHE", old_cache)
    loading = _word(env, "KERNELS_LOAD", ("allow", "cached-only", "never"))
    cause = "HF_HUB_OFFLINE" if _flag(env, "HF_HUB_OFFLINE") else ""
    if loading == "cached-only":
        cause = cause or "KERNELS_LOAD=cached-only"
    lock = env.get("KERNELS_LOCK", "").strip()
    return Settings(
        cache=cache,
        hubs=parse_hubs(env.get("KERNELS_HUB", "")) or (endpoint,),
        token_hub=endpoint.url,
        ref_ttl=_seconds(env, "KERNELS_REF_TTL", DEFAULT_REF_TTL),
        offline=bool(cause),
        telemetry=not any(
            _flag(env, name)
            for name in ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK")
        ),
        overrides={
            repo: _absolute("LOCAL_KERNELS", path)
            for repo, path in parse_overrides(env.get("LOCAL_KERNELS", "")).items()
        },
        config=_directory(env, "XDG_CONFIG_HOME", lambda: _home(env, ".config")) / "kernels",
        state=_directory(env, "XDG_STATE_HOME", lambda: _home(env, ".local/state")) / "kernels",
        snapshots=(cache, _directory(env, "HF_HUB_CACHE", lambda: _hf_home(env) / "hub")),
        offline_cause=cause,
        never=loading == "never",
        lock=_absolute("KERNELS_LOCK", _expand("KERNELS_LOCK", lock)) if lock else None,
        kernel_mapping=not _flag(env, "DISABLE_KERNEL_MAPPING"),
    )


def fingerprint(environ: Mapping[str, str] | None = None) -> tuple[str | None, ...]:
    """Return the raw text of every variable that ``read_settings`` reads."""
    get = (os.environ if environ is None else environ).get
    return tuple([get(name) for name in VARIABLES])


def describe_settings(environ: Mapping[str, str] | None = None) -> list[tuple[str, str, str]]:
    """Return name, value and origin of every variable above; the origin is its name's or ``default``.

    Credentials in URLs are left out; tokens are no settings of this package and never read here.
    """
    env = os.environ if environ is None else environ
    settings = read_settings(env)
    defaults = {
        "KERNELS_CACHE": str(settings.cache),
        "KERNELS_HUB": " ".join(hub.url for hub in settings.hubs),
        "KERNELS_LOAD": "allow",
        "KERNELS_REF_TTL": f"{settings.ref_ttl:g}",
        "HF_HUB_CACHE": str(settings.snapshots[-1]),
        "HF_ENDPOINT": settings.token_hub,
        "XDG_CONFIG_HOME": str(settings.config.parent),
        "XDG_STATE_HOME": str(settings.state.parent),
    }
    rows = []
    for name in VARIABLES:
        if name in env:
            rows.append((name, hide_credentials(env[name]), "environment"))
        elif name in defaults:
            rows.append((name, hide_credentials(defaults[name]), "default"))
    return rows


def network_variables() -> list[str]:
    """Return the names of the variables for proxies and certificates that are set; not their values."""
    forms = [form for name in NETWORK_VARIABLES for form in (name, name.lower())]
    return [name for name in forms if os.environ.get(name)]


def has_token_variable() -> bool:
    """Say whether a variable holds the user's token, so that no file of it is read."""
    return any(os.environ.get(name, "").strip() for name in TOKEN_VARIABLES)


def find_exchange() -> str | None:
    """Return the repository or user that a token is to be had for in exchange; None: no exchange is asked for."""
    return os.environ.get(RESOURCE_VARIABLE, "").strip() or None


def hide_tokens(text: str) -> str:
    """Return a text without the tokens and identities that variables hold, and without credentials of URLs."""
    for name in (*TOKEN_VARIABLES, *_IDENTITY_VARIABLES):
        if secret := os.environ.get(name, "").strip():
            text = text.replace(secret, "...")
    return hide_secrets(text)


def parse_overrides(text: str) -> dict[str, Path]:
    """Read ``LOCAL_KERNELS``: ``owner/name=path`` entries, separated by colons.

    Empty text and a trailing separator mean nothing. A path may hold colons and drive
    letters, as long as what follows a colon does not look like the next ``owner/name=``.

    Raises:
        SettingsError: an entry that is not of that form, or a repository named twice.
    """
    overrides: dict[str, Path] = {}
    for entry in _OVERRIDE_START.split(text.strip().strip(":")):
        if not entry.strip(":"):
            continue
        repo_id, equals, path = entry.partition("=")
        path = path.strip(":") if path.endswith("::") else path.removesuffix(":")
        try:
            parse_repo_id(repo_id)
        except FormatError as err:
            raise _malformed_override(entry, str(err)) from err
        if not equals or not path.strip():
            raise _malformed_override(entry, "there is no path")
        if repo_id in overrides:
            raise _malformed_override(entry, f"{repo_id} has an entry already")
        overrides[repo_id] = _expand("LOCAL_KERNELS", path)
    return overrides


def hubs_of(settings: Settings, owner: str) -> tuple[HubAddress, ...]:
    """Return the hubs that may hold an owner's kernels: only the bound ones, if any are."""
    bound = tuple(hub for hub in settings.hubs if owner in hub.owners)
    return bound or tuple(hub for hub in settings.hubs if not hub.owners)


def _malformed_override(entry: str, why: str) -> SettingsError:
    return SettingsError(
        f"LOCAL_KERNELS: invalid entry {entry!r}: {why}; "
        "expected owner/name=path, entries separated by colons."
    )


def _hf_home(env: Mapping[str, str]) -> Path:
    def root() -> Path:
        return _directory(env, "XDG_CACHE_HOME", lambda: _home(env, ".cache"))

    return _directory(env, "HF_HOME", lambda: root() / "huggingface")


def _home(env: Mapping[str, str], below: str) -> Path:
    if home := env.get("HOME"):
        return _absolute("HOME", Path(home)) / below
    try:
        return Path.home() / below
    except RuntimeError as err:
        raise SettingsError(
            "HOME: it is not set, and this user has no home directory; set it, or all of "
            "KERNELS_CACHE, HF_HUB_CACHE, XDG_CONFIG_HOME and XDG_STATE_HOME."
        ) from err


def _directory(env: Mapping[str, str], name: str, default: Callable[[], Path]) -> Path:
    text = env.get(name, "").strip()
    return _absolute(name, _expand(name, text)) if text else default()


def _expand(name: str, text: str) -> Path:
    try:
        text.encode()
        return Path(text).expanduser()
    except RuntimeError as err:
        raise SettingsError(f"{name}: {text!r} names the home of a user who has none.") from err
    except UnicodeEncodeError as err:
        raise SettingsError(f"{name}: expected a path in UTF-8, found {text!r}.") from err


def _absolute(name: str, path: Path) -> Path:
    try:
        return Path(os.path.abspath(path))  # noqa: PTH100 - links stay
    except OSError as err:
        raise SettingsError(
            f"{name}: {str(path)!r} is relative, and the current directory is gone: "
            "give an absolute path."
        ) from err


def _flag(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").strip().upper() in _TRUE


def _word(env: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """Return one of the words; the first where nothing is set."""
    text = env.get(name, "").strip().lower() or words[0]
    if text not in words:
        raise SettingsError(f"{name}: expected {', '.join(words)}, found {env[name]!r}.")
    return text


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise SettingsError(f"{name}: expected a number of seconds, 0 or more, found {text!r}.")
    return seconds
