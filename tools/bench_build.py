"""Measures CUDA builds and writes ``docs/results/build.{json,md}``: run it with ``make bench-build``.

The peer of the first group is ``torch.utils.cpp_extension`` on the same device code, in the form in
which extensions are usually written: each file for nvcc, and the binding, includes torch's full
headers. A second time it compiles our files as they are, which shows how much of the difference is
in the sources and how much in the builder. All compile the same list of files for the same
architectures, in the same run, with empty caches. CPU seconds are those of all processes, as the kernel accounts for them; for that alone the
builder's sandbox is off.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_main_job
import draw_figures

from kernel_builder.config.read import read_build
from kernel_builder.environment import detect_host, prepare_environment
from kernel_builder.plan import plan
from kernel_builder.planned import Selection, VariantBuild
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import read_sources
from kernel_builder.toolchain.torch_cuda import make_cuda_headers, make_stand_ins
from kernel_builder.units import needs_device_compiler
from kernel_spec.backend import BackendKind

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
PROJECT = ROOT / "kernels-community" / "activation"
BUILDER = Path(sys.executable).parent / "kernel-builder"
ARCHS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
PLANS = 11
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
FILES = 10
GOALS = {"ratio": 8.0, "warm_s": 1.0, "plan_s": 0.3, "toolchain_mb": 400.0}

FULL_HEADERS = """\
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
"""
PEER = """
import json, os, sys
from torch.utils import cpp_extension
cpp_extension.CUDA_HOME = os.environ["CUDA_HOME"]  # a torch for the CPU does not look for it
try:
    cpp_extension.load(**json.loads(sys.argv[1]), with_cuda=True, is_python_module=False)
except OSError as err:
    if "load this library" not in str(err):
        raise  # else it is built, and a torch for the CPU cannot load it
"""
TEN = """\
#include <torch/csrc/stable/tensor.h>

__global__ void kernel_{number}(float* to) {{ to[threadIdx.x] = {number}; }}

void launch_{number}(float* to) {{ kernel_{number}<<<1, 32>>>(to); }}
"""


def measure(
    command: list[str], variables: dict[str, str], *, limit: float | None = None
) -> dict[str, float]:
    """Run a command, to its end or for ``limit`` seconds.

    Returns:
        Its time on the clock and on processors, in seconds; ``stopped`` where the limit was reached:
        then both are lower bounds.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what it leaves behind is counted, too
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    stopped = False
    with subprocess.Popen(
        command,
        env=variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            stopped = True
            os.killpg(process.pid, signal.SIGTERM)  # Ninja then ends what it has started
            said, _ = process.communicate()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0 and not stopped:
        sys.exit(f"{' '.join(command)}\n{said}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = {"seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)}
    return {**figures, "stopped": True} if stopped else figures


def plan_cuda(settings: Settings, archs: tuple[str, ...]) -> VariantBuild:
    """Plan the variant for CUDA, for these architectures."""
    build = read_build(PROJECT)
    selection = Selection(backends=frozenset({BackendKind.CUDA}), archs=archs)
    made = plan(
        build, read_sources(PROJECT, build), host=detect_host(settings), selection=selection
    )
    return made.variants[0]


def build_ours(project: Path, cache: Path, *more: str, archs: tuple[str, ...]) -> dict[str, Any]:
    """Build the variant for CUDA as a user does; return what it took and the report."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), "KERNEL_BUILDER_SANDBOX": "off"}
    report = cache / "report.json"
    command = [str(BUILDER), "build", str(project), "--backend", "cuda", "--json", str(report)]
    for arch in archs:
        command += ["--arch", arch]
    figures = measure([*command, *more], variables)
    (variant,) = json.loads(report.read_text())["variants"]
    for each in variant["files"]:
        del each["log"]  # a place of this machine
    names = ("archs", "compiled", "reused", "size_bytes", "peak_bytes", "files")
    return {**figures, **{name: variant[name] for name in names}}


def build_peer(
    scratch: Path,
    settings: Settings,
    *,
    archs: tuple[str, ...],
    full_headers: bool,
    limit: float | None,
) -> dict[str, Any]:
    """Build the same files by ``torch.utils.cpp_extension``, in its usual form or as they are."""
    scratch.mkdir()
    variant = plan_cuda(settings, archs)
    environment = prepare_environment(variant, settings)
    assert environment.cuda is not None
    project = scratch / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("build"))
    for unit in variant.units:
        if full_headers and (needs_device_compiler(unit) or unit.component is None):
            source = project / unit.source
            source.write_text(FULL_HEADERS + source.read_text())
    libraries = scratch / "lib"
    libraries.mkdir()
    toolchain = environment.toolchain
    make_stand_ins(
        (), libraries, cpu=toolchain.cpu, compiler=toolchain.command, variables=settings.variables
    )
    (libraries / "libcudart.so").symlink_to(environment.cuda.cudart)
    headers = make_cuda_headers(environment.torch, environment.cuda, store=scratch / "headers")
    include = [project / "csrc", project / "torch-ext", headers]
    flags = sorted({flag for unit in variant.units for flag in unit.backend_flags})
    (scratch / "peer").mkdir()
    asked = {
        "name": "peer_activation",
        "sources": [str(project / unit.source) for unit in variant.units],
        "extra_include_paths": [
            *map(str, include),
            str(ROOT / "src" / "kernel_builder" / "templates"),
            str(environment.cuda.include),
        ],
        "extra_cflags": ["-O3", "-DNDEBUG", "-DCUDA_KERNEL", "-DUSE_CUDA=1"],
        "extra_cuda_cflags": ["-O3", "-DNDEBUG", "-DCUDA_KERNEL", "-DUSE_CUDA=1", *flags],
        "extra_ldflags": [f"-L{libraries}"],
        "build_directory": str(scratch / "peer"),
    }
    variables = {
        **os.environ,
        "CUDA_HOME": str(environment.cuda.root),
        "TORCH_CUDA_ARCH_LIST": ";".join(archs),
        "MAX_JOBS": "2",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    figures = measure([sys.executable, "-c", PEER, json.dumps(asked)], variables, limit=limit)
    if "stopped" in figures:
        return {**figures, "size_bytes": None}
    (library,) = (scratch / "peer").glob("*.so")
    return {**figures, "size_bytes": library.stat().st_size}


def build_ten(scratch: Path, cache: Path) -> dict[str, Any]:
    """Build ten files for nvcc, change one, build again."""
    project = scratch / "ten"
    shutil.copytree(ROOT / "tests" / "kits" / "add_device", project)
    names = [f"csrc/ten_{number}.cu" for number in range(FILES)]
    for number, name in enumerate(names):
        (project / name).write_text(TEN.format(number=number))
    config = project / "build.toml"
    listed = "".join(f', "{name}"' for name in names)
    config.write_text(
        config.read_text().replace('"csrc/add_cuda.cu"]', f'"csrc/add_cuda.cu"{listed}]')
    )
    first = build_ours(project, cache, archs=ARCHS[:1])
    changed = project / names[3]
    changed.write_text(changed.read_text().replace("= 3;", "= 33;"))
    second = build_ours(project, cache, archs=ARCHS[:1])
    return {
        "files": FILES,
        "first": first,
        "again": second,
        "recompiled": [each["source"] for each in second["files"] if not each["reused"]],
    }


def open_cache(cache: Path, archs: tuple[str, ...]) -> tuple[Path, Settings]:
    """Make a cache that holds the toolchain, and no object."""
    cache.mkdir()
    settings = read_settings({**os.environ, "XDG_CACHE_HOME": str(cache)})
    prepare_environment(plan_cuda(settings, archs), settings)
    return cache, settings


def measure_builds(
    scratch: Path, *, archs: tuple[str, ...], with_peer: bool, limit: float | None
) -> dict[str, Any]:
    """Take all figures."""
    cache, settings = open_cache(scratch / "cache", archs)
    toolchains = settings.cache / "toolchains"
    size = sum(path.lstat().st_size for path in toolchains.rglob("*") if path.is_file())
    project = scratch / "activation"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("build"))
    ours = build_ours(project, cache, archs=archs)
    warm = [build_ours(project, cache, archs=archs)["seconds"] for _ in range(5)]
    linked = build_ours(project, cache, "--force", archs=archs)
    every = ours
    if archs != ARCHS:
        every = build_ours(project, open_cache(scratch / "every", ARCHS)[0], archs=ARCHS)
    lean_peer, peer = (
        build_peer(scratch / name, settings, archs=archs, full_headers=full, limit=limit)
        if with_peer
        else None
        for name, full in (("lean", False), ("full", True))
    )
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    planned = [measure([str(BUILDER), "plan", str(project)], variables) for _ in range(PLANS)]
    return {
        "archs": list(archs),
        "ours": ours,
        "every_arch": every,
        "peer": peer,
        "lean_peer": lean_peer,
        "ratio": None if peer is None else round(peer["cpu_seconds"] / ours["cpu_seconds"], 2),
        "warm_s": statistics.median(warm),
        "from_object_cache_s": linked["seconds"],
        "ten": build_ten(scratch, cache),
        "plan_s": statistics.median(each["seconds"] for each in planned),
        "plan_cpu_s": statistics.median(each["cpu_seconds"] for each in planned),
        "toolchain_mb": round(size / 1e6, 1),
    }


def describe_machine() -> dict[str, str]:
    """Say what the figures were taken on."""
    import torch

    machine = bench_main_job.describe_machine()
    return {
        "date": machine["date"],
        "commit": machine["commit"],
        "cpu": f"{machine['cpu']}, {machine['cores']} cores",
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": machine["python"],
        "torch": str(torch.__version__),
    }


def format_peer(what: str, figures: dict[str, Any] | None) -> str:
    """Write the row of a build by the peer."""
    head = f"| `torch.utils.cpp_extension`, {what} |"
    if figures is None:
        return f"{head} not in this run | | |"
    if "stopped" in figures:
        more, size = "more than ", "stopped before its end"
    else:
        more, size = "", f"{figures['size_bytes'] / 1e6:.2f} MB"
    return f"{head} {more}{figures['cpu_seconds']:.1f} | {more}{figures['seconds']:.1f} | {size} |"


def format_page(document: dict[str, Any]) -> str:
    """Write the figures for people."""
    meta, found = document["meta"], document["figures"]
    ours, peer, ten = found["ours"], found["peer"], found["ten"]
    peers = [
        format_peer(what, found[key])
        for what, key in (("usual form", "peer"), ("our files", "lean_peer"))
    ]

    def row(what: str, figure: str, goal: str, *, met: bool) -> str:
        return f"| {what} | {figure} | {goal} | {'yes' if met else '**no**'} |"

    recompiled = ten["recompiled"]
    compilers = sum(each["cpu_seconds"] for each in ten["again"]["files"] if not each["reused"])
    warm, planned, size = found["warm_s"], found["plan_s"], found["toolchain_mb"]
    return "\n".join(
        [
            "# CUDA builds, measured",
            "",
            f"Written by `make bench-build` (`tools/bench_build.py`) on {meta['date']}, commit "
            f"`{meta['commit']}`: {meta['cpu']}, load {meta['load']} before the run, Python "
            f"{meta['python']}, torch {meta['torch']}. No GPU was there; nothing ran on one.",
            "",
            f"## `activation` for CUDA, architectures {' '.join(found['archs'])}, empty caches",
            "",
            "The peer compiles the same files in the usual form: torch's full headers in the binding "
            "and in each file for nvcc; and once our files as they are, of which those for nvcc "
            "include no header of torch. CPU seconds count every process; the clock depends on what "
            "else the machine did.",
            "",
            "| | CPU seconds | seconds on the clock | library |",
            "|---|---|---|---|",
            f"| `kernel-builder build` (checks and import included) | {ours['cpu_seconds']:.1f} | "
            f"{ours['seconds']:.1f} | {ours['size_bytes'] / 1e6:.2f} MB |",
            *peers,
            "",
            *(
                []
                if found["archs"] == list(ARCHS)
                else [
                    f"`kernel-builder build` for all seven ({' '.join(ARCHS)}), likewise: "
                    f"{found['every_arch']['cpu_seconds']:.1f} CPU seconds, "
                    f"{found['every_arch']['seconds']:.1f} on the clock. The peer was not built for all "
                    "seven in this run: the goal is for these, and stays open.",
                    "",
                ]
            ),
            "Where ours goes:",
            "",
            "| file | CPU seconds | peak memory |",
            "|---|---|---|",
            *(
                f"| `{each['source']}` | {each['cpu_seconds']:.1f} | {each['peak_bytes'] / 1e6:.0f} MB |"
                for each in ours["files"]
                if not each["reused"]
            ),
            "",
            "## Goals",
            "",
            "| what | measured | goal | met |",
            "|---|---|---|---|",
            *(
                []
                if found["ratio"] is None
                else [
                    row(
                        "CPU seconds of the peer over ours, "
                        f"{len(found['archs'])} of {len(ARCHS)} architectures",
                        ("more than " if "stopped" in peer else "") + f"{found['ratio']:.1f}x",
                        f"{GOALS['ratio']:.0f}x",
                        met=found["ratio"] >= GOALS["ratio"],
                    )
                ]
            ),
            row("build again, nothing changed", f"{warm:.2f} s", "1 s", met=warm < GOALS["warm_s"]),
            row(
                f"one of {ten['files']} files for nvcc changed: files compiled again",
                f"{len(recompiled)}: {', '.join(recompiled)} ({ten['again']['cpu_seconds']:.1f} CPU seconds, "
                f"{ten['again']['seconds']:.1f} on the clock)",
                "1",
                met=len(recompiled) == 1,
            ),
            row(
                "`kernel-builder plan`, a new process, CPU seconds",
                f"{found['plan_cpu_s']:.2f} s ({planned:.2f} s on the clock)",
                "0.3 s",
                met=found["plan_cpu_s"] < GOALS["plan_s"],
            ),
            row(
                "the toolchain on disk",
                f"{size:.0f} MB",
                "400 MB",
                met=size < GOALS["toolchain_mb"],
            ),
            "",
            f"Of the {ten['again']['cpu_seconds']:.1f} CPU seconds after that change, the compilers took "
            f"{compilers:.1f}; the rest is the link, the checks and an import of torch. The binding, which holds a hash "
            "of all sources, is not compiled for it: the hash is written into its object.",
            "",
            f"With `--force` and every object in the cache (link, checks, import): "
            f"{found['from_object_cache_s']:.1f} s.",
            "",
        ]
    )


def main() -> int:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS, help="the directory of the results")
    parser.add_argument("--without-peer", action="store_true", help="measure our builds alone")
    parser.add_argument(
        "--arch", action="append", help="build for this alone, or these; the goals are for seven"
    )
    parser.add_argument(
        "--limit", type=float, help="stop each build of the peer after so many minutes"
    )
    arguments = parser.parse_args()
    limit = None if arguments.limit is None else arguments.limit * 60
    archs = tuple(arguments.arch or ARCHS)
    output = arguments.output
    meta = describe_machine()
    with tempfile.TemporaryDirectory(prefix="bench-build-") as scratch:
        document = {
            "meta": meta,
            "goals": GOALS,
            "figures": measure_builds(
                Path(scratch), archs=archs, with_peer=not arguments.without_peer, limit=limit
            ),
        }
    output.mkdir(parents=True, exist_ok=True)
    (output / "build.json").write_text(json.dumps(document, indent=2) + "\n")
    (output / "build.md").write_text(format_page(document))
    if output == RESULTS:
        draw_figures.write()  # from what was measured last
    print(format_page(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
