"""Our own small programs and libraries of C: compiled where they are needed, once, and stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from kernel_builder.process import run
from kernel_builder.toolchain.cpu import CpuToolchain
from kernel_builder.toolchain.stubs import store_directory


def compile_once(
    source: str,
    output: str,
    *flags: str,
    toolchain: CpuToolchain,
    variables: Mapping[str, str],
    store: Path,
) -> Path:
    """Return a program or library; it is compiled once and stored.

    Args:
        source: its text, one file of C.
        output: the name of its file.
        flags: what the compiler is told beside its language; they follow its file, so that libraries are found.
        toolchain: the compiler.
        variables: the environment of the compiler.
        store: the directory of all that is made once.

    Raises:
        CommandError: the compiler fails.
    """
    key = hashlib.sha256(f"{toolchain.identity}{source}".encode()).hexdigest()
    name = output.partition(".")[0]

    def fill(directory: Path) -> None:
        (directory / f"{name}.c").write_text(source)
        command = [*toolchain.command, "-x", "c", "-O1", f"{name}.c", "-o", output]
        run([*command, *flags], cwd=directory, variables=variables)

    return store_directory(store / f"{name}-{key[:32]}", fill) / output
