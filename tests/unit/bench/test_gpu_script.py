"""``tools/gpu.py``: when it begins at all, which kernels it takes, and how fresh results replace old ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gpu
from kernels.bench.row import Row, format_document


def row(op: str, us: float) -> Row:
    return Row(
        kernel=f"kernels-community/toy.{op}",
        shape=(4,),
        dtype="float16",
        flush=True,
        way="cold",
        ours_us=us,
        fraction_of_ceiling=0.5,
    )


def write(place: Path, *rows: Row, torch: str = "2.11") -> Path:
    meta = {"kernel": "kernels-community/toy", "device": "An H200", "torch": torch}
    place.write_text(format_document(meta, rows))
    return place


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with a GPU and a built kernel, where nothing is run."""
    monkeypatch.setattr(gpu, "find_kernels", lambda: {"toy": True})
    monkeypatch.setattr(gpu, "find_device", lambda: "An H200")
    monkeypatch.setattr(gpu, "find_driver", lambda: "580")
    return monkeypatch


def test_fresh_rows_replace_those_of_the_same_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "find_driver", lambda: "580")
    into = tmp_path / "h200"
    gpu.merge(into, {"toy": write(tmp_path / "1", row("a", 1.0), row("b", 2.0))})
    gpu.merge(into, {"toy": write(tmp_path / "2", row("b", 3.0))})
    document = json.loads(into.with_suffix(".json").read_text())
    assert {r["kernel"]: r["ours_us"] for r in document["rows"]} == {
        "kernels-community/toy.a": 1.0,
        "kernels-community/toy.b": 3.0,
    }
    meta = {"device": "An H200", "torch": "2.11", "driver": "580"}
    assert document["meta"] == {"kernels-community/toy": meta}
    assert "kernels-community/toy" in into.with_suffix(".md").read_text()


def test_rows_of_other_versions_do_not_stay_as_if_they_were_of_these(
    tmp_path: Path, machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "h200"
    gpu.merge(into, {"toy": write(tmp_path / "1", row("a", 1.0), row("b", 2.0))})
    assert "went" not in capsys.readouterr().out
    gpu.merge(into, {"toy": write(tmp_path / "2", row("b", 3.0), torch="2.12")})
    assert "kernels-community/toy: 1 rows of other versions" in capsys.readouterr().out
    [left] = json.loads(into.with_suffix(".json").read_text())["rows"]
    assert left["ours_us"] == 3.0


def fail(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(gpu, "run", lambda *_: pytest.fail("something was begun"))
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
    assert gpu.main() == 2


def test_unknown_kernels_are_refused_with_those_there_are(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(machine, "tiger")
    assert "no kernels with benchmarks: tiger; there are toy" in capsys.readouterr().err


def test_a_kernel_that_was_not_built_for_cuda_is_named_and_not_passed_over(
    machine: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.undo()
    machine.setattr(gpu, "COMMUNITY", tmp_path)
    for name, backend in (("built", "cuda"), ("half", "cpu")):
        variant = tmp_path / name / "build" / "x"
        variant.mkdir(parents=True)
        (variant / "metadata.json").write_text(json.dumps({"backend": {"type": backend}}))
    (tmp_path / "none").mkdir()
    for folder in tmp_path.iterdir():
        (folder / "benchmarks").mkdir()
        (folder / "benchmarks" / "benchmark.py").touch()
    assert gpu.find_kernels() == {"built": True, "half": False, "none": False}
    fail(machine)
    said = capsys.readouterr().err
    assert "not built for CUDA: half, none." in said
    assert "make gpu-build K='half none'" in said


def test_nothing_is_begun_without_a_gpu(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.setattr(gpu, "find_device", lambda: None)
    fail(machine)
    assert "can use no GPU here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("torch", "device"),
    [
        ("raise ImportError('no torch at all')", None),
        ("class cuda:\n    get_device_name = staticmethod(lambda: 'An H200')", "An H200"),
    ],
)
def test_the_gpu_is_that_of_torch(
    torch: str,
    device: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert gpu.find_device() == device
    assert (capfd.readouterr().err == "ImportError: no torch at all\n") is (device is None)


def test_figures_of_another_gpu_are_not_replaced(
    machine: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "h200"
    gpu.merge(into, {"toy": write(tmp_path / "1", row("a", 1.0))})
    before = into.with_suffix(".json").read_bytes()
    machine.setattr(gpu, "find_device", lambda: "An A100")
    fail(machine, "--into", str(into))
    said = capsys.readouterr().err
    assert "holds figures of An H200, and here is An A100" in said
    assert into.with_suffix(".json").read_bytes() == before


def test_a_kernel_that_fails_its_tests_is_not_timed(
    tmp_path: Path, machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = []

    def benchmark(name: str, env, seconds: float, output: Path, options) -> bool:
        timed.append(name)
        return bool(write(output, row("a", 1.0)))

    machine.setattr(gpu, "find_kernels", lambda: {"bad": True, "good": True})
    machine.setattr(gpu, "test", lambda place, env, seconds: "bad" not in str(place))
    machine.setattr(gpu, "benchmark", benchmark)
    machine.setattr(sys, "argv", ["gpu.py", "--commit", "x", "--into", str(tmp_path / "out")])
    assert gpu.main() == 1
    assert timed == ["good"]
    assert "timed: good; failed: bad" in capsys.readouterr().out
    assert (tmp_path / "out.json").exists()


def test_time_that_is_over_is_said(
    tmp_path: Path, machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.setattr(gpu, "find_kernels", lambda: {"one": True, "two": True})
    words = ["--no-tests", "--seconds", "0", "--commit", "x", "--into", str(tmp_path / "out")]
    machine.setattr(sys, "argv", ["gpu.py", *words])
    assert gpu.main() == 1
    assert "out of time; not begun: one two" in capsys.readouterr().out
