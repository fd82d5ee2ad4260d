"""``kernel-builder plan``: what a build would do, before anything is compiled."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.choice import Choice, choice_options
from kernel_builder.cli.frame import json_option, project_argument
from kernel_spec.amounts import format_count

if TYPE_CHECKING:
    from kernel_builder.planned import Plan, VariantBuild

_HEAD = ("variant", "file", "for", "component", "archs")


@click.command("plan")
@project_argument
@choice_options
@json_option
def plan(directory: Path, *, choice: Choice, as_json: bool) -> None:
    """Show the variants that DIR gives here and the files that each is made of."""
    from kernel_builder.cli.making import make_plan
    from kernel_builder.columns import format_columns
    from kernel_builder.depends import list_sourceless
    from kernel_builder.settings import read_settings

    build, made = make_plan(directory, choice)
    planned = {variant.backend for variant in made.variants}
    sourceless = list_sourceless(build, planned, read_settings())
    made = replace(made, notes=(*made.notes, *sourceless))
    if as_json:
        click.echo(json.dumps(_plain(made), indent=2))
        return
    rows = [row for variant in made.variants for row in _rows(variant)]
    if sys.stdout.isatty():
        _draw(rows)
    elif rows:
        click.echo(format_columns([_HEAD, *rows]))
    for variant in made.variants:
        abi = _name_interface(variant)
        what = f"{len(variant.units)} to compile, {abi}" if variant.units else "nothing to compile"
        what += _name_parts(variant)
        files = format_count(len(variant.package), "Python file")
        click.echo(f"{variant.variant}: {what}; {files}; {_name_ops(variant)}")
    for skipped in made.skipped:
        click.echo(str(skipped))
    for note in made.notes:
        click.echo(f"note: {note}")


def _name_interface(variant: VariantBuild) -> str:
    if variant.tvm_ffi is not None:
        return f"TVM FFI {variant.tvm_ffi}"
    pinned = f" by the pinned headers of torch {variant.release}" if variant.is_pinned else ""
    abi = variant.stable_abi
    return f"torch stable ABI {abi}" if abi else f"torch's full ABI{pinned}"


def _name_parts(variant: VariantBuild) -> str:
    """Say which releases of torch get a library of their own."""
    if not variant.per_torch:
        return ""
    torches = ", ".join(map(_name_torch, variant.per_torch))
    return f", and {len(variant.per_torch[0].units)} for each of {torches}"


def _name_torch(part: VariantBuild) -> str:
    return f"torch {part.release}"


def _name_ops(variant: VariantBuild) -> str:
    return variant.library if variant.tvm_ffi is not None else f"torch.ops.{variant.op_id}"


def _rows(variant: VariantBuild) -> list[tuple[str, ...]]:
    """Return a row for each file that is compiled, or one for a variant without machine code."""
    name = str(variant.variant)
    if not variant.units:
        return [(name, "-", variant.backend.value, "-", " ".join(variant.archs) or "-")]
    rows: list[tuple[str, ...]] = [
        (
            name,
            unit.source,
            unit.backend.value,
            unit.component or "(binding)",
            " ".join(unit.archs) or "-",
        )
        for unit in variant.units
    ]
    for part in variant.per_torch:
        rows += [
            (name, unit.source, _name_torch(part), unit.component or "-", "-")
            for unit in part.units
        ]
    return rows


def _draw(rows: list[tuple[str, ...]]) -> None:
    """Draw the rows as a table, naming each variant once."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for head in _HEAD:
        # A name that is cut off cannot be copied.
        table.add_column(head, overflow="fold")
    last = None
    for row in rows:
        if last is not None and row[0] != last:
            table.add_section()
        table.add_row("" if row[0] == last else row[0], *row[1:])
        last = row[0]
    Console().print(table)


def _plain(made: Plan) -> dict[str, object]:
    """Return a plan as JSON values."""
    variants = []
    for each in made.variants:
        content = asdict(each)
        content["variant"] = str(each.variant)
        content["stable_abi"] = None if each.stable_abi is None else str(each.stable_abi)
        content["torch"] = None if each.torch is None else each.torch.version
        content["per_torch"] = [str(part.release) for part in each.per_torch]
        del content["is_part"]
        content["tvm_ffi"] = None if each.tvm_ffi is None else str(each.tvm_ffi)
        variants.append(content)
    return {
        "variants": variants,
        "skipped": {each.backend.value: each.reason for each in made.skipped},
        "notes": list(made.notes),
    }
