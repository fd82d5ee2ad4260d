"""The objects of a variant: found or compiled, under a draft of the id of its ops where they can be, and the id put in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.compile_run import (
    Run,
    describe_failure,
    describe_links,
    find_undeclared,
    read_depfile,
    run_ninja,
)
from kernel_builder.drafts import (
    Use,
    draft_of,
    find_doubt,
    put_op_id,
    put_pieces,
    read_uses,
    takes_draft,
    uses_plainly,
)
from kernel_builder.errors import UndeclaredInputError
from kernel_builder.objects import find_object, find_objects, prune_objects, store_object
from kernel_builder.planned import VariantBuild
from kernel_builder.recipe import Unit, describe_unit, write_recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
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


def make_objects(run: Run) -> tuple[list[Made], tuple[str, ...]]:
    """Make every object, where it can be under a draft of the id, which the id then takes the place of.

    Returns:
        The objects, in order, and what the author should know of them.
    """
    build = run.build
    drafted = replace(build, op_id=draft_of(build.op_id))
    headers = read_uses(build.headers, run.stage)
    waiting = [
        number for number in range(len(build.units)) if _can_wait(run, number, drafted, headers)
    ]
    made = _find_or_compile(
        run,
        {number: drafted if number in waiting else build for number in range(len(build.units))},
    )
    notes = []
    again = {}
    for number in waiting:
        each = made[number]
        content, doubt = _put_op_id(run, each)
        if content is not None:
            path = each.unit.built.with_suffix(".named.o")
            path.write_bytes(content)
            made[number] = replace(each, path=path)
            continue
        each.unit.built.unlink(missing_ok=True)
        again[number] = build
        if doubt is not None:
            notes.append(f"{each.unit.source} is compiled with every change of a file: {doubt}")
    done = sum(each.compiled for each in made.values())
    for number, each in _find_or_compile(run, again, done=done).items():
        made[number] = replace(each, compiled=each.compiled or made[number].compiled)
    return [made[number] for number in sorted(made)], tuple(notes)


def _can_wait(run: Run, number: int, drafted: VariantBuild, headers: frozenset[Use]) -> bool:
    """Say whether an object is made under a draft."""
    unit = run.build.units[number]
    if not takes_draft(unit, headers, run.environment, run.stage):
        return False
    if run.build.stable_abi is not None:
        return True
    # Compilers take the name apart in the code that torch's full headers give, and with those a file
    # costs too much to be compiled twice: its draft has to wait for the first change.
    key = describe_unit(unit, number, drafted, run.environment, run.stage).key
    names = {name for name, _ in find_objects(run.cache, key, stage=run.stage)}
    return run.build.op_id not in names and bool(names)


def _put_op_id(run: Run, made: Made) -> tuple[bytes | None, str | None]:
    """Return a drafted object with the id in it; else None, and why that will not change."""
    if not made.plain:
        return None, "a file that it includes uses its name"
    op_id = run.build.op_id
    content = made.path.read_bytes()
    doubt = find_doubt(content, draft_of(op_id))
    if doubt is None:
        return put_op_id(content, op_id), None
    found = _find_sibling(run, made.unit)
    if found is None:
        return None, None
    name, path = found
    put = put_pieces(content, op_id, sibling=path.read_bytes(), sibling_id=name)
    return put, doubt if put is None else None


def _find_sibling(run: Run, unit: Unit) -> tuple[str, Path] | None:
    """Find an object that differs from a drafted one in its id alone: the id, and where it lies."""
    draft = draft_of(run.build.op_id)
    for name, path in find_objects(run.cache, unit.key, stage=run.stage):
        if name is not None and name != draft and draft_of(name) == draft:
            return name, path
    return None


def _find_or_compile(
    run: Run, names: Mapping[int, VariantBuild], *, done: int = 0
) -> dict[int, Made]:
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
        links = len(describe_links(run, []))
        finished = run_ninja(run, recipe, missing, done=done, total=done + len(missing) + links)
        foreign = find_undeclared(run, missing)
        unplain = _find_unplain(run, missing)
        _store(run, [unit for unit in missing if unit.source not in {*foreign, *unplain}])
        if finished.code != 0:
            raise describe_failure(run.job.project, missing, finished, run.environment.cuda)
        if foreign:
            raise UndeclaredInputError(run.build.op_id, foreign)
    return {
        number: Made(
            unit=unit,
            path=found[number] or unit.built,
            compiled=unit in missing,
            plain=unit.source not in unplain,
        )
        for number, unit in units.items()
    }


def _find_unplain(run: Run, units: list[Unit]) -> set[str]:
    """Return the sources compiled under a draft whose headers do with the id what we cannot know."""
    drafted = [unit for unit in units if unit.key.namespace != run.build.op_id]
    return {
        unit.source
        for unit in drafted
        if unit.built.is_file()
        and not uses_plainly(read_depfile(unit), stage=run.stage, own=run.stage.parent / "gen")
    }


def _store(run: Run, units: list[Unit]) -> None:
    for unit in units:
        if unit.built.is_file():
            depfile = unit.built.with_suffix(".d")
            store_object(run.cache, unit.key, stage=run.stage, built=unit.built, depfile=depfile)
    prune_objects(run.cache)
