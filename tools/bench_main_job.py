"""Measures the main job and writes ``docs/results/main-job.{json,md}``: run it with ``make bench``.

Three groups: a clean checkout with empty caches (``make setup``, ``make demo``, ``make test``), builds
(peer: ``torch.utils.cpp_extension``), and loads (peer: the published ``kernels`` client, unmodified, against
the same hub on loopback). Peers are measured in the same run, rounds interleaved, medians reported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import ClientVenv, ServedHub, reference_venv, serve_hub

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
KERNEL = "kernels-community/activation"
BIN = Path(sys.executable).parent
ROUNDS = 11

FULL_HEADER_BINDING = """
#include <torch/extension.h>
torch::Tensor add_one(torch::Tensor x) { return x + 1; }
TORCH_LIBRARY(peer_add_one, m) { m.def("add_one(Tensor x) -> Tensor"); m.impl("add_one", &add_one); }
"""
PEER_BUILD = """
import sys
from torch.utils.cpp_extension import load
load(name="peer_add_one", sources=[sys.argv[1]], build_directory=sys.argv[2], is_python_module=False)
"""
IMPORT = (
    "import time; t = time.perf_counter(); import kernels; result = (time.perf_counter() - t) * 1e3"
)
LOADS = """
import time, torch
from kernels import get_kernel
def once():
    begin = time.perf_counter()
    get_kernel("{kernel}", version=1)
    return (time.perf_counter() - begin) * 1e3
first = once()
again = sorted(once() for _ in range({repeats}))
result = dict(first_ms=first, again_ms=again[len(again) // 2])
"""


def main() -> int:
    """Measure what is asked for, merge it with the last results, write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    groups: dict[str, Callable[[], dict[str, Any]]] = {
        "checkout": measure_checkout,
        "build": measure_builds,
        "load": measure_loads,
    }
    parser.add_argument("groups", nargs="*", choices=[*groups, []], help="default: all of them")
    asked = parser.parse_args().groups or list(groups)
    target = RESULTS / "main-job.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    results["machine"] = describe_machine()
    for name in asked:
        print(f"measuring: {name}", flush=True)
        results[name] = groups[name]()
    RESULTS.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    (RESULTS / "main-job.md").write_text(render(results))
    print(render(results))
    return 0


def describe_machine() -> dict[str, Any]:
    """Say what the figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
    }


def measure_checkout() -> dict[str, Any]:
    """Clone, then set up, run the demo and the tests with empty caches; keep the demo's picture."""
    with tempfile.TemporaryDirectory() as scratch:
        clone, home = Path(scratch, "kernels"), Path(scratch, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        env = clean_environment(home)
        seconds = {}
        for target in ("setup", "demo", "test"):
            begin = time.perf_counter()
            done = subprocess.run(
                ["make", target], cwd=clone, env=env, capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"make {target} failed in a clean checkout:\n{done.stdout}\n{done.stderr}")
            seconds[target] = time.perf_counter() - begin
        begin = time.perf_counter()
        subprocess.run(["make", "setup"], cwd=clone, env=env, check=True)
        seconds["setup again"] = time.perf_counter() - begin
        output = clone / "demo-output"
        shutil.copyfile(output / "demo.jpg", RESULTS / "demo.jpg")
        demo = json.loads((output / "demo.json").read_text())
        load = json.loads((output / "load.json").read_text())
    return {"seconds": seconds, "demo": demo["seconds"], "load": load}


def clean_environment(home: Path) -> dict[str, str]:
    """Return an environment in which every cache is empty."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("KERNELS_", "HF_", "XDG_", "LOCAL_KERNELS", "MAKE", "PYTHON"))
        and key != "VIRTUAL_ENV"
    }
    return kept | {"XDG_CACHE_HOME": str(home / "cache"), "HF_HOME": str(home / "hf")}


def measure_builds() -> dict[str, Any]:
    """Build activation cold and again; build one small op with the builder and with the peer."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        project = place / "activation"
        shutil.copytree(ROOT / KERNEL, project, ignore=shutil.ignore_patterns("build"))
        env = clean_environment(place / "home")
        build = [str(BIN / "kernel-builder"), "build", str(project), "--backend", "cpu"]
        cold = [timed(build, fresh(env, place / f"cold-{n}")) for n in range(3)]
        warm_env = fresh(env, place / "warm")
        timed(build, warm_env)
        warm = [timed(build, warm_env) for _ in range(ROUNDS)]
        small = place / "small"
        init = [str(BIN / "kernel-builder"), "init", str(small), "--name", "me/small"]
        timed([*init, "--backends", "cpu"], env)
        binding = place / "add_one.cpp"
        binding.write_text(FULL_HEADER_BINDING)
        ours, peer = [], []
        for number in range(3):
            small_build = [str(BIN / "kernel-builder"), "build", str(small)]
            ours.append(timed(small_build, fresh(env, place / f"small-{number}")))
            folder = place / f"peer-{number}"
            folder.mkdir()
            command = [sys.executable, "-c", PEER_BUILD, str(binding), str(folder)]
            peer.append(timed(command, env | {"PATH": f"{BIN}:{env['PATH']}"}))
    return {
        "activation cold": median_of(cold),
        "activation unchanged": median_of(warm),
        "one small op": median_of(ours),
        "one small op, torch.utils.cpp_extension": median_of(peer),
    }


def fresh(env: dict[str, str], cache: Path) -> dict[str, str]:
    """Return the environment with a cache of its own."""
    return env | {"XDG_CACHE_HOME": str(cache)}


def timed(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its wall and its user seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    begin = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return wall, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def median_of(runs: list[tuple[float, float]]) -> dict[str, float]:
    """Return the medians of wall and user seconds."""
    walls, users = zip(*runs, strict=True)
    return {"wall_s": statistics.median(walls), "user_s": statistics.median(users)}


def measure_loads() -> dict[str, Any]:
    """Load from our hub over loopback, with our client and with the published one."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        root = place / "root"
        for verb in (["build", KERNEL], ["upload", KERNEL, "--hub", root.as_uri()]):
            done = subprocess.run(
                [str(BIN / "kernel-builder"), *verb],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"kernel-builder {verb[0]} failed:\n{done.stdout}\n{done.stderr}")
        ours, theirs = ClientVenv(BIN.parent), reference_venv()
        with serve_hub(root, place / "access.log", trusted=["kernels-community"]) as hub:
            clients = {"ours": ours, "published 0.17.2": theirs}
            homes = {name: place / name.replace(" ", "-") for name in clients}
            for home in homes.values():
                home.mkdir()
            imports = measure_imports(clients, hub, homes)
            return {
                name: imports[name] | measure_client(client, hub, homes[name])
                for name, client in clients.items()
            }


def measure_imports(
    clients: dict[str, ClientVenv], hub: ServedHub, homes: dict[str, Path]
) -> dict[str, dict[str, float]]:
    """Time ``import kernels`` in new processes, rounds interleaved."""
    times: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(ROUNDS):
        for name, client in clients.items():
            times[name].append(client.python(hub, homes[name], IMPORT))
    return {name: {"import_ms": statistics.median(values)} for name, values in times.items()}


def measure_client(client: ClientVenv, hub: ServedHub, home: Path) -> dict[str, float]:
    """Time a cold process, warm processes, and repeated calls in them; count their requests."""
    code = LOADS.format(kernel=KERNEL, repeats=25)
    single = LOADS.format(kernel=KERNEL, repeats=1)
    before = len(hub.requests())
    cold = client.python(hub, home, LOADS.format(kernel=KERNEL, repeats=1))
    counts = [len(hub.requests()) - before]
    firsts, agains = [], []
    for _ in range(ROUNDS):
        warm = client.python(hub, home, code)
        firsts.append(warm["first_ms"])
        agains.append(warm["again_ms"])
    before = len(hub.requests())
    client.python(hub, home, single)
    # This process called twice: the second call's requests are counted apart below.
    both = len(hub.requests()) - before
    before = len(hub.requests())
    client.python(hub, home, code)
    many = len(hub.requests()) - before
    repeat = (many - both) / 24
    return {
        "cold_ms": cold["first_ms"],
        "cold_requests": counts[0] - repeat,
        "warm_process_ms": statistics.median(firsts),
        "warm_process_requests": both - repeat,
        "repeat_us": statistics.median(agains) * 1e3,
        "repeat_requests": repeat,
    }


def render(results: dict[str, Any]) -> str:
    """Write the page."""
    machine = results["machine"]
    lines = [
        "# The main job, measured",
        "",
        f"Written by `make bench` (`tools/bench_main_job.py`) on {machine['date']}, commit `{machine['commit']}`: "
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}. Medians.",
        "",
    ]
    if "checkout" in results:
        lines += render_checkout(results["checkout"])
    if "build" in results:
        lines += render_builds(results["build"])
    if "load" in results:
        lines += render_loads(results["load"])
    return "\n".join(lines)


def render_checkout(checkout: dict[str, Any]) -> list[str]:
    """Write what a newcomer waits for."""
    rows = [f"| `make {name}` | {took:.1f} s |" for name, took in checkout["seconds"].items()]
    demo = [f"| {name} | {took:.2f} s |" for name, took in checkout["demo"].items()]
    phases = [
        f"| {trace['kernel']} | "
        + " | ".join(f"{trace['phases_ms'].get(name, 0):.1f}" for name in PHASES)
        + f" | {sum(trace['phases_ms'].values()):.1f} |"
        for trace in checkout["load"]["traces"]
    ]
    speeds = [
        f"| {row['name']} | {row['kernel_ms']:.2f} ms | {row['torch_ms']:.2f} ms "
        f"| {row['torch_ms'] / row['kernel_ms']:.2f}x |"
        for row in checkout["load"]["rows"]
    ]
    return [
        "## A clean checkout with empty caches", "", "| step | time |", "|---|---|", *rows, "",
        "Inside the demo:", "", "| step | time |", "|---|---|", *demo, "",
        "Where each millisecond of a first load goes (new process, empty cache, a folder as hub; "
        "`import torch` is not counted):", "",
        "| kernel | " + " | ".join(PHASES) + " | all, ms |", "|---" * (len(PHASES) + 2) + "|", *phases, "",
        "Kernel against eager torch, one thread:", "",
        "| op | kernel | torch | speed-up |", "|---|---|---|---|", *speeds, "",
        "![photograph and grey version](demo.jpg)", "",
    ]  # fmt: skip


PHASES = ("prepare", "locate", "choose", "trust", "install", "import")


def render_builds(builds: dict[str, Any]) -> list[str]:
    """Write what an author waits for."""
    rows = [
        f"| {name} | {took['wall_s']:.2f} s | {took['user_s']:.2f} s |"
        for name, took in builds.items()
    ]
    return [
        "## Builds", "", "| build | wall | user |", "|---|---|---|", *rows, "",
        "*Cold*: empty cache, checks and import check included. The small op is the one that "
        "`kernel-builder init` writes; the peer compiles an equal op with `torch/extension.h`.", "",
    ]  # fmt: skip


def render_loads(loads: dict[str, Any]) -> list[str]:
    """Write what a job waits for."""
    titles = {
        "import_ms": ("`import kernels`", "ms"),
        "cold_ms": ("first call, empty cache", "ms"),
        "cold_requests": ("its requests", ""),
        "warm_process_ms": ("first call of a new process, warm cache", "ms"),
        "warm_process_requests": ("its requests", ""),
        "repeat_us": ("repeated call", "µs"),
        "repeat_requests": ("its requests", ""),
    }
    rows = [
        f"| {title} | "
        + " | ".join(
            f"{client[key]:,.1f} {unit}".strip().replace(".0 |", " |") for client in loads.values()
        )
        + " |"
        for key, (title, unit) in titles.items()
    ]
    return [
        "## Loads", "",
        f"`{KERNEL}` from `kernel-hub serve` over loopback, after `import torch` and `from kernels import get_kernel`; both clients load the "
        "same files that `kernel-builder` made.", "",
        "| | " + " | ".join(loads) + " |", "|---" * (len(loads) + 1) + "|", *rows, "",
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
