"""From sources to one library: staging, compiling through Ninja, and linking."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from kernel_builder.diagnose import CompileFailure, Toolkit, find_hint
from kernel_builder.drafts import (
    draft_of,
    find_doubt,
    put_op_id,
    takes_draft,
    uses_plainly,
)
from kernel_builder.environment import Environment
from kernel_builder.errors import (
    BuilderError,
    CommandError,
    CompileError,
    LinkError,
    ToolchainError,
    UndeclaredInputError,
)
from kernel_builder.inputs import find_foreign, read_system_headers
from kernel_builder.jobs import (
    PEAK_FULL,
    PEAK_NVCC_FULL,
    PEAK_NVCC_STABLE,
    PEAK_STABLE,
    choose_jobs,
)
from kernel_builder.objects import (
    ObjectCache,
    find_object,
    parse_depfile,
    prune_objects,
    store_object,
)
from kernel_builder.planned import VariantBuild
from kernel_builder.process import Finished
from kernel_builder.recipe import Unit, compose_links, describe_unit, write_recipe
from kernel_builder.report import FileReport
from kernel_builder.sandbox import OPEN, Sandbox, View, find_installation, run_confined
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cuda import CudaToolchain
from kernel_builder.toolchain.link import EXPORTS, EXPORTS_TVM_FFI
from kernel_builder.toolchain.meter import read_figures

_STATUS = re.compile(r"\[(\d+)\] (.*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """The library of a variant.

    Attributes:
        library: where it lies.
        files: what became of each file.
        twin: the same library with the names of its functions, where it is linked without them.
        warnings: what the compiler said of files that it compiled.
        notes: what the author should know of how files are compiled.
    """

    library: Path
    files: tuple[FileReport, ...]
    twin: Path | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compile_variant(
    project: Path,
    build: VariantBuild,
    environment: Environment,
    *,
    work: Path,
    settings: Settings,
    sandbox: Sandbox = OPEN,
    jobs: int | None = None,
    on_step: Callable[[int, int, str], None] | None = None,
) -> Artifact:
    """Compile and link the library of a variant.

    Args:
        project: the directory of the project.
        build: the variant.
        environment: what it is built with.
        work: an empty directory for this alone; the compilers' words stay in ``log``.
        settings: where the object cache is, and the environment of programs.
        sandbox: what keeps the compilers from all that is no input.
        jobs: how many compilers run at once; None: as many as CPUs and memory allow.
        on_step: called with the number of steps done, of all, and what was done.

    Raises:
        CompileError: with every file that does not compile.
        UndeclaredInputError: with every header that is read and no input of the build.
        LinkError: the objects do not link.
        CommandError: Ninja fails of itself.
    """
    stage = stage_sources(project, build, work)
    run = _Run(
        project=project,
        build=build,
        environment=environment,
        work=work,
        stage=stage,
        settings=settings,
        sandbox=sandbox,
        jobs=jobs,
        on_step=on_step,
        cache=ObjectCache(settings.cache / "objects"),
        ninja=find_ninja(settings),
    )
    made, notes = _make_objects(run)
    compiled = [each.unit for each in made if each.compiled]
    library, twin = _link(run, [str(each.path) for each in made], done=len(compiled))
    logs = {unit.source: unit.log.read_text(errors="replace").strip() for unit in compiled}
    return Artifact(
        library=library,
        files=tuple(_report(each.unit, each.compiled) for each in made),
        twin=twin,
        warnings=tuple(f"{source}:\n{said}" for source, said in logs.items() if said),
        notes=notes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """One compilation of a variant, as :func:`compile_variant` is asked for it."""

    project: Path
    build: VariantBuild
    environment: Environment
    work: Path
    stage: Path
    settings: Settings
    sandbox: Sandbox
    jobs: int | None
    on_step: Callable[[int, int, str], None] | None
    cache: ObjectCache
    ninja: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """An object.

    Attributes:
        unit: what it was compiled from, and how.
        path: where it lies.
        compiled: whether it was compiled now.
        plain: whether all that was read uses the id of the ops in known ways.
    """

    unit: Unit
    path: Path
    compiled: bool
    plain: bool


def _make_objects(run: _Run) -> tuple[list[_Made], tuple[str, ...]]:
    """Make every object, where it can be under a draft of the id, which the id then takes the place of.

    Returns:
        The objects, in order, and what the author should know of them.
    """
    build = run.build
    drafted = replace(build, op_id=draft_of(build.op_id))
    waiting = [
        number
        for number, unit in enumerate(build.units)
        if takes_draft(unit, build.headers, run.environment, run.stage)
    ]
    made = _find_or_compile(
        run,
        {number: drafted if number in waiting else build for number in range(len(build.units))},
    )
    notes = []
    again = {}
    for number in waiting:
        each = made[number]
        content = each.path.read_bytes()
        doubt = find_doubt(content, drafted.op_id) if each.plain else "a header mentions its name"
        if doubt is None:
            path = each.unit.built.with_suffix(".named.o")
            path.write_bytes(put_op_id(content, build.op_id))
            made[number] = replace(each, path=path)
        else:
            each.unit.built.unlink(missing_ok=True)
            again[number] = build
            notes.append(f"{each.unit.source} is compiled with every change of a file: {doubt}")
    done = sum(each.compiled for each in made.values())
    made |= _find_or_compile(run, again, done=done)
    return [made[number] for number in sorted(made)], tuple(notes)


def _find_or_compile(
    run: _Run, names: Mapping[int, VariantBuild], *, done: int = 0
) -> dict[int, _Made]:
    """Find objects, or compile them.

    Args:
        run: the compilation.
        names: for each object, by its place, the variant with the id that it is to hold.
        done: how many were compiled before.

    Raises:
        BuilderError: files do not compile, or read what is no input.
    """
    stage, cache = run.stage, run.cache
    units = {
        number: describe_unit(run.build.units[number], number, named, run.environment, stage)
        for number, named in names.items()
    }
    found = {number: find_object(cache, unit.key, stage=stage) for number, unit in units.items()}
    missing = [units[number] for number, kept in found.items() if kept is None]
    unplain: set[str] = set()
    if missing:
        recipe = write_recipe(missing, [], {}, meter=run.environment.meter)
        links = len(_compose_links(run, []))
        finished = _run_ninja(run, recipe, missing, done=done, total=done + len(missing) + links)
        foreign = _find_undeclared(missing, run.environment, stage, run.settings)
        unplain = _find_unplain(run, missing)
        _store(cache, [unit for unit in missing if unit.source not in {*foreign, *unplain}], stage)
        if finished.code != 0:
            raise _describe_failure(run.project, missing, finished, run.environment.cuda)
        if foreign:
            raise UndeclaredInputError(run.build.op_id, foreign)
    return {
        number: _Made(
            unit=unit,
            path=found[number] or unit.built,
            compiled=unit in missing,
            plain=unit.source not in unplain,
        )
        for number, unit in units.items()
    }


def _find_unplain(run: _Run, units: list[Unit]) -> set[str]:
    """Return the sources compiled under a draft whose headers do with the id what we cannot know."""
    drafted = [unit for unit in units if unit.key.namespace != run.build.op_id]
    return {
        unit.source
        for unit in drafted
        if unit.built.is_file()
        and not uses_plainly(_read_depfile(unit), stage=run.stage, own=run.stage.parent / "gen")
    }


def _run_ninja(run: _Run, recipe: str, units: list[Unit], *, done: int, total: int) -> Finished:
    """Run what a recipe says.

    Args:
        run: the compilation.
        recipe: what to do.
        units: the files that it compiles.
        done, total: how many steps of the compilation were done before, and are to be done in all.
    """
    (run.work / "build.ninja").write_text(recipe, encoding="utf-8")
    jobs = run.jobs or choose_jobs(_peak(run.build, units))
    return run_confined(
        [run.ninja, "-f", "../build.ninja", "-j", str(jobs), "-k", "0"],
        sandbox=run.sandbox,
        view=_view(run.environment, run.ninja, run.cache, run.work, run.settings),
        cwd=run.stage,
        variables={**run.settings.variables, "NINJA_STATUS": "[%f] "},
        on_line=_status_reader(run.on_step, done, total),
        check=False,
    )


def _compose_links(run: _Run, objects: list[str]) -> dict[Path, tuple[str, ...]]:
    return compose_links(run.build, run.environment, objects, run.work / "out")


def _link(run: _Run, objects: list[str], *, done: int) -> tuple[Path, Path | None]:
    """Link the library, and its twin where it has one.

    Raises:
        LinkError: the objects do not link.
        CommandError: Ninja fails of itself.
    """
    links = _compose_links(run, objects)
    library, *twins = links
    recipe = write_recipe([], objects, links, meter=None)
    finished = _run_ninja(run, recipe, [], done=done, total=done + len(links))
    log = run.work / "log" / "link.log"
    if finished.code != 0 and log.is_file():
        said = log.read_text(errors="replace").rstrip()
        raise LinkError(f"the objects do not link\n  {shlex.join(links[library])}\n{said}")
    if finished.code != 0:
        raise _describe_failure(run.project, [], finished, run.environment.cuda)
    return library, next(iter(twins), None)


def _store(cache: ObjectCache, units: list[Unit], stage: Path) -> None:
    for unit in units:
        if unit.built.is_file():
            depfile = unit.built.with_suffix(".d")
            store_object(cache, unit.key, stage=stage, built=unit.built, depfile=depfile)
    prune_objects(cache)


def stage_sources(project: Path, build: VariantBuild, work: Path) -> Path:
    """Copy the listed files of a variant to ``work/src``, and make the directories of a build.

    Only what is listed is there to be read: a file that is used and not listed would change the
    library without changing the namespace of its ops.
    """
    for name in ("src", "obj", "log", "out", "gen"):
        (work / name).mkdir()
    for path in dict.fromkeys([*(unit.source for unit in build.units), *build.headers]):
        target = work / "src" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / path, target)
    (work / "exports.map").write_text(EXPORTS if build.tvm_ffi is None else EXPORTS_TVM_FFI)
    if build.tvm_ffi is None:
        (work / "gen" / "torch").mkdir()
        templates = files("kernel_builder").joinpath("templates")
        for name, place in (("registration.h", "."), ("extension.h", "torch")):
            (work / "gen" / place / name).write_bytes(templates.joinpath(name).read_bytes())
    return work / "src"


def _report(unit: Unit, compiled: bool) -> FileReport:
    if not compiled:
        return FileReport(source=unit.source, reused=True)
    figures = read_figures(unit.figures)
    return FileReport(source=unit.source, reused=False, figures=figures, log=unit.log)


def _peak(build: VariantBuild, units: list[Unit]) -> int:
    """Return the memory that one compiler of these files may need, in bytes."""
    full = build.stable_abi is None and build.tvm_ffi is None
    if any(unit.rule == "nvcc" for unit in units):
        return PEAK_NVCC_FULL if full else PEAK_NVCC_STABLE
    return PEAK_FULL if full else PEAK_STABLE


def _status_reader(
    on_step: Callable[[int, int, str], None] | None, done: int, total: int
) -> Callable[[str], None]:
    def read_status(line: str) -> None:
        match = _STATUS.fullmatch(line)
        if match is not None and on_step is not None:
            on_step(done + int(match[1]), total, match[2])

    return read_status


def _view(
    environment: Environment, ninja: Path, cache: ObjectCache, work: Path, settings: Settings
) -> View:
    """Return what compilers and the linker see besides the system."""
    toolchain, cuda = environment.toolchain, environment.cuda
    kit = environment.kit
    readable = [
        ninja,
        cache.root,
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
    return View(readable=tuple(path for path in readable if path.exists()), writable=(work,))


def _input_roots(environment: Environment) -> list[Path]:
    """Return the directories whose every header is an input."""
    roots = list(environment.includes)
    roots += [path for each in environment.depends for path in each.include_dirs]
    cuda = environment.cuda
    if cuda is not None:
        roots += [] if cuda.shares_include else [cuda.include]
        roots += cuda.outside
    return roots if environment.cuda_headers is None else [*roots, environment.cuda_headers]


def _find_undeclared(
    units: list[Unit], environment: Environment, stage: Path, settings: Settings
) -> dict[str, tuple[str, ...]]:
    """Return, by source, the headers that were read and are no input of the build."""
    built = [unit for unit in units if unit.built.is_file()]
    if not built:
        return {}
    system = read_system_headers(environment.toolchain, variables=settings.variables)
    roots = [stage, stage.parent / "gen", *_input_roots(environment)]
    shared = environment.cuda is not None and environment.cuda.shares_include
    found = {}
    for unit in built:
        depfile = unit.built.with_suffix(".d")
        read = parse_depfile(depfile.read_text(encoding="utf-8", errors="surrogateescape"))
        foreign = find_foreign(read, stage=stage, roots=roots, system=system, cuda=shared)
        if foreign:
            found[unit.source] = foreign
    return found


def _read_depfile(unit: Unit) -> tuple[str, ...]:
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


def _describe_failure(
    project: Path, units: list[Unit], finished: Finished, cuda: CudaToolchain | None
) -> BuilderError:
    failures = []
    toolkit = None
    if cuda is not None:
        # A compiler that was asked what it is, is the user's own.
        home = None if cuda.release is None else cuda.root
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
