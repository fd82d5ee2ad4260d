"""``kernels doctor``: why a kernel does not load here, one cause and one command; or what this machine is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kernels.cli.asking import find_path, ref_of

if TYPE_CHECKING:
    from kernels.doctor import Diagnosis, PerTorch
    from kernels.trial import Trial


@click.command(name="doctor")
@click.argument("kernel", required=False)
@click.option("--version", help="A version, or a range of tags; default: the highest version.")
@click.option("--revision", help="A branch, tag or commit instead of a version.")
@click.option("--backend", help="Judge for this backend instead of the system's.")
@click.option(
    "--launch",
    is_flag=True,
    help="Also run it: load it and its first benchmark case on every device, in a child process.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(  # noqa: PLR0917 - click's signature
    ctx: click.Context,
    kernel: str | None,
    version: str | None,
    revision: str | None,
    backend: str | None,
    launch: bool,
    as_json: bool,
) -> None:
    """Say why KERNEL, a repository's id or a path, does not load here, and what to do about it.

    Every check of a load is made, on the bytes of the variant too (C library, C++ library, CUDA runtime,
    torch's functions, GPU code); nothing of the kernel is run, unless --launch asks for it. Exits with 1
    where it would not load, or did not launch.
    Without KERNEL: what this machine is, and where each setting comes from.
    """
    from kernels.settings import read_settings

    settings = read_settings()
    if kernel is None and launch:
        raise click.UsageError("--launch needs a KERNEL")
    if kernel is None:
        from kernels.doctor_environment import examine, format_report

        report = examine(settings)
        click.echo(json.dumps(report, indent=2) if as_json else "\n".join(format_report(report)))
        return
    from kernels.asked import parse_backend
    from kernels.doctor import diagnose, diagnose_path

    kind = parse_backend(backend)
    if (path := find_path(kernel, version, revision)) is not None:
        diagnosis = diagnose_path(path, kind, kernel)
    else:
        diagnosis = diagnose(ref_of(kernel, version, revision), settings, kind)
    trial = None
    if launch and diagnosis.advice is None:
        from kernels.trial import try_kernel

        trial = try_kernel(kernel, diagnosis.commit)
    _show(diagnosis, trial, as_json=as_json)
    if diagnosis.advice is not None or (trial is not None and trial.fault is not None):
        ctx.exit(1)


def _show(diagnosis: Diagnosis, trial: Trial | None, *, as_json: bool) -> None:
    from kernel_spec.compat import Rejected
    from kernels.errors import describe_decisions
    from kernels.hub_address import hide_credentials

    where, advice = hide_credentials(diagnosis.where), diagnosis.advice
    if as_json:
        reasons = {
            d.name: [[r.kind, r.text] for r in d.reasons] if isinstance(d, Rejected) else []
            for d in diagnosis.decisions
        }
        document = {
            "kernel": diagnosis.what,
            "from": where,
            "system": diagnosis.system,
            "chosen": diagnosis.chosen,
            "archs": list(diagnosis.archs),
            "shared_symbols": list(diagnosis.shared),
            "per_torch": None if (found := diagnosis.per_torch) is None else found._asdict(),
            "variants": reasons,
            "advice": None if advice is None else advice._asdict(),
            "trial": None if trial is None else trial._asdict(),
        }
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"{diagnosis.what} ({where})")
    click.echo(f"system: {diagnosis.system}")
    for line in describe_decisions(diagnosis.decisions):
        click.echo(f"  {line}")
    if diagnosis.archs:
        click.echo(f"GPU code in {diagnosis.chosen}: {', '.join(diagnosis.archs)}")
    if diagnosis.shared:
        names = ", ".join(diagnosis.shared[:3])
        more = f" and {len(diagnosis.shared) - 3} more" if len(diagnosis.shared) > 3 else ""
        click.echo(
            f"shared with every library of a process that has the same name: {names}{more} "
            "(GNU-unique symbols; kernel-builder makes none)"
        )
    if diagnosis.per_torch is not None:
        click.echo(_describe_per_torch(diagnosis.per_torch))
    if advice is None:
        click.echo(f"It loads: {diagnosis.chosen}")
        _show_trial(trial)
        return
    click.echo(f"cause: {f'{advice.variant}: ' if advice.variant else ''}{advice.cause}")
    click.echo(f"do: {advice.command}")


def _describe_per_torch(found: PerTorch) -> str:
    """Say what the kernel has for this very torch, and that it works without where that is not used."""
    if found.library is not None and not found.faults:
        return f"per-torch library: {found.library}"
    cause = f"none for this torch, it has those for {', '.join(found.releases)}"
    if found.faults:
        cause = f"cannot be loaded here, {'; '.join(map(str, found.faults))}"
    return f"per-torch library: {cause} (the kernel works without, perhaps slower)"


def _show_trial(trial: Trial | None) -> None:
    if trial is None:
        return
    for step in trial.steps if trial.fault is None else trial.steps[:-1]:
        click.echo(f"  {step}: ok" if ": " not in step else f"  {step}")
    if trial.fault is None:
        return
    step = trial.steps[-1] if trial.steps else "start a process"
    click.echo(f"cause: tried in a process of its own, it failed to {step}: {trial.fault}")
    click.echo("do: report it to who publishes the kernel, with these lines")
