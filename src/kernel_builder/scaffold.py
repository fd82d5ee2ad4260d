"""A new kernel project: what it is called, which files it has, and writing all of them or none."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernel_builder.config import check
from kernel_builder.config.model import TORCH_EXTENSION, TVM_FFI_EXTENSION
from kernel_builder.config.table import find_close
from kernel_builder.errors import CommandError, ScaffoldError, StorageError
from kernel_builder.git import run_git
from kernel_builder.settings import Settings
from kernel_spec.backend import BackendKind
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId, module_name, parse_repo_id

# The backends that there are example sources for, in the order in which they are written.
WRITTEN = (
    BackendKind.CPU,
    BackendKind.CUDA,
    BackendKind.ROCM,
    BackendKind.METAL,
    BackendKind.XPU,
)
# Those that this version compiles: what `all` stands for.
BUILDABLE = (BackendKind.CPU, BackendKind.CUDA)
# Those that Triton compiles for when the kernel is used; on the CPU it is plain torch.
TRITON = (BackendKind.CPU, BackendKind.CUDA, BackendKind.ROCM, BackendKind.XPU)
TRITON_DEFAULT = (BackendKind.CPU, BackendKind.CUDA, BackendKind.ROCM)

_CUDA_SOURCES = {
    "cuda.cu": "csrc/cuda.cu",
    "cuda.cpp": "csrc/cuda.cpp",
    "launch.h": "csrc/launch.h",
}
_SOURCES: dict[BackendKind, Mapping[str, str]] = {
    BackendKind.CPU: {"cpu.cpp": "csrc/cpu.cpp"},
    BackendKind.CUDA: _CUDA_SOURCES,
    # The same files: ROCm's compiler reads them as well.
    BackendKind.ROCM: _CUDA_SOURCES,
    BackendKind.METAL: {"metal.mm": "csrc/metal.mm", "metal.metal": "csrc/metal.metal"},
    BackendKind.XPU: {"xpu.cpp": "csrc/xpu.cpp"},
}
_TVM_FFI_SOURCES: dict[BackendKind, Mapping[str, str]] = {
    BackendKind.CPU: {"cpu.cpp": "tvm-ffi/cpu.cpp"},
    BackendKind.CUDA: {"cuda.cu": "tvm-ffi/cuda.cu"},
}
_DEVICES = {BackendKind.METAL: "mps", BackendKind.ROCM: "cuda"}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Offer:
    """The backends of a framework that init writes sources for: all, those of ``all``, the default."""

    written: tuple[BackendKind, ...]
    every: tuple[BackendKind, ...]
    default: tuple[BackendKind, ...]
    otherwise: str


_NO_SOURCES = "there are no example sources for it"
_OFFERS = {
    "torch": _Offer(
        written=WRITTEN, every=BUILDABLE, default=(BackendKind.CPU,), otherwise=_NO_SOURCES
    ),
    "torch-noarch": _Offer(
        written=TRITON,
        every=TRITON,
        default=TRITON_DEFAULT,
        otherwise="Triton has no code for it",
    ),
    "tvm-ffi": _Offer(
        written=BUILDABLE, every=BUILDABLE, default=(BackendKind.CPU,), otherwise=_NO_SOURCES
    ),
}
# How functions reach Python, as build.toml calls it; the first is the default.
FRAMEWORKS = tuple(_OFFERS)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewProject:
    """A project to be written.

    Attributes:
        repo_id: where it will be published.
        backends: what it has sources for, in the order of :data:`WRITTEN`.
        licence: an SPDX expression or free text.
        framework: one of :data:`FRAMEWORKS`.
    """

    repo_id: RepoId
    backends: tuple[BackendKind, ...]
    licence: str
    framework: str = FRAMEWORKS[0]

    @property
    def noarch(self) -> bool:
        """Whether it is Python and Triton alone."""
        return self.framework == "torch-noarch"

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.repo_id.name


def plan_project(
    *, name: str, backends: Iterable[str], licence: str, framework: str = FRAMEWORKS[0]
) -> NewProject:
    """Read what was asked for.

    Args:
        name: ``owner/repo``; the second half becomes the name of the kernel.
        backends: names of backends, also several in one text with commas between, or ``all``:
            every one that this version builds; none: the default.
        licence: an SPDX expression or free text.
        framework: one of :data:`FRAMEWORKS`.

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
    objection = check.check_name(repo_id.name)
    if objection is not None and not faults:
        hint = ""
        if objection.suggestion is not None:
            hint = f'; did you mean "{repo_id.owner}/{objection.suggestion}"?'
        faults.append(f"--name {name}: the name of the kernel: {objection.message}{hint}")
    if not licence.strip():
        faults.append("--license: found an empty text; expected one such as Apache-2.0")
    chosen, wrong = _read_backends(backends, _OFFERS[framework])
    faults += wrong
    if faults:
        raise ScaffoldError("\n".join(faults))
    return NewProject(repo_id=repo_id, backends=chosen, licence=licence, framework=framework)


def _read_backends(
    texts: Iterable[str], offer: _Offer
) -> tuple[tuple[BackendKind, ...], list[str]]:
    names = [name for text in texts for name in text.split(",") if name]
    written = [kind.value for kind in offer.written]
    if names == ["all"]:
        return offer.every, []
    if not names:
        return offer.default, []
    expected = f"expected one of {', '.join(written)}"
    faults = []
    for name in dict.fromkeys(names):
        if name in written:
            continue
        if name == "all":
            faults.append("--backends all: found others beside it; expected it alone")
        elif check.check_backend(name) is None:
            faults.append(
                f"--backends {name}: {offer.otherwise}; {expected}. A project may still be written for it "
                "by hand"
            )
        else:
            close = find_close(name, written)
            hint = f'did you mean "{close}"?' if close else expected
            faults.append(f'--backends {name}: no backend "{name}"; {hint}')
    return tuple(kind for kind in WRITTEN if kind.value in names), faults


def render_project(project: NewProject) -> Mapping[str, str]:
    """Return the text of each file of a new project, by POSIX path, sorted."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernel_builder", "templates/project"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = lambda text: json.dumps(text, ensure_ascii=False)
    devices = [_DEVICES.get(kind, kind.value) for kind in project.backends]
    guards = {BackendKind.CUDA: "defined(CUDA_KERNEL)", BackendKind.ROCM: "defined(ROCM_KERNEL)"}
    values = {
        "name": project.name,
        "module": module_name(project.name),
        "repo_id": str(project.repo_id),
        "license": project.licence,
        "noarch": project.noarch,
        "extension": _extension(project),
        "backends": [kind.value for kind in project.backends],
        "devices": list(dict.fromkeys(devices)),
        "sources": {kind.value: list(_sources(project, kind)) for kind in project.backends},
        "gpu_guard": " || ".join(guards[kind] for kind in project.backends if kind in guards),
    }
    places = _places(project)
    return {
        path: environment.get_template(f"{places[path]}.jinja").render(values)
        for path in sorted(places)
    }


def _sources(project: NewProject, kind: BackendKind) -> Mapping[str, str]:
    """Return the template of each file that is compiled for a backend, by its path."""
    if project.noarch:
        return {}
    module = module_name(project.name)
    sources = _TVM_FFI_SOURCES if project.framework == "tvm-ffi" else _SOURCES
    return {f"csrc/{module}_{end}": template for end, template in sources[kind].items()}


def _extension(project: NewProject) -> str:
    return TVM_FFI_EXTENSION if project.framework == "tvm-ffi" else TORCH_EXTENSION


def _places(project: NewProject) -> dict[str, str]:
    """Return the template of each file, by its path."""
    module = module_name(project.name)
    places = {
        ".gitattributes": "gitattributes",
        ".gitignore": "gitignore",
        "CARD.md": "CARD.md",
        "benchmarks/benchmark.py": "benchmarks/benchmark.py",
        "build.toml": "build.toml",
        "example.py": "example.py",
        "flake.nix": "flake.nix",
        "tests/conftest.py": "tests/conftest.py",
        "tests/gate.py": "tests/gate.py",
        f"tests/test_{module}.py": "tests/test.py",
    }
    if project.framework == "tvm-ffi":
        return _tvm_ffi_places(project, places)
    if project.noarch:
        return places | {
            f"torch-ext/{module}/__init__.py": "torch-ext/noarch.py",
            f"torch-ext/{module}/triton_add_one.py": "torch-ext/triton_add_one.py",
        }
    places |= {
        f"torch-ext/{module}/__init__.py": "torch-ext/module.py",
        "torch-ext/torch_binding.cpp": "torch-ext/torch_binding.cpp",
        "torch-ext/torch_binding.h": "torch-ext/torch_binding.h",
    }
    for kind in project.backends:
        places |= _sources(project, kind)
    return places


def _tvm_ffi_places(project: NewProject, others: Mapping[str, str]) -> dict[str, str]:
    """Return the template of each file of a kernel of TVM FFI; the gate is about torch's ops."""
    module = module_name(project.name)
    own = ("CARD.md", "build.toml", "example.py")
    places = {path: text for path, text in others.items() if path != "tests/gate.py"}
    places |= {path: f"tvm-ffi/{path}" for path in own}
    places |= {
        f"tests/test_{module}.py": "tvm-ffi/test.py",
        f"tvm-ffi-ext/{module}/__init__.py": "tvm-ffi/module.py",
        "tvm-ffi-ext/tvm_ffi_binding.cpp": "tvm-ffi/tvm_ffi_binding.cpp",
        "csrc/add_one.h": "tvm-ffi/add_one.h",
    }
    for kind in project.backends:
        places |= _sources(project, kind)
    return places


def write_project(project: NewProject, target: Path, *, overwrite: bool = False) -> list[str]:
    """Write a new project, and return the paths of its files.

    Raises:
        ScaffoldError: a file is there already and ``overwrite`` is not set.
        StorageError: the place cannot be written. In both cases nothing is.
    """
    files = render_project(project)
    _refuse_existing(files, target, overwrite=overwrite)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Written beside the target first: a full disk leaves nothing half-done.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
            staging = Path(temporary) / "project"
            for path, text in files.items():
                place = staging / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            if target.exists():
                for path in files:
                    (target / path).parent.mkdir(parents=True, exist_ok=True)
                    (staging / path).replace(target / path)
            else:
                staging.replace(target)
    except OSError as err:
        raise StorageError(
            f"{target}: cannot write the project there ({err.strerror}); choose another PATH, or see "
            "that there is room and that this user may write"
        ) from err
    return list(files)


def _refuse_existing(files: Iterable[str], target: Path, *, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise ScaffoldError(f"{target}: this is a file; expected a directory, or none yet")
    existing = [path for path in files if (target / path).exists() or (target / path).is_symlink()]
    if existing and not overwrite:
        there = "1 file is" if len(existing) == 1 else f"{len(existing)} files are"
        lines = [f"{target}: {there} there already; nothing was written"]
        lines += [f"  {path}" for path in existing]
        lines.append("choose another PATH, or replace them with --overwrite")
        raise ScaffoldError("\n".join(lines))


def start_repository(target: Path, files: Iterable[str], settings: Settings) -> str:
    """Make a git repository of a new project and add its files; nothing is committed.

    Returns:
        What was done, or why nothing was: there is no git, or the place is in a repository.
    """
    try:
        git = partial(run_git, settings=settings, place=target)
        if git("rev-parse", "--is-inside-work-tree", check=False).code == 0:
            return "git: the project lies in a repository already; add its files to that"
        git("init", "--quiet")
        git("add", "--", *files)
    except CommandError as err:
        return f"git: no repository was made ({str(err).splitlines()[0]})"
    return "git: a new repository; commit when you like, so that builds name the commit"
