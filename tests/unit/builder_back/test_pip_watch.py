"""What pip says while it fetches, as the person who waits is told of it."""

import io
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn

from kernel_builder.progress import BarReporter, LineReporter
from kernel_builder.toolchain.pip_watch import PipWatch, watch_pip

# As pip 23.2 and 26 write it.
WHEEL = "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
LINES = (
    "Looking in indexes: https://index.example/simple, file:///srv/wheels",
    "Collecting nvidia-cuda-runtime==13.0.96 (from -r r.txt (line 1))",
    f"  Downloading {WHEEL}.metadata (1.7 kB)",
    f"  Downloading {WHEEL} (2.2 MB)",
    "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'E': /simple/x/",
    "WARNING: Retrying (Retry(total=3, connect=None)) after connection broken by 'E': /simple/x/",
    "Processing /srv/wheels/nvidia_cuda_crt-13.0.88-py3-none-any.whl (from -r r.txt (line 2))",
    "  Using cached nvidia_nvvm-13.0.88-py3-none-any.whl (61.4 MB)",
    "Installing collected packages: nvidia-cuda-runtime",
)


def test_each_thing_that_pip_does_is_told_once(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    watch = PipWatch(tmp_path, lambda *each: told.append(each))
    for line in LINES:
        watch.read_line(line)
    assert told == [
        ("looking in https://index.example/simple, file:///srv/wheels", 0, 0),
        ("fetching nvidia-cuda-runtime 13.0.96", 0, 2_200_000),
        ("no answer from the package index; trying again", 0, 0),
        ("taking from this machine nvidia-cuda-crt 13.0.88", 0, 0),
        ("taking from this machine nvidia-nvvm 13.0.88", 0, 61_400_000),
        ("unpacking", 0, 0),
    ]


def test_a_wheel_that_grows_is_measured(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    watch = PipWatch(tmp_path, lambda *each: told.append(each))
    watch.look()
    watch.read_line(LINES[3])
    (tmp_path / "pip-unpack-x").mkdir()
    (tmp_path / "pip-unpack-x" / WHEEL).write_bytes(bytes(1_000_000))
    watch.look()
    assert [done for _, done, _ in told] == [0, 1_000_000]
    # What pip said of its size was rounded.
    (tmp_path / "pip-unpack-x" / WHEEL).write_bytes(bytes(2_200_123))
    watch.look()
    assert told[-1][1:] == (2_200_000, 2_200_000)


def test_nobody_is_told_where_nobody_asks(tmp_path: Path) -> None:
    with watch_pip(tmp_path, None) as read_line:
        assert read_line is None


def test_a_log_has_a_line_for_each_wheel_and_no_more() -> None:
    stream = io.StringIO()
    reporter = LineReporter(stream)
    for done in (0, 500_000, 2_200_000):
        reporter.fetch("v", "fetching nvidia-nvvm 13.0.88", done, 2_200_000)
    reporter.fetch("v", "unpacking", 0, 0)
    assert stream.getvalue().splitlines() == [
        "v: fetching nvidia-nvvm 13.0.88 (2.2 MB)",
        "v: unpacking",
    ]


def test_a_bar_shows_how_far_a_wheel_is_and_then_the_steps() -> None:
    progress = Progress(
        TextColumn(""), TextColumn("{task.fields[what]}"), console=Console(quiet=True)
    )
    reporter = BarReporter(progress)
    reporter.begin("v")
    (task,) = progress.tasks
    reporter.fetch("v", "fetching a 1", 20_500_000, 41_000_000)
    assert (task.completed, task.total) == (20, 41)
    assert task.fields["what"] == "fetching a 1: 20.5 MB of 41.0 MB"
    reporter.fetch("v", "unpacking", 0, 0)
    assert (task.completed, task.total, task.fields["what"]) == (0, 1, "unpacking")
    reporter.step("v", 1, 3, "a.cpp")
    assert (task.completed, task.total) == (1, 3)
