"""The main job on this machine: build two kernels, publish them, load them in a new process.

Run it with ``make demo``. Everything it makes is under ``demo-output/`` (or the directory that it is
given): the hub is a folder there, and so are both caches.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ("activation", "img2gray")


def run(title: str, *command: str, env: dict[str, str]) -> float:
    """Run one command as a user would, its output on this terminal; return its seconds."""
    shown = " ".join(part.replace(str(ROOT) + "/", "") for part in command)
    print(f"\n{title}\n$ {shown}", flush=True)
    start = time.perf_counter()
    done = subprocess.run([tool(command[0]), *command[1:]], cwd=ROOT, env=env, check=False)
    if done.returncode:
        sys.exit(f"demo: `{shown}` failed with exit code {done.returncode}; its message is above")
    return time.perf_counter() - start


def tool(name: str) -> str:
    """Find a command beside this interpreter, so that the demo needs no activated environment."""
    if name == "python":
        return sys.executable
    return str(Path(sys.executable).with_name(name))


def built_for_cpu(name: str) -> list[str]:
    """Name the variants of a kernel that this demo has built."""
    build = ROOT / "kernels-community" / name / "build"
    return sorted(place.name for place in build.glob(f"*-cpu-{platform.machine()}-*"))


def main(output: Path) -> None:
    """Build, publish, load."""
    hub = output / "hub"
    cache = output / "kernels-cache"
    builder_cache = output / "builder-cache"
    for made_by_an_earlier_run in (hub, cache, builder_cache):
        shutil.rmtree(made_by_an_earlier_run, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    env = {
        **{key: value for key, value in os.environ.items() if key != "LOCAL_KERNELS"},
        "KERNELS_HUB": hub.as_uri(),
        "KERNELS_CACHE": str(cache),
        "XDG_CACHE_HOME": str(builder_cache),
    }
    seconds: dict[str, float] = {}
    for name in KERNELS:
        seconds[f"build {name}"] = run(
            f"Build {name} from source",
            "kernel-builder",
            "build",
            f"kernels-community/{name}",
            "--backend",
            "cpu",
            env=env,
        )
    for name in KERNELS:
        seconds[f"publish {name}"] = run(
            f"Publish {name} to a folder",
            "kernel-builder",
            "upload",
            f"kernels-community/{name}",
            # Not what a checkout may hold of an earlier build for a GPU.
            *(word for variant in built_for_cpu(name) for word in ("--variant", variant)),
            env=env,
        )
    seconds["load and use, new process, empty cache"] = run(
        "Load both in a new process with an empty cache",
        "python",
        "examples/demo_load.py",
        str(output),
        env=env,
    )
    (output / "demo.json").write_text(json.dumps({"seconds": seconds}, indent=2) + "\n")
    print("\nWhat it took")
    for step, took in seconds.items():
        print(f"  {step:<42}{took:8.2f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "demo-output")
