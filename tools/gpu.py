"""Test and time our kernels on the GPU that is here, and write down what it takes: docs/benchmarks.

    python tools/gpu.py [NAME ...] [--commit ID] [--into docs/benchmarks/h200] [--seconds 540]
                        [--no-tests] [--only TEXT]

Offline, and with nothing installed but torch, pytest and the few packages that `kernels` needs: the sources are taken
from this checkout, the variants from each kernel's `build/` (`make gpu-build` makes them on any
machine). Results replace those of the same calls in INTO.json; INTO.md and INTO.svg show them. A kernel
that fails its tests is not timed. It stops before it takes longer than asked: name the kernels that
are left.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
COMMUNITY = ROOT / "kernels-community"
ORG = "kernels-community"
# What is left of the time must allow this for one kernel.
LEAST_SECONDS = 60


def find_kernels() -> list[str]:
    """Every kernel that has benchmarks and was built here."""
    return sorted(
        folder.name
        for folder in COMMUNITY.iterdir()
        if (folder / "build").is_dir() and any(folder.glob("benchmarks/benchmark*.py"))
    )


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
    words = ["-m", "kernels.cli", "benchmark", f"{ORG}/{name}", "--output", str(output)]
    if options.commit:
        words += ["--commit", options.commit]
    if options.only:
        words += ["--only", options.only]
    return run([sys.executable, *words], env, seconds)


def find_commit() -> str | None:
    """Return the commit of this checkout, marked where the kernels differ from it; None without git."""
    try:
        words = ["git", "-C", str(ROOT)]
        found = subprocess.run(
            [*words, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True
        )
        changed = subprocess.run(
            [*words, "status", "--porcelain", "--untracked-files=no", "--", str(COMMUNITY)],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip() + ("-changed" if changed.stdout.strip() else "")


def find_driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip().splitlines()[0]


def merge(into: Path, results: dict[str, Path]) -> None:
    """Put fresh results into INTO.json and draw it anew; each file appears whole."""
    from kernels.bench.pages import write_pages
    from kernels.bench.row import merge_rows, parse_document

    source = into.with_suffix(".json")
    meta: dict[str, object] = {}
    rows = []
    if source.exists():
        meta, rows = parse_document(source.read_text(encoding="utf-8"), source)
    for name, path in results.items():
        fresh_meta, fresh = parse_document(path.read_text(encoding="utf-8"), path)
        del fresh_meta["kernel"]
        driver = {"driver": found} if (found := find_driver()) else {}
        meta[f"{ORG}/{name}"] = fresh_meta | driver
        rows = merge_rows(rows, fresh)
    write_pages(into, meta, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--commit", default=find_commit(), help="[default: this checkout's]")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "benchmarks" / "h200")
    parser.add_argument("--seconds", type=float, default=540, help="[default: 540]")
    parser.add_argument("--only", help="only cases whose 'op shape dtype' contains this")
    parser.add_argument("--no-tests", action="store_true")
    options = parser.parse_args()

    known = find_kernels()
    names = options.names or known
    if unknown := sorted(set(names) - set(known)):
        print(
            f"not built, or without benchmarks: {', '.join(unknown)}; there are: {', '.join(known)}"
        )
        return 2
    env = environment(known)
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
