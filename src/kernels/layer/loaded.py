"""What is known of a kernel's layer once it is loaded: where it came from and what it can do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.loaded import LoadedKernel, get_loaded_kernels

# In our own part of a variant's metadata: {"layers": {"Silu": {"has_backward": false, ...}}}.
_LAYERS = "layers"


@dataclass(frozen=True, kw_only=True)
class LoadedLayer:
    """A layer of a kernel.

    Attributes:
        cls: the class; its ``forward`` is what runs.
        repository: what the mapping calls it: ``kernels-community/activation@v1:Silu``.
        commit: the commit that it was loaded from, or None where it came from a path.
        variant: a hash of the variant's content, or None where its metadata has no digest.
        has_backward: whether autograd can go through it.
        can_torch_compile: whether torch.compile takes it into a graph.
    """

    cls: type[Any]
    repository: str
    commit: str | None
    variant: str | None
    has_backward: bool
    can_torch_compile: bool

    def __str__(self) -> str:
        return self.repository


def describe_layer(cls: type[Any], repository: str) -> LoadedLayer:
    """Say what a loaded layer can do.

    Its class says so itself: without ``has_backward`` it has one, without ``can_torch_compile``
    it cannot be compiled (the published client's defaults). Where checks before publishing have
    recorded that it cannot, that counts, whatever the class says.
    """
    kernel = _kernel_of(cls)
    proved: Mapping[str, Any] = {}
    if kernel is not None:
        layers = kernel.metadata.extension.get(_LAYERS)
        entry = layers.get(cls.__name__) if isinstance(layers, Mapping) else None
        proved = entry if isinstance(entry, Mapping) else {}
    return LoadedLayer(
        cls=cls,
        repository=repository,
        commit=kernel.repo_info.revision if kernel is not None and kernel.repo_info else None,
        variant=_content_of(kernel) if kernel is not None else None,
        has_backward=bool(getattr(cls, "has_backward", True))
        and proved.get("has_backward") is not False,
        can_torch_compile=bool(getattr(cls, "can_torch_compile", False))
        and proved.get("can_torch_compile") is not False,
    )


def _kernel_of(cls: type[Any]) -> LoadedKernel | None:
    place = f"{cls.__module__}."
    return next(
        (each for each in get_loaded_kernels() if place.startswith(f"{each.module.__name__}.")),
        None,
    )


def _content_of(kernel: LoadedKernel) -> str | None:
    digest = kernel.metadata.digest
    if digest is None:
        return None
    listing = "\n".join(f"{path} {value}" for path, value in sorted(digest.files.items()))
    return hashlib.sha256(f"{kernel.metadata.id}\n{listing}".encode()).hexdigest()[:32]
