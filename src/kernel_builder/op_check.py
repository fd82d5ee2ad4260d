"""The check of a variant's ops: what its sources register, what torch has, and that it imports."""

from __future__ import annotations

from pathlib import Path

from kernel_builder.check.registered import check_complete, check_sources
from kernel_builder.environment import Environment
from kernel_builder.errors import CheckError
from kernel_builder.import_check import check_import
from kernel_builder.plan import VariantBuild
from kernel_builder.preprocess import read_registrations
from kernel_builder.registrations import Registrations
from kernel_builder.sandbox import OPEN, Sandbox
from kernel_builder.settings import Settings


def check_ops(
    made: Path,
    build: VariantBuild,
    environment: Environment | None,
    *,
    stage: Path,
    settings: Settings,
    sandbox: Sandbox = OPEN,
) -> str | None:
    """Import a variant, and compare the ops that it registers with its sources.

    Args:
        made: the directory of the variant.
        build: the variant.
        environment: what it was built with; None where it has no machine code.
        stage: the staged sources.
        settings: where results are kept, and the environment of programs.
        sandbox: what keeps the kernel's code from the network and the user's files.

    Returns:
        None; or what is not installed here, so that the import itself proves nothing. The library
        was loaded and its ops were compared all the same.

    Raises:
        CheckError: with every op that is not whole, or not as the sources say.
        ImportCheckError: it cannot be imported.
    """
    sources = Registrations()
    library = None
    if environment is not None:
        library = made / f"{build.op_id}.abi3.so"
        sources = read_registrations(build, environment, stage=stage, settings=settings)
    answer = check_import(
        made,
        build.op_id,
        library=library,
        schemas=[call.schema for call in sources.calls if call.schema is not None],
        preload=[environment.cuda.cudart] if environment and environment.cuda else [],
        depends=build.python_depends,
        settings=settings,
        sandbox=sandbox,
    )
    if library is not None and answer.library is not None:
        kinds = {unit.backend for unit in build.units if unit.component is not None}
        findings = [
            *check_sources(library.name, build.op_id, sources, answer.library),
            *check_complete(
                library.name,
                answer.imported or answer.library,
                backend=build.backend.value.upper(),
                carried=sorted(kind.value.upper() for kind in kinds),
            ),
        ]
        if findings:
            raise CheckError(str(build.variant), tuple(findings))
    if answer.lacking is None:
        return None
    return f"not imported, since {answer.lacking} is not installed here"
