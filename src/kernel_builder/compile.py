"""From sources to one library: staging, compiling through Ninja, and linking."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.compile_objects import Made, make_objects
from kernel_builder.compile_run import (
    Run,
    describe_failure,
    describe_links,
    find_ninja,
    run_ninja,
)
from kernel_builder.environment import Environment
from kernel_builder.errors import LinkError
from kernel_builder.job import Job
from kernel_builder.objects import ObjectCache
from kernel_builder.own_headers import read_own_headers
from kernel_builder.planned import VariantBuild
from kernel_builder.recipe import write_recipe
from kernel_builder.report import FileReport
from kernel_builder.sandbox import Sandbox
from kernel_builder.toolchain.link import EXPORTS, EXPORTS_TVM_FFI
from kernel_builder.toolchain.meter import read_figures


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """What compiling a library gives.

    Attributes:
        library: where the library lies; None: there is nothing to compile.
        files: what became of each file.
        twin: the same library with the names of its functions, where it is linked without them.
        warnings: what the compiler said of files that it compiled.
        notes: what the author should know of how files are compiled.
    """

    library: Path | None
    files: tuple[FileReport, ...] = ()
    twin: Path | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


NOTHING = Artifact(library=None)


def compile_library(
    job: Job, build: VariantBuild, environment: Environment, *, work: Path, sandbox: Sandbox
) -> Artifact:
    """Compile and link a library of a variant.

    Args:
        job: the variant.
        build: what the library is made of: the variant itself, or one of its per-torch libraries.
        environment: what it is built with.
        work: an empty directory for this alone; the compilers' words stay in ``log``.
        sandbox: what keeps the compilers from all that is no input.

    Raises:
        CompileError: with every file that does not compile.
        UndeclaredInputError: with every header that is read and no input of the build.
        LinkError: the objects do not link.
        CommandError: Ninja fails of itself.
    """
    run = Run(
        job=job,
        build=build,
        environment=environment,
        work=work,
        stage=stage_sources(job.project, build, work),
        sandbox=sandbox,
        cache=ObjectCache(job.settings.cache / "objects"),
        ninja=find_ninja(job.settings),
    )
    made, notes = make_objects(run)
    compiled = [each.unit for each in made if each.compiled]
    library, twin = _link(run, [str(each.path) for each in made], done=len(compiled))
    logs = {unit.source: unit.log.read_text(errors="replace").strip() for unit in compiled}
    return Artifact(
        library=library,
        files=tuple(_report(each) for each in made),
        twin=twin,
        warnings=tuple(f"{source}:\n{said}" for source, said in logs.items() if said),
        notes=notes,
    )


def stage_sources(project: Path, build: VariantBuild, work: Path) -> Path:
    """Copy the listed files of a variant to ``work/src``, and make the directories of a build.

    Only what is listed is there to be read: a file that is used and not listed would change the
    library without changing the namespace of its ops.
    """
    for name in ("src", "obj", "log", "out", "gen"):
        (work / name).mkdir(parents=True)
    for path in dict.fromkeys([*(unit.source for unit in build.units), *build.headers]):
        target = work / "src" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / path, target)
    (work / "exports.map").write_text(EXPORTS if build.tvm_ffi is None else EXPORTS_TVM_FFI)
    if build.tvm_ffi is None:
        for name, content in read_own_headers().items():
            place = work / "gen" / name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
    return work / "src"


def _link(run: Run, objects: list[str], *, done: int) -> tuple[Path, Path | None]:
    """Link the library, and its twin where it has one.

    Raises:
        LinkError: the objects do not link.
        CommandError: Ninja fails of itself.
    """
    links = describe_links(run, objects)
    library, *twins = links
    recipe = write_recipe([], objects, links, meter=None)
    finished = run_ninja(run, recipe, [], done=done, total=done + len(links))
    log = run.work / "log" / "link.log"
    if finished.code != 0 and log.is_file():
        said = log.read_text(errors="replace").rstrip()
        raise LinkError(f"the objects do not link\n  {shlex.join(links[library])}\n{said}")
    if finished.code != 0:
        raise describe_failure(run.job.project, [], finished, run.environment.cuda)
    return library, next(iter(twins), None)


def _report(made: Made) -> FileReport:
    unit = made.unit
    if not made.compiled:
        return FileReport(source=unit.source, reused=True)
    figures = read_figures(unit.figures)
    return FileReport(source=unit.source, reused=False, figures=figures, log=unit.log)
