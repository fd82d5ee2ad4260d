"""The whole way of a new kernel, by its commands: init, build, its own tests, upload, get_kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lacking import require_commands

BUILDER = "from kernel_builder.cli import main; main()"
LOADER = "from kernels.cli import main; main()"
USE = """
import torch
from kernels import get_kernel
kernel = get_kernel("me/fresh"{options})
print(kernel.add_one(torch.arange(3.0)).tolist(), kernel.__file__)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which ``fresh`` was made and built."""
    require_commands("g++")
    home = tmp_path_factory.mktemp("home")
    made = run(home, BUILDER, "init", "--name", "me/fresh", "--backends", "cpu", "cuda")
    assert (home / "fresh/build.toml").is_file(), made.stderr
    built = run(home, BUILDER, "build", "fresh", "-j1", "--backend", "cpu")
    assert "built" in built.stdout
    return home


def run(
    cwd: Path, code: str, *arguments: str, code_expected: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process that sees nothing of this one's kernels."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KERNELS_", "LOCAL_"))
    }
    root = next(path for path in (cwd, *cwd.parents) if path.name.startswith("home"))
    env |= {"XDG_CACHE_HOME": str(root / "cache"), "KERNELS_CACHE": str(root / "kernels")}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=env | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code_expected, done.stdout + done.stderr
    return done


def test_build_holds_variant_directories_only(home: Path) -> None:
    assert [path.name for path in (home / "fresh/build").iterdir()] == [
        "torch-stable-abi210-cpu-x86_64-linux"
    ]
    checked = run(home, BUILDER, "check", "fresh")
    assert checked.stdout == "torch-stable-abi210-cpu-x86_64-linux: ok\n"


def test_its_own_tests_pass_on_a_cpu(home: Path) -> None:
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '.']))"
    done = run(home / "fresh", code)
    assert " passed" in done.stdout
    assert "failed" not in done.stdout


def test_the_example_and_the_benchmark_run(home: Path) -> None:
    here = {"LOCAL_KERNELS": "me/fresh=."}
    shown = run(home / "fresh", "import runpy; runpy.run_path('example.py')", **here)
    assert shown.stdout == "tensor([1., 1., 1., 1.])\n"
    options = ("--device", "cpu", "--rounds", "3", "--only", "add_one 1024", "--json")
    timed = json.loads(run(home / "fresh", LOADER, "benchmark", ".", *options).stdout)
    assert {row["way"] for row in timed["rows"]} == {"cold", "warm"}
    assert all(row["peers"].keys() == {"torch"} and not row["wrong"] for row in timed["rows"])


def test_a_project_for_the_cpu_alone_is_used_with_a_torch_for_cuda(home: Path) -> None:
    """The loader asks torch what it is for, which is pretended here."""
    pretend = "import runpy, sys, pytest, torch; torch.version.cuda = '13.0'; "
    run(home, BUILDER, "init", "--name", "me/plain-cpu", "--backends", "cpu")
    run(home, BUILDER, "build", "plain-cpu", "-j1")
    place = home / "plain-cpu"
    here = {"LOCAL_KERNELS": "me/plain-cpu=."}
    refused = "from kernels import get_kernel; get_kernel('me/plain-cpu')"
    said = run(place, pretend + refused, code_expected=1, **here).stderr
    assert "built for cpu, this system has cuda 13.0" in said
    shown = run(place, pretend + "runpy.run_path('example.py')", **here)
    assert shown.stdout == "tensor([1., 1., 1., 1.])\n"
    tests = "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '.']))"
    done = run(place, pretend + tests)
    assert " passed" in done.stdout
    assert "failed" not in done.stdout
    # What `testshell` sets under such a torch: a directory that is not named like a variant.
    (variant,) = (place / "build").iterdir()
    (home / "importable").mkdir()
    (home / "importable" / "plain_cpu").symlink_to(variant)
    shell = {"LOCAL_KERNELS": f"me/plain-cpu={home / 'importable' / 'plain_cpu'}"}
    use = "import torch\nfrom kernels import get_kernel\nkernel = get_kernel('me/plain-cpu')\n"
    used = run(place, f"{pretend}\n{use}print(kernel.add_one(torch.zeros(1)))", **shell)
    assert used.stdout == "tensor([1.])\n"
    assert " passed" in run(place, pretend + tests, **shell).stdout


def test_published_to_a_directory_and_loaded_by_one_line(home: Path) -> None:
    hub = (home / "hub").as_uri()
    first = run(home, BUILDER, "upload", "fresh", "--hub", hub)
    assert first.stdout.splitlines()[-1].startswith("published me/fresh v1 at ")
    again = run(home, BUILDER, "upload", "fresh", KERNELS_HUB=hub)
    assert again.stdout.startswith("nothing to publish: me/fresh v1")
    for options in ("", ", version=1", ', revision="v1"'):
        used = run(home, USE.format(options=options), KERNELS_HUB=hub)
        assert used.stdout.startswith(f"[1.0, 2.0, 3.0] {home / 'kernels'}/")


def test_the_same_sources_elsewhere_publish_the_same_files(home: Path) -> None:
    copy = home / "elsewhere" / "renamed"
    shutil.copytree(home / "fresh", copy, ignore=shutil.ignore_patterns("build"))
    other = {"XDG_CACHE_HOME": str(home / "other-cache")}
    run(home, BUILDER, "build", str(copy), "-j1", "--backend", "cpu", **other)
    for path in sorted((home / "fresh/build").rglob("*")):
        if path.is_file():
            twin = copy / path.relative_to(home / "fresh")
            assert twin.read_bytes() == path.read_bytes(), path


def test_a_broken_source_leaves_what_was_built(home: Path) -> None:
    copy = home / "elsewhere" / "broken"
    shutil.copytree(home / "fresh", copy)
    before = {path: path.read_bytes() for path in (copy / "build").rglob("*") if path.is_file()}
    source = copy / "csrc/fresh_cpu.cpp"
    source.write_text(source.read_text().replace("+ 1.0f;", "+ one;"))
    failed = run(home, BUILDER, "build", str(copy), "-j1", "--backend", "cpu", code_expected=1)
    assert "fresh_cpu.cpp" in failed.stdout
    assert "one" in failed.stdout
    assert "Traceback" not in failed.stderr
    assert before == {
        path: path.read_bytes() for path in (copy / "build").rglob("*") if path.is_file()
    }


def test_a_plan_imports_neither_torch_nor_what_draws(home: Path) -> None:
    code = (
        "import sys; from kernel_builder.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted({'torch', 'rich', 'jinja2'} & set(sys.modules)))"
    )
    planned = run(home, code, "plan", "fresh").stdout.splitlines()
    assert any(
        line.startswith("torch-stable-abi210-cpu") and "torch stable ABI 2.10" in line
        for line in planned
    )
    assert planned[-1] == "[]"


@pytest.fixture(scope="module")
def noarch(home: Path) -> Path:
    """A project of Triton, built beside the compiled one."""
    run(home, BUILDER, "init", "--name", "me/plain", "--noarch")
    run(home, BUILDER, "build", "plain")
    return home / "plain"


def test_a_project_of_triton_builds_passes_its_tests_and_is_loaded(noarch: Path) -> None:
    names = ["torch-cpu", "torch-cuda", "torch-rocm"]
    assert sorted(path.name for path in (noarch / "build").iterdir()) == names
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '.']))"
    done = run(noarch, code)
    assert " passed" in done.stdout
    assert "failed" not in done.stdout
    hub = (noarch.parent / "hub").as_uri()
    run(noarch, BUILDER, "upload", "--hub", hub)
    used = run(
        noarch.parent, USE.replace("me/fresh", "me/plain").format(options=""), KERNELS_HUB=hub
    )
    assert used.stdout.startswith("[1.0, 2.0, 3.0]")


@pytest.mark.parametrize(
    ("backend", "needs"),
    [("rocm", "needs hipcc"), ("metal", "needs macOS with Xcode"), ("xpu", "needs icpx")],
)
def test_what_cannot_be_compiled_is_written_and_refused_by_name(
    home: Path, backend: str, needs: str
) -> None:
    project = home / f"for-{backend}"
    made = run(home, BUILDER, "init", "--name", f"me/for-{backend}", "--backends", backend)
    assert f"{backend}: its files are written, but it is not built here: {needs}" in made.stdout
    run(home, BUILDER, "check-config", str(project))
    refused = run(home, BUILDER, "build", str(project), code_expected=1)
    assert needs in refused.stdout + refused.stderr
    assert not (project / "build").exists()


def test_all_backends_in_one_project_leave_the_cpu_as_it_is(home: Path) -> None:
    """The files for other compilers do not stand in the way: nothing is even compiled again."""
    everything = ("--backends", "cpu", "cuda", "rocm", "metal", "xpu")
    run(home, BUILDER, "init", "every/where", "--name", "me/fresh", *everything)
    built = run(home / "every/where", BUILDER, "build", "--backend", "cpu", "-j1")
    assert "torch-stable-abi210-cpu-x86_64-linux  built" in built.stdout
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '.']))"
    assert " passed" in run(home / "every/where", code).stdout


def test_the_gate_of_a_new_project_passes(home: Path) -> None:
    done = run(home, BUILDER, "check", "--gate", "every/where")
    assert "the gate passes 2 cases on" in done.stdout
