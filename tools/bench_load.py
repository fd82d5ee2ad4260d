"""Measures loads beside the published client and writes ``docs/results/load.{json,md}``: ``make bench-load``.

Both clients are unmodified, ask the same ``kernel-hub serve`` on loopback, and run in turns. Times of a
call are of the call alone: each process has imported torch, and get_kernel from kernels, before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import draw_figures
from bench_main_job import IMPORT, LOADS, RESULTS, ROOT, describe_machine
from peers import REFERENCE, ClientVenv, ServedHub, make_venv, reference_venv, serve_hub
from toy_variant import write_toy_metadata

from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId

ROUNDS = 7
FLEET_ROUNDS = 2
PROCESSES = 12
FILES = 60
BIG_BYTES = 8_000_000
KERNEL = "acme/sixty"
OURS, PUBLISHED = "ours", "published 0.17.2"
# `import kernels` alone puts off what is needed to name a function; this puts nothing off.
NAMED = """
import time{before}
begin = time.perf_counter()
from kernels import get_kernel
result = (time.perf_counter() - begin) * 1e3
"""
# A process of which nothing was there before: it starts, imports, and loads.
WHOLE = f"""
import time, kernels
kernels.get_kernel("{KERNEL}", version=1)
print(time.time(), flush=True)
"""
# Each process says when it is ready, and loads when it is told to.
WAITING = f"""
import sys, time, torch
from kernels import get_kernel
print("ready", flush=True)
sys.stdin.readline()
begin = time.time()
get_kernel("{KERNEL}", version=1)
print(begin, time.time(), flush=True)
"""


def main() -> int:
    """Measure, write both files, and fail where a goal is missed."""
    groups = ("calls", "fleets", "sizes")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*groups, []], help="default: all of them")
    asked = parser.parse_args().groups or groups
    target = RESULTS / "load.json"
    known = json.loads(target.read_text())["clients"] if target.exists() else {}
    clients = {OURS: ClientVenv(Path(sys.executable).parents[1]), PUBLISHED: reference_venv()}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        publish(place / "root", place / "project")
        with serve_hub(place / "root", place / "access.log", trusted=["acme"]) as hub:
            found = [
                *([measure_calls(clients, hub, place)] if "calls" in asked else []),
                *([measure_fleets(clients, hub, place)] if "fleets" in asked else []),
                *([measure_sizes(place)] if "sizes" in asked else []),
            ]
    figures = {name: known.get(name, {}) for name in clients}
    for group in found:
        figures = {name: figures[name] | group[name] for name in clients}
    # What else runs on the machine slows both, and more so who computes more.
    results = {"machine": describe_machine(), "load": os.getloadavg()[1], "clients": figures}
    goals = judge(results["clients"])
    results["goals"] = [{"goal": text, "met": met} for text, met in goals]
    RESULTS.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    page = render(results)
    (RESULTS / "load.md").write_text(page)
    draw_figures.write()
    print(page)
    return 0 if all(met for _, met in goals) else 1


def publish(root: Path, project: Path) -> None:
    """Publish a kernel of sixty files: one of eight megabytes, and small modules."""
    root.mkdir()
    variant = project / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text("from .m0 import VALUE\n")
    (variant / "data.bin").write_bytes(bytes(range(256)) * (BIG_BYTES // 256))
    for number in range(FILES - 3):
        (variant / f"m{number}.py").write_text(f"VALUE = {number}\n" + "# filler\n" * 200)
    write_toy_metadata(variant, "sixty")
    paths = {p.relative_to(project).as_posix(): p for p in project.rglob("*") if p.is_file()}
    repo = RepoId(*KERNEL.split("/"))
    publishing.publish(DirectoryHub(root), repo, paths, branch="v1", parent=None)


def measure_calls(
    clients: dict[str, ClientVenv], hub: ServedHub, place: Path
) -> dict[str, dict[str, float]]:
    """Time imports, a call with an empty cache, one with a warm cache, and repeats; count requests."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in clients}
    once, often = LOADS.format(kernel=KERNEL, repeats=1), LOADS.format(kernel=KERNEL, repeats=25)
    for number in range(ROUNDS):
        for name, client in clients.items():
            home = place / f"{number}-{name.split()[0]}"
            home.mkdir()
            note = found[name].setdefault
            note("import_ms", []).append(client.python(hub, home, IMPORT))
            for key, before in (("named_ms", ""), ("named_torch_ms", ", torch")):
                code = NAMED.format(before=before)
                note(key, []).append(client.python(hub, home, code))
            cold, asked = counted(hub, lambda c=client, h=home: c.python(hub, h, once))
            warm, once_asked = counted(hub, lambda c=client, h=home: c.python(hub, h, once))
            many, often_asked = counted(hub, lambda c=client, h=home: c.python(hub, h, often))
            # Each process calls once, and then as often as it repeats.
            repeat = (often_asked - once_asked) / 24
            note("cold_ms", []).append(cold["first_ms"])
            note("cold_requests", []).append(asked - repeat)
            note("warm_process_ms", []).append(warm["first_ms"])
            note("warm_process_requests", []).append(once_asked - repeat)
            note("repeat_us", []).append(many["again_ms"] * 1e3)
            note("repeat_requests", []).append(repeat)
            shutil.rmtree(home)
    return {name: medians(values) for name, values in found.items()}


def counted(hub: ServedHub, action: Callable[[], Any]) -> tuple[Any, int]:
    """Do something; return what it gave, and how often the hub was asked meanwhile."""
    before = len(hub.requests())
    return action(), len(hub.requests()) - before


def medians(values: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each list."""
    return {key: statistics.median(each) for key, each in values.items()}


def measure_fleets(
    clients: dict[str, ClientVenv], hub: ServedHub, place: Path
) -> dict[str, dict[str, float]]:
    """Let processes with one empty cache load at once; time until the last has its kernel."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in clients}
    for number in range(FLEET_ROUNDS):
        for name, client in clients.items():
            for count, key in ((1, "single"), (PROCESSES, "fleet")):
                home = place / f"fleet-{number}-{name.split()[0]}-{count}"
                home.mkdir()
                seconds, asked = counted(
                    hub, lambda c=client, h=home, n=count: run_whole(c, hub, h, n)
                )
                found[name].setdefault(f"{key}_s", []).append(seconds)
                found[name].setdefault(f"{key}_requests", []).append(asked)
                shutil.rmtree(home)
            home = place / f"ready-{number}-{name.split()[0]}"
            home.mkdir()
            seconds = run_fleet(client, hub, home, PROCESSES)
            found[name].setdefault("fleet_calls_s", []).append(seconds)
            shutil.rmtree(home)
    return {name: medians(values) for name, values in found.items()}


def run_whole(client: ClientVenv, hub: ServedHub, home: Path, count: int) -> float:
    """Start processes that load; return the seconds until the last has its kernel."""
    begin = time.time()
    processes = [client.start(hub, home, "python", "-c", WHOLE) for _ in range(count)]
    return max(end for [end] in map(finish, processes)) - begin


def finish(process: subprocess.Popen[str]) -> list[float]:
    """Wait for a process; return the times that it printed."""
    out, err = process.communicate(timeout=600)
    if process.returncode:
        sys.exit(f"a process failed to load:\n{err}")
    return [float(word) for word in out.split()]


def run_fleet(client: ClientVenv, hub: ServedHub, home: Path, count: int) -> float:
    """Start processes, let all load at once; return the seconds until the last has its kernel."""
    processes = [client.start(hub, home, "python", "-c", WAITING) for _ in range(count)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    spans = [finish(process) for process in processes]
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def measure_sizes(place: Path) -> dict[str, dict[str, float]]:
    """Install both from scratch, without torch; count packages and bytes."""
    source, ours = place / "checkout", place / "installed"
    subprocess.run(["git", "clone", "-q", "--depth", "1", ROOT.as_uri(), str(source)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(ours)], check=True)
    pip = [str(ours / "bin" / "python"), "-m", "pip", "install", "-q", str(source)]
    subprocess.run(pip, check=True)
    return {
        OURS: size_of(ours),
        PUBLISHED: size_of(make_venv(*reversed(REFERENCE)).folder),
    }


def size_of(folder: Path) -> dict[str, float]:
    """Count the packages of a virtual environment and their bytes, without pip and bytecode."""
    [site] = folder.glob("lib/python3*/site-packages")
    packages = [path for path in site.glob("*.dist-info") if not is_tool(path.name)]
    files = [
        path
        for path in site.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not is_tool(path.relative_to(site).parts[0])
    ]
    total = sum(path.stat().st_size for path in files)
    return {"packages": len(packages), "installed_mb": total / 1e6}


def is_tool(name: str) -> bool:
    """Say whether a folder of site-packages comes with every virtual environment."""
    return name.startswith(("pip", "setuptools", "pkg_resources", "_distutils_hack"))


def judge(clients: dict[str, dict[str, float]]) -> list[tuple[str, bool]]:
    """Compare the figures with the goals."""
    ours, theirs = clients[OURS], clients[PUBLISHED]
    return [
        ("import at least 5x faster, alone and with a function named",
         all(ours[key] * 5 <= theirs[key] for key in ("import_ms", "named_ms", "named_torch_ms"))),
        ("import and first call with an empty cache faster together",
         ours["named_torch_ms"] + ours["cold_ms"] < theirs["named_torch_ms"] + theirs["cold_ms"]),
        ("a repeated call under 100 µs, without a request",
         ours["repeat_us"] < 100 and ours["repeat_requests"] == 0),
        ("a new process with a warm cache makes no request", ours["warm_process_requests"] == 0),
        (f"{PROCESSES} processes make at most 1.2x the requests of one",
         ours["fleet_requests"] <= 1.2 * ours["single_requests"]),
        (f"{PROCESSES} processes take at most half as long",
         ours["fleet_s"] <= theirs["fleet_s"] / 2),
        ("at most 20 packages and 40 MB", ours["packages"] <= 20 and ours["installed_mb"] <= 40),
    ]  # fmt: skip


ROWS = {
    "import_ms": ("`import kernels`", "ms"),
    "named_ms": ("`from kernels import get_kernel`", "ms"),
    "named_torch_ms": ("the same after `import torch`", "ms"),
    "cold_ms": ("first call, empty cache", "ms"),
    "cold_requests": ("its requests", ""),
    "warm_process_ms": ("first call of a new process, warm cache", "ms"),
    "warm_process_requests": ("its requests", ""),
    "repeat_us": ("repeated call", "µs"),
    "repeat_requests": ("its requests", ""),
    "fleet_s": (f"{PROCESSES} new processes at once, one empty cache: until all have it", "s"),
    "fleet_requests": ("their requests", ""),
    "single_requests": ("those of one process", ""),
    "fleet_calls_s": (f"{PROCESSES} that have imported torch and kernels: their calls alone", "s"),
    "packages": ("packages that pip installs (without torch)", ""),
    "installed_mb": ("their files", "MB"),
}


def render(results: dict[str, Any]) -> str:
    """Write the page."""
    machine, clients = results["machine"], results["clients"]
    rows = [
        f"| {title} | " + " | ".join(f"{each[key]:,.1f} {unit}".strip() for each in clients.values()) + " |"
        for key, (title, unit) in ROWS.items()
    ]  # fmt: skip
    goals = [
        f"* {'met' if each['met'] else '**missed**'}: {each['goal']}" for each in results["goals"]
    ]
    return "\n".join([
        "# Loads, measured", "",
        f"Written by `make bench-load` (`tools/bench_load.py`) on {machine['date']}, commit `{machine['commit']}`: "
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}. Medians of {ROUNDS} rounds "
        f"({FLEET_ROUNDS} of the {PROCESSES} processes), the clients in turns.", "",
        f"A kernel of {FILES} files, {BIG_BYTES // 1_000_000} MB, from `kernel-hub serve` over loopback. Calls are timed "
        f"after `import torch` and `from kernels import get_kernel`. The machine's load average was {results['load']:.0f}.", "",
        "| | " + " | ".join(clients) + " |", "|---" * (len(clients) + 1) + "|", *rows, "", *goals, "",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
