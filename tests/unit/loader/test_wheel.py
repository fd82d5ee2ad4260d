"""``kernels to-wheel``: names, tags, requirements and bytes of the wheels."""

from __future__ import annotations

import csv
import importlib
import json
import sys
import zipfile
from pathlib import Path

import pytest

from kernel_spec.metadata import KernelDependency
from kernels.cli import run

NAMES = {
    "torch-cpu": ("toy_x-1.1.2+cpu-py39-none-any", "torch"),
    "torch-universal": ("toy_x-1.1.2-py39-none-any", "torch"),
    "torch213-cxx11-cu130-x86_64-linux": (
        "toy_x-1.1.2+torch213cu130cxx11-cp39-abi3-manylinux_2_28_x86_64",
        "torch==2.13.*",
    ),
    "torch-stable-abi211-cpu-aarch64-linux": (
        "toy_x-1.1.2+torchstable211cpu-cp39-abi3-manylinux_2_28_aarch64",
        "torch>=2.11",
    ),
    "torch210-metal-aarch64-darwin": (
        "toy_x-1.1.2+torch210metal-cp39-abi3-macosx_15_0_arm64",
        "torch==2.10.*",
    ),
    "torch210-cu128-x86_64-windows": (
        "toy_x-1.1.2+torch210cu128-cp39-abi3-win_amd64",
        "torch==2.10.*",
    ),
    "tvm-ffi01-cpu-x86_64-linux": (
        "toy_x-1.1.2+tvmffi01cpu-cp39-abi3-manylinux_2_28_x86_64",
        "apache-tvm-ffi==0.1.*",
    ),
}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "wheels"


@pytest.fixture
def toy(publisher):
    files = {"__init__.py": "from toy_x.cfg import X\nfrom . import cfg\n", "cfg.py": "X = 5\n"}
    variants = {name: files | {"who.txt": name} for name in NAMES} | {"odd": files}
    publisher.publish(
        "acme/toy-x", branch="main", variants=variants, tags=("v1.1.2",), packages=("einops",)
    )


def test_every_variant_is_a_wheel_that_says_what_it_is_for(toy, out, capsys):
    assert run(["to-wheel", "acme/toy-x", "1.1.2", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert sorted(path.stem for path in out.iterdir()) == sorted(name for name, _ in NAMES.values())
    assert len(said.out.splitlines()) == len(NAMES)
    assert "odd is passed over" in said.err
    for variant, (name, torch) in NAMES.items():
        with zipfile.ZipFile(out / f"{name}.whl") as wheel:
            stem = "-".join(name.split("-")[:2])
            read = {entry: wheel.read(entry).decode() for entry in wheel.namelist()}
        assert read["toy_x/who.txt"] == variant
        metadata = read[f"{stem}.dist-info/METADATA"]
        assert f"Requires-Dist: {torch}\nRequires-Dist: einops\n" in metadata
        assert "Name: toy-x\n" in metadata
        tag = name.removeprefix(f"{stem}-")
        pure = "true" if tag.endswith("any") else "false"
        assert f"Root-Is-Purelib: {pure}\nTag: {tag}\n" in read[f"{stem}.dist-info/WHEEL"]


def test_the_same_variant_gives_the_same_bytes(toy, out, tmp_path):
    words = ["to-wheel", "acme/toy-x", "1.1.2", "--variant", "torch-cpu", "--out"]
    assert run([*words, str(out)]) == run([*words, str(tmp_path / "again")]) == 0
    [one], [other] = out.iterdir(), (tmp_path / "again").iterdir()
    assert one.read_bytes() == other.read_bytes()


def test_options_change_the_tag(toy, out):
    words = ["--python-version", "3.10", "--manylinux-version", "2.34", "--out", str(out)]
    variant = "torch213-cxx11-cu130-x86_64-linux"
    assert run(["to-wheel", "acme/toy-x", "1.1.2", "--variant", variant, *words]) == 0
    [wheel] = out.iterdir()
    assert wheel.name.endswith("-cp310-abi3-manylinux_2_34_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [n for n in archive.namelist() if n.endswith("METADATA")]
        assert "Requires-Python: >=3.10\n" in archive.read(metadata).decode()


def test_python_imports_it(toy, out, monkeypatch):
    assert (
        run(["to-wheel", "acme/toy-x", "1.1.2", "--variant", "torch-cpu", "--out", str(out)]) == 0
    )
    [wheel] = out.iterdir()
    monkeypatch.syspath_prepend(wheel)
    try:
        toy_x = importlib.import_module("toy_x")
        assert (toy_x.X, toy_x.cfg.__name__) == (5, "toy_x.cfg")
    finally:
        for name in ("toy_x", "toy_x.cfg"):
            sys.modules.pop(name, None)


def test_what_no_wheel_can_be_made_of_says_so(toy, publisher, out, capsys):
    publisher.publish("acme/top", needs=(KernelDependency(repo_id="bob/base", version=1),))
    assert run(["to-wheel", "acme/top", "1", "--out", str(out), "--json"]) == 1
    said = capsys.readouterr()
    assert "needs the kernels bob/base" in said.err
    assert json.loads(said.out)[0]["wheel"] is None
    assert not out.exists() or not list(out.iterdir())
    assert run(["to-wheel", "acme/toy-x", "1.1.2", "--variant", "torch-rocm"]) == 2
    assert run(["to-wheel", "acme/toy-x", ">=2"]) == 1
    assert run(["to-wheel", "acme/toy-x", "^2"]) == 2
    assert run(["to-wheel", "acme/toy-x", "1.1.2", "--python-version", "three"]) == 2


@pytest.mark.parametrize(
    ("urls", "shown"),
    [
        ({"upstream": "https://host/up"}, "https://host/up"),
        ({"upstream": "https://host/up", "source": "https://host/src"}, "https://host/src"),
        ({}, None),
    ],
)
def test_a_wheel_says_where_its_sources_are(publisher, out, urls, shown):
    publisher.publish("acme/toy", branch="v3", **urls)
    assert run(["to-wheel", "acme/toy", "3", "--out", str(out)]) == 0
    [wheel] = out.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [n for n in archive.namelist() if n.endswith("METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    found = [line for line in lines if line.startswith("Project-URL")]
    assert found == ([f"Project-URL: Source, {shown}"] if shown else [])


def test_a_number_is_a_version_branch(publisher, out):
    publisher.publish("acme/toy", branch="v3")
    assert run(["to-wheel", "acme/toy", "3", "--out", str(out)]) == 0
    assert [path.name for path in out.iterdir()] == ["toy-3+cpu-py39-none-any.whl"]


def test_a_commit_that_no_version_names_is_in_the_local_version(publisher, out):
    commit = publisher.publish("acme/toy", branch="main")
    for revision in (commit[:10], "main"):
        assert run(["to-wheel", "acme/toy", "--revision", revision, "--out", str(out)]) == 0
        [wheel] = out.iterdir()
        assert wheel.name == f"toy-1+cpu.g{commit[:12]}-py39-none-any.whl"
        wheel.unlink()
    assert run(["to-wheel", "acme/toy", "--out", str(out)]) == 2
    assert run(["to-wheel", "acme/toy", "1", "--revision", "main"]) == 2


def test_a_library_for_a_later_glibc_than_the_tag_says_is_refused(publisher, out, capsys):
    """auditwheel would say so; pip would not."""
    library = Path(__file__).parents[2] / "fixtures" / "linkage" / "glibc.so"
    files = {"__init__.py": "", "_x.abi3.so": library.read_bytes()}
    publisher.publish("acme/toy", variants={"torch-stable-abi210-cpu-x86_64-linux": files})
    words = ["to-wheel", "acme/toy", "1", "--out", str(out)]
    assert run(words) == 1
    assert "_x.abi3.so needs glibc 2.99" in capsys.readouterr().err
    assert not out.exists()
    assert run([*words, "--manylinux-version", "2.99"]) == 0


def test_the_record_names_every_file_whatever_its_name_is(publisher, out):
    names = ("a,b.txt", 'q"uote.txt', "ünï.txt", " blank.txt")
    files = {"__init__.py": "", **dict.fromkeys(names, "x")}
    publisher.publish("acme/toy", branch="main", variants={"torch-cpu": files}, tags=("v1.0.0",))
    assert run(["to-wheel", "acme/toy", "1.0.0", "--out", str(out)]) == 0
    [wheel] = out.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("toy-1.0.0+cpu.dist-info/RECORD").decode()
        # As pip reads it: a file of comma-separated values.
        rows = list(csv.reader(record.splitlines()))
        assert {len(row) for row in rows} == {3}
        assert {path for path, _, _ in rows} == set(archive.namelist())
    assert {f"toy/{name}" for name in names} <= {path for path, _, _ in rows}
