"""The text of ``CMakeLists.txt``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernel_builder.archs import gencode_flags
from kernel_builder.config.model import Build, TorchFramework, TvmFfiFramework
from kernel_builder.environment import framework_libraries
from kernel_builder.export.backends import BackendExport, ToolkitRange
from kernel_builder.export.quote import quote_cmake, quote_option, quote_path
from kernel_builder.export.units import UnitFlags, shared_options, sort_flags
from kernel_builder.flags import CXX20_SINCE
from kernel_spec.backend import BackendKind

_HERE = "${CMAKE_CURRENT_SOURCE_DIR}"


def format_cmake(
    build: Build, backends: Sequence[BackendExport], *, project: Path, digest: str, header: str
) -> str:
    """Write ``CMakeLists.txt``.

    Args:
        build: the ``build.toml``.
        backends: what is exported.
        project: the directory of the project.
        digest: the sha256 of ``build.toml``, hex.
        header: the first line.

    Raises:
        ExportError: a file or a flag that CMake cannot express.
    """
    general = build.general
    compiled = [each.backend.value for each in backends if each.build.units]
    lines = [
        header,
        "cmake_minimum_required(VERSION 3.22...4.0)",
        f"project({quote_cmake(general.name)} LANGUAGES CXX)",
        "",
        f"set(KERNEL_MODULE {general.module})",
        f"set(KERNEL_BACKENDS {' '.join(each.backend.value for each in backends)})",
        f"set(KERNEL_COMPILED {' '.join(compiled)})".replace(" )", ")"),
        f"set(KERNEL_BUILD_TOML {digest})",
        f"set(KERNEL_FRAMEWORK {_framework(build)})",
        f"set(KERNEL_EXTENSION {build.extension})",
        f"set(KERNEL_CXX20_SINCE {CXX20_SINCE})",
        *_call("set", "KERNEL_PYTHON_FILES", map(quote_path, backends[0].build.package)),
        "include(cmake/kernel.cmake)",
    ]
    for number, each in enumerate(backends):
        word = "if" if number == 0 else "elseif"
        lines += ["", f'{word}(KERNEL_CHOSEN STREQUAL "{each.backend.value}")']
        body = list(_backend(build, each, project)) or ["# Nothing is compiled for it."]
        lines += [f"  {line}" if line else "" for line in body]
    return "\n".join([*lines, "endif()", "", "kernel_package()", ""])


def _framework(build: Build) -> str:
    return "tvm-ffi" if isinstance(build.framework, TvmFfiFramework) else "torch"


def _backend(build: Build, export: BackendExport, project: Path) -> Iterator[str]:
    """Write what is compiled for a backend."""
    made = export.build
    if not made.units:
        return
    if made.tvm_ffi is not None:
        yield f"kernel_require_tvm_ffi({made.tvm_ffi})"
    elif made.stable_abi is not None:
        yield f"kernel_require_torch(STABLE_ABI {made.stable_abi})"
    else:
        assert isinstance(build.framework, TorchFramework)
        bounds = build.framework.torch
        words = [f"MINVER {bounds.minver}"] if bounds.minver is not None else []
        words += [f"MAXVER {bounds.maxver}"] if bounds.maxver is not None else []
        yield f"kernel_require_torch({' '.join(words)})"
    if export.backend is BackendKind.CUDA:
        cuda = build.general.cuda
        words = [f"MINVER {cuda.minver}"] if cuda.minver is not None else []
        words += [f"MAXVER {cuda.maxver}"] if cuda.maxver is not None else []
        yield from [f"kernel_require_cuda({' '.join(words)})"] if words else []
    framework = "TORCH" if made.tvm_ffi is None else "TVM_FFI"
    words = [made.op_id, framework, *framework_libraries(made)]
    depends = [name for name in made.depends if name != "torch"]
    words += ["DEPENDS", *map(quote_cmake, depends)] if depends else []
    yield f"kernel_library({' '.join(words)})"
    units = [sort_flags(unit, made, project) for unit in made.units]
    yield from _call("target_compile_definitions", f"{made.op_id} PRIVATE", _definitions(units))
    include = _shared_include(units)
    places = [*(f'"{_HERE}/{quote_path(path).strip(chr(34))}"' for path in include)]
    places += [f'"{_HERE}/cmake/include"'] if made.tvm_ffi is None else []
    yield from _call("target_include_directories", f"{made.op_id} PRIVATE", places)
    yield from _toolkits(export)
    yield ""
    plain = [quote_path(unit.source) for unit in made.units if export.since(unit) is None]
    yield from _call("target_sources", f"{made.op_id} PRIVATE", plain)
    yield from _call(
        "target_compile_options",
        f"{made.op_id} PRIVATE",
        (
            _option(unit, option)
            for device in (False, True)
            for unit in [flags for flags in units if flags.device is device][:1]
            for option in shared_options(each for each in units if each.device is device)
        ),
    )
    for device in (False, True):
        listed = [unit for unit in units if unit.device is device]
        shared = shared_options(listed)
        for unit in listed:
            yield from _unit(export, unit, shared, len(include))


def _definitions(units: Sequence[UnitFlags]) -> Iterator[str]:
    """Write the macros of the files; some are for one language alone."""
    for text in dict.fromkeys(text for unit in units for text in unit.definitions):
        quoted = quote_option(text)
        having = {unit.device for unit in units if text in unit.definitions}
        if having == {unit.device for unit in units}:
            yield quoted
        else:
            language = "CUDA" if True in having else "CXX"
            yield f'"$<$<COMPILE_LANGUAGE:{language}>:{quoted[1:-1]}>"'


def _unit(
    export: BackendExport, flags: UnitFlags, shared: Sequence[str], common: int
) -> Iterator[str]:
    """Write what is particular to one file: where it includes from, and its own flags."""
    source = quote_path(flags.unit.source)
    lines = []
    own = flags.include[: len(flags.include) - common]
    if own:
        places = (f'"{_HERE}/{quote_path(path).strip(chr(34))}"' for path in own)
        lines += _call("set_property", f"SOURCE {source} PROPERTY INCLUDE_DIRECTORIES", places)
    words = [quote_option(option) for option in flags.options if option not in shared]
    if flags.device:
        words.append(f"${{{_archs_name(export, flags.unit.source)}}}")
    words += [_author_option(flag, name) for flag, name in flags.author]
    if words:
        lines += _call("set_property", f"SOURCE {source} PROPERTY COMPILE_OPTIONS", words)
    since = export.since(flags.unit)
    if since is None:
        yield from lines
        return
    yield f"if(NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS {since})"
    lines.insert(0, f"target_sources({export.build.op_id} PRIVATE {source})")
    yield from (f"  {line}" for line in lines)
    yield "endif()"


def _option(flags: UnitFlags, option: str) -> str:
    """Write an option of all files of a language; what only GCC understands is for GCC alone."""
    assert option.startswith("-"), "CMake drops the first word of a flag of two where it repeats"
    condition = f"$<COMPILE_LANGUAGE:{'CUDA' if flags.device else 'CXX'}>"
    if option in flags.gnu_options:
        condition = f"$<AND:{condition},$<CXX_COMPILER_ID:GNU>>"
    return f'"$<{condition}:{quote_option(option)[1:-1]}>"'


def _author_option(flag: str, name: str | None) -> str:
    """Write a flag of the author; one that a build can do without is for an nvcc that knows it."""
    quoted = quote_option(flag)
    if name is None:
        return quoted
    return f'"$<$<BOOL:${{KERNEL_NVCC_{name}}}>:{quoted[1:-1]}>"'


def _shared_include(units: Sequence[UnitFlags]) -> tuple[str, ...]:
    """Return the longest list of directories that the lists of all files end in."""
    shortest = min((unit.include for unit in units), key=len)
    for length in range(len(shortest), 0, -1):
        tail = shortest[-length:]
        if all(unit.include[-length:] == tail for unit in units):
            return tail
    return ()


def _toolkits(export: BackendExport) -> Iterator[str]:
    """Write which capabilities each toolkit compiles the files for."""
    if not export.toolkits:
        return
    names = _archs_names(export)
    yield ""
    for number, toolkit in enumerate(export.toolkits):
        word = "if" if number == 0 else "elseif"
        yield f"{word}(NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS {toolkit.since})"
        for archs, name in names.items():
            found = archs[number]
            if found:
                flags = map(quote_option, gencode_flags(found))
                yield from (f"  {line}" for line in _call("set", name, flags))
    yield "else()"
    yield (
        '  message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} compiles none of the '
        f'capabilities that build.toml names; {export.toolkits[-1].since} or newer is needed")'
    )
    yield "endif()"


def _archs_of(toolkits: Iterable[ToolkitRange], source: str) -> tuple[tuple[str, ...], ...]:
    return tuple(toolkit.archs.get(source, ()) for toolkit in toolkits)


def _archs_names(export: BackendExport) -> dict[tuple[tuple[str, ...], ...], str]:
    """Name the lists of capabilities that differ, each a list for every toolkit."""
    sources = dict.fromkeys(source for each in export.toolkits for source in each.archs)
    found = dict.fromkeys(_archs_of(export.toolkits, source) for source in sources)
    return {archs: f"cuda_archs_{number}" for number, archs in enumerate(found, 1)}


def _archs_name(export: BackendExport, source: str) -> str:
    return _archs_names(export)[_archs_of(export.toolkits, source)]


def _call(command: str, head: str, words: Iterable[str]) -> list[str]:
    """Write a call with one argument a line."""
    lines = [f"  {word}" for word in words]
    if not lines:
        return [f"{command}({head})"]
    return [f"{command}({head}", *lines[:-1], f"{lines[-1]})"]
