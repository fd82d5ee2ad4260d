"""``kernel-builder lint-abi``: what keeps a project from torch's stable ABI, and what replaces it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import click

from kernel_builder.cli.frame import json_option, place_of, project_argument
from kernel_spec.amounts import format_count


@click.command("lint-abi")
@project_argument
@json_option
def lint_abi(directory: Path, as_json: bool) -> None:
    """Say which lines of DIR keep it from one binary for every torch: torch's stable ABI."""
    from kernel_builder.check.stable_source import SUFFIXES, check_stable_source, check_texts
    from kernel_builder.config.model import TvmFfiFramework
    from kernel_builder.config.read import read_build
    from kernel_builder.errors import ProjectError
    from kernel_builder.known import read_known
    from kernel_builder.per_torch import split_per_torch
    from kernel_builder.sources import listed_paths, read_sources

    place = place_of(directory)
    build = read_build(place)
    if isinstance(build.framework, TvmFfiFramework):
        raise ProjectError(
            f"{place}: a [tvm-ffi] kernel uses nothing of torch, so no torch's interface binds it"
        )
    read_sources(place, build)
    # What only per-torch components list is for the full interface, whatever it calls.
    bound = replace(build, components=split_per_torch(build.components)[0])
    files = [path for path in listed_paths(bound) if Path(path).suffix in SUFFIXES]
    texts = [((place / file).read_text(encoding="utf-8", errors="replace"), file) for file in files]
    findings = [finding for text, file in texts for finding in check_stable_source(text, file)]
    warnings = [finding for text, file in texts for finding in check_texts(text, file)]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in (*findings, *warnings)], indent=2))
    else:
        for finding in findings:
            click.echo(f"{finding.file}: {finding.symbol}: {finding.message}; {finding.fix}")
        for warning in warnings:
            click.echo(
                f"{warning.file}: warning: {warning.symbol}: {warning.message}; {warning.fix}"
            )
        count = len({each.file for each in findings})
        click.echo(
            f"{count} lines block the stable ABI; docs/guide/checks.md says how to go on"
            if count
            else f"nothing in {format_count(len(files), 'C++ file')} blocks the stable ABI: builds are for it, "
            f"from torch {read_known().lowest_stable_abi} on unless build.toml says otherwise"
        )
    if findings:
        raise click.exceptions.Exit(1)
