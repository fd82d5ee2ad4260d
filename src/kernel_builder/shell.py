"""The story of a shell: project → variant → torch → environment → variables → the user's command."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from kernel_builder.config.model import Build, TvmFfiFramework
from kernel_builder.config.read import read_build
from kernel_builder.depends import fetch_dependency, find_origins
from kernel_builder.errors import SelectionError, ToolchainError
from kernel_builder.job import OUTPUT, work_directory
from kernel_builder.known import name_distributions, read_known
from kernel_builder.pipeline import build_project
from kernel_builder.plan import components_of
from kernel_builder.planned import Selection, SkippedBackend, VariantBuild
from kernel_builder.settings import Settings
from kernel_builder.shell_choice import (
    choose_toolkit,
    choose_torch,
    choose_variant,
    find_pinned_release,
    foresee_torch,
)
from kernel_builder.toolchain.cuda import get_cuda
from kernel_builder.toolchain.torch import find_torch, read_torch
from kernel_builder.toolchain.tvm_ffi import pinned_interface
from kernel_builder.venvs import Venv, make_overlay, make_venv
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.errors import VariantNameError
from kernel_spec.framework import TvmFfi, format_requirement
from kernel_spec.variant import ArchVariant, Variant, parse_variant

# What a build by CMake and pip needs besides torch, and what tests need.
TOOLS = ("cmake>=3.26", "ninja>=1.11", "pytest>=8", "setuptools>=77")
# What the loader needs; the loader itself is linked, so that it is this one.
LOADER_NEEDS = (
    "huggingface_hub>=1.10,<3",
    "packaging>=24",
    "filelock>=3.30",
    "click>=8.1.7",
    "pyelftools>=0.31",
)
_LOADER = ("kernels", "kernel_spec")
_FOR_CUDA = re.compile(r"""^cuda\b[^=]*=\s*['"]""", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shell:
    """A command that is ready to run.

    Attributes:
        command: the program and its arguments.
        variables: its whole environment.
        directory: where it runs.
    """

    command: tuple[str, ...]
    variables: Mapping[str, str]
    directory: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ShellRequest:
    """What is asked for.

    Attributes:
        project: the directory of the project.
        variant: the variant that it is for, or None.
        torch: the version of torch, or None for that which fits.
        extras: requirements besides, as pip reads them.
        command: what to run; empty: the user's shell.
        tests: whether the variant is built and can be loaded and imported.
    """

    project: Path
    variant: str | None = None
    torch: str | None = None
    extras: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    tests: bool = False


def prepare_shell(
    request: ShellRequest,
    settings: Settings,
    *,
    session: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> Shell:
    """Make the environment of a shell, build what it is to test, and compose the command.

    Args:
        request: what is asked for.
        settings: the caches, and how pip reaches packages.
        session: the variables of the user's session.
        say: called with one line where something takes long.

    Raises:
        SelectionError: the project has no such variant, or no torch of that version fits it.
        ToolchainError: the environment cannot be made, or the variant cannot be built.
        ConfigError, ProjectError: the project cannot be read.
    """
    project = request.project.resolve()
    build = read_build(project)
    variant = _read_variant(request.variant) if request.variant is not None else None
    target = variant.backend if isinstance(variant, ArchVariant) else None
    settings = choose_toolkit(target, settings)
    stated = None if variant is None else variant.kind
    # What cannot be is found out before a gigabyte is fetched.
    if stated is not None:
        _refuse_uncompiled(build, stated)
        _find_cuda(build, stated, target, settings)
    choose_for = partial(choose_variant, project, build, settings, name=request.variant)
    installed = find_torch()
    torch = choose_torch(variant, request.torch, None if installed is None else installed.build)
    if request.tests and (stated is not None or request.torch is not None):
        kinds = build.general.backends if stated is None else (stated,)
        choose_for(backends=kinds, torch=foresee_torch(torch))
    base = make_venv(
        [torch, *TOOLS, *LOADER_NEEDS, *_distributions(build), *_for_tests(request, build)],
        links=_find_loader(),
        store=settings.cache / "shells",
        variables=settings.for_pip,
        on_begin=say,
    )
    # What one project installs in its shell is not there for another.
    venv = make_overlay(base, str(project), variables=settings.variables)
    own = _backend_of(base)
    backend = stated or own
    variables = compose_variables(
        session,
        venv=venv,
        cuda=_find_cuda(build, backend, target, settings),
        cxx=settings.cxx,
    )
    variables |= _find_headers(build, backend, settings)
    if request.tests:
        there = read_torch(base.site_packages / "torch").build
        made = choose_for(backends=(backend, BackendKind.CPU), torch=there)
        say(f"building {made.variant}")
        _build(project, made, settings)
        unjudged = made.backend is BackendKind.CPU and own is not BackendKind.CPU
        if unjudged:
            say(
                f"{made.variant} is for the CPU, and this torch for {own.value}: get_kernel loads it here as it "
                'is; elsewhere, users of such a torch have to say backend="cpu"'
            )
        variables |= _test_variables(project, build, made, settings, session, judged=not unjudged)
    command = request.command or (session.get("SHELL", "/bin/sh"),)
    return Shell(command=command, variables=variables, directory=project)


def _refuse_uncompiled(build: Build, backend: BackendKind) -> None:
    """Refuse a shell for a backend whose compiler this builder does not start.

    Raises:
        SelectionError: saying what it would need.
    """
    reason = read_known().uncompiled.get(backend)
    if reason is not None and any(
        each.backend is backend for each in components_of(build, backend)
    ):
        raise SelectionError(f"--variant: {SkippedBackend(backend=backend, reason=reason)}")


def _read_variant(text: str) -> Variant:
    try:
        return parse_variant(text)
    except VariantNameError as err:
        raise SelectionError(f"--variant: {err}") from err


def compose_variables(
    session: Mapping[str, str], *, venv: Venv, cuda: Path | None, cxx: str | None
) -> dict[str, str]:
    """Return the variables of a shell: those of the session, with the environment's programs first.

    Args:
        session: the variables of the user's session, without those of another Python.
        venv: the environment.
        cuda: the directory of the CUDA toolkit, or None.
        cxx: the C++ compiler that the user names, or None.
    """
    tools = [venv.scripts, *([cuda / "bin"] if cuda is not None else [])]
    path = os.pathsep.join([*map(str, tools), session.get("PATH", os.defpath)])
    variables = {**session, "PATH": path, "VIRTUAL_ENV": str(venv.root), "PYTHONNOUSERSITE": "1"}
    if cuda is not None:
        variables |= {"CUDA_HOME": str(cuda)}
    if cxx is not None:
        variables |= {"CXX": cxx}
    return variables


def _distributions(build: Build) -> tuple[str, ...]:
    """Return the Python packages that the project needs, as pip calls them."""
    found = name_distributions(build.general.depends.python)
    if isinstance(build.framework, TvmFfiFramework):
        found += (format_requirement(TvmFfi(pinned_interface())),)
    return found


def _for_tests(request: ShellRequest, build: Build) -> tuple[str, ...]:
    """Return what is installed besides: what the user asks for, and what the tests need."""
    return (*(build.testing.python_depends if request.tests else ()), *request.extras)


def _find_loader() -> tuple[Path, ...]:
    """Return the directories of the loader's packages."""
    places = []
    for name in _LOADER:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ToolchainError(f"{name} cannot be imported; install this project again")
        places.append(Path(found.origin).parent)
    return tuple(places)


def _backend_of(venv: Venv) -> BackendKind:
    """Return what the torch of an environment is for."""
    facts = venv.site_packages / "torch" / "version.py"
    for_cuda = facts.is_file() and _FOR_CUDA.search(facts.read_text()) is not None
    return BackendKind.CUDA if for_cuda else BackendKind.CPU


def _find_cuda(
    build: Build, backend: BackendKind, target: Backend | None, settings: Settings
) -> Path | None:
    """Return the CUDA toolkit of a shell for CUDA; it is fetched where it is not there."""
    own = components_of(build, BackendKind.CUDA)
    compiled = any(each.backend is BackendKind.CUDA for each in own)
    if backend is not BackendKind.CUDA or not compiled:
        return None
    return get_cuda(settings, None if target is None else target.version).root


def _find_headers(build: Build, backend: BackendKind, settings: Settings) -> dict[str, str]:
    """Return what tells CMake where the headers of native dependencies are; they are fetched."""
    names = {name for each in components_of(build, backend) for name in each.depends}
    found = [
        fetch_dependency(origin, settings)
        for origin in find_origins(names, build.sources, settings)
    ]
    return {
        f"KERNEL_INCLUDE_{each.origin.name}": os.pathsep.join(map(str, each.include_dirs))
        for each in found
    }


def _build(project: Path, variant: VariantBuild, settings: Settings) -> None:
    """Build a variant, unless it is up to date.

    Raises:
        KernelError: it cannot be built.
    """
    selection = Selection(variants=frozenset({str(variant.variant)}))
    release = find_pinned_release(variant)
    if release is not None:
        settings = replace(settings, torch_versions=(release,))
    for each in build_project(project, selection=selection, settings=settings).variants:
        if each.error is not None:
            raise each.error


def _test_variables(
    project: Path,
    build: Build,
    made: VariantBuild,
    settings: Settings,
    session: Mapping[str, str],
    *,
    judged: bool,
) -> dict[str, str]:
    """Return what lets ``get_kernel`` and ``import`` find the variant.

    Unless it is ``judged``, it is found under a name that is no variant's, which the loader takes as it is.
    """
    directory = project / OUTPUT / str(made.variant)
    top = work_directory(project, settings) / "importable" / str(made.variant)
    top.mkdir(parents=True, exist_ok=True)
    link = top / f".{made.module}.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(directory)
    link.replace(top / made.module)
    # Bytecode would be no part of the variant and would be taken for one.
    variables = {"PYTHONPATH": str(top), "PYTHONDONTWRITEBYTECODE": "1"}
    if build.general.repo_id is not None:
        entry = f"{build.general.repo_id}={directory if judged else top / made.module}"
        others = session.get("LOCAL_KERNELS")
        variables["LOCAL_KERNELS"] = f"{entry}{os.pathsep}{others}" if others else entry
    return variables


def run_shell(shell: Shell) -> NoReturn:
    """Become the command: its exit code is that of this process. Does not return.

    Raises:
        SelectionError: there is no such program.
    """
    os.chdir(shell.directory)
    try:
        os.execvpe(shell.command[0], list(shell.command), dict(shell.variables))
    except OSError as err:
        raise SelectionError(f"{shell.command[0]}: cannot be started: {err.strerror}") from err
