"""Op ids: a name for the ops of one backend that follows from the sources alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from kernel_builder.config.model import (
    Build,
    Component,
    TorchFramework,
    TorchNoarch,
    TvmFfiFramework,
)
from kernel_builder.sources import SourceSet
from kernel_spec.backend import BackendKind


def make_op_id(
    build: Build, sources: SourceSet, backend: BackendKind, components: Iterable[Component]
) -> str:
    """Return ``_<module>_<backend>_<12 hex>``.

    The hex digits are the head of a sha256 over what makes the ops of this backend: its part of
    ``build.toml``, the listed files that it uses, and the files of the Python module. Where the
    project lies, what commit it is at, where it is published, which compiler is used and how files
    are dated or permitted play no part.

    Args:
        build: the ``build.toml``.
        sources: the project's files.
        backend: whose ops.
        components: the components that go into them.
    """
    chosen = tuple(components)
    used = {path for component in chosen for path in component.src}
    compiled = chosen or isinstance(build.framework, TvmFfiFramework)
    if compiled and not isinstance(build.framework, TorchNoarch):
        used.update(build.framework.src)
    content = {
        "backend": backend.value,
        "general": _general(build, backend),
        "framework": _framework(build, backend),
        "components": [_component(component) for component in chosen],
        "files": [[file.path, file.sha256] for file in sources.listed if file.path in used],
        "extension": [[file.path, file.sha256] for file in sources.extension],
    }
    names = {name for component in chosen for name in component.depends}
    if archives := [asdict(source) for source in build.sources if source.name in names]:
        # Where the archive lies plays no part; its hash says what it is.
        content["sources"] = [{**source, "url": None} for source in archives]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"_{build.general.module}_{backend.value}_{digest[:12]}"


def _component(component: Component) -> dict[str, Any]:
    content = asdict(component)
    if not component.per_torch:
        del content["per_torch"]  # as it was before components could say so
    return content


def _general(build: Build, backend: BackendKind) -> dict[str, Any]:
    """Return what ``[general]`` says of this backend; where it is published is left out."""
    general = build.general
    more = general.backend_depends.get(backend)
    return {
        "name": general.name,
        "version": general.version,
        "license": general.license,
        "upstream": general.upstream,
        "source": general.source,
        "depends": asdict(general.depends),
        "backend_depends": asdict(more) if more is not None else None,
        "cuda": asdict(general.cuda) if backend is BackendKind.CUDA else None,
    }


def _framework(build: Build, backend: BackendKind) -> dict[str, Any]:
    framework = build.framework
    content = {"kind": type(framework).__name__, **asdict(framework)}
    if isinstance(framework, TorchFramework):
        content["stable_abi"] = framework.stable_abi.get(backend)
        del content["noarch"]  # says which variants there are, and nothing of their ops
    return content
