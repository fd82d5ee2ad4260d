"""Judges a variant before anything of it runs: by its metadata, and by its libraries where they are on disk."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernel_spec.backend import BackendKind
from kernel_spec.compat import Accepted, Decision, Reason, Rejected, decide, fits_device
from kernel_spec.document import UNREADABLE
from kernel_spec.errors import MetadataError, UsageError
from kernel_spec.metadata import Metadata, is_from_the_future
from kernel_spec.system import System
from kernels import log
from kernels._version import __version__
from kernels.errors import ClientTooOldError, DeviceError, NoVariantError
from kernels.linkage.verdict import Verdict, holds_libraries
from kernels.system import describe, detect, detect_devices

if TYPE_CHECKING:
    from kernels.variant_dir import VariantDir

_BACKEND_WORDS = {"npu": BackendKind.CANN, **{kind.value: kind for kind in BackendKind}}


NOT_CACHED = Reason("not-cached", "fits, but is not in the cache")


class _Unfit(NamedTuple):
    needed: tuple[int, int, int] | None
    reason: Reason


def parse_backend_word(word: str) -> BackendKind:
    """Read the ``backend=`` of a call.

    Raises:
        UsageError: no backend has that name.
    """
    try:
        return _BACKEND_WORDS[word]
    except (KeyError, TypeError):
        raise UsageError(
            f"backend: expected one of {', '.join(sorted(_BACKEND_WORDS))}, found {word!r}."
        ) from None


class Judge:
    """Takes the fitting variants one by one and keeps why each was passed over."""

    def __init__(
        self, what: str, system: System, names: list[str], backend: BackendKind | None
    ) -> None:
        self.what = what
        self.system = system
        self.decisions: tuple[Decision, ...] = decide(system, names, backend=backend)
        self._unfit: dict[str, _Unfit] = {}

    @property
    def fitting(self) -> tuple[Accepted, ...]:
        """The variants that fit by name, best first."""
        return tuple(d for d in self.decisions if isinstance(d, Accepted))

    def accepts(
        self,
        accepted: Accepted,
        metadata: Metadata,
        *,
        check_arch: bool = True,
        on_disk: VariantDir | None = None,
        state: Path | None = None,
    ) -> bool:
        """Say whether a variant also fits by its metadata and, where it is on disk, by its libraries.

        Looks at the devices if it must. Verdicts on libraries are kept in ``state``, the user's
        state directory, where the cache that the variant is in cannot be written.
        """
        reason = judge_client(metadata)
        archs: tuple[str, ...] = ()
        if reason is None and on_disk is not None:
            reason, archs = judge_libraries(on_disk, self.system, state)
        if reason is None and check_arch and (metadata.archs or archs):
            self.system = detect_devices(self.system) if not self.system.devices else self.system
            reason = judge_devices(metadata, self.system, archs)
        if reason is not None:
            self._unfit[accepted.name] = _Unfit(metadata.minver, reason)
        return reason is None

    def reject(self, accepted: Accepted, reason: Reason) -> None:
        """Keep why a variant whose metadata cannot be used was passed over."""
        self.decisions = tuple(
            Rejected(d.name, d.variant, (reason,)) if d.name == accepted.name else d
            for d in self.decisions
        )

    def reject_or_raise(self, accepted: Accepted, data: bytes, err: MetadataError) -> None:
        """Pass over a variant whose metadata is of a later time; raise where it is just wrong.

        Raises:
            MetadataError: ``err``, in any other case but a backend that does not exist yet.
        """
        needed = needed_client(data)
        if needed is not None and needed > client_version():
            self._unfit[accepted.name] = _Unfit(needed, _client_reason(needed))
            return
        if not is_from_the_future(err):
            raise err
        log.logger().warning("%s: %s is passed over: %s", self.what, accepted.name, err)
        self.reject(accepted, Reason("metadata", "is for a backend that this client does not know"))

    def error(self, hint: str = "") -> NoVariantError | ClientTooOldError | DeviceError:
        """Return the error that says why none was taken."""
        unfit = self._unfit
        kinds = {entry.reason.kind for entry in unfit.values()}
        if len(unfit) < len(self.fitting) or not kinds or not kinds <= {"client", "arch"}:
            return NoVariantError(self.what, describe(self.system), self.verdicts, hint=hint)
        name, first = next(iter(unfit.items()))
        if kinds == {"client"}:
            return ClientTooOldError(f"{self.what} ({name})", _dotted(first.needed), __version__)
        lines = [
            f"{self.what} has no code for the devices of this system ({describe(self.system)}).",
            *(f"  {known}: {entry.reason}" for known, entry in unfit.items()),
            "Hide the device that is not meant (CUDA_VISIBLE_DEVICES), ask for another version, or use "
            "backend='cpu'.",
        ]
        return DeviceError(name, "\n".join(lines))

    @property
    def lacks_cached(self) -> bool:
        """Whether a variant fits by its name and was passed over for not being in the cache."""
        rejected = (d for d in self.decisions if isinstance(d, Rejected))
        return any(reason.kind == NOT_CACHED.kind for d in rejected for reason in d.reasons)

    @property
    def verdicts(self) -> tuple[Decision, ...]:
        """The decisions by name, with what was found since in metadata and libraries."""
        unfit = self._unfit
        return tuple(
            Rejected(d.name, d.variant, (unfit[d.name].reason,)) if d.name in unfit else d
            for d in self.decisions
        )


def judge_client(metadata: Metadata) -> Reason | None:
    """Return why this client is too old for a variant, or None."""
    if metadata.minver is None or metadata.minver <= client_version():
        return None
    return _client_reason(metadata.minver)


def _client_reason(needed: tuple[int, int, int]) -> Reason:
    return Reason("client", f"needs kernels {_dotted(needed)} or later, this is {__version__}")


def find_unfit(variant: VariantDir, state: Path, *, check_arch: bool) -> Reason | None:
    """Return why the libraries of a verified variant would not link, or not run, here; or None."""
    system = detect()
    reason, archs = judge_libraries(variant, system, state)
    if reason is None and check_arch and archs:
        return judge_devices(variant.metadata, detect_devices(system), archs)
    return reason


def judge_libraries(
    variant: VariantDir, system: System, state: Path | None
) -> tuple[Reason | None, tuple[str, ...]]:
    """Return why the libraries of a verified variant would not link, and what they hold code for.

    Most variants have none, and cost nothing.
    """
    verdict = read_verdict(variant, system, state)
    if not verdict.reasons:
        return None, verdict.archs
    texts = "; ".join(map(str, verdict.reasons))
    return Reason(verdict.reasons[0].kind, texts), verdict.archs


def read_verdict(variant: VariantDir, system: System, state: Path | None = None) -> Verdict:
    """Return what the libraries of a verified variant say; each is read once per machine.

    Args:
        variant: the variant.
        system: this machine.
        state: the user's state directory, for verdicts on a cache that cannot be written.
    """
    if not holds_libraries(variant.sha256):
        return Verdict()
    from kernels.linkage.verdicts import judge_variant

    installed = variant.path.parent.name == variant.digest
    keep_in = [variant.path.parent] if installed else []
    if installed and state is not None:
        keep_in.append(state / "links" / variant.digest[:16])
    return judge_variant(
        variant.path, tuple(variant.sha256), variant.digest, system, keep_in=keep_in
    )


def judge_devices(metadata: Metadata, system: System, found: Sequence[str] = ()) -> Reason | None:
    """Return which visible device a variant has no code for, or None.

    Args:
        metadata: what the variant says of itself.
        system: this machine, with its devices.
        found: what its libraries were seen to hold code for, which counts more than what it says.
    """
    archs = tuple(found) or metadata.archs
    unfit = [
        f"{device.name or 'device'} {device.index} ({device.arch})"
        for device in system.devices
        if fits_device(metadata.backend, archs, device.arch) is False
    ]
    if not unfit:
        return None
    holds = "its libraries hold code" if found else "built"
    return Reason("arch", f"{holds} for {', '.join(archs)}, not for {', '.join(unfit)}")


def needed_client(data: bytes) -> tuple[int, int, int] | None:
    """Return the client that a metadata document asks for, even where the rest cannot be read."""
    try:
        text = json.loads(data)["kernels-minver"]
        major, minor, patch = map(int, text.split("."))
    except UNREADABLE:
        return None
    return major, minor, patch


def client_version() -> tuple[int, int, int]:
    """Return the three numbers of this client's version."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", __version__)
    assert match is not None
    return int(match[1]), int(match[2]), int(match[3])


def _dotted(version: tuple[int, int, int] | None) -> str:
    return ".".join(map(str, version or ()))
