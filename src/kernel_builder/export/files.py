"""Every file of an export, by path. Pure but for the templates that it reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath

from kernel_builder.config.model import Build, TvmFfiFramework
from kernel_builder.export.backends import BackendExport
from kernel_builder.export.cmake import format_cmake
from kernel_builder.export.quote import format_python, quote_text
from kernel_builder.known import name_distributions
from kernel_builder.own_headers import read_own_headers
from kernel_builder.package import OPS_FILE, format_ops
from kernel_builder.planned import VariantBuild
from kernel_builder.toolchain.link import EXPORTS, EXPORTS_TVM_FFI
from kernel_builder.toolchain.tvm_ffi import DISTRIBUTION, pinned_interface
from kernel_spec.framework import TvmFfi, format_requirement

HEADER = "# Written by kernel-builder from build.toml: write it again rather than changing it."
# From this release on setuptools reads a licence as PEP 639 has it.
_OLDEST_SETUPTOOLS = 77
_TOOLS = (f"setuptools>={_OLDEST_SETUPTOOLS}", "cmake>=3.22", "ninja>=1.10")


def render_export(
    build: Build, backends: Sequence[BackendExport], *, project: Path
) -> Mapping[str, bytes]:
    """Return the bytes of each file that is written beside the sources, by POSIX path, sorted.

    Args:
        build: the ``build.toml``.
        backends: what is exported.
        project: the directory of the project.

    Raises:
        ExportError: a file or a flag that CMake cannot express.
    """
    compiled = any(each.build.units for each in backends)
    requires = _TOOLS if compiled else _TOOLS[:1]
    if isinstance(build.framework, TvmFfiFramework):
        # Unlike torch, it is small, and every machine has the same.
        requires = (*requires, format_requirement(TvmFfi(pinned_interface())))
    texts = {"pyproject.toml": _pyproject(build, requires)}
    if compiled:
        texts |= _compiled(build, backends, project)
    else:
        texts["setup.py"] = _setup_noarch(build, backends)
        ids = {each.backend.value: each.build.op_id for each in backends}
        texts[f"torch-ext/{build.general.module}/{OPS_FILE}"] = _render("ops_noarch.py", ids=ids)
    return {path: texts[path].encode() for path in sorted(texts)}


def _compiled(build: Build, backends: Sequence[BackendExport], project: Path) -> dict[str, str]:
    digest = hashlib.sha256((project / "build.toml").read_bytes()).hexdigest()
    texts = {
        "CMakeLists.txt": format_cmake(
            build, backends, project=project, digest=digest, header=HEADER
        ),
        "cmake/kernel.cmake": _template("export/kernel.cmake"),
        "cmake/environment.py": _template("export/environment.py.jinja"),
    }
    tvm_ffi = isinstance(build.framework, TvmFfiFramework)
    if tvm_ffi:
        texts["cmake/exports.map"] = EXPORTS_TVM_FFI
    else:
        texts["cmake/exports.map"] = EXPORTS
        texts |= {
            f"cmake/include/{path}": read.decode() for path, read in read_own_headers().items()
        }
    for each in backends:
        compiled = bool(each.build.units)
        text = format_ops(
            each.build.op_id,
            compiled=compiled,
            tvm_ffi=tvm_ffi,
            per_torch=each.build.has_per_torch,
        )
        texts[f"cmake/ops/{each.backend.value}.py"] = f"{HEADER}\n{text}"
    paths = {path for each in backends for path in each.build.headers}
    paths |= {unit.source for each in backends for unit in each.build.units}
    written = [path for path in texts if path != "setup.py"]
    texts["setup.py"] = _render(
        "setup.py",
        name=build.general.name,
        oldest_setuptools=_OLDEST_SETUPTOOLS,
        tools=" ".join(f"'{tool}'" for tool in _TOOLS),
        framework="tvm-ffi" if tvm_ffi else "torch",
        distribution=DISTRIBUTION if tvm_ffi else "torch",
        suffix=".so" if tvm_ffi else ".abi3.so",
        extension=build.extension,
        module=build.general.module,
        backends={each.backend.value: _requirements(each) for each in backends},
        sources=sorted(paths),
        depends=sorted(["build.toml", *written]),
        **_packages(build, backends),
    )
    return texts


def _pyproject(build: Build, requires: Sequence[str]) -> str:
    general = build.general
    return _render(
        "pyproject.toml",
        name=general.name,
        version=general.version,
        license=_find_expression(general.license or ""),
        requires=requires,
    )


def _setup_noarch(build: Build, backends: Sequence[BackendExport]) -> str:
    depends = [name for each in backends for name in _needed(each.build)]
    return _render(
        "setup_noarch.py",
        name=build.general.name,
        oldest_setuptools=_OLDEST_SETUPTOOLS,
        tools=f"'{_TOOLS[0]}'",
        requirements=["torch", *dict.fromkeys(depends)],
        **_packages(build, backends),
    )


def _requirements(export: BackendExport) -> tuple[str, list[str]]:
    """Return the oldest torch that a backend runs with, and the distributions that it needs.

    An empty version stands for the very release that it is built against.
    """
    made = export.build
    since = "2.0" if not made.units else ""
    if made.stable_abi is not None:
        since = str(made.stable_abi)
    return since, list(_needed(made))


def _needed(made: VariantBuild) -> tuple[str, ...]:
    """Return the Python packages that a variant imports, as pip reads them."""
    return (*name_distributions(made.python_depends), *made.python_requires)


def _packages(build: Build, backends: Sequence[BackendExport]) -> dict[str, object]:
    """Return the packages of the module, and the files in them that are not Python."""
    module = build.general.module
    packages = {module}
    data: dict[str, list[str]] = {}
    for path in sorted({path for each in backends for path in each.build.package}):
        place = PurePosixPath(module, path)
        package = ".".join(place.parent.parts)
        packages.add(package)
        if place.suffix != ".py":
            data.setdefault(package, []).append(place.name)
    return {"packages": sorted(packages), "package_data": data}


def _find_expression(text: str) -> str | None:
    """Return a licence as packages declare it, or None where the text is no SPDX expression."""
    try:
        from packaging import licenses
    except ImportError:  # packaging before 24.2
        return None
    try:
        return licenses.canonicalize_license_expression(text)
    except licenses.InvalidLicenseExpression:
        return None


def _template(path: str) -> str:
    return files("kernel_builder").joinpath("templates", *path.split("/")).read_text("utf-8")


def _render(template: str, /, **values: object) -> str:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = quote_text
    environment.filters["pretty"] = format_python
    return environment.from_string(_template(f"export/{template}.jinja")).render(values)
