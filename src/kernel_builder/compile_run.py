"""One compilation of a variant: what it works with, running Ninja for it in the sandbox, and what compilers read."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.diagnose import CompileFailure, Toolkit, find_hint
from kernel_builder.environment import Environment
from kernel_builder.errors import BuilderError, CommandError, CompileError, ToolchainError
from kernel_builder.inputs import find_foreign, read_system_headers
from kernel_builder.job import Job
from kernel_builder.objects import ObjectCache, parse_depfile
from kernel_builder.parallelism import (
    PEAK_FULL,
    PEAK_NVCC_FULL,
    PEAK_NVCC_STABLE,
    PEAK_STABLE,
    choose_jobs,
)
from kernel_builder.planned import VariantBuild
from kernel_builder.process import Finished
from kernel_builder.recipe import Unit, compose_links
from kernel_builder.sandbox import Sandbox, View, find_installation, run_confined
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cuda import CudaToolchain

_STATUS = re.compile(r"\[(\d+)\] (.*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One compilation of a variant.

    Attributes:
        job: the variant.
        build: the library: that of the variant, or one of its per-torch libraries.
        environment: what it is built with.
        work: the directory of this compilation alone.
        stage: the copies of the sources in it, where compilers run.
        sandbox: what keeps them from all that is no input.
        cache: the objects of earlier compilations.
        ninja: the program that starts compilers.
    """

    job: Job
    build: VariantBuild
    environment: Environment
    work: Path
    stage: Path
    sandbox: Sandbox
    cache: ObjectCache
    ninja: Path


def run_ninja(run: Run, recipe: str, units: list[Unit], *, done: int, total: int) -> Finished:
    """Run what a recipe says.

    Args:
        run: the compilation.
        recipe: what to do.
        units: the files that it compiles.
        done, total: how many steps of the compilation were done before, and are to be done in all.
    """
    (run.work / "build.ninja").write_text(recipe, encoding="utf-8")
    jobs = run.job.jobs or choose_jobs(_peak(run.build, units))
    return run_confined(
        [run.ninja, "-f", "../build.ninja", "-j", str(jobs), "-k", "0"],
        sandbox=run.sandbox,
        view=_view(run),
        cwd=run.stage,
        variables={**run.job.settings.variables, "NINJA_STATUS": "[%f] "},
        on_line=_status_reader(run, done, total),
        check=False,
    )


def describe_links(run: Run, objects: list[str]) -> dict[Path, tuple[str, ...]]:
    """Return the command that makes each library of a compilation out of objects."""
    return compose_links(run.build, run.environment, objects, run.work / "out")


def _peak(build: VariantBuild, units: list[Unit]) -> int:
    """Return the memory that one compiler of these files may need, in bytes."""
    full = build.stable_abi is None and build.tvm_ffi is None
    if any(unit.rule == "nvcc" for unit in units):
        return PEAK_NVCC_FULL if full else PEAK_NVCC_STABLE
    return PEAK_FULL if full else PEAK_STABLE


def _status_reader(run: Run, done: int, total: int) -> Callable[[str], None]:
    """Return what reads the lines of Ninja and tells each step."""
    torch = f" for torch {run.build.release}" if run.build.is_pinned else ""

    def read_status(line: str) -> None:
        match = _STATUS.fullmatch(line)
        if match is not None:
            run.job.tell_step(done + int(match[1]), total, f"{match[2]}{torch}")

    return read_status


def _view(run: Run) -> View:
    """Return what compilers and the linker see besides the system."""
    environment, settings = run.environment, run.job.settings
    toolchain, cuda, kit = environment.toolchain, environment.cuda, environment.kit
    readable = [
        run.ninja,
        run.cache.root,
        *_input_roots(environment),
        kit.system,
        kit.framework,
        kit.compat,
    ]
    programs = [word for word in toolchain.command if word.startswith("/")]
    # The compiler takes these from where PATH finds them first.
    found = [shutil.which(name, path=settings.search_path) for name in ("as", "ld")]
    programs += [program for program in found if program is not None]
    readable += find_installation(map(Path, programs))
    readable += toolchain.files.values()
    readable += [] if cuda is None else [cuda.root, cuda.cudart, *cuda.outside]
    readable += [] if environment.meter is None else [environment.meter]
    return View(readable=tuple(path for path in readable if path.exists()), writable=(run.work,))


def _input_roots(environment: Environment) -> list[Path]:
    """Return the directories whose every header is an input."""
    roots = list(environment.includes)
    roots += [path for each in environment.depends for path in each.include_dirs]
    cuda = environment.cuda
    if cuda is not None:
        roots += [] if cuda.shares_include else [cuda.include, *cuda.header_places]
        roots += cuda.outside
    return roots if environment.cuda_headers is None else [*roots, environment.cuda_headers]


def find_undeclared(run: Run, units: list[Unit]) -> dict[str, tuple[str, ...]]:
    """Return, by source, the headers that were read and are no input of the build."""
    environment, stage = run.environment, run.stage
    built = [unit for unit in units if unit.built.is_file()]
    if not built:
        return {}
    system = read_system_headers(environment.toolchain, variables=run.job.settings.variables)
    roots = [stage, stage.parent / "gen", *_input_roots(environment)]
    shared = environment.cuda is not None and environment.cuda.shares_include
    found = {}
    for unit in built:
        read = read_depfile(unit)
        foreign = find_foreign(read, stage=stage, roots=roots, system=system, cuda=shared)
        if foreign:
            found[unit.source] = foreign
    return found


def read_depfile(unit: Unit) -> tuple[str, ...]:
    """Return the files that the compiler read."""
    text = unit.built.with_suffix(".d").read_text(encoding="utf-8", errors="surrogateescape")
    return parse_depfile(text)


def find_ninja(settings: Settings) -> Path:
    """Find Ninja: that of the Python package, else that on the path.

    Raises:
        ToolchainError: there is none.
    """
    try:
        import ninja
    except ImportError:
        found = None
    else:
        found = shutil.which("ninja", path=ninja.BIN_DIR)
    found = found or shutil.which("ninja", path=settings.search_path)
    if found is None:
        raise ToolchainError("ninja not found; install it: pip install 'kernels[builder]'")
    return Path(found)


def describe_failure(
    project: Path, units: list[Unit], finished: Finished, cuda: CudaToolchain | None
) -> BuilderError:
    """Say why Ninja failed: what compilers said of each file, or else Ninja itself."""
    failures = []
    toolkit = None
    if cuda is not None:
        # A compiler that was asked what it is, is the user's own.
        home = None if cuda.answer.release is None else cuda.root
        toolkit = Toolkit(version=str(cuda.version), home=home)
    for unit in units:
        if unit.built.is_file() or not unit.log.is_file():
            continue
        said = unit.log.read_text(errors="replace")
        command = shlex.join([*unit.compiler, *unit.flags, "-c", unit.source])
        # Whoever reads on in the log wants to know what was run, and where.
        unit.log.write_text(f"in {unit.built.parents[1] / 'src'}:\n{command}\n{said}")
        failures.append(
            CompileFailure(
                source=unit.source,
                command=command,
                output=said,
                hint=find_hint(project, said, toolkit),
                log=unit.log,
            )
        )
    if failures:
        return CompileError(tuple(failures))
    return CommandError(
        f"ninja failed with exit code {finished.code}\n{finished.output}", finished=finished
    )
