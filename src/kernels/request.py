"""How kernels are looked for, and what is found: the values between the steps of a load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kernels.asked import (
    Trust,
    UserAgent,
    lock_in_force,
    parse_backend,
    parse_build,
    require_options,
)
from kernels.revision import KernelRef
from kernels.settings import Settings, read_settings
from kernels.source import Located

if TYPE_CHECKING:
    from kernel_spec.backend import BackendKind
    from kernel_spec.lock import LockedKernel
    from kernel_spec.metadata import Metadata
    from kernels.choose import Chosen
    from kernels.lockfile import LockFile
    from kernels.variant_dir import VariantDir


class Request(NamedTuple):
    """How kernels are looked for, the same for one and for those that it needs.

    Attributes:
        settings: what the environment says.
        backend: choose for this backend instead of the system's.
        check_arch: pass over variants without code for a visible device.
        refresh: ask the hub even where its last answer is fresh.
        user_agent: what the calling library adds to the header of that name.
        lock: the lock that says which commits are taken.
        download: whether what is not on this disk may be fetched.
        build: whether a variant that is missing is built from the repository's sources.
        consent: to run kernels of owners who are no trusted publishers: True, or their ids.
    """

    settings: Settings
    backend: BackendKind | None = None
    check_arch: bool = True
    refresh: bool = False
    user_agent: UserAgent = None
    lock: LockFile | None = None
    download: bool = True
    build: bool = False
    consent: Trust = False


def read_request(
    *,
    backend: str | None = None,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,
    check_arch: bool = True,
    refresh: bool = False,
    build_from_source: str | None = None,
) -> Request:
    """Read the settings, and the arguments that the public calls share (see ``get_kernel``).

    Raises:
        LockError, NotLockedError: ``KERNELS_LOCK`` names a lock that cannot be read.
        SettingsError: a variable that cannot be read.
        UsageError: an argument that cannot be meant.
    """
    settings = read_settings()
    require_options(
        trust_remote_code=trust_remote_code,
        user_agent=user_agent,
        check_arch=check_arch,
        refresh=refresh,
    )
    return Request(
        settings=settings,
        backend=parse_backend(backend),
        check_arch=check_arch,
        refresh=refresh,
        user_agent=user_agent,
        lock=lock_in_force(settings),
        build=parse_build(build_from_source),
        consent=trust_remote_code,
    )


class Found(NamedTuple):
    """A kernel that was found, and the kernels that it needs.

    Attributes:
        ref: what was asked for.
        metadata: what the chosen variant says of itself.
        source: the URL of the hub, the path, or the lock file that it came from.
        variant: the variant, where it is on this disk and verified.
        located: where it is on a hub; None for a path and for a locked variant in the cache.
        chosen: the variant on that hub.
        locked: the entry of the lock that it was taken from.
        dependencies: what its metadata names.
    """

    ref: KernelRef
    metadata: Metadata
    source: str
    variant: VariantDir | None = None
    located: Located | None = None
    chosen: Chosen | None = None
    locked: LockedKernel | None = None
    dependencies: tuple[Found, ...] = ()

    @property
    def on_disk(self) -> VariantDir | None:
        """The variant, where it is on this disk already."""
        return self.variant or (self.chosen.installed if self.chosen is not None else None)

    @property
    def commit(self) -> str | None:
        """The commit that it is of; None for a path."""
        if self.located is not None:
            return self.located.commit
        return None if self.locked is None else self.locked.commit


def found_on_hub(
    ref: KernelRef, located: Located, chosen: Chosen, *, locked: LockedKernel | None = None
) -> Found:
    """Return a kernel as a hub has it, without what it needs; ``locked`` is the entry that led there."""
    return Found(
        ref=ref,
        metadata=chosen.metadata,
        source=located.hub.url,
        variant=chosen.installed,
        located=located,
        chosen=chosen,
        locked=locked,
    )


def walk(found: Found) -> Iterator[Found]:
    """Yield a kernel and what it needs, each once, what is needed before what needs it."""
    seen: set[int] = set()

    def visit(node: Found) -> Iterator[Found]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for dependency in node.dependencies:
            yield from visit(dependency)
        yield node

    return visit(found)
