import sys
import time
from pathlib import Path

import pytest

from kernel_builder.errors import CommandError
from kernel_builder.process import run


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_errors_come_in_order_and_line_by_line() -> None:
    lines: list[str] = []
    code = "import sys; print('a', flush=True); print('b', file=sys.stderr, flush=True); print('c')"
    finished = run(_python(code), on_line=lines.append)
    assert finished.output == "a\nb\nc\n"
    assert lines == ["a", "b", "c"]
    assert finished.code == 0


def test_a_failure_shows_command_code_and_output() -> None:
    with pytest.raises(CommandError) as caught:
        run(_python("print('it broke'); raise SystemExit(3)"))
    assert "exit code 3" in str(caught.value)
    assert "it broke" in str(caught.value)
    assert sys.executable in str(caught.value)
    assert caught.value.finished.code == 3


def test_a_failure_is_a_value_where_the_caller_asks() -> None:
    assert run(_python("raise SystemExit(3)"), check=False).code == 3


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CommandError, match=r"no-such-program: cannot be started: No such file"):
        run(["no-such-program"])


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = f"import time, pathlib; time.sleep(1.5); pathlib.Path({str(mark)!r}).touch()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    start = time.monotonic()
    with pytest.raises(CommandError, match=r"not done after 0\.3 s"):
        run(_python(code), timeout=0.3)
    assert time.monotonic() - start < 1.4
    time.sleep(1.6)
    assert not mark.exists()


def test_only_the_given_variables_are_passed() -> None:
    code = "import os; print('HOME' in os.environ, os.environ['ONE'])"
    assert run(_python(code), variables={"ONE": "1"}).output == "False 1\n"


def test_bytes_that_are_no_text_do_not_break_it() -> None:
    code = r"import sys; sys.stdout.buffer.write(b'\xff ok\n')"
    assert run(_python(code)).output.endswith("ok\n")
