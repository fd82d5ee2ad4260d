"""How every command of the project ends: what is said on stderr, in which form, with which exit code.

Results go to stdout and nothing else does. Lines on stderr begin with ``error:``, ``warning:`` or
``note:``. Exit codes: 0 done; 1 failed; 2 the command, or a file that a person wrote, is wrong; 130
interrupted; 143 told to end (SIGTERM), or 129 since its terminal is gone (SIGHUP).
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from kernel_spec.errors import KernelError

FAILED = 1
INTERRUPTED = 130
# Where a shell begins to count the signals that ended a program.
_SIGNALS = 128

_DEBUG = "--debug"


class _ToldToEndError(BaseException):
    """A signal came that ends a program; what is under way is given up as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = _SIGNALS + number


def say_error(message: str) -> None:
    """Say on stderr what failed."""
    _say(f"error: {message}")


def say_warning(message: str) -> None:
    """Say on stderr what is probably not meant, though it was done."""
    _say(f"warning: {message}")


def say_note(message: str) -> None:
    """Say on stderr what is worth knowing beside the result."""
    _say(f"note: {message}")


def _say(line: str) -> None:
    click.echo(show(line), err=True)


def show(text: str) -> str:
    """Return a text, some of it from elsewhere, that cannot steer a terminal and that any can be told.

    Line breaks and tabs stay; any other character that is not printable is spelled as Python does.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
    )


def run(
    command: click.Command,
    arguments: Sequence[str],
    *,
    name: str,
    explain: Callable[[Exception], str | None] = lambda _: None,
    json_errors: bool = False,
) -> int:
    """Run a command line and return its exit code; whatever goes wrong is one message on stderr.

    ``--debug`` may stand anywhere before ``--``, and shows the traceback before the message.

    Args:
        command: the command, with its verbs.
        arguments: the words after its name.
        name: its name.
        explain: a better message for an error that is none of ours, or None.
        json_errors: whether a command line with ``--json`` that fails prints the error as JSON, too.
    """
    _open_closed_streams()
    words, debug = _take_debug(arguments)
    failure: tuple[str, str] | None = None
    try:
        with _told_to_end():
            code = command.main(words, prog_name=name, standalone_mode=False)
            # Here an output that cannot be written is still an error, and told as one.
            sys.stdout.flush()
    except click.exceptions.Exit as err:
        code = err.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        say_error("interrupted")
        code = INTERRUPTED
    except _ToldToEndError as err:
        say_error(f"ended by {err}")
        code = err.exit_code
    except click.ClickException as err:
        _say_usage(err)
        code = err.exit_code
        failure = ("UsageError", err.format_message())
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        _drop_output()
        code = FAILED
    except Exception as err:  # noqa: BLE001 - the edge of the process
        if debug:
            _show_traceback(err)
        _say_exception(err, explain(err))
        code = err.exit_code if isinstance(err, KernelError) else FAILED
        failure = (type(err).__name__, explain(err) or str(err))
        if isinstance(err, OSError) and err.errno == errno.ENOSPC:
            _drop_output()
    if failure is not None and json_errors and "--json" in words:
        _print_failure(*failure)
    return code if isinstance(code, int) else 0


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Let signals that would end this process at once leave time to end what it started, and to tidy up.

    The second one ends it at once. What is ignored stays ignored, as after ``nohup``.
    """
    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    # Only the main thread may say what a signal does.
    here = threading.current_thread() is threading.main_thread()
    ours = [
        number
        for number in numbers
        if here and number is not None and signal.getsignal(number) is signal.SIG_DFL
    ]

    def end(number: int, _frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        raise _ToldToEndError(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _take_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word != _DEBUG]
    return kept + words[end:], len(kept) < end


def _open_closed_streams() -> None:
    """Give the process the streams that its caller closed: Python leaves them at None."""
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    # A result that the terminal's encoding cannot write is told all the same.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Let what is still buffered go nowhere, so that Python does not complain of it at the end."""
    with suppress(OSError, ValueError):
        target = os.open(os.devnull, os.O_WRONLY)
        os.dup2(target, sys.stdout.fileno())
        os.close(target)


def _print_failure(kind: str, message: str) -> None:
    """Print what whoever parses the output finds where there is no result."""
    import json

    with suppress(OSError):
        click.echo(json.dumps({"error": {"type": kind, "message": message}}, indent=2))


def _say_usage(error: click.ClickException) -> None:
    """Say what is wrong with the command line, how it is written, and where all of it is explained."""
    context = getattr(error, "ctx", None)
    # Older releases of click print the help themselves and call it a result.
    if context is not None and isinstance(
        error, getattr(click.exceptions, "NoArgsIsHelpError", ())
    ):
        click.echo(f"{context.get_help()}\n", err=True)
        say_error(f"{context.command_path}: which command? They are listed above.")
        return
    say_error(error.format_message())
    if context is None:
        return
    usage = context.get_usage().replace("Usage:", "usage:", 1)
    click.echo(usage, err=True)
    if context.help_option_names:
        say_note(f"{context.command_path} {context.help_option_names[-1]} explains it")


def _say_exception(error: Exception, explained: str | None) -> None:
    match error:
        case _ if explained is not None:
            say_error(explained)
        case KernelError() if error.names_lines:
            _say(str(error))
        case KernelError():
            say_error(str(error))
        case OSError():
            say_error(f"{describe_os_error(error)} (--debug shows where)")
        case _:
            say_error(f"{type(error).__name__}: {error} (--debug shows where)")


def describe_os_error(error: OSError) -> str:
    """Write what the system refused: the places, then the reason."""
    places = [str(each) for each in (error.filename, error.filename2) if each is not None]
    reason = error.strerror or str(error) or type(error).__name__
    return ": ".join([*([" -> ".join(places)] if places else []), reason])


def _show_traceback(error: Exception) -> None:
    import traceback

    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
