"""The link of a CPU library by hand: against stubs, exporting the module's entry alone.

The order is that of Red Hat's gcc-toolset: what an old libstdc++ or libc has comes from the
shared library, and only what is newer from this machine's archives, hidden. So there is one
libstdc++ in the process, and exceptions and type information pass between torch and the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.policy import read_version_caps
from kernel_builder.toolchain.compat import make_compat
from kernel_builder.toolchain.cpu import CpuToolchain
from kernel_builder.toolchain.stubs import make_system_stubs, make_torch_stubs

EXPORTS = "{ global: PyInit_*; local: *; };\n"
# TVM FFI finds functions by these names, the context and the metadata of a library among them.
# Source: tvm/ffi/extra/module.h of apache-tvm-ffi 0.1.15, namespace symbol.
EXPORTS_TVM_FFI = "{ global: __tvm_ffi_*; local: *; };\n"

# nvcc names temporary files by its process id, and local symbols by these files: without local
# symbols the bytes do not depend on it.
_WITHOUT_NAMES = "-Wl,--strip-all"
_WITH_NAMES = "-Wl,--strip-debug"
# Lazy binding lets the library load where torch has no GPU code, so that its ops can be looked at there.
_LAZY = "-Wl,-z,lazy"


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkKit:
    """What a link needs besides objects: the directories of the stubs, and the filler object."""

    system: Path
    framework: Path
    compat: Path


def make_link_kit(
    toolchain: CpuToolchain,
    libraries: Iterable[str],
    *,
    variables: Mapping[str, str],
    store: Path,
) -> LinkKit:
    """Return the stubs for a toolchain; they are made once and stored.

    Args:
        toolchain: the compiler and the libraries that the stubs stand for.
        libraries: the framework's libraries by name, such as ``torch_cpu``.
        variables: the environment of the compiler.
        store: the directory of all stored stubs.

    Raises:
        CommandError: the compiler fails.
    """
    system = make_system_stubs(
        toolchain.shared,
        caps=read_version_caps(),
        compiler=toolchain.command,
        variables=variables,
        store=store,
    )
    framework = make_torch_stubs(
        libraries,
        cpu=toolchain.cpu,
        compiler=toolchain.command,
        variables=variables,
        store=store,
    )
    compat = make_compat(toolchain, variables=variables, store=store)
    return LinkKit(system=system, framework=framework, compat=compat)


def link_command(
    toolchain: CpuToolchain,
    kit: LinkKit,
    *,
    objects: Sequence[str],
    libraries: Sequence[str],
    version_script: str,
    output: str,
    cudart: Path | None = None,
    named: bool = False,
) -> tuple[str, ...]:
    """Compose the command that links a library.

    Args:
        toolchain: the compiler.
        kit: the stubs.
        objects: the objects, in the order in which they are linked.
        libraries: the framework's libraries that the kernel asks for, by name.
        version_script: a file that holds :data:`EXPORTS`.
        output: the library.
        cudart: the CUDA runtime that a CUDA library asks for.
        named: whether a CUDA library keeps the names of its own functions, for checks alone.
    """
    files = {name: str(path) for name, path in toolchain.files.items()}

    def stub(name: str) -> list[str]:
        path = kit.system / name
        return [str(path)] if path.is_file() else []

    names = ["libpthread.so.0", "libdl.so.2", "librt.so.1", "libc.so.6", toolchain.loader]
    return (
        *toolchain.command,
        "-shared",
        "-nostdlib",
        "-o",
        output,
        files["crti.o"],
        files["crtbeginS.o"],
        *objects,
        str(kit.compat),
        "-Wl,--no-as-needed",
        *(str(kit.framework / f"lib{name}.so") for name in libraries),
        *([] if cudart is None else ["-Wl,--as-needed", str(cudart), "-Wl,--no-as-needed"]),
        "-Wl,--gc-sections",
        "-Wl,--exclude-libs,ALL",
        *([_WITH_NAMES] if cudart is None else [_WITH_NAMES if named else _WITHOUT_NAMES, _LAZY]),
        "-Wl,--hash-style=gnu",
        "-Wl,-z,noexecstack",
        "-Wl,-z,relro",
        "-Wl,--build-id=sha1",
        f"-Wl,--version-script={version_script}",
        *stub("libstdc++.so.6"),
        "-Wl,--as-needed",
        files["libstdc++.a"],
        *stub("libm.so.6"),
        *stub("libmvec.so.1"),
        *stub("libgcc_s.so.1"),
        files["libgcc.a"],
        *(word for name in names for word in stub(name)),
        *([files["libc_nonshared.a"]] if "libc_nonshared.a" in files else []),
        files["crtendS.o"],
        files["crtn.o"],
    )
