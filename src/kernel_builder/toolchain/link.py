"""The link of a CPU library by hand: against stubs, exporting the module's entry alone.

The order is that of Red Hat's gcc-toolset: what an old libstdc++ or libc has comes from the
shared library, and only what is newer from this machine's archives, hidden. So there is one
libstdc++ in the process, and exceptions and type information pass between torch and the kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.check.policy import read_version_caps
from kernel_builder.process import run
from kernel_builder.toolchain.cpu import CpuToolchain
from kernel_builder.toolchain.stubs import make_system_stubs, make_torch_stubs, store_directory

EXPORTS = "{ global: PyInit_*; local: *; };\n"

# Functions that headers of a newer glibc call and glibc 2.28 lacks, each in its own section so
# that the linker keeps only those that are used. libstdc++ reads __libc_single_threaded to skip
# locks; 0 is always right. No header is included: headers are what redirects these names.
_COMPAT = r"""
#define HIDDEN __attribute__((visibility("hidden")))
typedef __builtin_va_list args_t;
HIDDEN char __libc_single_threaded = 0;
extern int __xstat(int, const char *, void *), __lxstat(int, const char *, void *);
extern int __fxstat(int, int, void *), __fxstatat(int, int, const char *, void *, int);
HIDDEN int stat(const char *path, void *out) { return __xstat(STAT_VERSION, path, out); }
HIDDEN int lstat(const char *path, void *out) { return __lxstat(STAT_VERSION, path, out); }
HIDDEN int fstat(int file, void *out) { return __fxstat(STAT_VERSION, file, out); }
HIDDEN int fstatat(int dir, const char *path, void *out, int flags)
{ return __fxstatat(STAT_VERSION, dir, path, out, flags); }
extern long strtol(const char *, char **, int);
extern unsigned long strtoul(const char *, char **, int);
extern long long strtoll(const char *, char **, int);
extern unsigned long long strtoull(const char *, char **, int);
HIDDEN long __isoc23_strtol(const char *s, char **e, int b) { return strtol(s, e, b); }
HIDDEN unsigned long __isoc23_strtoul(const char *s, char **e, int b) { return strtoul(s, e, b); }
HIDDEN long long __isoc23_strtoll(const char *s, char **e, int b) { return strtoll(s, e, b); }
HIDDEN unsigned long long __isoc23_strtoull(const char *s, char **e, int b)
{ return strtoull(s, e, b); }
extern int __isoc99_vsscanf(const char *, const char *, args_t);
HIDDEN int __isoc23_vsscanf(const char *s, const char *f, args_t a)
{ return __isoc99_vsscanf(s, f, a); }
HIDDEN int __isoc23_sscanf(const char *s, const char *f, ...) {
  args_t args;
  __builtin_va_start(args, f);
  int found = __isoc99_vsscanf(s, f, args);
  __builtin_va_end(args);
  return found;
}
"""
_STAT_VERSION = {"x86_64": 1, "aarch64": 0}


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkKit:
    """What a link needs besides objects: the directories of the stubs, and the filler object."""

    system: Path
    torch: Path
    compat: Path


def make_link_kit(
    toolchain: CpuToolchain,
    torch_libraries: Iterable[str],
    *,
    variables: Mapping[str, str],
    store: Path,
) -> LinkKit:
    """Return the stubs for a toolchain; they are made once and stored.

    Args:
        toolchain: the compiler and the libraries that the stubs stand for.
        torch_libraries: torch's libraries by name, such as ``torch_cpu``.
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
    torch = make_torch_stubs(
        torch_libraries, compiler=toolchain.command, variables=variables, store=store
    )
    compat = _make_compat(toolchain, variables, store)
    return LinkKit(system=system, torch=torch, compat=compat / "compat.o")


def _make_compat(toolchain: CpuToolchain, variables: Mapping[str, str], store: Path) -> Path:
    key = hashlib.sha256(f"{toolchain.identity}{_COMPAT}".encode()).hexdigest()
    target = store / key[:32]

    def fill(directory: Path) -> None:
        source = directory / "compat.c"
        source.write_text(_COMPAT)
        version = f"-DSTAT_VERSION={_STAT_VERSION[toolchain.cpu]}"
        options = ["-x", "c", "-O2", "-fPIC", "-w", "-fno-builtin", "-ffunction-sections"]
        command = [*toolchain.command, *options, "-fdata-sections", version, "-c", source.name]
        run([*command, "-o", "compat.o"], cwd=directory, variables=variables)

    return store_directory(target, fill)


def link_command(
    toolchain: CpuToolchain,
    kit: LinkKit,
    *,
    objects: Sequence[str],
    torch_libraries: Sequence[str],
    version_script: str,
    output: str,
) -> tuple[str, ...]:
    """Compose the command that links a library.

    Args:
        toolchain: the compiler.
        kit: the stubs.
        objects: the objects, in the order in which they are linked.
        torch_libraries: torch's libraries that the kernel asks for by name.
        version_script: a file that holds :data:`EXPORTS`.
        output: the library.
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
        *(str(kit.torch / f"lib{name}.so") for name in torch_libraries),
        "-Wl,--gc-sections",
        "-Wl,--exclude-libs,ALL",
        "-Wl,--strip-debug",
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
