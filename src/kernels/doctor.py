"""Finds why a kernel does, or does not, load here: every check of a load in its order, and nothing of it run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kernel_spec.backend import BackendKind
from kernel_spec.compat import Accepted, Decision, Reason
from kernel_spec.errors import KernelError
from kernel_spec.system import System
from kernels.choose import find_candidate, find_other_version, obtain
from kernels.doctor_advice import Advice, advise, find_chosen
from kernels.errors import ForbiddenError, TrustError
from kernels.fit import Judge, read_verdict
from kernels.linkage.names import describe_symbol
from kernels.linkage.per_torch import find_for_torch, find_per_torch
from kernels.linkage.verdict import Verdict
from kernels.local import find_fitting, variants_at
from kernels.request import Request, walk
from kernels.resolve import resolve
from kernels.revision import KernelRef
from kernels.settings import Settings
from kernels.source import Located, locate
from kernels.system import describe, detect, detect_devices
from kernels.trees import variants_of
from kernels.variant_dir import VariantDir


class PerTorch(NamedTuple):
    """What the chosen variant has for one release of torch alone, beside what serves all of them.

    Attributes:
        releases: the releases of torch that it has a library for, such as ``2.11``; at least one.
        library: the path of the one for the torch here, or None.
        faults: why that one cannot be loaded here; empty where nothing speaks against it.
    """

    releases: tuple[str, ...]
    library: str | None
    faults: tuple[Reason, ...]


class Diagnosis(NamedTuple):
    """What a load of a kernel would come to.

    Attributes:
        what: the kernel.
        where: the hub and the commit, or the path.
        system: this machine in one line.
        decisions: every variant, and why it is taken or not; those behind the chosen one were
            judged by their names alone.
        advice: why it would not load and what to do; None where it loads.
        archs: what the CUDA code in the chosen variant is for (``9.0a``, ``8.0+PTX``), as read from it.
        shared: the variables that its libraries share with others of a process (GNU-unique symbols).
        commit: the commit that was judged; empty for a path.
        per_torch: its per-torch libraries, or None where it has none, as most.
    """

    what: str
    where: str
    system: str
    decisions: tuple[Decision, ...]
    advice: Advice | None
    archs: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    commit: str = ""
    per_torch: PerTorch | None = None

    @property
    def chosen(self) -> str | None:
        """The variant that a load takes, or None."""
        found = find_chosen(self.decisions)
        return None if found is None else found.name


def diagnose(ref: KernelRef, settings: Settings, backend: BackendKind | None = None) -> Diagnosis:
    """Do all of a load of a kernel but the import.

    The variants that fit by their names are brought into the cache, best first, until one would link
    and has code for every visible device.

    Raises:
        As ``source.locate``: a hub that cannot be asked, no such kernel or version.
    """
    if (override := settings.overrides.get(str(ref.repo))) is not None:
        return diagnose_path(override, backend, str(ref))
    if settings.never:
        raise ForbiddenError(str(ref.repo))
    located = locate(ref, settings)
    variants = variants_of(located.files)
    where = f"{located.hub.url}, {located.taken}, commit {located.commit[:12]}"
    system, trouble = _see_devices(detect())
    judge = Judge(str(ref), system, list(variants), backend)
    if trouble is not None:
        return Diagnosis(str(ref), where, describe(system), judge.decisions, trouble)
    loadable = (_find_loadable(judge, accepted, located, settings) for accepted in judge.fitting)
    variant = next(filter(None, loadable), None)
    found = read_verdict(variant, judge.system, settings.state) if variant else Verdict()
    advice = _advise(ref, located, judge, settings, backend)
    return Diagnosis(
        what=str(ref),
        where=where,
        system=describe(judge.system),
        decisions=judge.verdicts,
        advice=advice,
        archs=found.archs,
        shared=_names_of(found),
        commit=located.commit,
        per_torch=_find_per_torch(variant, found, judge.system),
    )


def diagnose_path(path: Path, backend: BackendKind | None, what: str) -> Diagnosis:
    """Do all of a load of a path but the import.

    Raises:
        NotAKernelError: there is no kernel at the path.
    """
    places = variants_at(path)
    system, trouble = _see_devices(detect())
    judge = Judge(what, system, list(places), backend)
    if trouble is not None:
        return Diagnosis(what, str(path), describe(system), judge.decisions, trouble)
    variant = find_fitting(judge, places)
    found = read_verdict(variant, judge.system) if variant else Verdict()
    decisions = judge.verdicts
    advice = None if find_chosen(decisions) else advise(what, decisions, judge.system)
    return Diagnosis(
        what=what,
        where=str(path),
        system=describe(judge.system),
        decisions=decisions,
        advice=advice,
        archs=found.archs,
        shared=_names_of(found),
        per_torch=_find_per_torch(variant, found, judge.system),
    )


def _find_per_torch(
    variant: VariantDir | None, verdict: Verdict, system: System
) -> PerTorch | None:
    libraries = find_per_torch(variant.sha256) if variant else {}
    if variant is None or not libraries:
        return None
    releases = tuple(map(str, sorted(set(libraries.values()))))
    return PerTorch(releases, find_for_torch(variant.sha256, system.torch), verdict.per_torch)


def _names_of(verdict: Verdict) -> tuple[str, ...]:
    return tuple(dict.fromkeys(describe_symbol(symbol.name) for symbol in verdict.shared))


def _see_devices(system: System) -> tuple[System, Advice | None]:
    """Return the system with its devices, or what keeps torch from telling them, as it will in a load."""
    try:
        return detect_devices(system), None
    except (ImportError, OSError, RuntimeError, AssertionError) as err:
        command = "python -c 'import torch; torch.cuda.init()'"
        return system, Advice("", f"torch cannot be used: {err}", command)


def _find_loadable(
    judge: Judge, accepted: Accepted, located: Located, settings: Settings
) -> VariantDir | None:
    """Judge a variant as a load does: its metadata first, its bytes where that speaks for it."""
    candidate = find_candidate(judge, accepted, located, settings)
    if candidate is None:
        return None
    variant = obtain(candidate, settings)
    fits = judge.accepts(accepted, variant.metadata, on_disk=variant, state=settings.state)
    return variant if fits else None


def _advise(
    ref: KernelRef,
    located: Located,
    judge: Judge,
    settings: Settings,
    backend: BackendKind | None,
) -> Advice | None:
    """Say what keeps a kernel from loading, the first thing that a load would trip over."""
    decisions = judge.verdicts
    if (chosen := find_chosen(decisions)) is not None:
        return _find_obstacle(ref, chosen.name, settings, backend)
    advice = advise(str(ref.repo), decisions, judge.system)
    other = find_other_version(located, settings, backend)
    if other is None:
        return advice
    version, variant = other
    return Advice(
        advice.variant,
        f"{advice.cause}; version {version} has one that fits ({variant})",
        f"get_kernel({str(ref.repo)!r}, version={version})",
    )


def _find_obstacle(
    ref: KernelRef, chosen: str, settings: Settings, backend: BackendKind | None
) -> Advice | None:
    """Return what keeps a fitting variant from being loaded: trust, a kernel or package that it needs."""
    from kernels.python_depends import distribution_of, find_missing
    from kernels.trust import read_trusted, require_trust

    digests = read_trusted(settings.config).digests
    request = Request(settings=settings, backend=backend)
    try:
        nodes = tuple(walk(resolve(ref, request)))
    except KernelError as err:
        return Advice(
            chosen, f"a kernel that it needs cannot be had: {err}", f"kernels info {ref.repo}"
        )
    for node in nodes:
        variant = node.on_disk
        trusted = variant is not None and variant.digest in digests
        if node.located is not None and not trusted:
            try:
                require_trust(node.located, settings, consent=False)
            except TrustError as err:
                return Advice(chosen, str(err), f"kernels trust add {node.ref.repo.owner}")
        if missing := find_missing(node.metadata):
            cause = f"{node.ref.repo} needs packages that are not installed: {', '.join(missing)}"
            return Advice(chosen, cause, f"pip install {' '.join(map(distribution_of, missing))}")
    return None
