"""``kernel-builder rebuild``: prove that a published kernel comes from its sources."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernel_builder.cli.frame import cuda_option
from kernel_builder.cli.inputs import read_input_settings, sandbox_option, source_option


@click.command("rebuild")
@click.argument("reference", metavar="OWNER/NAME[@REVISION]")
@click.option(
    "--verify", is_flag=True, help="Compare with the published bytes; what it always does."
)
@click.option("--hub", metavar="URL", help="file:///path or https://... [default: KERNELS_HUB].")
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant.")
@click.option(
    "--project",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Its sources [default: the git repository and commit that it names].",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once [default: what fits]."
)
@cuda_option
@sandbox_option
@source_option
def rebuild(
    reference: str,
    *,
    verify: bool,  # noqa: ARG001  (there is no rebuild without)
    hub: str | None,
    variants: tuple[str, ...],
    project: Path | None,
    jobs: int | None,
    cuda_home: Path | None,
    sandbox: str | None,
    sources: tuple[str, ...],
) -> None:
    """Build the published variants of OWNER/NAME anew and compare every byte; exit code 1: not the same."""
    from kernel_builder.config.read import find_project
    from kernel_builder.progress import open_reporter
    from kernel_builder.rebuild import format_verdicts, verify_rebuild
    from kernel_builder.remote import choose_hub, open_remote
    from kernel_spec.names import parse_repo_id

    settings = read_input_settings(cuda_home=cuda_home, sandbox=sandbox, sources=sources)
    name, _, revision = reference.partition("@")
    repo = parse_repo_id(name)
    chosen = choose_hub(hub, owner=repo.owner, hubs=settings.hubs, default=settings.endpoint)
    with open_reporter(sys.stderr) as reporter:
        verdicts = verify_rebuild(
            repo,
            open_remote(chosen, token_hub=settings.endpoint, cache=settings.cache),
            settings=settings,
            revision=revision or None,
            variants=frozenset(variants),
            project=None if project is None else find_project(project),
            jobs=jobs,
            reporter=reporter,
        )
    click.echo(format_verdicts(verdicts))
    if not all(each.is_same for each in verdicts):
        raise click.exceptions.Exit(1)
