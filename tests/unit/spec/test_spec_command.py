"""How a command ends: its exit code, and what stands on stderr."""

from __future__ import annotations

import errno
import subprocess
import sys

import click
import pytest

from kernel_spec.command import run, say_note, say_warning
from kernel_spec.errors import KernelError, UsageError


class LinesError(KernelError):
    exit_code = 2
    names_lines = True


def fail_with(error: BaseException) -> click.Command:
    @click.command()
    def verb() -> None:
        raise error

    return verb


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KernelError("it is gone"), 1, "error: it is gone\n"),
        (UsageError("not like this"), 2, "error: not like this\n"),
        (LinesError("a.toml:1: wrong\na.toml:2: too"), 2, "a.toml:1: wrong\na.toml:2: too\n"),
        (KeyboardInterrupt(), 130, "\nerror: interrupted\n"),
        (click.Abort(), 130, "error: interrupted\n"),
        (click.exceptions.Exit(3), 3, ""),
        (BrokenPipeError(), 1, ""),
        (
            OSError(errno.EACCES, "Permission denied", "/srv/x"),
            1,
            "error: /srv/x: Permission denied (--debug shows where)\n",
        ),
        (
            OSError(errno.EXDEV, "Cross-device link", "/a", None, "/b"),
            1,
            "error: /a -> /b: Cross-device link (--debug shows where)\n",
        ),
        (OSError(), 1, "error: OSError (--debug shows where)\n"),
        (RuntimeError("never"), 1, "error: RuntimeError: never (--debug shows where)\n"),
    ],
)
def test_every_error_is_one_message_and_an_exit_code(capsys, error, code, said):
    assert run(fail_with(error), [], name="x") == code
    assert capsys.readouterr() == ("", said)


def test_debug_adds_the_traceback_and_changes_no_exit_code(capsys):
    assert run(fail_with(UsageError("no")), ["--debug"], name="x") == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "in verb\n" in err
    assert err.endswith("\nerror: no\n")


def test_a_better_message_replaces_the_plain_one(capsys):
    error = ModuleNotFoundError("No module named 'x'", name="x")
    assert run(fail_with(error), [], name="x", explain=lambda err: f"install {err.name}") == 1
    assert capsys.readouterr().err == "error: install x\n"


def test_what_is_returned_is_the_exit_code_where_it_is_a_number():
    assert run(click.Command("x", callback=lambda: 5), [], name="x") == 5
    assert run(click.Command("x", callback=lambda: "text"), [], name="x") == 0


def test_words_after_two_dashes_are_not_ours(capsys):
    words = click.Argument(["message"], nargs=-1)
    command = click.Command("x", params=[words], callback=click.echo)
    assert run(command, ["--debug", "a", "--", "--debug"], name="x") == 0
    assert capsys.readouterr().out == "('a', '--debug')\n"


def test_warnings_and_notes_are_no_results(capsys):
    say_warning("look")
    say_note("by the way")
    assert capsys.readouterr() == ("", "warning: look\nnote: by the way\n")


CODE = """
import sys
from kernel_spec.command import run
import click
command = click.Command("x", callback=lambda: print("line\\n" * {lines}))
{before}
sys.exit(run(command, [], name="x"))
"""


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_leaves_is_no_error_worth_a_word(lines):
    process = subprocess.Popen(
        [sys.executable, "-c", CODE.format(lines=lines, before="input()")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(20) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full is of Linux")
@pytest.mark.parametrize("lines", [1, 100_000])
def test_an_output_that_cannot_be_written_is_an_error(lines):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-c", CODE.format(lines=lines, before="")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device (--debug shows where)\n"


def test_a_command_runs_without_streams():
    before = "sys.stdout = sys.stderr = None"
    code = CODE.format(lines=1, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
