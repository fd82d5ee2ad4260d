"""What the environment says to the builder; nothing else of it reads environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernel_spec.errors import UsageError
from kernel_spec.version import MajorMinor

_PUBLIC_HUB = "https://huggingface.co"

# Programs that are started see these variables of the caller and no others: a stray CPATH or
# LIBRARY_PATH would change what is built.
_PASSED_ON = ("PATH", "HOME", "TMPDIR")

# What tells pip where the user's packages come from; only pip sees it.
_FOR_PIP = re.compile(
    r"PIP_\w+|XDG_CONFIG_HOME|XDG_CACHE_HOME|(https?|all|no)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE",
    re.IGNORECASE,
)


# What points at another Python than that of a shell.
_OF_PYTHON = re.compile(r"PYTHON\w*|VIRTUAL_ENV\w*|CONDA_\w+|PIP_(TARGET|PREFIX|USER|PYTHON)")


class SandboxMode(StrEnum):
    """Whether compilers and imports are separated from the machine."""

    AUTO = "auto"
    REQUIRE = "require"
    OFF = "off"


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
        endpoint: the hub that the user's Hugging Face token is for.
        default_hub: the hub where ``hubs`` names none for an owner; None where none is stated.
        cpu: the processor that ``--cpu`` names; None: that of this machine.
        cuda_home: the CUDA toolkit that ``--cuda-home`` names; None: the pinned one.
        cuda_versions: the pinned CUDA toolkits that ``--cuda`` names; none: the default one.
        torch_versions: the pinned releases of torch that ``--torch`` names, for variants of the full
            interface; none: the installed one.
        pip_variables: what pip is started with besides, such as the user's package index.
        sandbox: whether compilers and imports are separated from the machine.
        local_sources: native dependencies that ``--source NAME=PATH`` gives.
    """

    cache: Path
    cxx: str | None
    variables: Mapping[str, str]
    hubs: str | None
    endpoint: str
    default_hub: str | None = None
    cpu: str | None = None
    cuda_home: Path | None = None
    cuda_versions: tuple[MajorMinor, ...] = ()
    torch_versions: tuple[MajorMinor, ...] = ()
    pip_variables: Mapping[str, str] = field(default_factory=dict)
    sandbox: SandboxMode = SandboxMode.AUTO
    local_sources: Mapping[str, Path] = field(default_factory=dict)

    @property
    def toolchains(self) -> Path:
        """The directory of all toolchains that were fetched."""
        return self.cache / "toolchains"

    @property
    def for_pip(self) -> dict[str, str]:
        """The whole environment of pip."""
        return {**self.variables, **self.pip_variables}

    @property
    def search_path(self) -> str:
        """Where programs are looked for."""
        return self.variables.get("PATH", os.defpath)


def read_settings(
    environ: Mapping[str, str] | None = None, *, cuda_home: Path | None = None
) -> Settings:
    """Read the settings from the environment.

    ``XDG_CACHE_HOME`` (else ``HOME``), ``CXX``, ``PATH``, ``KERNELS_HUB``, ``HF_ENDPOINT``,
    ``KERNEL_BUILDER_SANDBOX``; for pip alone its own variables, proxies and certificates.

    Raises:
        UsageError: ``KERNEL_BUILDER_SANDBOX`` is none of ``auto``, ``require`` and ``off``.
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
        cuda_home=cuda_home,
        pip_variables={name: text for name, text in environ.items() if _FOR_PIP.fullmatch(name)},
        sandbox=_read_sandbox(environ.get("KERNEL_BUILDER_SANDBOX")),
        endpoint=(environ.get("HF_ENDPOINT") or _PUBLIC_HUB).rstrip("/"),
        default_hub=environ.get("HF_ENDPOINT") or None,
        variables={**variables, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "TZ": "UTC"},
    )


def _read_sandbox(text: str | None) -> SandboxMode:
    try:
        return SandboxMode(text or SandboxMode.AUTO)
    except ValueError:
        modes = ", ".join(SandboxMode)
        raise UsageError(f"KERNEL_BUILDER_SANDBOX={text}: expected one of {modes}") from None


def read_session(environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the variables of the user's session for a shell, without those of another Python."""
    environ = os.environ if environ is None else environ
    return {name: text for name, text in environ.items() if not _OF_PYTHON.fullmatch(name)}
