"""The facts of ``known.toml``, read once and typed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor, parse_major_minor


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRelease:
    """A release of torch, and what its official wheels are for.

    Attributes:
        version: such as 2.13.
        backends: the versions of each backend that has some.
    """

    version: MajorMinor
    backends: Mapping[BackendKind, tuple[MajorMinor, ...]]

    def loads(self, kind: BackendKind, version: MajorMinor) -> bool:
        """Say whether one of the wheels loads what is built with a version of a backend.

        CUDA's runtime serves what an earlier minor version built.
        """
        official = self.backends.get(kind, ())
        if kind is not BackendKind.CUDA:
            return version in official
        return any(each.major == version.major and each >= version for each in official)


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of the world around kernels.

    Attributes:
        lowest_stable_abi: the torch stable ABI that is built for by default.
        full_abi_headers: headers that need torch's full C++ interface; one that ends in ``/``
            stands for all below it.
        native_depends: the release that each native dependency stands for, or an empty text.
        python_depends: for each section (None: ``[general]`` itself), the distribution that each
            Python dependency stands for.
        uncompiled: for each backend that this version cannot compile, what it would need.
        cuda_archs: default capabilities by the lowest CUDA toolkit, newest first.
        cuda_supported: all capabilities that it compiles for, likewise.
        cuda_suffixes: for each suffix of a capability the lowest that has it, and the first CUDA
            toolkit that compiles it.
        cuda_releases: the CUDA toolkits whose numbers are no capability of any device.
        torch_releases: the releases that kernels are built for, newest first.
    """

    lowest_stable_abi: MajorMinor
    full_abi_headers: tuple[str, ...]
    native_depends: Mapping[str, str]
    python_depends: Mapping[BackendKind | None, Mapping[str, str]]
    uncompiled: Mapping[BackendKind, str]
    cuda_archs: tuple[tuple[MajorMinor, tuple[str, ...]], ...]
    cuda_supported: tuple[tuple[MajorMinor, tuple[str, ...]], ...]
    cuda_suffixes: Mapping[str, tuple[MajorMinor, MajorMinor]]
    cuda_releases: frozenset[str]
    torch_releases: tuple[TorchRelease, ...]

    def list_cuda_archs(self, toolkit: MajorMinor) -> tuple[str, ...]:
        """Return the capabilities that a CUDA toolkit compiles by default."""
        return next(archs for since, archs in self.cuda_archs if since <= toolkit)

    def list_supported_archs(self, toolkit: MajorMinor) -> tuple[str, ...]:
        """Return all capabilities that a CUDA toolkit can compile for, without suffixes."""
        return next(archs for since, archs in self.cuda_supported if since <= toolkit)


def is_known(name: str) -> bool:
    """Say whether hubs have a name for a Python package, which ``metadata.json`` may then use."""
    return any(name in names for names in read_known().python_depends.values())


def name_distributions(packages: Iterable[str]) -> tuple[str, ...]:
    """Return Python packages, by the names that hubs have for them, as pip calls them; others stay."""
    sections = read_known().python_depends.values()
    names = {name: meant for section in sections for name, meant in section.items()}
    return tuple(names.get(name, name) for name in packages)


@cache
def read_known() -> Known:
    """Read the facts that ship with the builder."""
    data = tomllib.loads((files("kernel_builder") / "known.toml").read_text("utf-8"))
    return Known(
        lowest_stable_abi=parse_major_minor(data["stable-abi"]["lowest"]),
        full_abi_headers=tuple(data["stable-abi"]["full-abi-headers"]),
        native_depends=data["native-depends"],
        python_depends={
            None if section == "all" else BackendKind(section): names
            for section, names in data["python-depends"].items()
        },
        cuda_archs=tuple(
            (parse_major_minor(each["since"]), tuple(each["archs"])) for each in data["cuda-archs"]
        ),
        cuda_supported=tuple(
            (parse_major_minor(each["since"]), tuple(each["archs"]))
            for each in data["cuda-supported"]
        ),
        cuda_suffixes={
            suffix: (parse_major_minor(each["lowest"]), parse_major_minor(each["since"]))
            for suffix, each in data["cuda-suffixes"].items()
        },
        cuda_releases=frozenset(data["cuda-releases"]["no-capability"]),
        torch_releases=tuple(
            TorchRelease(
                version=parse_major_minor(each["version"]),
                backends={
                    BackendKind(name): tuple(map(parse_major_minor, versions))
                    for name, versions in each.items()
                    if name != "version"
                },
            )
            for each in data["torch-releases"]
        ),
        uncompiled={BackendKind(name): text for name, text in data["uncompiled"].items()},
    )
