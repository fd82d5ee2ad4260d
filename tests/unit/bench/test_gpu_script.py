"""``tools/gpu.py``: which kernels it takes, and how fresh results replace old ones."""

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


def write(place: Path, *rows: Row) -> Path:
    place.write_text(format_document({"kernel": "kernels-community/toy", "device": "new"}, rows))
    return place


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
    assert document["meta"] == {"kernels-community/toy": {"device": "new", "driver": "580"}}
    assert "kernels-community/toy" in into.with_suffix(".md").read_text()


def test_unknown_kernels_are_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "find_kernels", lambda: ["toy"])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "tiger", "--commit", "x"])
    assert gpu.main() == 2
    assert "tiger; there are: toy" in capsys.readouterr().out


def test_a_kernel_that_fails_its_tests_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = []

    def benchmark(name: str, env, seconds: float, output: Path, options) -> bool:
        timed.append(name)
        return bool(write(output, row("a", 1.0)))

    monkeypatch.setattr(gpu, "find_kernels", lambda: ["bad", "good"])
    monkeypatch.setattr(gpu, "test", lambda place, env, seconds: "bad" not in str(place))
    monkeypatch.setattr(gpu, "benchmark", benchmark)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--commit", "x", "--into", str(tmp_path / "out")])
    assert gpu.main() == 1
    assert timed == ["good"]
    assert "timed: good; failed: bad" in capsys.readouterr().out
    assert (tmp_path / "out.json").exists()


def test_time_that_is_over_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "find_kernels", lambda: ["one", "two"])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--no-tests", "--seconds", "0", "--commit", "x"])
    assert gpu.main() == 1
    assert "out of time; not begun: one two" in capsys.readouterr().out
