"""A new kernel project: what it is called, which files it has, and writing all of them or none."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config import check
from kernel_builder.config.table import find_close
from kernel_builder.errors import ScaffoldError
from kernel_spec.backend import BackendKind
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId, module_name, parse_repo_id

# The backends that there are example sources for.
WRITTEN = (BackendKind.CPU, BackendKind.CUDA)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewProject:
    """A project to be written.

    Attributes:
        repo_id: where it will be published.
        backends: what it has sources for, in the order of :data:`WRITTEN`.
        licence: an SPDX expression or free text.
    """

    repo_id: RepoId
    backends: tuple[BackendKind, ...]
    licence: str

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.repo_id.name


def plan_project(*, name: str, backends: Iterable[str], licence: str) -> NewProject:
    """Read what was asked for.

    Args:
        name: ``owner/repo``; the second half becomes the name of the kernel.
        backends: names of backends, also several in one text with commas between, or ``all``.
        licence: an SPDX expression or free text.

    Raises:
        ScaffoldError: with everything that is wrong with it.
    """
    faults = []
    if "/" not in name:
        suggestion = check.suggest_name(name) or name
        faults.append(f"--name {name}: expected OWNER/REPO, such as <your name>/{suggestion}")
        repo_id = RepoId("owner", name)
    else:
        try:
            repo_id = parse_repo_id(name)
        except FormatError as err:
            faults.append(f"--name {name}: {err}")
            repo_id = RepoId(*name.split("/", 1))
    finding = check.check_name(repo_id.name)
    if finding is not None and not faults:
        hint = ""
        if finding.suggestion is not None:
            hint = f'; did you mean "{repo_id.owner}/{finding.suggestion}"?'
        faults.append(f"--name {name}: the name of the kernel: {finding.message}{hint}")
    if not licence.strip():
        faults.append("--license: found an empty text; expected one such as Apache-2.0")
    chosen, wrong = _read_backends(backends)
    faults += wrong
    if faults:
        raise ScaffoldError("\n".join(faults))
    return NewProject(repo_id=repo_id, backends=chosen, licence=licence)


def _read_backends(texts: Iterable[str]) -> tuple[tuple[BackendKind, ...], list[str]]:
    names = [name for text in texts for name in text.split(",") if name]
    written = [kind.value for kind in WRITTEN]
    if names == ["all"]:
        return WRITTEN, []
    faults = []
    for name in dict.fromkeys(names):
        if name in written:
            continue
        finding = check.check_backend(name)
        if finding is None:
            faults.append(
                f"--backends {name}: there are no example sources for {name} yet; "
                f"expected {' or '.join(written)}. A project may still be written for it by hand"
            )
        else:
            close = find_close(name, written)
            hint = f'; did you mean "{close}"?' if close else f"; expected {' or '.join(written)}"
            faults.append(f'--backends {name}: no backend "{name}"{hint}')
    if not names:
        faults.append(f"--backends: expected {' or '.join(written)}")
    return tuple(kind for kind in WRITTEN if kind.value in names), faults


def render_project(project: NewProject) -> Mapping[str, str]:
    """Return the text of each file of a new project, by POSIX path, sorted."""
    import jinja2

    module = module_name(project.name)
    places = {
        ".gitattributes": "gitattributes",
        ".gitignore": "gitignore",
        "CARD.md": "CARD.md",
        "benchmarks/benchmark.py": "benchmarks/benchmark.py",
        "build.toml": "build.toml",
        "example.py": "example.py",
        "tests/conftest.py": "tests/conftest.py",
        f"tests/test_{module}.py": "tests/test.py",
        f"torch-ext/{module}/__init__.py": "torch-ext/module.py",
        "torch-ext/torch_binding.cpp": "torch-ext/torch_binding.cpp",
        "torch-ext/torch_binding.h": "torch-ext/torch_binding.h",
    }
    if BackendKind.CPU in project.backends:
        places[f"csrc/{module}_cpu.cpp"] = "csrc/cpu.cpp"
    if BackendKind.CUDA in project.backends:
        places[f"csrc/{module}_cuda.cu"] = "csrc/cuda.cu"
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernel_builder", "templates/project"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = lambda text: json.dumps(text, ensure_ascii=False)
    values = {
        "name": project.name,
        "module": module,
        "repo_id": str(project.repo_id),
        "license": project.licence,
        "backends": [kind.value for kind in project.backends],
    }
    return {
        path: environment.get_template(f"{places[path]}.jinja").render(values)
        for path in sorted(places)
    }


def write_project(project: NewProject, target: Path, *, overwrite: bool = False) -> list[str]:
    """Write a new project, and return the paths of its files.

    Raises:
        ScaffoldError: a file is there already and ``overwrite`` is not set, or the place cannot
            be written; nothing is written then.
    """
    files = render_project(project)
    _refuse_existing(files, target, overwrite=overwrite)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Written beside the target first: a full disk leaves nothing half-done there.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
            staging = Path(temporary)
            for path, text in files.items():
                place = staging / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            for path in files:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (staging / path).replace(target / path)
    except OSError as err:
        raise ScaffoldError(f"{target}: cannot write the project there ({err.strerror})") from err
    return list(files)


def _refuse_existing(files: Iterable[str], target: Path, *, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise ScaffoldError(f"{target}: this is a file; expected a directory, or none yet")
    existing = [path for path in files if (target / path).exists() or (target / path).is_symlink()]
    if existing and not overwrite:
        lines = [f"{target}: {len(existing)} files are there already; nothing was written"]
        lines += [f"  {path}" for path in existing]
        lines.append("choose another PATH, or replace them with --overwrite")
        raise ScaffoldError("\n".join(lines))
