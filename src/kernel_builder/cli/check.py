"""``kernel-builder check``: whether variants keep the rules of the format, and compute what they should."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.frame import place_of, project_argument
from kernel_spec.amounts import format_count


@click.command("check")
@project_argument
@click.option(
    "--gate", is_flag=True, help="Run the cases of tests/gate.py too, and record the proof."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the cases of --gate run; its variants alone are tried.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=1),
    default=900,
    show_default=True,
    help="The longest time in seconds that the cases of a variant may take.",
)
def check(directory: Path, gate: bool, device: str, seconds: float) -> None:
    """Check the variants of DIR: a project, its build directory, or one variant."""
    from kernel_builder.check.variant import check_variant, find_variants

    place = place_of(directory)
    failed = False
    for variant in find_variants(place):
        findings = check_variant(variant.resolve())
        failed = failed or bool(findings)
        for finding in findings:
            click.echo(f"{variant.resolve().name}: {finding}")
        if not findings:
            click.echo(f"{variant.resolve().name}: ok")
    # Code that breaks the rules of the format is not run.
    if failed or (gate and not _run_gate(place, device, seconds)):
        raise click.exceptions.Exit(1)


def _run_gate(place: Path, device: str, seconds: float) -> bool:
    """Run the gate on every variant for a device, and say whether all passed."""
    from kernel_builder.gate.story import choose_variants, find_gate_file, run_gate
    from kernel_builder.settings import read_settings

    variants, settings = choose_variants(place, device), read_settings()
    gate_file = find_gate_file(place)
    passed = True
    for variant in variants:
        result = run_gate(
            variant, gate_file=gate_file, device=device, settings=settings, seconds=seconds
        )
        name = result.variant.name
        for fault in result.faults:
            click.echo(f"{name}: {fault}")
        for said in result.unproved:
            click.echo(f"{name}: not proved: {said}")
        for said in result.refused:
            click.echo(f"{name}: refused, as it may be: {said}")
        if result.proof is not None:
            where = f"{result.proof['on']} with torch {result.proof['torch']}"
            cases = format_count(len(result.proof["cases"]), "case")
            click.echo(f"{name}: the gate passes {cases} on {where}; the proof is in metadata.json")
        passed = passed and not result.faults
    return passed
