"""Finds a kernel's benchmark files, on disk or on a hub, and reads the cases that they define."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kernels.asked import parse_ref
from kernels.bench.case import Case
from kernels.errors import NotAKernelError, RevisionNotFoundError
from kernels.load import get_kernel, get_local_kernel
from kernels.settings import Settings, read_settings

FOLDER = "benchmarks"
_NAME = re.compile(r"benchmark[^/]*\.py")


class Script(NamedTuple):
    """A benchmark file: its name, for messages, and its text."""

    name: str
    text: str


class Benchmarked(NamedTuple):
    """A loaded kernel and its benchmark files."""

    name: str
    module: ModuleType
    scripts: tuple[Script, ...]
    commit: str | None


def open_kernel(wanted: str, *, trust_remote_code: bool = False) -> Benchmarked:
    """Load a kernel, with its benchmark files.

    Args:
        wanted: the path of a project, ``owner/name``, or ``owner/name@revision``, where
            ``v1`` and ``1`` are the version 1.
        trust_remote_code: consent to run the code of an owner who is not trusted.

    Raises:
        NotAKernelError: there are no benchmark files.
        As ``get_kernel`` and ``get_local_kernel``.
    """
    repo_id, _, revision = wanted.partition("@")
    settings = read_settings()
    # First, so that kernels-community/activation is that kernel even where a folder is called so.
    if (project := settings.overrides.get(repo_id)) is not None:
        return _open_project(project, repo_id)
    path = Path(wanted)
    if path.is_dir():
        return _open_project(path, path.resolve().name)
    return _open_published(repo_id, revision, settings, trust_remote_code)


def read_cases(script: Script, kernel: ModuleType, device: Any) -> Iterator[Case]:
    """Run a benchmark file and yield what its ``cases(kernel, device)`` yields.

    Raises:
        NotAKernelError: it defines no such function.
    """
    module = ModuleType("benchmark")
    module.__file__ = script.name
    exec(compile(script.text, script.name, "exec"), module.__dict__)
    cases: Callable[[ModuleType, Any], Iterable[Case]] | None = getattr(module, "cases", None)
    if cases is None:
        raise NotAKernelError(
            Path(script.name),
            f"{script.name}: expected a function cases(kernel, device) that yields "
            "kernels.bench.Case, found none. docs/guide/benchmark.md shows one.",
        )
    yield from cases(kernel, device)


def _open_project(place: Path, name: str) -> Benchmarked:
    module = get_local_kernel(place)
    folder = next(
        (up / FOLDER for up in (place, *place.resolve().parents[:2]) if (up / FOLDER).is_dir()),
        place / FOLDER,
    )
    found = sorted(path for path in folder.glob("*.py") if _NAME.fullmatch(path.name))
    if not found:
        raise NotAKernelError(folder, f"{folder}: expected a file benchmark*.py, found none.")
    scripts = tuple(Script(str(path), path.read_text(encoding="utf-8")) for path in found)
    return Benchmarked(name, module, scripts, None)


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
    return Benchmarked(repo_id, module, tuple(scripts), commit)
