"""The check of a variant's ops: what its sources register, what torch has, and that it imports."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from kernel_builder.check.local_symbols import read_local_symbols
from kernel_builder.check.registered import check_calls, check_complete, check_sources
from kernel_builder.check.signatures import BOXED, Boxed, check_signatures, list_unread
from kernel_builder.check.stable_source import judge_schema
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.check.symbols import demangle
from kernel_builder.check.torch_abi import list_unproved
from kernel_builder.environment import Environment
from kernel_builder.errors import CheckError
from kernel_builder.import_check import ImportAnswer, check_import, describe_needed
from kernel_builder.per_torch import find_loadable
from kernel_builder.planned import VariantBuild
from kernel_builder.preprocess import read_registrations
from kernel_builder.registrations import Registrations
from kernel_builder.sandbox import OPEN, Sandbox
from kernel_builder.settings import Settings
from kernel_builder.toolchain.exports import read_exports
from kernel_builder.toolchain.recorder import make_recorder
from kernel_builder.toolchain.torch import TorchInstall, find_torch
from kernel_builder.toolchain.torch_cuda import make_stand_ins
from kernel_spec.binary import read_elf


def check_ops(
    made: Path,
    build: VariantBuild,
    environment: Environment | None,
    *,
    stage: Path,
    twin: Path | None = None,
    settings: Settings,
    sandbox: Sandbox = OPEN,
) -> tuple[str, ...]:
    """Import a variant, and compare the ops that it registers with its sources.

    Args:
        made: the directory of the variant.
        build: the variant.
        environment: what it was built with; None where it has no machine code.
        stage: the staged sources.
        twin: the library with the names of its functions, where the variant's is without them.
        settings: where results are kept, and the environment of programs.
        sandbox: what keeps the kernel's code from the network and the user's files.

    Returns:
        What stays unproved, a sentence each; where the library was not loaded, that.

    Raises:
        CheckError: with every op that is not whole, or not as the sources say.
        ImportCheckError: it cannot be imported.
    """
    if environment is None:
        return _describe_import(
            build, check_import(made, build, settings=settings, sandbox=sandbox)
        )
    sources = read_registrations(build, environment, stage=stage, settings=settings)
    if environment.toolchain.cpu != platform.machine():
        cpu = environment.toolchain.cpu
        return _check_unloaded(build, sources, f"built for {cpu} and not loaded here")
    torch = find_torch() if build.is_pinned else environment.torch
    if build.is_pinned and not _is_of(torch, build):
        found = "no torch" if torch is None else torch.build.version
        return _check_unloaded(
            build,
            sources,
            f"built for torch {build.release} with its pinned headers, has all its symbols there, and "
            f"was neither loaded nor imported, since {found} is installed here",
        )
    library = made / build.library
    with tempfile.TemporaryDirectory(prefix="stand-ins-") as scratch:
        stand_ins, unproved = _make_stand_ins(
            library, build, environment, torch, Path(scratch), settings=settings
        )
        cudart = [] if environment.cuda is None else [environment.cuda.cudart]
        answer = check_import(
            made,
            build,
            schemas=[call.schema for call in sources.calls if call.schema is not None],
            preload=[*cudart, *stand_ins],
            # It sees what is registered through torch's stable interface; torch compares the rest itself.
            recorder=make_recorder(
                environment.toolchain, variables=settings.variables, store=settings.cache / "stubs"
            ),
            per_torch=_find_part(made, build, environment),
            settings=settings,
            sandbox=sandbox,
        )
    unproved += _compare(library, twin, build, sources, answer)
    return (*unproved, *_describe_texts(build, sources), *_describe_import(build, answer))


def _find_part(made: Path, build: VariantBuild, environment: Environment) -> Path | None:
    torch = None if environment.torch is None else environment.torch.build
    part = find_loadable(build, torch)
    return None if part is None else made / part.library


def _compare(
    library: Path,
    twin: Path | None,
    build: VariantBuild,
    sources: Registrations,
    answer: ImportAnswer,
) -> tuple[str, ...]:
    """Compare what a library registers with its sources, and return what cannot be compared.

    Raises:
        CheckError: with every op that is not whole, or not as the sources say.
    """
    if answer.library is None:
        return ()
    boxed = _read_boxed(library, twin, answer)
    kinds = {unit.backend for unit in build.units if unit.component is not None}
    findings = [
        *check_sources(library.name, build.op_id, sources, answer.library),
        *check_signatures(library.name, boxed, answer.library.ops, answer.kinds, sources),
        *check_complete(
            library.name,
            answer.imported or answer.library,
            backend=build.backend.value.upper(),
            carried=sorted(kind.value.upper() for kind in kinds),
            sources=sources,
        ),
    ]
    if findings:
        raise CheckError(str(build.variant), tuple(findings))
    return _describe_unread(list_unread(boxed, answer.kinds))


def _describe_import(build: VariantBuild, answer: ImportAnswer) -> tuple[str, ...]:
    """Say what the import of a variant does not prove."""
    if build.skip_import_check is not None:
        return (f"not imported, since build.toml says so: {build.skip_import_check}",)
    if answer.lacking is not None:
        return (f"not imported, since {answer.lacking} is not installed here",)
    return describe_needed(build)


def _read_boxed(
    library: Path, twin: Path | None, answer: ImportAnswer
) -> tuple[tuple[Boxed, str], ...]:
    """Return the functions that ops were given, each with its readable name."""
    names = read_local_symbols(library, twin, (offset for _, _, offset in answer.boxed))
    found = []
    for key, name, offset in answer.boxed:
        symbol = next((text for text in names.get(offset, ()) if BOXED.fullmatch(text)), None)
        found.append((Boxed(key=key, name=name, symbol=symbol), demangle(symbol or "")))
    return tuple(found)


def _describe_unread(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return (
        f"{', '.join(names)}: the C++ function could not be compared with the schema (no TORCH_BOX, "
        "or types that torch's stable interface does not convert); kernel-builder check --gate calls it",
    )


def _describe_texts(build: VariantBuild, sources: Registrations) -> tuple[str, ...]:
    """Warn of ops that take texts through torch's stable interface."""
    if build.stable_abi is None:
        return ()
    return tuple(
        str(finding)
        for call in sources.calls
        if call.schema is not None
        for finding in judge_schema(call.schema, call.source)
    )


def _check_unloaded(build: VariantBuild, sources: Registrations, why: str) -> tuple[str, ...]:
    """Check what can be checked of a variant for another processor or torch than there is here."""
    findings = tuple(check_calls(build.op_id, sources))
    if findings:
        raise CheckError(str(build.variant), findings)
    return (*_describe_texts(build, sources), f"{why}: what its ops register is not proved")


def _is_of(torch: TorchInstall | None, build: VariantBuild) -> bool:
    """Say whether a torch is of the release that a variant is for."""
    return torch is not None and not torch.build.prerelease and torch.build.release == build.release


def _make_stand_ins(
    library: Path,
    build: VariantBuild,
    environment: Environment,
    torch: TorchInstall | None,
    scratch: Path,
    *,
    settings: Settings,
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Make what a library for torch's full interface asks for and this torch does not have.

    Returns:
        The libraries to load first, and what stays unproved with them.
    """
    if torch is None or environment.cuda_headers is None:
        return (), ()
    if (torch.root / "lib" / "libc10_cuda.so").is_file():
        return (), ()
    subject = SharedLibrary(file=library.name, facts=read_elf(library))
    exports = read_exports(torch, settings.cache / "exports")
    names = list_unproved(subject, exports, build.backend)
    toolchain = environment.toolchain
    made = make_stand_ins(
        names,
        scratch,
        cpu=toolchain.cpu,
        compiler=toolchain.command,
        variables=settings.variables,
    )
    shown = ", ".join(sorted(demangle(name).partition("(")[0] for name in names))
    said = (
        f"loaded with stand-ins for libc10_cuda.so and libtorch_cuda.so, which the torch here is "
        f"without; that they define these {len(names)} is declared by torch's headers and not "
        f"proved: {shown}"
    )
    return made, (said,)
