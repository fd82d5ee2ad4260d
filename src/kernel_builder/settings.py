"""What the environment says to the builder; nothing else of it reads environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PUBLIC_HUB = "https://huggingface.co"

# Programs that are started see these variables of the caller and no others: a stray CPATH or
# LIBRARY_PATH would change what is built.
_PASSED_ON = ("PATH", "HOME", "TMPDIR")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the environment says to the builder.

    Attributes:
        cache: the directory for everything that can be made again: link stubs, objects, work
            directories and their logs, records of what is up to date.
        cxx: the C++ compiler that ``CXX`` names, or None.
        variables: the variables that programs are started with.
        hubs: where kernels are published: ``[owner,owner=]URL`` entries with blanks between, or
            None.
        endpoint: the hub where ``hubs`` names none for an owner.
    """

    cache: Path
    cxx: str | None
    variables: Mapping[str, str]
    hubs: str | None
    endpoint: str

    @property
    def search_path(self) -> str:
        """Where programs are looked for."""
        return self.variables.get("PATH", os.defpath)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment.

    ``XDG_CACHE_HOME`` (else ``HOME``), ``CXX``, ``PATH``, ``KERNELS_HUB``, ``HF_ENDPOINT``.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("HOME")
    # The XDG specification: a relative path is to be ignored.
    stated = Path(environ.get("XDG_CACHE_HOME", ""))
    root = stated if stated.is_absolute() else Path(home or Path.home()) / ".cache"
    variables = {name: environ[name] for name in _PASSED_ON if environ.get(name)}
    return Settings(
        cache=root / "kernel-builder",
        cxx=environ.get("CXX") or None,
        hubs=environ.get("KERNELS_HUB") or None,
        endpoint=(environ.get("HF_ENDPOINT") or _PUBLIC_HUB).rstrip("/"),
        variables={**variables, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "TZ": "UTC"},
    )
