"""Builds that reach for what is no input: the network, the user's files, headers that happen to be there."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lacking import give_up

from kernel_builder.errors import (
    BuilderError,
    CompileError,
    ImportCheckError,
    UndeclaredInputError,
)
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import Outcome, Report
from kernel_builder.settings import SandboxMode, Settings
from kernel_spec.backend import BackendKind

Kit = Callable[[str], Path]
CPU = Selection(backends=frozenset({BackendKind.CPU}))


def fault_of(report: Report) -> BuilderError:
    (variant,) = report.variants
    assert variant.outcome is Outcome.FAILED, report.notes
    assert isinstance(variant.error, BuilderError)
    return variant.error


def build(project: Path, settings: Settings) -> Report:
    return build_project(project, settings=settings, selection=CPU, jobs=2, force=True)


def open_build(settings: Settings) -> Settings:
    return replace(settings, sandbox=SandboxMode.OFF)


def add(project: Path, text: str) -> None:
    source = project / "csrc" / "add_cpu.cpp"
    source.write_text(f"{text}\n{source.read_text()}")


@pytest.fixture
def port() -> Iterator[tuple[int, list[bytes]]]:
    """A server of this machine, and what it was told."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                heard.append(connection.recv(100))
                connection.close()

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)


def test_a_build_says_what_separated_it_and_computes_the_same(
    kit: Kit, settings: Settings, confined: Settings
) -> None:
    project = kit("add_stable")
    shutil.rmtree(confined.cache / "objects", ignore_errors=True)
    one = build(project, confined)
    assert one.exit_code == 0, one.variants[0].error
    assert any("in a sandbox by" in note for note in one.notes)
    files = {path.name: path.read_bytes() for path in project.rglob("build/*/*")}
    # Compiled anew: what the first build kept is not used.
    plain = replace(open_build(settings), cache=project.parent / "cache")
    two = build(project, plain)
    assert any("not hermetic" in note for note in two.notes)
    assert (one.variants[0].compiled, two.variants[0].compiled) == (2, 2)
    assert {path.name: path.read_bytes() for path in project.rglob("build/*/*")} == files


def test_a_compiler_cannot_reach_the_network(
    kit: Kit, settings: Settings, confined: Settings, port: tuple[int, list[bytes]]
) -> None:
    number, heard = port
    project = kit("add_stable")
    call = f'echo compiling > /dev/tcp/127.0.0.1/{number} && exec "$0" "$@"'
    table = project / "build.toml"
    # -wrapper starts the compiler's parts through another program.
    flags = f"""cxx-flags = ["-wrapper", '/bin/bash,-c,{call}']"""
    table.write_text(table.read_text().replace('backend = "cpu"', f'backend = "cpu"\n{flags}'))
    assert isinstance(fault_of(build(project, confined)), CompileError)
    assert not heard
    report = build(project, open_build(settings))
    assert report.exit_code == 0, report.variants[0].error
    assert b"compiling\n" in heard


def test_a_source_cannot_read_the_users_files(
    kit: Kit, settings: Settings, confined: Settings, tmp_path: Path
) -> None:
    """.incbin is in no list of what a compiler read, so only the sandbox can tell."""
    secret = tmp_path / "home" / "token"
    secret.parent.mkdir()
    secret.write_text("secret")
    project = kit("add_stable")
    add(project, f'__asm__(".section .rodata\\n.incbin \\"{secret}\\"\\n.text");')
    fault = fault_of(build(project, confined))
    assert isinstance(fault, CompileError)
    assert "token" in str(fault)
    assert build(project, open_build(settings)).exit_code == 0


def test_a_header_that_happens_to_be_there_fails_with_and_without(
    kit: Kit, settings: Settings, confined: Settings, tmp_path: Path
) -> None:
    (tmp_path / "stray.h").write_text("#pragma once\n")
    project = kit("add_stable")
    add(project, f'#include "{tmp_path}/stray.h"')
    assert isinstance(fault_of(build(project, confined)), CompileError)
    for _ in range(2):
        # Twice: the object was not kept either.
        fault = fault_of(build(project, open_build(settings)))
        assert isinstance(fault, UndeclaredInputError)
        assert f"csrc/add_cpu.cpp reads {tmp_path}/stray.h" in str(fault)


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', {port}), 5).close()",
        "open({home!r} + '/token').read()",
        "open(__file__ + '.mine', 'w')",
    ],
)
def test_an_import_cannot_do_what_a_build_must_not(
    kit: Kit, confined: Settings, tmp_path: Path, port: tuple[int, list[bytes]], code: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("secret")
    project = kit("scale_noarch")
    module = project / "torch-ext" / "scale_noarch" / "__init__.py"
    line = code.format(port=port[0], home=str(home))
    module.write_text(f"{line}\n{module.read_text()}")
    assert isinstance(fault_of(build(project, confined)), ImportCheckError)
    assert not port[1]


_CHOOSE = """
import os
from kernel_builder.sandbox import choose_sandbox
from kernel_builder.settings import read_settings
print(choose_sandbox(read_settings(os.environ)).note)
"""


@pytest.mark.parametrize(("mode", "code"), [("auto", 0), ("require", 1)])
def test_where_namespaces_are_forbidden_it_is_found_out(
    settings: Settings, mode: str, code: int
) -> None:
    """As in many containers: the programs are installed, and the kernel says no."""
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all"
    command = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    command += [f'{forbid} --inh-caps=-all --no-new-privs "$@"', "sh"]
    probe = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        give_up(f"namespaces cannot be forbidden here: {probe.stderr}")
    environ = {
        "PATH": settings.search_path,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "XDG_CACHE_HOME": str(settings.cache.parent),
        "KERNEL_BUILDER_SANDBOX": mode,
    }
    done = subprocess.run(
        [*command, sys.executable, "-c", _CHOOSE],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    said = done.stderr if code else done.stdout
    assert ("--sandbox require" if code else "not hermetic") in said
    assert "Operation not permitted" in said
