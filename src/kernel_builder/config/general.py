"""Reading the ``[general]`` section."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_builder.config import check
from kernel_builder.config.model import Depends, General, VersionBounds
from kernel_builder.config.table import Check, Objection, Table
from kernel_builder.config.testing import check_requirement
from kernel_builder.known import read_known
from kernel_spec.backend import BackendKind
from kernel_spec.git_url import normalize_git_url
from kernel_spec.metadata import KernelDependency
from kernel_spec.names import RepoId, parse_repo_id

_VERSIONED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[.*\])?\s*[<>=!~].*")

# The backends of the time when `universal` was written; tpu came later.
UNIVERSAL = tuple(sorted(kind for kind in BackendKind if kind is not BackendKind.TPU))


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """What ``general.backends`` lists.

    Attributes:
        backends: those that exist.
        meant: also those that a misspelling probably means; None where the list cannot be used.
    """

    backends: tuple[BackendKind, ...]
    meant: frozenset[str] | None


def read_backends(general: Table, edition: int) -> Listed:
    """Read ``general.backends`` of the editions that have it (3 and later)."""
    texts = general.texts("backends", check.check_backend, required=True, unique=True)
    if texts is None:
        return Listed(backends=(), meant=None)
    raw: list[str] = [text for text in general.data["backends"] if isinstance(text, str)]
    guesses = {
        objection.suggestion for text in raw if (objection := check.check_backend(text)) is not None
    }
    if edition < 5 and BackendKind.TPU in texts:
        index = general.data["backends"].index(BackendKind.TPU.value)
        general.add("backends", _newer('"tpu"'), index)
    if not raw and not texts:
        message = "found an empty list; expected at least one backend"
        general.add("backends", Objection("bad-value", message))
        return Listed(backends=(), meant=None)
    return Listed(
        backends=tuple(sorted(BackendKind(text) for text in texts)),
        meant=frozenset(texts) | {guess for guess in guesses if guess is not None},
    )


def read_general(general: Table, edition: int, backends: tuple[BackendKind, ...]) -> General:
    """Read the rest of ``[general]``; its faults go to the table's."""
    required = edition >= 4
    name = general.text("name", check.check_name, required=True)
    version = general.number("version", required=required)
    licence = general.text("license", check.check_not_empty, required=required)
    general.known.add("edition")
    upstream = source = None
    if edition >= 3:
        upstream = general.text("upstream", check.check_git_url)
        source = general.text("source", check.check_git_url)
    repo_id, branch = _read_hub(general)
    depends = Depends(
        python=_read_python_depends(general, None, edition),
        kernels=_read_kernel_depends(general, edition),
    )
    bounds, backend_depends = _read_backend_tables(general, edition)
    if edition <= 2:
        bounds = read_bounds(general, "cuda-minver", "cuda-maxver")
    general.finish()
    return General(
        name=name or "",
        version=1 if version is None else version,
        license=licence,
        backends=backends,
        upstream=None if upstream is None else normalize_git_url(upstream),
        source=None if source is None else normalize_git_url(source),
        repo_id=repo_id,
        branch=branch,
        depends=depends,
        backend_depends=backend_depends,
        cuda=bounds,
    )


def _newer(what: str) -> Objection:
    message = f"{what} needs edition 5; write edition = 5 under [general]"
    return Objection("needs-edition-5", message)


def _read_hub(general: Table) -> tuple[RepoId | None, str | None]:
    hub = general.table("hub")
    if hub is None:
        return None, None
    repo_id = hub.text("repo-id", check.check_repo_id)
    branch = hub.text("branch", check.check_branch)
    hub.finish()
    return (None if repo_id is None else parse_repo_id(repo_id)), branch


def _read_backend_tables(
    general: Table, edition: int
) -> tuple[VersionBounds, dict[BackendKind, Depends]]:
    """Read ``[general.cuda]`` and its siblings."""
    bounds = VersionBounds()
    found: dict[BackendKind, Depends] = {}
    if edition <= 2:
        return bounds, found
    for kind in (BackendKind.CUDA, BackendKind.NEURON, BackendKind.TPU, BackendKind.XPU):
        if kind is BackendKind.TPU and edition < 5:
            general.known.add(kind.value)
            if kind.value in general:
                general.add(kind.value, _newer("[general.tpu]"))
            continue
        table = general.table(kind.value)
        if table is None:
            continue
        if kind is BackendKind.CUDA:
            bounds = read_bounds(table, "minver", "maxver")
        python = _read_python_depends(table, kind, edition)
        kernels = () if kind is BackendKind.TPU else _read_kernel_depends(table, edition)
        table.finish()
        if python or kernels:
            found[kind] = Depends(python=python, kernels=kernels)
    return bounds, found


def _read_python_depends(
    table: Table, section: BackendKind | None, edition: int
) -> tuple[str, ...]:
    known = set(read_known().python_depends.get(section, {}))
    if edition <= 2:
        # Until edition 3 gave each backend its own list, all stood in one.
        known.update(*read_known().python_depends.values())
    test = _python_check(known)
    return table.texts("python-depends", test, unique=True) or ()


def _python_check(known: set[str]) -> Check:
    """Return a check that a text is a name that hubs know, or another package with its versions."""
    named = check.known_check("unknown-python-dependency", "Python dependency", known)

    def check_one(text: str) -> Objection | None:
        objection = named(text)
        if objection is None or not _VERSIONED.fullmatch(text):
            if objection is not None and objection.suggestion is None:
                link = ", or another" if known else "; expected a"
                message = f'{objection.message}{link} package with its versions: "numpy>=1.26"'
                return Objection(objection.kind, message)
            return objection
        name = _VERSIONED.fullmatch(text)
        if name is not None and name[1] in known:
            message = f'"{text}": hubs know this package by its name alone'
            return Objection("unknown-python-dependency", message, f'"{name[1]}"')
        return check_requirement(text)

    return check_one


def read_bounds(table: Table, lower: str, upper: str) -> VersionBounds:
    """Read a lowest and a highest version, which must be in that order."""
    minver = table.text(lower, check.check_version)
    maxver = table.text(upper, check.check_version)
    if minver is not None and maxver is not None and version_key(maxver) < version_key(minver):
        message = f'"{maxver}" is below {lower} = "{minver}"'
        table.add(upper, Objection("bad-range", message))
    return VersionBounds(minver=minver, maxver=maxver)


def version_key(text: str) -> tuple[int, int]:
    """Return major and minor of a version text, by which bounds are compared."""
    major, minor, *_ = [*(int(part) for part in text.split(".")), 0]
    return major, minor


def _read_kernel_depends(table: Table, edition: int) -> tuple[KernelDependency, ...]:
    if edition < 5:
        table.known.add("kernel-depends")
        if "kernel-depends" in table:
            table.add("kernel-depends", _newer("kernel-depends"))
        return ()
    return tuple(
        dependency
        for row in table.tables("kernel-depends")
        if (dependency := _read_kernel_dependency(row)) is not None
    )


def _read_kernel_dependency(row: Table) -> KernelDependency | None:
    repo_id = row.text("repo-id", check.check_repo_id, required=True)
    version = row.number("version")
    revision = row.text("revision", check.check_not_empty)
    if "version" in row and "revision" in row:
        message = "found version and revision; expected one of them"
        row.faults.add(row.path, "both-given", message)
    elif set(row.data) <= {"repo-id"}:
        message = "found neither version nor revision; expected one of them"
        row.faults.add(row.path, "neither-given", message)
    row.finish()
    if repo_id is None:
        return None
    return KernelDependency(repo_id=repo_id, version=version, revision=revision)
