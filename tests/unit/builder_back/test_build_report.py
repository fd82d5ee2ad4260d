import io
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn

from kernel_builder.check.finding import Finding
from kernel_builder.errors import CheckError
from kernel_builder.plan import SkippedBackend
from kernel_builder.progress import BarReporter, LineReporter, open_reporter
from kernel_builder.report import Outcome, Report, VariantReport, format_report
from kernel_spec.backend import BackendKind

PROJECT = Path("/project")
BUILT = VariantReport(
    variant="torch-cpu",
    outcome=Outcome.BUILT,
    seconds=1.25,
    path=PROJECT / "build" / "torch-cpu",
    size=45_100,
    compiled=2,
    reused=1,
)
FINDING = Finding(file="k.so", rule="rpath", message="it looks there", fix="do not", symbol="/opt")
FAILED = VariantReport(
    variant="torch-cuda",
    outcome=Outcome.FAILED,
    seconds=0.5,
    error=CheckError("torch-cuda", (FINDING,)),
)
SKIPPED = SkippedBackend(backend=BackendKind.ROCM, reason="needs hipcc")


def test_a_report_of_everything() -> None:
    report = Report(
        project=PROJECT,
        variants=(BUILT, FAILED),
        skipped=(SKIPPED,),
        notes=("a.txt is not packaged",),
    )
    lines = format_report(report).splitlines()
    assert lines == [
        "note: a.txt is not packaged",
        "torch-cuda: 1 check(s) failed",
        "k.so: rpath: /opt: it looks there; do not",
        "",
        "torch-cpu  built          1.2 s  45 kB  build/torch-cpu  (2 compiled, 1 from the cache)",
        "torch-cuda  failed         0.5 s",
        "rocm: not built here: needs hipcc",
    ]
    assert report.exit_code == 1
    assert report.failed == (FAILED,)


def test_exit_codes() -> None:
    assert Report(project=PROJECT, variants=(BUILT,), skipped=(SKIPPED,)).exit_code == 0
    nothing = Report(project=PROJECT, variants=(), skipped=(SKIPPED,))
    assert nothing.exit_code == 1
    assert format_report(nothing).splitlines() == [
        "rocm: not built here: needs hipcc",
        "nothing can be built here",
    ]


def test_sizes_in_megabytes() -> None:
    from dataclasses import replace

    report = Report(project=PROJECT, variants=(replace(BUILT, size=12_345_678),))
    assert "12.3 MB" in format_report(report)


def test_lines_for_a_log() -> None:
    stream = io.StringIO()
    reporter = LineReporter(stream)
    reporter.begin("v")
    reporter.step("v", 1, 2, "a.cpp")
    reporter.end("v", "built", 1.0)
    assert stream.getvalue() == "v: building\nv: [1/2] a.cpp\nv: built in 1.0 s\n"


def test_what_is_no_terminal_gets_lines() -> None:
    stream = io.StringIO()
    with open_reporter(stream) as reporter:
        reporter.begin("v")
    assert stream.getvalue() == "v: building\n"


def test_a_bar_for_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    progress = Progress(TextColumn("{task.fields[what]}"), console=console)
    reporter = BarReporter(progress)
    reporter.begin("v")
    reporter.step("v", 1, 4, "a.cpp")
    (task,) = progress.tasks
    assert (task.completed, task.total, task.fields["what"]) == (1, 4, "a.cpp")
    reporter.end("v", "built", 1.0)
    assert progress.finished
    reporter.end("never begun", "failed", 0.0)
    assert len(progress.tasks) == 2
