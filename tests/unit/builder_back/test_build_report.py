import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from kernel_builder.check.finding import Finding
from kernel_builder.diagnose import CompileFailure
from kernel_builder.errors import CheckError, CompileError, StorageError
from kernel_builder.planned import SkippedBackend
from kernel_builder.progress import BarReporter, LineReporter, open_reporter
from kernel_builder.report import (
    FileReport,
    Outcome,
    Report,
    VariantReport,
    format_report,
    plain_report,
    write_report,
)
from kernel_builder.toolchain.meter import Figures, read_figures
from kernel_spec.backend import BackendKind

PROJECT = Path("/project")
BUILT = VariantReport(
    variant="torch-cpu",
    outcome=Outcome.BUILT,
    seconds=1.25,
    path=PROJECT / "build" / "torch-cpu",
    size=45_100,
    files=(
        FileReport(source="a.cpp", reused=True),
        FileReport(
            source="b.cu",
            reused=False,
            figures=Figures(seconds=2.0, cpu_seconds=1.5, peak=400_000_000),
            log=PROJECT / "b.log",
        ),
        FileReport(
            source="c.cu",
            reused=False,
            figures=Figures(seconds=1.0, cpu_seconds=0.5, peak=500_000_000),
            log=PROJECT / "c.log",
        ),
    ),
    archs=("8.0", "9.0a+PTX"),
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
        "variant     outcome   time    CPU      peak   size  compiled  archs         place",
        "torch-cpu   built    1.2 s  2.0 s  500.0 MB  45 kB  2 of 3    8.0 9.0a+PTX  build/torch-cpu",
        "torch-cuda  failed   0.5 s",
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
    reporter.begin("v", "waiting")
    assert progress.tasks[0].fields["what"] == "waiting"
    reporter.begin("v")
    reporter.step("v", 1, 4, "a.cpp")
    (task,) = progress.tasks
    assert (task.completed, task.total, task.fields["what"]) == (1, 4, "a.cpp")
    reporter.end("v", "built", 1.0)
    assert progress.finished
    reporter.end("never begun", "failed", 0.0)
    assert len(progress.tasks) == 2


def test_columns_that_say_nothing_are_left_out() -> None:
    plain = replace(BUILT, files=(), archs=())
    text = format_report(Report(project=PROJECT, variants=(plain,)))
    assert text.splitlines()[0].split() == ["variant", "outcome", "time", "size", "place"]


def test_the_report_as_json(tmp_path: Path) -> None:
    report = Report(project=PROJECT, variants=(BUILT, FAILED), skipped=(SKIPPED,))
    place = tmp_path / "report.json"
    write_report(report, place)
    document = json.loads(place.read_text())
    assert document == plain_report(report)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    built, failed = document["variants"]
    assert (built["compiled"], built["reused"], built["archs"]) == (2, 1, ["8.0", "9.0a+PTX"])
    assert (built["cpu_seconds"], built["peak_bytes"]) == (2.0, 500_000_000)
    assert built["files"][1] == {
        "source": "b.cu",
        "reused": False,
        "seconds": 2.0,
        "cpu_seconds": 1.5,
        "peak_bytes": 400_000_000,
        "log": "/project/b.log",
    }
    assert "rpath" in failed["error"]
    assert (document["exit_code"], document["skipped"]) == (1, {"rocm": "needs hipcc"})
    with pytest.raises(StorageError, match="no-such-directory"):
        write_report(report, tmp_path / "no-such-directory" / "report.json")


def test_figures_of_a_program_that_was_killed_are_none(tmp_path: Path) -> None:
    place = tmp_path / "figures"
    assert read_figures(place) is None
    place.write_text("1.5 ")
    assert read_figures(place) is None
    place.write_text("1.5 0.5 4096\n")
    assert read_figures(place) == Figures(seconds=1.5, cpu_seconds=0.5, peak=4096)


def failed(variant: str, output: str, log: str) -> VariantReport:
    failure = CompileFailure(source="a.cpp", command="g++", output=output, log=Path(log))
    return VariantReport(
        variant=variant, outcome=Outcome.FAILED, seconds=1.0, error=CompileError((failure,))
    )


def test_the_same_fault_of_two_variants_is_written_once() -> None:
    fault = "a.cpp:1:2: error: no\n"
    report = Report(
        project=Path("p"),
        variants=(failed("torch-cpu", fault, "/1.log"), failed("torch-cuda", fault, "/2.log")),
    )
    text = format_report(report)
    assert text.count("a.cpp:1:2: error: no") == 1
    assert text.index("/1.log") < text.index("/2.log")
    assert "a.cpp: does not compile\n" in text


def test_a_fault_of_one_variant_alone_names_it() -> None:
    good = VariantReport(variant="torch-rocm", outcome=Outcome.BUILT, seconds=1.0, path=Path("p/b"))
    report = Report(
        project=Path("p"),
        variants=(
            failed("torch-cpu", "a.cpp:1:2: error: no\n", "/1.log"),
            failed("torch-cuda", "a.cpp:9:9: error: else\n", "/2.log"),
            good,
        ),
    )
    text = format_report(report)
    assert "a.cpp: does not compile for torch-cpu\n" in text
    assert "a.cpp: does not compile for torch-cuda\n" in text
