"""Test and time our kernels on the GPU that is here, and write down what it takes: docs/benchmarks.

    python tools/gpu.py [NAME ...] [--commit ID] [--into docs/benchmarks/h200] [--seconds 540]
                        [--no-tests] [--only TEXT]

Offline, and with nothing installed but torch, pytest and the few packages that `kernels` needs: the sources are taken
from this checkout, the variants from each kernel's `build/` (`make gpu-build` makes them on any
machine), and with them the commit that a row names. Results replace those of the same calls in INTO.json;
INTO.md and INTO.svg show them. A kernel that fails its tests is not timed. It stops before it takes longer than
asked: name the kernels that are left. Nothing is begun without a GPU, or on another one than that of INTO.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.bench.row import Row

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
COMMUNITY = ROOT / "kernels-community"
ORG = "kernels-community"
# What is left of the time must allow this for one kernel.
LEAST_SECONDS = 60


def find_kernels() -> dict[str, bool]:
    """Every kernel that has benchmarks, by name: whether it was built for CUDA."""
    return {
        folder.name: any(map(_is_for_cuda, folder.glob("build/*/metadata.json")))
        for folder in sorted(COMMUNITY.iterdir())
        if any(folder.glob("benchmarks/benchmark*.py"))
    }


def _is_for_cuda(metadata: Path) -> bool:
    return bool(json.loads(metadata.read_text(encoding="utf-8"))["backend"]["type"] == "cuda")


def find_device() -> str | None:
    """Return the name of the GPU that torch would use; None, and why on stderr, where it has none."""
    # In a process of its own: one that has used a GPU holds a part of its memory.
    code = "import torch; print(torch.cuda.get_device_name())"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout.strip()
    print(done.stderr.strip().rpartition("\n")[2], file=sys.stderr)
    return None


def find_fault(names: list[str], into: Path) -> str | None:
    """Say why nothing can be measured here, if so: names, builds, the GPU, or where results would go."""
    known = find_kernels()
    if unknown := sorted(set(names) - set(known)):
        return f"no kernels with benchmarks: {', '.join(unknown)}; there are {', '.join(known)}"
    if unbuilt := [name for name in names if not known[name]]:
        return (
            f"not built for CUDA: {', '.join(unbuilt)}. On any machine: "
            f"make gpu-build K='{' '.join(unbuilt)}'"
        )
    device = find_device()
    if device is None:
        return (
            f"{sys.executable} can use no GPU here (why: the line above). make gpu measures on an H200; "
            "on a CPU: kernels benchmark PATH"
        )
    others = {meta["device"] for meta in read(into)[0].values()} - {device}
    if others:
        return (
            f"{into}.json holds figures of {', '.join(sorted(others))}, and here is {device}: "
            "name another place, --into docs/benchmarks/NAME"
        )
    return None


def environment(names: list[str]) -> dict[str, str]:
    """Return the environment in which `get_kernel` finds this checkout's kernels by their names."""
    path = os.environ.get("PYTHONPATH", "")
    return os.environ | {
        "LOCAL_KERNELS": ":".join(f"{ORG}/{name}={COMMUNITY / name}" for name in names),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{path}" if path else str(ROOT / "src"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def run(command: list[str], env: dict[str, str], seconds: float) -> bool:
    """Run a command, its output left to the terminal; False where it failed or took too long."""
    print("$", " ".join(command), flush=True)
    try:
        return (
            subprocess.run(command, check=False, env=env, cwd=ROOT, timeout=seconds).returncode == 0
        )
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:.0f} s", flush=True)
        return False


def test(place: Path, env: dict[str, str], seconds: float) -> bool:
    words = ["-q", "-x", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull]
    if importlib.util.find_spec("xdist") is not None:
        words += ["-n", "8"]
    command = [sys.executable, "-m", "pytest", *words, "--rootdir", str(ROOT), str(place)]
    return run(command, env | {"KERNELS_TEST_DEVICES": "cuda"}, seconds)


def benchmark(
    name: str, env: dict[str, str], seconds: float, output: Path, options: argparse.Namespace
) -> bool:
    words = ["-m", "kernels", "benchmark", f"{ORG}/{name}", "--output", str(output)]
    if options.commit:
        words += ["--commit", options.commit]
    if options.only:
        words += ["--only", options.only]
    return run([sys.executable, *words], env, seconds)


def find_driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip().splitlines()[0]


def read(into: Path) -> tuple[dict[str, Any], list[Row]]:
    """Read what was measured before: on what, by the id of the kernel, and the rows."""
    from kernels.bench.row import parse_document

    source = into.with_suffix(".json")
    if not source.exists():
        return {}, []
    return parse_document(source.read_text(encoding="utf-8"), source)


def merge(into: Path, results: dict[str, Path]) -> None:
    """Put fresh results into INTO.json and draw it anew; each file appears whole.

    Rows that were not measured again stay, unless they are of other versions than the page would say.
    """
    from kernels.bench.pages import write_pages
    from kernels.bench.row import merge_rows, parse_document

    meta, rows = read(into)
    for name, path in results.items():
        repository = f"{ORG}/{name}"
        fresh_meta, fresh = parse_document(path.read_text(encoding="utf-8"), path)
        del fresh_meta["kernel"]
        if driver := find_driver():
            fresh_meta["driver"] = driver
        if _versions(meta.get(repository, fresh_meta)) != _versions(fresh_meta):
            again = {row.key for row in fresh}
            gone = {r.key for r in rows if r.repository == repository} - again
            rows = [row for row in rows if row.key not in gone]
            if gone:
                print(f"{repository}: {len(gone)} rows of other versions, not measured now, went")
        meta[repository] = fresh_meta
        rows = merge_rows(rows, fresh)
    write_pages(into, meta, rows)


def _versions(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a page says that all rows of a kernel were measured on; ceilings differ from run to run."""
    said = ("device", "driver", "torch", "cuda", "triton", "python")
    return {key: meta.get(key) for key in said}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--commit", help="[default: the one that a kernel was built from]")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "benchmarks" / "h200")
    parser.add_argument("--seconds", type=float, default=540, help="[default: 540]")
    parser.add_argument("--only", help="only cases whose 'op shape dtype' contains this")
    parser.add_argument("--no-tests", action="store_true")
    options = parser.parse_args()

    names = options.names or list(find_kernels())
    if fault := find_fault(names, options.into):
        print(f"error: {fault}.", file=sys.stderr)
        return 2
    env = environment([name for name, built in find_kernels().items() if built])
    end = time.monotonic() + options.seconds
    failed: list[str] = []
    if not options.no_tests and not test(ROOT / "tests" / "gpu", env, options.seconds):
        failed.append("tests/gpu")
    results: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        for at, name in enumerate(names):
            left = end - time.monotonic()
            if left < LEAST_SECONDS:
                print(f"out of time; not begun: {' '.join(names[at:])}")
                failed += names[at:]
                break
            output = Path(folder) / f"{name}.json"
            right = options.no_tests or test(COMMUNITY / name / "tests", env, left)
            timed = right and benchmark(name, env, end - time.monotonic(), output, options)
            if not timed:
                failed.append(name)
            if output.exists():  # also what was measured before the time was over
                results[name] = output
        if results:
            options.into.parent.mkdir(parents=True, exist_ok=True)
            merge(options.into, results)
    print(f"timed: {' '.join(results) or 'none'}; failed: {' '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
