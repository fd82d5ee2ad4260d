"""``kernel-builder fetch``: what builds would fetch, each once, and what is told of it."""

from __future__ import annotations

import errno
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_builder import cli, environment, fetching
from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.planned import Host
from kernel_spec.backend import BackendKind
from kernel_spec.system import parse_torch_build
from kernel_spec.version import MajorMinor

TEXT = """\
[general]
name = "my-op"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[torch]
src = ["b.cpp"]
stable-abi = "2.10"
minver = "2.12"
maxver = "2.13"

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["a.cpp"]

[kernel.node]
backend = "cpu"
depends = ["torch"]
per-torch = true
src = ["node.cpp"]

[kernel.cuda]
backend = "cuda"
depends = ["torch", "cutlass_3_8"]
src = ["a.cu"]
"""
NODE = """\
[kernel.node]
backend = "cpu"
depends = ["torch"]
per-torch = true
src = ["node.cpp"]

"""
CPU = "torch-stable-abi210-cpu-x86_64-linux"
CUDA = "torch-stable-abi210-cu130-x86_64-linux"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / "torch-ext/my_op").mkdir(parents=True)
    (place / "torch-ext/my_op/__init__.py").write_text("")
    for name in ("a.cpp", "a.cu", "b.cpp", "node.cpp"):
        (place / name).write_text("")
    (place / "build.toml").write_text(TEXT)
    return place


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a compiler and torch, whatever this one has."""
    here = Host(
        cpu="x86_64",
        os="linux",
        torch=parse_torch_build("2.13.0"),
        toolkits={BackendKind.CUDA: MajorMinor(13, 0)},
    )
    monkeypatch.setattr(fetching, "detect_host", lambda _: here)
    monkeypatch.setattr(fetching, "name_cuda", lambda _, version: f"cuda-{version}")


@pytest.fixture
def asked(host: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Note what is fetched in the place of fetching it."""
    found: list[str] = []

    def get(name: str) -> Path:
        found.append(name)
        return tmp_path / name

    def get_headers(pinned: Any, *, on_fetch: Callable[..., None], **_: object) -> Any:
        on_fetch("torch is not here yet", 0, 0)
        return SimpleNamespace(root=get(pinned.version))

    monkeypatch.setattr(
        fetching, "fetch_cuda", lambda _, version, **__: (get(f"cuda-{version}"), tmp_path / "more")
    )
    monkeypatch.setattr(environment, "fetch_torch_headers", get_headers)
    monkeypatch.setattr(
        fetching, "fetch_dependency", lambda origin, _: SimpleNamespace(root=get(origin.name))
    )
    return found


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kernel-builder", "fetch", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return int(str(caught.value.code)), captured.out, captured.err

    return run


def test_each_thing_is_fetched_once_and_named_with_its_place(
    project: Path, asked: list[str], call: Call, tmp_path: Path
) -> None:
    code, out, err = call(str(project))
    assert code == 0
    assert sorted(asked) == ["2.12.1", "2.13.0", "cuda-13.0", "cutlass_3_8"]
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["input", "for", "place"]
    # A variant for CUDA has the code for the CPU, too, and so its node.
    assert ["torch", "2.12.1", "(headers)", CPU, CUDA, str(tmp_path / "2.12.1")] in rows
    assert ["cuda-13.0", CUDA, str(tmp_path / "cuda-13.0"), str(tmp_path / "more")] in rows
    assert "torch 2.12.1 (headers): fetching\n" in err
    assert "torch 2.12.1 (headers): fetched in " in err
    assert "cuda-13.0" not in err, "what is here already is not told as it goes"
    assert not (project / "build").exists()


def test_the_options_of_build_choose(project: Path, asked: list[str], call: Call) -> None:
    assert call(str(project), "--backend", "cpu")[0] == 0
    assert asked == ["2.12.1", "2.13.0"]


def test_headers_for_another_processor_say_so(
    project: Path, asked: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    _, out, _ = call(str(project), "--backend", "cpu")
    assert "torch 2.12.1 (headers, x86_64)" in out


def test_what_the_user_brings_is_not_fetched(
    project: Path, asked: list[str], call: Call, tmp_path: Path
) -> None:
    (project / "build.toml").write_text(TEXT.replace(NODE, ""))
    cutlass = tmp_path / "cutlass"
    (cutlass / "include").mkdir(parents=True)
    (cutlass / "tools/util/include").mkdir(parents=True)
    more = ("--source", f"cutlass_3_8={cutlass}", "--cuda-home", str(tmp_path))
    code, out, _ = call(str(project), "--backend", "cuda", *more)
    assert (code, asked) == (0, [])
    assert out.startswith("nothing to fetch: ")


def test_json_is_all_that_is_said_on_stdout(
    project: Path, asked: list[str], call: Call, tmp_path: Path
) -> None:
    code, out, _ = call(str(project), "--backend", "cpu", "--json")
    assert code == 0
    assert json.loads(out) == {
        "inputs": [
            {
                "name": f"torch {version} (headers)",
                "variants": [CPU],
                "places": [str(tmp_path / version)],
                "error": None,
            }
            for version in ("2.12.1", "2.13.0")
        ],
        "skipped": {},
    }


def test_what_cannot_be_had_is_told_after_the_rest_was_fetched(
    project: Path, asked: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> tuple[Path, ...]:
        raise ToolchainUnavailableError("cuda-13.0 cannot be fetched with pip")

    monkeypatch.setattr(fetching, "fetch_cuda", refuse)
    code, out, err = call(str(project))
    assert code == 1
    assert sorted(asked) == ["2.12.1", "2.13.0", "cutlass_3_8"]
    assert ["cuda-13.0", CUDA, "not", "here"] in [line.split() for line in out.splitlines()]
    assert err.endswith("error: cuda-13.0 cannot be fetched with pip\n")
    code, out, _ = call(str(project), "--json")
    assert code == 1
    errors = [each["error"] for each in json.loads(out)["inputs"] if not each["places"]]
    assert errors == ["cuda-13.0 cannot be fetched with pip"]


def test_a_disk_that_is_full_for_one_is_not_for_all(
    project: Path, asked: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> tuple[Path, ...]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "toolchains/cuda-13.0")

    monkeypatch.setattr(fetching, "fetch_cuda", fill)
    code, out, err = call(str(project))
    assert code == 1
    assert sorted(asked) == ["2.12.1", "2.13.0", "cutlass_3_8"]
    assert ["cuda-13.0", CUDA, "not", "here"] in [line.split() for line in out.splitlines()]
    assert "error: cuda-13.0: toolchains/cuda-13.0: No space left on device" in err


def test_what_comes_from_nowhere_is_told_after_the_rest_was_fetched(
    project: Path, asked: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_none(*_: object) -> str:
        raise ToolchainUnavailableError("no CUDA toolkit 13.0 is pinned for this machine")

    monkeypatch.setattr(fetching, "name_cuda", find_none)
    more = 'depends = ["torch", "cutlass_3_8", "cutlass_2_10"]'
    (project / "build.toml").write_text(TEXT.replace('depends = ["torch", "cutlass_3_8"]', more))
    code, out, err = call(str(project))
    assert code == 1
    assert sorted(asked) == ["2.12.1", "2.13.0", "cutlass_3_8"]
    rows = [line.split() for line in out.splitlines()]
    assert ["CUDA", "13.0", CUDA, "not", "here"] in rows
    assert ["cutlass_2_10", CUDA, "not", "here"] in rows
    assert "no CUDA toolkit 13.0 is pinned" in err
    assert "[sources.cutlass_2_10]" in err


def test_a_machine_that_can_build_nothing_of_it(
    project: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = dict.fromkeys((BackendKind.CPU, BackendKind.CUDA), "needs a compiler")
    torch = parse_torch_build("2.13.0")
    none = Host(cpu="x86_64", os="linux", torch=torch, missing=lacking)
    monkeypatch.setattr(fetching, "detect_host", lambda _: none)
    code, out, err = call(str(project))
    assert (code, out) == (2, "")
    assert "nothing of it can be built here" in err
    assert "needs a compiler" in err
    assert call(str(project / "nowhere"))[0] == 2
    assert call(str(project), "--backend", "cdua")[0] == 2
