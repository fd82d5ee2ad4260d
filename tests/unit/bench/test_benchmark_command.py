"""``kernels benchmark`` on projects and hubs: its table, its JSON, its plots, its refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernels.cli import run

FAST = ["--rounds", "1", "--way", "warm"]


def test_a_published_kernel_is_timed_at_its_commit(
    published: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["benchmark", "acme/toy@v1", "--json", "--device", "cpu", *FAST]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["meta"]["kernel"] == "acme/toy"
    assert document["meta"]["ceiling_gb_per_s"] > 0
    first, second = document["rows"]
    assert (first["kernel"], first["shape"], first["dtype"]) == ("acme/toy.double", [64], "float32")
    assert second["shape"] == [128]
    assert first["commit"] == published
    assert first["flush"] is False
    assert first["max_error"] == 0
    assert first["ours_us"] > 0
    assert set(first["peers"]) == {"eager"}
    assert set(first["references"]) == {"copy"}
    assert first["ratios"]["eager"] == pytest.approx(
        first["peers"]["eager"] / first["ours_us"], rel=1e-2
    )


@pytest.mark.parametrize("revision", ["", "@1", "@v1"])
def test_every_spelling_of_a_version(published: str, revision: str) -> None:
    assert run(["benchmark", f"acme/toy{revision}", "--only", "64", *FAST]) == 0


@pytest.mark.parametrize("words", [("--version", "1"), ("--branch", "v1")])
def test_the_options_of_the_published_client(
    published: str, words: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["benchmark", "acme/toy", *words, "--only", "64", *FAST]
    plots = str(tmp_path / "plots")
    assert run([*base, "--iterations", "5", "--warmup", "1", "--visual", plots]) == 0
    said = capsys.readouterr().err
    assert said.count("finds out itself how often") == 2
    assert (tmp_path / "plots.svg").is_file()
    assert run([*base, "--visual", plots, "--rasterized"]) == 0
    assert (tmp_path / "plots.png").is_file()


def test_two_revisions_are_one_too_many(published: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["benchmark", "acme/toy@v1", "--version", "2", *FAST]) == 2
    assert "which of v1 and 2?" in capsys.readouterr().err


def test_two_places_for_the_plots_too(published: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["benchmark", "acme/toy", "--plot", "a.svg", "--visual", "b", *FAST]) == 2
    assert "one of --plot and --visual" in capsys.readouterr().err


def test_a_project_is_timed_where_it_is(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, plot = tmp_path / "out.json", tmp_path / "out.svg"
    words = ["--output", str(output), "--plot", str(plot), "--commit", "abc123"]
    assert run(["benchmark", str(project), *words, "--rounds", "1"]) == 0
    table = capsys.readouterr().out
    assert "| double" in table
    assert "eager" in table
    rows = json.loads(output.read_text())["rows"]
    assert {row["way"] for row in rows} == {"cold", "warm"}
    assert {row["commit"] for row in rows} == {"abc123"}
    assert plot.read_text().startswith("<?xml")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("below", ["build", "build/torch-cpu"])
def test_a_build_is_called_as_its_project(
    project: Path, below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["benchmark", str(project / below), "--json", "--only", "64", *FAST]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row["kernel"] == "toy.double"


@pytest.mark.parametrize("words", [("{project}@v1",), ("{project}", "--version", "1")])
def test_a_path_has_no_revision(
    project: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["benchmark", *(word.format(project=project) for word in words), *FAST]) == 2
    assert f"{project}@" in (said := capsys.readouterr().err)
    assert "expected a path without @" in said


def test_the_path_of_a_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["benchmark", str(project / "benchmarks" / "benchmark.py"), *FAST]) == 2
    assert "expected a path of a project's folder" in capsys.readouterr().err


def test_an_override_counts_as_the_kernel_of_its_name(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"acme/other={project}")
    # A folder of that name does not stand in its way.
    (project / "acme" / "other").mkdir(parents=True)
    monkeypatch.chdir(project)
    assert run(["benchmark", "acme/other", "--json", *FAST]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["kernel"] == "acme/other.double"


def test_a_wrong_result_is_shown_and_fails(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "benchmarks" / "benchmark.py"
    script.write_text(script.read_text().replace("x.double() * 2", "x.double() * 2 + 0.5"))
    assert run(["benchmark", str(project), *FAST]) == 1
    shown = capsys.readouterr()
    assert "WRONG" in shown.out
    assert "wrong result: double 64 float32: ours: error 0.33, allowed 1e-06" in shown.err


def test_only_some_cases(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["benchmark", str(project), "--json", "--only", "double 128", *FAST]) == 0
    assert [row["shape"] for row in json.loads(capsys.readouterr().out)["rows"]] == [[128]]
    assert run(["benchmark", str(project), "--only", "triple", *FAST]) == 2
    said = capsys.readouterr().err
    assert "no case of toy contains 'triple'; there are double 64 float32" in said


def test_files_that_could_not_be_written_are_refused_before_measuring(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["benchmark", str(project), "--output", str(tmp_path / "no" / "x.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run(["benchmark", str(project), "--plot", str(tmp_path / "x.gif")]) == 2
    assert ".png or .svg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "{there}"], "{there} is no plain file"),
        (["--plot", "{there}/a.svg/"], "is no plain file"),
        (["--output", "/dev/null"], "/dev/null is no plain file"),
        (["--output", "{there}/b.svg", "--plot", "{there}/b.svg"], "name one file"),
        (["--way", "loop"], "--way loop: on cpu there are cold and warm"),
        (["--way", "loop", "--way", "warm", "--output", "{there}/no/x"], "there is no folder"),
    ],
)
def test_what_could_give_no_result_is_refused_before_measuring(
    project: Path,
    tmp_path: Path,
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = tmp_path / "there"
    (there / "a.svg").mkdir(parents=True)
    (project / "benchmarks" / "benchmark.py").write_text("raise SystemExit('measured')")
    words = [word.format(there=there) for word in words]
    assert run(["benchmark", str(project), "--device", "cpu", *words]) == 2
    assert said.format(there=there) in capsys.readouterr().err
    assert Path("/dev/null").is_char_device()


def test_a_plot_without_a_ceiling_keeps_the_table(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "benchmarks" / "benchmark.py"
    script.write_text(script.read_text().replace("moved_bytes=8 * size,", ""))
    plot = tmp_path / "plot.svg"
    assert run(["benchmark", str(project), "--plot", str(plot), *FAST]) == 1
    shown = capsys.readouterr()
    assert "| double" in shown.out
    assert "nothing to draw, since no case says how much it moves (moved_bytes)" in shown.err
    assert not plot.exists()


@pytest.mark.parametrize("device", ["quantum", "meta"])
def test_a_device_that_is_not_here(
    project: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["benchmark", str(project), "--device", device]) == 2
    assert f"--device {device}: torch cannot use it here" in capsys.readouterr().err


def test_a_project_without_benchmarks(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "benchmarks" / "benchmark.py").unlink()
    assert run(["benchmark", str(project)]) == 1
    assert "expected a file benchmark*.py, found none" in capsys.readouterr().err


def test_a_benchmark_without_cases(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "benchmarks" / "benchmark.py").write_text("print")
    assert run(["benchmark", str(project)]) == 1
    assert "expected a function cases(kernel, device)" in capsys.readouterr().err


def test_a_hub_kernel_without_benchmarks(
    project: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    (project / "benchmarks" / "benchmark.py").rename(project / "benchmarks" / "other.py")
    request.getfixturevalue("published")
    assert run(["benchmark", "acme/toy"]) == 1
    assert "acme/toy has no benchmarks/benchmark*.py at branch v1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("def cases(:", ":1: SyntaxError: "),
        ("import torch\nimport no_such_module", ":2: ModuleNotFoundError: No module named 'no_su"),
        ("def cases(kernel, device):\n    return kernel.triple", ":2: AttributeError: "),
        (
            "def cases(kernel, device):\n    yield 1\n",
            ": cases(kernel, device) yields int, expected",
        ),
        ("def cases(kernel, device):\n    pass", ": TypeError: 'NoneType' object is not iterable"),
        ("def cases(kernel, device):\n    return []", " yields nothing for this device"),
        ("cases = 7", ": TypeError: 'int' object is not callable"),
        ("import sys\nsys.exit(0)", ":2: SystemExit: 0"),
    ],
)
def test_a_benchmark_file_that_fails_is_named_with_its_line(
    project: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "benchmarks" / "benchmark.py"
    script.write_text(line)
    assert run(["benchmark", str(project), *FAST]) == 1
    error = capsys.readouterr().err
    assert f"error: {script}" in error
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("kernel.double(x),", "kernel.double(x, 1),", "ours: TypeError: double() takes 1"),
        ("kernel.double(x),", "None,", "ours: expected a tensor, found NoneType"),
        ("x.double() * 2,", "x.double() * y,", "what is expected: NameError: name 'y'"),
        ("x.double() * 2,", "2.0,", "what is expected: expected a tensor, found float"),
        ("lambda: x * 2}", "lambda: y}", "eager: NameError: name 'y'"),
        ("x.clone()", "x.copy()", "copy: AttributeError: 'Tensor' object has no attribute"),
        ("x.double() * 2,", "x.double().to('meta'),", "ours: is on cpu, what is expected is on me"),
        (
            "lambda: x * 2}",
            "lambda n=[]: n.append(1) or (x * 2 if len(n) < 3 else y)}",
            "while it was timed (warm), peer eager: NameError: name 'y'",
        ),
    ],
)
def test_a_call_that_fails_is_named_with_its_case(
    project: Path, before: str, after: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "benchmarks" / "benchmark.py"
    assert before in script.read_text()
    script.write_text(script.read_text().replace(before, after))
    assert run(["benchmark", str(project), *FAST]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: double 64 float32: {said}")
    assert "Traceback" not in error


def test_what_was_measured_before_a_failure_is_kept(project: Path, tmp_path: Path) -> None:
    script = project / "benchmarks" / "benchmark.py"
    fails = "ours=lambda: kernel.double(x) if len(x) == 64 else kernel.triple(x)"
    script.write_text(script.read_text().replace("ours=lambda: kernel.double(x)", fails))
    output = tmp_path / "out.json"
    assert run(["benchmark", str(project), "--output", str(output), *FAST]) == 1
    assert [row["shape"] for row in json.loads(output.read_text())["rows"]] == [[64]]
    assert {path.name for path in tmp_path.iterdir()} <= {"out.json", "toy", "home", "cache"}


def test_all_that_is_wrong_with_a_case_is_told_before_it_is_timed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "benchmarks" / "benchmark.py"
    text = script.read_text()
    for before, after in (
        ('op="double"', 'op="layers.double"'),
        ("shape=(size,)", "shape=size"),
        ('dtype="float32", device=device)\n        yield', 'dtype="float32")\n        yield'),
        ('shape=size, dtype="float32"', 'shape=size, dtype="torch.float32"'),
        ("tolerance=1e-6", 'tolerance=float("nan"), out=[0]'),
        ("moved_bytes=8 * size", "moved_bytes=-1"),
        ("lambda: x * 2}", "x * 2}"),
        ('references={"copy": lambda: x.clone()}', "references=[1]"),
    ):
        text = text.replace(before, after)
    script.write_text(text)
    assert run(["benchmark", str(project), *FAST]) == 1
    said = capsys.readouterr().err
    for fault in (
        "op: expected a name without a dot, found 'layers.double'",
        "shape: expected a tuple of whole numbers, found 64",
        "dtype: expected the name of one, such as 'float16', found 'torch.float32'",
        "tolerance: expected a number of zero or more, found nan",
        "moved_bytes: expected a number of zero or more, found -1",
        "out: expected a tensor or None, found list",
        "peers['eager']: expected a function without arguments, found Tensor",
        "references: expected functions by name, found [1]",
    ):
        assert fault in said


def test_what_a_benchmark_prints_is_no_part_of_the_json(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "benchmarks" / "benchmark.py"
    noisy = "print('at import')\n" + script.read_text().replace(
        "ours=lambda: kernel", "ours=lambda: print('in a call') or kernel"
    )
    script.write_text(noisy)
    assert run(["benchmark", str(project), "--json", "--only", "64", *FAST]) == 0
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["rows"]) == 1
    assert "at import" in shown.err
    assert "in a call" in shown.err


@pytest.mark.parametrize(
    ("dirty", "words", "commit"),
    [
        (False, [], "0123456789ab"),
        (True, [], "0123456789ab-changed"),
        (False, ["--commit", "abc"], "abc"),
    ],
)
def test_a_row_of_a_project_names_the_commit_that_was_built(
    project: Path,
    dirty: bool,
    words: list[str],
    commit: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = project / "build" / "torch-cpu" / "metadata.json"
    kernel = {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": dirty}
    provenance = {"kernel-builder": {"version": "1"}, "kernel": kernel}
    place.write_text(json.dumps(json.loads(place.read_text()) | {"provenance": provenance}))
    assert run(["benchmark", str(project), "--json", "--only", "64", *words, *FAST]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row["commit"] == commit


@pytest.mark.parametrize(("columns", "narrow"), [(40, True), (500, False), (0, False)])
def test_a_table_fits_the_terminal(
    project: Path,
    columns: int,
    narrow: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    assert run(["benchmark", str(project), *FAST]) == 0
    shown = capsys.readouterr()
    assert ("no room here for its rounds, GB/s, of ceiling, error" in shown.err) is narrow
    assert ("its rounds" not in shown.out) is narrow
    assert "eager" in shown.out


@pytest.mark.parametrize("load", [0.9, 1.0])
def test_a_busy_machine_is_warned_of(
    project: Path,
    load: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("kernels.bench.machine.find_load", lambda: (load, 2))
    assert run(["benchmark", str(project), "--json", "--device", "cpu", *FAST]) == 0
    shown = capsys.readouterr()
    assert ("busy (load 1.0 on 2 processors)" in shown.err) is (load == 1.0)
    assert json.loads(shown.out)["meta"]["load"] == load


def test_ctrl_c_keeps_what_is_measured(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "benchmarks" / "benchmark.py"
    stop = "    if size == 128: raise KeyboardInterrupt\n        x ="
    script.write_text(script.read_text().replace("    x =", stop))
    output = tmp_path / "out.json"
    assert run(["benchmark", str(project), "--output", str(output), *FAST]) == 130
    assert capsys.readouterr().err.endswith("error: interrupted\n")
    assert [row["shape"] for row in json.loads(output.read_text())["rows"]] == [[64]]
