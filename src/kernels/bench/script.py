"""Finds a kernel's benchmark files, on disk or on a hub, and reads the cases that they define."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kernel_spec.errors import UsageError
from kernel_spec.names import repo_id_fault
from kernels.asked import parse_ref
from kernels.bench.case import Case, find_faults
from kernels.errors import BenchmarkError, NotAKernelError, RevisionNotFoundError
from kernels.load import get_kernel, get_local_kernel
from kernels.loaded import get_loaded_kernels
from kernels.settings import Settings, read_settings

FOLDER = "benchmarks"
_NAME = re.compile(r"benchmark[^/]*\.py")


class Script(NamedTuple):
    """A benchmark file: its name, for messages, and its text."""

    name: str
    text: str


class Benchmarked(NamedTuple):
    """A loaded kernel and its benchmark files.

    Attributes:
        name: ``owner/name``; of a project the name of its folder.
        module: the kernel.
        scripts: its benchmark files, by name.
        commit: that of a published kernel; of a project the one that was built, marked where the
            sources differed from it, and None where its build does not know.
        published: whether it came from a hub.
    """

    name: str
    module: ModuleType
    scripts: tuple[Script, ...]
    commit: str | None
    published: bool


def open_kernel(wanted: str, *, trust_remote_code: bool = False) -> Benchmarked:
    """Load a kernel, with its benchmark files.

    Args:
        wanted: the path of a project, ``owner/name``, or ``owner/name@revision``, where
            ``v1`` and ``1`` are the version 1.
        trust_remote_code: consent to run the code of an owner who is not trusted.

    Raises:
        NotAKernelError: a project has no benchmark files.
        RevisionNotFoundError: a kernel on a hub has none at that revision.
        UsageError: a path with a revision, or that of a file.
        KernelError: as :func:`kernels.get_kernel` and :func:`kernels.get_local_kernel`.
    """
    repo_id, at, revision = wanted.partition("@")
    settings = read_settings()
    # First, so that kernels-community/activation is that kernel even where a folder is called so.
    if (project := settings.overrides.get(repo_id)) is not None:
        return _open_project(project, repo_id)
    path = Path(wanted)
    if path.is_dir():
        return _open_project(path)
    if repo_id_fault(repo_id) and (found := next(filter(Path.exists, (path, Path(repo_id))), None)):
        expected = f"without {at}{revision}" if found.is_dir() else "of a project's folder"
        raise UsageError(f"{wanted}: expected a path {expected}, or owner/name[@revision].")
    return _open_published(repo_id, revision, settings, trust_remote_code)


def read_cases(script: Script, kernel: ModuleType, device: Any) -> Iterator[Case]:
    """Run a benchmark file and yield what its ``cases(kernel, device)`` yields.

    Raises:
        NotAKernelError: it defines no such function.
        BenchmarkError: it fails, or yields something that is no case.
    """
    module = ModuleType("benchmark")
    module.__file__ = script.name
    with _telling_where(script):
        exec(compile(script.text, script.name, "exec"), module.__dict__)
    cases: Callable[[ModuleType, Any], Iterable[Case]] | None = getattr(module, "cases", None)
    if cases is None:
        raise NotAKernelError(
            Path(script.name),
            f"{script.name}: expected a function cases(kernel, device) that yields "
            "kernels.bench.Case, found none. docs/guide/benchmark.md shows one.",
        )
    with _telling_where(script):
        found = iter(cases(kernel, device))
    while True:
        with _telling_where(script):
            case = next(found, None)
        if case is None:
            return
        if not isinstance(case, Case):
            raise BenchmarkError(
                script.name,
                f"cases(kernel, device) yields {type(case).__name__}, expected kernels.bench.Case",
            )
        if faults := list(find_faults(case)):
            raise BenchmarkError(
                script.name, f"cases(kernel, device) yields a case with {'; '.join(faults)}"
            )
        yield case
        del case  # its tensors are gone before those of the next are made


@contextmanager
def _telling_where(script: Script) -> Iterator[None]:
    """Name the file, and its line, in whatever its code raises."""
    try:
        yield
    except (Exception, SystemExit) as err:  # a file that ends the process has failed as well
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(err.__traceback__)
            if frame.filename == script.name
        ]
        if isinstance(err, SyntaxError) and err.filename == script.name:
            lines.append(err.lineno)
        place = f"{script.name}:{lines[-1]}" if lines else script.name
        said = err.msg if isinstance(err, SyntaxError) else err
        raise BenchmarkError(place, f"{type(err).__name__}: {said}") from err


def _open_project(place: Path, name: str | None = None) -> Benchmarked:
    """Open a project, its `build/` or a variant; it is called as its folder is, unless it has a `name`."""
    module = get_local_kernel(place)
    folder = next(
        (up / FOLDER for up in (place, *place.resolve().parents[:2]) if (up / FOLDER).is_dir()),
        place / FOLDER,
    )
    found = sorted(path for path in folder.glob("*.py") if _NAME.fullmatch(path.name))
    if not found:
        raise NotAKernelError(folder, f"{folder}: expected a file benchmark*.py, found none.")
    scripts = tuple(Script(str(path), path.read_text(encoding="utf-8")) for path in found)
    own = name or folder.resolve().parent.name
    return Benchmarked(own, module, scripts, _find_built_commit(module), published=False)


def _find_built_commit(module: ModuleType) -> str | None:
    """Return what the variant itself says it was built from: the checkout may be further by now."""
    metadata = next(each.metadata for each in get_loaded_kernels() if each.module is module)
    if metadata.provenance is None or metadata.provenance.kernel_commit is None:
        return None
    changed = "-changed" if metadata.provenance.kernel_dirty else ""
    return metadata.provenance.kernel_commit[:12] + changed


def _open_published(
    repo_id: str, revision: str, settings: Settings, trust_remote_code: bool
) -> Benchmarked:
    from kernels.fetch import read_file
    from kernels.source import locate

    version = re.fullmatch(r"v?(\d+)", revision)
    chosen = int(version[1]) if version else None
    ref = parse_ref(repo_id, None if version else revision or None, chosen)
    located = locate(ref, settings)
    commit = located.commit
    # Its trust is judged here, before any of its benchmark's code runs.
    module = get_kernel(repo_id, commit, trust_remote_code=trust_remote_code)
    files = [
        file
        for file in located.hub.read_tree(located.ref.repo, commit, FOLDER)
        if _NAME.fullmatch(file.path.removeprefix(f"{FOLDER}/"))
    ]
    if not files:
        raise RevisionNotFoundError(
            repo_id,
            located.taken,
            f"{repo_id} has no {FOLDER}/benchmark*.py at {located.taken} (commit {commit[:12]}). "
            "Ask for another revision, owner/name@revision, or give the path of a project.",
        )
    scripts = []
    for file in sorted(files, key=lambda file: file.path):
        data = b"".join(read_file(located.hub, located.ref.repo, commit, file))
        scripts.append(Script(f"{repo_id}/{file.path}", data.decode()))
    return Benchmarked(repo_id, module, tuple(scripts), commit, published=True)
