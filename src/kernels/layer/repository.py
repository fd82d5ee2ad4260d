"""Where a mapping's layers come from: a hub, a path or a lock, each loaded when it is asked for."""

from __future__ import annotations

import difflib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from kernel_spec.errors import WrongTypeError
from kernels.asked import UserAgent, parse_ref, require_options
from kernels.errors import LayerNotFoundError
from kernels.layer.function import make_kernel_class
from kernels.load import get_kernel, get_local_kernel
from kernels.load_locked import get_locked_kernel
from kernels.lockfile import get_caller_lock, get_entry, read_lock
from kernels.settings import read_settings


@runtime_checkable
class Repository(Protocol):
    """What a mapping holds: ``load()`` returns a subclass of ``torch.nn.Module``.

    Its ``forward`` is put into layers of models; ``str()`` names it in reports.
    """

    def load(self) -> type[Any]:
        """Return the class of the layer."""
        ...


class _Source(ABC):
    """A kernel that can be loaded, and its name for people."""

    def __post_init__(self) -> None:  # noqa: B027 - the end of the chain
        """Check the arguments."""

    @abstractmethod
    def _kernel(self) -> ModuleType: ...

    @abstractmethod
    def _place(self) -> str: ...


@dataclass(frozen=True)
class _HubSource(_Source):
    repo_id: str
    _: KW_ONLY
    revision: str | None = None
    version: int | str | None = None
    trust_remote_code: bool | Collection[str] = False
    user_agent: UserAgent = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        parse_ref(self.repo_id, self.revision, self.version)
        require_options(trust_remote_code=self.trust_remote_code, user_agent=self.user_agent)
        if not isinstance(self.trust_remote_code, bool):
            object.__setattr__(self, "trust_remote_code", tuple(self.trust_remote_code))

    def _kernel(self) -> ModuleType:
        return get_kernel(
            self.repo_id,
            self.revision,
            version=self.version,
            trust_remote_code=self.trust_remote_code,
            user_agent=self.user_agent,
        )

    def _place(self) -> str:
        if isinstance(self.version, int):
            return f"{self.repo_id}@v{self.version}"
        if self.version is not None:
            return f"{self.repo_id}@{self.version}"
        return self.repo_id if self.revision is None else f"{self.repo_id}@{self.revision}"


@dataclass(frozen=True)
class _PathSource(_Source):
    repo_path: str | PathLike[str]
    _: KW_ONLY
    package_name: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.repo_path, str | PathLike):
            raise WrongTypeError("repo_path", "the path of a kernel", self.repo_path)
        if not isinstance(self.package_name, str | None):
            raise WrongTypeError("package_name", "a text", self.package_name)
        object.__setattr__(self, "repo_path", Path(self.repo_path).expanduser())

    def _kernel(self) -> ModuleType:
        return get_local_kernel(self.repo_path)

    def _place(self) -> str:
        return str(self.repo_path)


@dataclass(frozen=True)
class _LockSource(_Source):
    repo_id: str
    _: KW_ONLY
    lockfile: str | PathLike[str] | None = None
    trust_remote_code: bool | Collection[str] = False

    def __post_init__(self) -> None:
        # The calling code is known now, and later it is whoever kernelizes a model.
        ref = parse_ref(self.repo_id, None, None)
        require_options(trust_remote_code=self.trust_remote_code)
        if not isinstance(self.lockfile, str | PathLike | None):
            raise WrongTypeError("lockfile", "a path", self.lockfile)
        path = self.lockfile or read_settings().lock
        if path is None:
            lock = get_caller_lock(self.repo_id)
        else:
            lock = read_lock(Path(path).expanduser().absolute(), asked_for=self.repo_id)
        get_entry(lock, ref)
        object.__setattr__(self, "lockfile", lock.path)
        if not isinstance(self.trust_remote_code, bool):
            object.__setattr__(self, "trust_remote_code", tuple(self.trust_remote_code))

    def _kernel(self) -> ModuleType:
        return get_locked_kernel(
            self.repo_id, self.lockfile, trust_remote_code=self.trust_remote_code
        )

    def _place(self) -> str:
        return f"{self.repo_id}@lock"


@dataclass(frozen=True)
class _TakesLayer(_Source):
    _: KW_ONLY
    layer_name: str

    def __post_init__(self) -> None:
        _require_name("layer_name", self.layer_name)
        super().__post_init__()

    def load(self) -> type[Any]:
        """Load the kernel and return the class of its layer.

        Raises:
            LayerNotFoundError: the kernel has no layer of that name.
            KernelError: as :func:`kernels.get_kernel`.
        """
        return find_layer(self._kernel(), self.layer_name, self._place())

    def __str__(self) -> str:
        return f"{self._place()}:{self.layer_name}"


@dataclass(frozen=True)
class _TakesFunction(_Source):
    _: KW_ONLY
    func_name: str

    def __post_init__(self) -> None:
        _require_name("func_name", self.func_name)
        super().__post_init__()

    def load(self) -> type[Any]:
        """Load the kernel and return its function as the class of a layer.

        Raises:
            LayerNotFoundError: the kernel has no function of that name.
            KernelError: as :func:`kernels.get_kernel`.
        """
        return find_function_layer(self._kernel(), self.func_name, self._place())

    def __str__(self) -> str:
        return f"{self._place()}:{self.func_name}"


@dataclass(frozen=True)
class LayerRepository(_TakesLayer, _HubSource):
    """A layer of a kernel on a hub.

    Attributes:
        repo_id: ``owner/name``.
        layer_name: the name in the kernel's ``layers``, or of a function of the kernel.
        revision, version, trust_remote_code, user_agent: as for :func:`kernels.get_kernel`;
            nothing is asked or loaded before the layer is.

    Raises:
        WrongTypeError: an argument of another type; also a TypeError.
        UsageError: ``repo_id`` is no id, or both a revision and a version; also a ValueError.
    """


@dataclass(frozen=True)
class LocalLayerRepository(_TakesLayer, _PathSource):
    """A layer of a kernel on disk: of a project, its ``build`` folder or one variant.

    Attributes:
        repo_path: where it is.
        layer_name: as for :class:`LayerRepository`.
        package_name: not needed; older callers give it.
    """


@dataclass(frozen=True)
class LockedLayerRepository(_TakesLayer, _LockSource):
    """A layer of a kernel on a hub, at the commit that a lock names.

    Attributes:
        repo_id: ``owner/name``.
        lockfile: the lock; by default that of the code that makes this value, which is looked for
            now, as :func:`kernels.get_locked_kernel` does.
        layer_name: as for :class:`LayerRepository`.
        trust_remote_code: as for :func:`kernels.get_locked_kernel`.

    Raises:
        NotLockedError: there is no lock, or it does not name the kernel; it is also a ValueError.
    """


@dataclass(frozen=True)
class FuncRepository(_TakesFunction, _HubSource):
    """A function of a kernel on a hub; newer code names it in a :class:`LayerRepository`."""


@dataclass(frozen=True)
class LocalFuncRepository(_TakesFunction, _PathSource):
    """A function of a kernel on disk; newer code names it in a :class:`LocalLayerRepository`."""


@dataclass(frozen=True)
class LockedFuncRepository(_TakesFunction, _LockSource):
    """A function of a locked kernel; newer code names it in a :class:`LockedLayerRepository`."""


def _require_name(argument: str, name: object) -> None:
    if not isinstance(name, str):
        raise WrongTypeError(argument, "the name of a layer or function in the kernel", name)


def find_layer(kernel: ModuleType, name: str, place: str) -> type[Any]:
    """Return the layer of a kernel: from its ``layers``, else one of its functions as a layer.

    Raises:
        LayerNotFoundError: there is neither; the message lists the layers there are.
    """
    from torch import nn

    layers = getattr(kernel, "layers", None)
    found = getattr(layers, name, None)
    if inspect.isclass(found) and issubclass(found, nn.Module):
        return found
    if found is None:
        found = getattr(kernel, name, None)
    if inspect.isfunction(found):
        return make_kernel_class(found)
    known = sorted(
        key
        for key, value in vars(layers or object).items()
        if inspect.isclass(value) and issubclass(value, nn.Module) and not key.startswith("_")
    )
    raise LayerNotFoundError(_not_there(place, "layer", name, known, found))


def find_function_layer(kernel: ModuleType, name: str, place: str) -> type[Any]:
    """Return a function of a kernel, by its dotted name, as the class of a layer.

    Raises:
        LayerNotFoundError: it is not there; the message lists the functions there are.
    """
    found: Any = kernel
    for part in name.split("."):
        found = getattr(found, part, None)
    if callable(found) and not inspect.isclass(found):
        return make_kernel_class(found)
    known = sorted(
        key
        for key, value in vars(kernel).items()
        if inspect.isfunction(value) and not key.startswith("_")
    )
    raise LayerNotFoundError(_not_there(place, "function", name, known, found))


def _not_there(place: str, what: str, name: str, known: list[str], found: object) -> str:
    reason = f"{place} has no {what} {name!r}"
    if found is not None:
        reason = f"{name!r} of {place} is no {what} but {type(found).__name__}"
    if close := difflib.get_close_matches(name, known, n=1):
        reason += f"; did you mean {close[0]!r}?"
    there = f"It has {', '.join(known)}." if known else f"It has no {what}s at all."
    return f"{reason}{'' if reason.endswith('?') else '.'} {there}"
