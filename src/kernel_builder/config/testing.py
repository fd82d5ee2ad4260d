"""Reading the ``[test]`` table: what tests need, and which check of the build is left out."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement

from kernel_builder.config import check
from kernel_builder.config.model import Testing
from kernel_builder.config.table import Objection, Table


def read_testing(root: Table) -> Testing:
    """Read ``[test]``, which is this builder's own: the published one refuses it."""
    table = root.table("test")
    if table is None:
        return Testing()
    testing = Testing(
        python_depends=table.texts("python-depends", check_requirement, unique=True) or (),
        skip_import_check=table.text("skip-import-check", _check_reason),
    )
    table.finish()
    return testing


def check_requirement(text: str) -> Objection | None:
    """Check what pip is to install: a name, with versions where they matter, and no URL."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as err:
        message = f'"{text}" is no requirement ({str(err).splitlines()[0]})'
        return Objection("bad-value", f'{message}; expected one such as "numpy>=1.26"')
    if requirement.url is not None:
        message = f'"{text}" names a URL; expected a package of an index, such as "numpy>=1.26"'
        return Objection("bad-value", message)
    return None


def _check_reason(text: str) -> Objection | None:
    if check.check_not_empty(text) is None:
        return None
    message = "found an empty text; expected the reason, which the report and metadata.json tell"
    return Objection("bad-value", message)
