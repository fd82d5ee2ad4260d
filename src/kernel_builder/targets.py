"""What a CUDA toolkit makes of a project: which of its components, and for which capabilities. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernel_builder.archs import (
    Capability,
    Dropped,
    DroppedArch,
    intersect_capabilities,
    parse_capability,
    sort_capabilities,
)
from kernel_builder.config.check import check_capability
from kernel_builder.config.general import version_key
from kernel_builder.config.model import Build, Component
from kernel_builder.errors import ArchError
from kernel_builder.known import read_known
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.version import MajorMinor


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaChoice:
    """What of a project a CUDA toolkit compiles.

    Attributes:
        components: the components, those for CUDA with the capabilities that are compiled.
        notes: what of the project is not compiled, and why.
    """

    components: tuple[Component, ...]
    notes: tuple[str, ...]


def choose_cuda(
    build: Build,
    components: tuple[Component, ...],
    toolkit: MajorMinor,
    *,
    asked: tuple[str, ...] = (),
) -> CudaChoice | str:
    """Decide what a toolkit compiles, or say why it compiles nothing of the project.

    Args:
        build: the project.
        components: those of the variant.
        toolkit: the version of the toolkit.
        asked: the only capabilities that are wanted; none: all that the project is for.

    Raises:
        ArchError: a component has no capability that the toolkit compiles, or what is asked for is
            none.
    """
    target = Backend(BackendKind.CUDA, toolkit)
    refusal = _refuse(build, toolkit)
    if refusal is not None:
        return refusal
    check_asked(asked, toolkit)
    chosen: list[Component] = []
    notes: list[str] = []
    for component in components:
        if component.backend is not BackendKind.CUDA:
            chosen.append(component)
            continue
        low = component.cuda_minver
        if low is not None and toolkit < MajorMinor(*version_key(low)):
            notes.append(
                f"[kernel.{component.name}] is left out: its cuda-minver is {low}, and this is {target}"
            )
            continue
        made, said = _choose_archs(component, target, asked)
        chosen.append(made)
        notes += said
    if not any(each.backend is BackendKind.CUDA for each in chosen):
        lowest = min((each.cuda_minver for each in components if each.cuda_minver), key=version_key)
        return f"needs CUDA {lowest} or newer (cuda-minver of every component), found {toolkit}"
    return CudaChoice(components=tuple(chosen), notes=tuple(notes))


def check_asked(asked: Iterable[str], toolkit: MajorMinor) -> None:
    """Refuse capabilities that a toolkit cannot compile for.

    Raises:
        ArchError: naming each.
    """
    able = read_known().list_supported_archs(toolkit)
    bases = {each.base for each in map(parse_capability, able) if each is not None}
    faults = []
    for text in asked:
        found = parse_capability(text)
        if found is None:
            objection = check_capability(text)
            meant = objection.suggestion if objection is not None else None
            faults.append(
                f'--arch: "{text}" is no capability; '
                + (f"did you mean {meant}?" if meant else "write it like 9.0, 9.0a or 8.0+PTX")
            )
        elif found.base not in bases or not _has_kind(found, toolkit):
            special = " and ".join(
                f"{suffix} from {low} on" for suffix, low in _list_kinds(toolkit).items()
            )
            faults.append(
                f"--arch: CUDA {toolkit} does not compile for {text}; expected some of "
                f"{' '.join(able)}" + (f", with {special}" if found.suffix else "")
            )
    if faults:
        raise ArchError("\n".join(faults))


def _list_kinds(toolkit: MajorMinor) -> dict[str, MajorMinor]:
    """Return the suffixes that a toolkit knows, each with the lowest capability that has it."""
    known = read_known().cuda_suffixes
    return {suffix: lowest for suffix, (lowest, since) in known.items() if since <= toolkit}


def _has_kind(capability: Capability, toolkit: MajorMinor) -> bool:
    """Say whether a toolkit has code of a capability's kind."""
    lowest = _list_kinds(toolkit).get(capability.suffix)
    if lowest is None:
        return not capability.suffix
    return capability.base >= (lowest.major, lowest.minor)


def _refuse(build: Build, toolkit: MajorMinor) -> str | None:
    """Say why a project is not for a toolkit at all, or None."""
    low, high = build.general.cuda.minver, build.general.cuda.maxver
    if low is not None and toolkit < MajorMinor(*version_key(low)):
        return f"needs CUDA {low} or newer (cuda.minver), found {toolkit}; name one with --cuda"
    if high is not None and toolkit > MajorMinor(*version_key(high)):
        return (
            f"needs CUDA {high} or older (cuda.maxver), found {toolkit}; name one with --cuda-home"
        )
    return None


def _choose_archs(
    component: Component, target: Backend, asked: tuple[str, ...]
) -> tuple[Component, list[str]]:
    """Give a component the capabilities that are compiled, and say which are not.

    What is asked for takes the place of the toolkit's list. A component that names capabilities,
    none of which serves what is asked for, keeps its own: without its code the library has holes.
    """
    assert target.version is not None
    name = f"[kernel.{component.name}]"
    known = read_known().list_cuda_archs(target.version)
    if not component.archs:
        return replace(component, archs=_sorted(asked) or known), []
    kinds = {
        text: capability is None or _has_kind(capability, target.version)
        for text, capability in ((each, parse_capability(each)) for each in component.archs)
    }
    able = intersect_capabilities((text for text, has in kinds.items() if has), known)
    unable = (DroppedArch(text, Dropped.NO_SUCH_KIND) for text, has in kinds.items() if not has)
    found = replace(able, dropped=(*able.dropped, *unable))
    if not found.archs:
        lines = "".join(f"\n  {each}" for each in found.dropped)
        raise ArchError(
            f"{name}: {target} compiles none of its cuda-capabilities; expected "
            f"some of {' '.join(known)}{lines}"
        )
    notes = [f"{name}: {each}" for each in found.dropped]
    if not asked:
        return replace(component, archs=found.archs), notes
    wanted = intersect_capabilities(found.archs, asked)
    if wanted.archs:
        return replace(component, archs=wanted.archs), notes
    notes.append(
        f"{name}: none of its cuda-capabilities serves {' '.join(asked)}, so all of them are compiled"
    )
    return replace(component, archs=found.archs), notes


def _sorted(asked: tuple[str, ...]) -> tuple[str, ...]:
    found = (parse_capability(text) for text in asked)
    return tuple(str(each) for each in sort_capabilities(each for each in found if each))
