"""The kernels that a project asks for: ``[tool.kernels.dependencies]`` in its ``pyproject.toml``.

::

    [tool.kernels.dependencies]
    "acme/activation" = 1                          # the branch v1
    "acme/flash" = ">=1.0.0,<2"                    # the newest tag vX.Y.Z in that range
    "acme/moe" = { revision = "experiments" }      # a branch, a tag or a commit
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_spec.document import read_plain
from kernel_spec.errors import DocumentError, Fault, FormatError
from kernel_spec.names import parse_range, parse_repo_id
from kernels.errors import NotLockedError
from kernels.revision import KernelRef

FILE_NAME = "pyproject.toml"
_TABLE = "tool.kernels.dependencies"


class ProjectError(DocumentError):
    """A ``pyproject.toml`` whose kernels cannot be read; every fault is listed."""


def read_dependencies(project: Path) -> tuple[KernelRef, ...]:
    """Read what a project asks for, sorted by repository.

    Args:
        project: its folder, or its ``pyproject.toml``.

    Raises:
        NotLockedError: there is no such file, or it has no such table.
        ProjectError: with every fault.
    """
    import tomllib

    path = project / FILE_NAME if project.is_dir() else project
    try:
        document = tomllib.loads(read_plain(path).decode())
    except OSError as err:
        raise NotLockedError(
            "",
            f"{path} cannot be read: {err.strerror or err}. It says which kernels a project asks for, "
            f'by a table [{_TABLE}] with lines such as "acme/activation" = 1.',
        ) from None
    except (ValueError, RecursionError) as err:
        raise ProjectError(str(path), (_fault("bad-toml", "", str(err)),)) from None
    table = _take_table(document)
    if table is None:
        raise NotLockedError(
            "",
            f"{path} asks for no kernels: it has no table [{_TABLE}]. "
            f'Write one, with lines such as "acme/activation" = 1.',
        )
    faults: list[Fault] = []
    refs = [ref for key, value in table.items() if (ref := _read_entry(key, value, faults))]
    if faults:
        raise ProjectError(str(path), tuple(faults))
    return tuple(sorted(refs, key=lambda ref: ref.repo))


def _take_table(document: dict[str, Any]) -> dict[str, Any] | None:
    table: Any = document
    for key in _TABLE.split("."):
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None


def _read_entry(key: str, value: Any, faults: list[Fault]) -> KernelRef | None:
    where = f'{_TABLE}."{key}"'
    try:
        repo = parse_repo_id(key)
        match value:
            case bool():
                pass
            case int() if value >= 0:
                return KernelRef(repo, version=value)
            case str():
                parse_range(value)
                return KernelRef(repo, version_range=value)
            case {"revision": str(revision), **rest} if revision and not rest:
                return KernelRef(repo, revision=revision)
            case {"version": int() | str() as version, **rest} if not rest:
                return _read_entry(key, version, faults)
    except FormatError as err:
        faults.append(_fault("bad-value", where, str(err)))
        return None
    expected = "expected a number, a range such as '>=1.0,<2', or { revision = \"...\" }"
    faults.append(_fault("bad-value", where, f"{expected}, found {value!r}"))
    return None


def _fault(kind: str, where: str, message: str) -> Fault:
    return Fault(kind=kind, where=where, message=message)
