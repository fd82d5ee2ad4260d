"""The recipe of one library: how each file is compiled and the objects are linked, for Ninja."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.environment import Environment
from kernel_builder.flags import compile_flags, name_extension
from kernel_builder.ninja import Edge, Rule, escape_value, format_ninja, quote_flags
from kernel_builder.objects import ObjectKey
from kernel_builder.planned import VariantBuild
from kernel_builder.toolchain.link import link_command
from kernel_builder.units import CompileUnit, needs_device_compiler


@dataclass(frozen=True, slots=True)
class Unit:
    """A file that is to be compiled.

    Attributes:
        source: its path in the project.
        rule: the name of its rule: ``cxx`` or ``nvcc``.
        compiler: how the compiler is called.
        flags: the arguments that come before the file.
        key: what its object is kept under.
        built: where its object comes to lie.
        log: what the compiler says of it.
    """

    source: str
    rule: str
    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    key: ObjectKey
    built: Path
    log: Path

    @property
    def figures(self) -> Path:
        """What compiling it took."""
        return self.built.with_suffix(".figures")


def describe_unit(
    unit: CompileUnit, number: int, build: VariantBuild, environment: Environment, stage: Path
) -> Unit:
    """Say how a file is compiled.

    Args:
        unit: the file.
        number: its place among all, which tells objects of equal names apart.
        build: the variant.
        environment: what it is built with.
        stage: the staged sources.
    """
    flags = compile_flags(unit, build, environment, stage)
    # Where the sources are staged changes with each run, and the objects do not depend on it.
    place = f"-ffile-prefix-map={stage.parent}=."
    rule, compiler, identity = _choose_compiler(unit, environment)
    known = sorted({*(each.source for each in build.units), *build.headers})
    key = ObjectKey(
        toolchain=identity,
        flags=tuple(flag for flag in flags if not flag.endswith(place)),
        source=unit.source,
        files=tuple(known),
        namespace=build.op_id,
    )
    stem = f"{number:03}-{Path(unit.source).name}"
    return Unit(
        source=unit.source,
        rule=rule,
        compiler=compiler,
        flags=(*flags, name_extension(build)),
        key=key,
        built=stage.parent / "obj" / f"{stem}.o",
        log=stage.parent / "log" / f"{stem}.log",
    )


def _choose_compiler(
    unit: CompileUnit, environment: Environment
) -> tuple[str, tuple[str, ...], str]:
    """Return the rule of a file, the command of its compiler, and what tells that from others."""
    host = environment.toolchain
    if environment.cuda is None or not needs_device_compiler(unit):
        return "cxx", host.command, host.identity
    # Behind a launcher such as ccache stands the compiler that nvcc is to call.
    program = next(word for word in reversed(host.command) if not word.startswith("-"))
    command = (*environment.cuda.command, "-ccbin", program)
    return "nvcc", command, f"{environment.cuda.identity} {host.identity}"


def compose_links(
    build: VariantBuild, environment: Environment, objects: list[str], out: Path
) -> dict[Path, tuple[str, ...]]:
    """Return the command that makes each library: the variant's, and its twin where it has one.

    Args:
        build: the variant.
        environment: what it is built with.
        objects: what is linked, in order.
        out: the directory that libraries come to lie in.
    """
    library = out / build.library
    # Of TVM FFI, the library's exports are all that is compared.
    named = environment.cuda is not None and build.tvm_ffi is None
    twin = library.with_suffix(".twin") if named else None
    return {
        path: link_command(
            environment.toolchain,
            environment.kit,
            objects=objects,
            libraries=environment.libraries,
            version_script="../exports.map",
            output=str(path),
            cudart=None if environment.cuda is None else environment.cuda.cudart,
            named=path == twin,
        )
        for path in (library, twin)
        if path is not None
    }


def write_recipe(
    units: list[Unit],
    objects: list[str],
    links: Mapping[Path, tuple[str, ...]],
    *,
    meter: Path | None,
) -> str:
    """Write the Ninja file.

    Args:
        units: the files to compile.
        objects: what is linked, in order.
        links: the command that makes each library.
        meter: the program that tells what each compiler takes.
    """
    commands = {unit.rule: unit.compiler for unit in units}
    metered = "" if meter is None else f"{escape_value(shlex.quote(str(meter)))} $figures "
    rules = [
        Rule(
            name=name,
            # An object has its name only when it is whole: what has the name is kept for later.
            command=f"{metered}{escape_value(shlex.join(compiler))} $flags -MD -MF $reads -c $in -o ${{out}}.part > $log 2>&1"
            " && mv ${out}.part $out",
            description="$in",
        )
        for name, compiler in commands.items()
    ]
    rules += [
        Rule(name="link", command="$linker > $log 2>&1", description="link"),
        Rule(name="names", command="$linker > $log 2>&1", description="link with names, to check"),
    ]
    edges = [
        Edge(
            outputs=(str(unit.built),),
            rule=unit.rule,
            inputs=(unit.source,),
            variables={
                "flags": quote_flags(unit.flags),
                "reads": quote_flags([str(unit.built.with_suffix(".d"))]),
                "log": quote_flags([str(unit.log)]),
                "figures": quote_flags([str(unit.figures)]),
            },
        )
        for unit in units
    ]
    for rule, (library, link) in zip(("link", "names"), links.items(), strict=False):
        log = library.parent.parent / "log" / f"{rule}.log"
        edges.append(
            Edge(
                outputs=(str(library),),
                rule=rule,
                inputs=tuple(objects),
                variables={"linker": quote_flags(link), "log": quote_flags([str(log)])},
            )
        )
    return format_ninja(rules, edges, builddir="../obj")
