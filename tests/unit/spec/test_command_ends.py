"""A command that is told to end tidies up first; nothing that it says can steer a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import click
import pytest

from kernel_spec.command import run, say_error, show
from kernel_spec.errors import KernelError

WAITING = """
import sys, time
from pathlib import Path
import click
from kernel_spec.command import run

def wait():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        Path({place!r}).write_text("tidied up")
        {after}

sys.exit(run(click.Command("x", callback=wait), [], name="x"))
"""


def start(place, after="pass", before="signal.signal(signal.SIGHUP, signal.SIG_DFL)"):
    """Start a command that waits; its tests may themselves be run by nohup, which a child inherits."""
    code = f"import signal\n{before}\n" + WAITING.format(place=str(place), after=after)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(os.name == "nt", reason="Windows ends processes without a signal")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_who_is_told_to_end_tidies_up_and_says_so(tmp_path, name, code):
    process = start(tmp_path / "place")
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (code, f"error: ended by {name}\n")
    assert (tmp_path / "place").read_text() == "tidied up"


@pytest.mark.skipif(os.name == "nt", reason="Windows ends processes without a signal")
def test_the_second_signal_does_not_wait_for_the_tidying(tmp_path):
    process = start(tmp_path / "place", after="print('tidying', flush=True); time.sleep(60)")
    process.terminate()
    assert process.stdout.readline() == "tidying\n"
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.skipif(os.name == "nt", reason="Windows has no nohup")
def test_what_is_ignored_stays_ignored(tmp_path):
    process = start(tmp_path / "place", before="signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert err == "error: ended by SIGTERM\n"


def test_whoever_runs_a_command_in_a_process_of_their_own_keeps_their_signals():
    before = signal.getsignal(signal.SIGTERM)
    run(click.Command("x", callback=lambda: None), [], name="x")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünï, 漢字", "plain, ünï, 漢字"),
        ("two\nlines\tand more", "two\nlines\tand more"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("back\rwards", r"back\rwards"),
        ("half \ud800", r"half \ud800"),
        ("evil \u202etxt.exe", r"evil \u202etxt.exe"),
        ("nul \0", r"nul \x00"),
    ],
)
def test_text_from_elsewhere_cannot_steer_a_terminal(text, shown, capsys):
    assert show(text) == shown
    say_error(text)

    def fail():
        raise KernelError(text)

    run(click.Command("x", callback=fail), [], name="x")
    assert capsys.readouterr().err == f"error: {shown}\n" * 2


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_a_result_that_the_terminal_cannot_write_is_told_all_the_same(encoding):
    code = (
        "import sys, click\nfrom kernel_spec.command import run\n"
        "def tell(): click.echo('\\u2192 \\udcff')\n"
        "sys.exit(run(click.Command('x', callback=tell), [], name='x'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"},
        capture_output=True,
        check=False,
    )
    arrow = "→" if encoding == "utf-8" else r"\u2192"
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [arrow + r" \udcff"]


def test_who_reads_the_input_that_its_caller_closed_finds_nothing():
    code = (
        "import sys\nfrom kernel_spec.command import run\nimport click\nsys.stdin = None\n"
        "def ask(): print(sys.stdin.isatty(), repr(sys.stdin.read()))\n"
        "sys.exit(run(click.Command('x', callback=ask), [], name='x'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False ''\n", "")
