"""Measures what the seeds promise and writes ``docs/results/promises.{json,md}``: make bench-promises.

The kernel is activation for the CPU. "From source" means the same sources by
``torch.utils.cpp_extension``. Everything is in new environments and empty caches of its own, and
every result is compared with torch before its time counts. It takes about ten minutes and wants a
machine that does nothing else; the page says how loaded it was.

    python tools/bench_promises.py [first] [line] [source] [llama] [binary]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_main_job
from bench_promises_page import render
from peers import TORCH, make_torch_venv, serve_hub
from process_tree import Used, run_counted
from throttle import throttle
from toy_variant import write_toy_metadata

from kernel_spec.backend import BackendKind
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernel_spec.publishing import publish
from kernel_spec.whole_file import write_whole

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
BIN = Path(sys.executable).parent
ORG = "kernels-community"
RATES = {"1 Gbit/s": 1e9, "100 Mbit/s": 1e8, "10 Mbit/s": 1e7}
ROUNDS = 3
BIG_BYTES = 32 * 1024 * 1024
FULLEST_LOAD = 0.5
PACKAGES_HERE = sysconfig.get_paths()["purelib"]

CHECK = """
x = torch.randn(1000, 1001)
y = torch.empty_like(x)
{call}
expected = torch.nn.functional.gelu(x, approximate="tanh")
torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
"""
LOAD = """
import time, torch
begin = time.perf_counter()
from kernels import get_kernel
{load}
print(time.perf_counter() - begin)
"""
LOAD_ACTIVATION = 'kernel = get_kernel("kernels-community/activation")' + CHECK.format(
    call="kernel.gelu_fast(y, x)"
)
LOAD_BIG = 'assert len(get_kernel("kernels-community/big").DATA) == ' + str(BIG_BYTES)
BUILD = """
import json, sys, torch
from torch.utils import cpp_extension
cpp_extension.load(**json.loads(sys.argv[1]), is_python_module=False)
""" + CHECK.format(call="torch.ops.activation_from_source.gelu_fast(y, x)")
FETCH = """
import sys, time, urllib.request
begin = time.perf_counter()
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1]) as answer:
    assert len(answer.read()) == {BYTES}
print(time.perf_counter() - begin)
""".replace("{BYTES}", str(BIG_BYTES))
IMPORT = """
import ctypes, importlib.machinery, importlib.util, platform, sys
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
file = sys.argv[2]
name = file.rpartition("/")[2].partition(".")[0]
loader = importlib.machinery.ExtensionFileLoader(name, file)
module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, file, loader=loader))
loader.exec_module(module)
print(platform.python_version())
"""
PACKAGES = """
import importlib.metadata, json
names = {d.metadata["Name"].lower().replace("_", "-") for d in importlib.metadata.distributions()}
print(json.dumps(sorted(names)))
"""


def run(words: list[object], variables: dict[str, str] | None = None) -> str:
    """Run a command to its end; return what it printed."""
    command = list(map(str, words))
    done = subprocess.run(
        command, env=clean(variables), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def clean(variables: dict[str, str] | None = None) -> dict[str, str]:
    """Return this process's variables without what says where kernels and caches are."""
    left_out = ("KERNELS_", "LOCAL_KERNELS", "HF_", "XDG_CACHE", "PYTHON", "VIRTUAL_ENV", "TORCH_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    return kept | (variables or {})


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    call()
    return round(time.perf_counter() - begin, 3)


def make_hub(scratch: Path) -> Path:
    """Build our kernels for the CPU and publish them to a folder; and one large kernel of noise."""
    root = scratch / "hub"
    for name in ("activation", "triton-layer-norm"):
        project = scratch / "projects" / name
        ignored = shutil.ignore_patterns("build", "__pycache__")
        shutil.copytree(ROOT / ORG / name, project, ignore=ignored)
        run([BIN / "kernel-builder", "build", project, "--backend", "cpu"])
        run([BIN / "kernel-builder", "upload", project, "--hub", root.as_uri()])
    variant = scratch / "big" / "torch-universal"
    variant.mkdir(parents=True)
    (variant / "data.bin").write_bytes(os.urandom(BIG_BYTES))
    (variant / "__init__.py").write_text(
        "from pathlib import Path\nDATA = Path(__file__).with_name('data.bin').read_bytes()\n"
    )
    write_toy_metadata(variant, "big")
    files = {f"build/torch-universal/{path.name}": path for path in variant.iterdir()}
    publish(DirectoryHub(root), RepoId(ORG, "big"), files, branch="v1", parent=None)
    return root


def make_wheel(scratch: Path) -> Path:
    """Return this checkout as a wheel."""
    words = ["-m", "pip", "wheel", "-q", "--no-deps", "-w", scratch / "wheel"]
    run([sys.executable, *words, ROOT])
    [wheel] = (scratch / "wheel").glob("kernels-*.whl")
    return wheel


def packages(python: Path) -> set[str]:
    """Return the names of an environment's distributions."""
    return set(json.loads(run([python, "-c", PACKAGES])))


def size(*places: Path) -> int:
    """Return the bytes of files below, links counted as links."""
    inside = [path for place in places for path in (place, *place.rglob("*"))]
    return sum(path.lstat().st_size for path in inside if path.is_symlink() or path.is_file())


def source_build(folder: Path) -> dict[str, Any]:
    """Return what ``cpp_extension.load`` is asked: the sources as they are, and what they need."""
    from kernel_builder.config.read import read_build
    from kernel_builder.environment import detect_host
    from kernel_builder.plan import plan
    from kernel_builder.planned import Selection
    from kernel_builder.settings import read_settings
    from kernel_builder.sources import read_sources

    project = folder / "activation"
    ignored = shutil.ignore_patterns("build", "__pycache__")
    shutil.copytree(ROOT / ORG / "activation", project, ignore=ignored)
    config = read_build(project)
    planned = plan(
        config,
        read_sources(project, config),
        host=detect_host(read_settings(os.environ)),
        selection=Selection(backends=frozenset({BackendKind.CPU})),
    )
    (folder / "include").mkdir()
    header = ROOT / "src" / "kernel_builder" / "templates" / "registration.h"
    shutil.copy(header, folder / "include")
    (folder / "build").mkdir()
    units = planned.variants[0].units
    own = {flag for unit in units for flag in unit.cxx_flags}
    return {
        "name": "activation_from_source",
        "sources": [str(project / unit.source) for unit in units],
        "extra_include_paths": [str(project), str(project / "csrc"), str(folder / "include")],
        "extra_cflags": ["-O3", "-DNDEBUG", "-DCPU_KERNEL", *sorted(own)],
        "build_directory": str(folder / "build"),
    }


def build_from_source(python: Path, asked: dict[str, Any]) -> Used:
    """Build, load and check in one new process."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(python), "-c", BUILD, json.dumps(asked)]
    return run_counted(command, clean({"PATH": path, "MAX_JOBS": str(os.cpu_count())}))


def measure_first(scratch: Path) -> dict[str, Any]:
    """From nothing to the first correct result: with the kernel, and from source."""
    hub, wheel = make_hub(scratch), make_wheel(scratch)
    venv = scratch / "venv"
    python = venv / "bin" / "python"
    pip: list[object] = [python, "-m", "pip", "install", "-q", "--no-input"]
    made = timed(lambda: run([sys.executable, "-m", "venv", venv]))
    torch = timed(lambda: run([*pip, f"torch=={TORCH}", "numpy"]))
    with_torch = packages(python)
    run([python, "-c", "import torch"])  # its files come into memory for both
    installed = timed(lambda: run([*pip, wheel]))
    with_kernels = packages(python)
    variables = {"KERNELS_HUB": hub.as_uri(), "KERNELS_CACHE": str(scratch / "first")}
    code = LOAD.format(load=LOAD_ACTIVATION)
    loaded = timed(lambda: run([python, "-c", code], variables))
    tools = timed(lambda: run([*pip, "setuptools", "ninja"]))
    with_tools = packages(python)
    folder = scratch / "first-source"
    folder.mkdir()
    asked = source_build(folder)
    built = timed(lambda: build_from_source(python, asked))
    return {
        "venv_s": made,
        "torch_s": torch,
        "kernel": {
            "install_s": installed,
            "first_result_s": loaded,
            "packages": sorted(with_kernels - with_torch),
        },
        "source": {
            "install_s": tools,
            "first_result_s": built,
            "packages": sorted(with_tools - with_kernels),
        },
    }


def measure_line(scratch: Path) -> dict[str, Any]:
    """Cold loads, each in a new process with an empty cache, over lines of several rates."""
    root = make_hub(scratch)
    found: dict[str, Any] = {"rounds": ROUNDS, "lines": {}, "loads": []}
    with serve_hub(root, scratch / "access.log", trusted=[ORG]) as hub:
        port = int(hub.url.rpartition(":")[2].strip("/"))
        for rate, bits in RATES.items():
            with throttle(port, bits) as (limited, _):
                url = f"http://127.0.0.1:{limited}/{ORG}/big/resolve/v1/build/torch-universal/data.bin"
                seconds = float(run([sys.executable, "-c", FETCH, url]))
                found["lines"][rate] = round(8 * BIG_BYTES / seconds / 1e6, 1)
        for kernel, load in (("activation", LOAD_ACTIVATION), ("big", LOAD_BIG)):
            for rate, bits in RATES.items():
                loads = [load_over(port, bits, load, scratch / "cache") for _ in range(ROUNDS)]
                times = [seconds for seconds, _ in loads]
                figures = {
                    "seconds": round(statistics.median(times), 3),
                    "slowest": round(max(times), 3),
                    "bytes": loads[-1][1],
                }
                found["loads"].append({"kernel": kernel, "line": rate, **figures})
    return found


def load_over(port: int, bits: float, load: str, cache: Path) -> tuple[float, int]:
    """Load in a new process over a line; return the seconds and the bytes that it carried."""
    with throttle(port, bits) as (limited, line):
        variables = {
            "HF_ENDPOINT": f"http://127.0.0.1:{limited}",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "KERNELS_CACHE": str(cache),
            "NO_PROXY": "*",
        }
        said = run([sys.executable, "-c", LOAD.format(load=load)], variables)
        shutil.rmtree(cache)
        return float(said.splitlines()[-1]), line.carried


def measure_source(scratch: Path) -> dict[str, Any]:
    """The same processes with their time, CPU time, memory and disk: from a hub, and from source."""
    root = make_hub(scratch)
    kernel, source = [], []
    disks, flags = {}, []
    for number in range(ROUNDS):
        cache = scratch / f"cache-{number}"
        variables = {"KERNELS_HUB": root.as_uri(), "KERNELS_CACHE": str(cache)}
        command = [sys.executable, "-c", LOAD.format(load=LOAD_ACTIVATION)]
        kernel.append(run_counted(command, clean(variables)))
        disks["kernel"] = size(cache)
        folder = scratch / f"source-{number}"
        folder.mkdir()
        asked = source_build(folder)
        source.append(build_from_source(Path(sys.executable), asked))
        disks["source"] = size(folder)
        flags = asked["extra_cflags"]
    alone = [run_counted([sys.executable, "-c", "import torch"], clean()) for _ in range(ROUNDS)]
    runs = {"kernel": kernel, "source": source, "import torch": alone}
    medians = {name: median(each) | {"disk": disks.get(name, 0)} for name, each in runs.items()}
    return {"rounds": ROUNDS, "flags": flags, "include_paths": 3, **medians}


def median(runs: list[Used]) -> dict[str, float]:
    """Return the medians of what processes used."""
    return {
        "seconds": round(statistics.median(each.seconds for each in runs), 3),
        "cpu_seconds": round(statistics.median(each.cpu_seconds for each in runs), 3),
        "peak_bytes": statistics.median(each.peak_bytes for each in runs),
    }


def measure_llama(scratch: Path) -> dict[str, Any]:
    """Kernelize a Llama of the published transformers, and see that none of its files changed."""
    client = make_torch_venv("transformers==5.24.0", "diffusers==0.42.1")
    python = client.folder / "bin" / "python"
    site = scratch / "site"
    pip: list[object] = [python, "-m", "pip", "install", "-q", "--no-deps", "--target", site]
    # What else it needs, transformers has brought; with it would come another huggingface_hub.
    run([*pip, make_wheel(scratch), "pyelftools"])
    variables = {
        "KERNELS_HUB": make_hub(scratch).as_uri(),
        "KERNELS_CACHE": str(scratch / "cache"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    script = ROOT / "tools" / "bench_promises_llama.py"
    found: dict[str, Any] = json.loads(run([python, script], variables).splitlines()[-1])
    return found


def measure_binary(scratch: Path) -> dict[str, Any]:
    """Load the same file with every Python that is here, and say what the file itself asks for."""
    from kernel_spec.binary import read_elf

    root = make_hub(scratch)
    [library] = (scratch / "projects" / "activation" / "build").rglob("*.abi3.so")
    elf = read_elf(library)
    asked = {
        "file": library.name,
        "bytes": library.stat().st_size,
        "variant": library.parent.name,
        "needs": sorted(elf.needed),
        "newest": elf_versions(elf),
    }
    ran = []
    with_torch, others = find_pythons()
    for number, python in enumerate(with_torch):
        variables = {
            "KERNELS_HUB": root.as_uri(),
            "KERNELS_CACHE": str(scratch / f"cache-{number}"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), PACKAGES_HERE]),
        }
        code = (
            "import hashlib, json, pathlib, platform, torch\n"
            + LOAD.format(load=LOAD_ACTIVATION).replace("import time, torch", "import time")
            + "import sys\n[file] = pathlib.Path(kernel.__file__).parent.glob('*.so')\n"
            "print(json.dumps(dict(python=platform.python_version(), build=sys.version,"
            " torch=torch.__version__, libc=' '.join(platform.libc_ver()),"
            " sha256=hashlib.sha256(file.read_bytes()).hexdigest())))"
        )
        ran.append(json.loads(run([python, "-c", code], variables).splitlines()[-1]))
    torch_library = Path(PACKAGES_HERE, "torch", "lib", "libtorch.so")
    imported = [run([python, "-c", IMPORT, torch_library, library]).strip() for python in others]
    same = len({each["sha256"] for each in ran}) == 1
    return {**asked, "ran": ran, "imported": imported, "same_bytes": same}


def find_pythons() -> tuple[list[Path], list[Path]]:
    """Return interpreters of this version, which can use this torch, and of others from 3.9 on."""
    beside = Path(sys.base_prefix).parent.glob("3.*/bin/python3")  # as pyenv lays them out
    mine, others = [Path(sys.executable)], {}
    for python in (*Path("/usr/bin").glob("python3.*[0-9]"), *beside):
        words = [python, "-c", "import sys; print(*sys.version_info[:3])"]
        version = tuple(map(int, run(list(words)).split()))
        if version[:2] == sys.version_info[:2] and version != tuple(sys.version_info[:3]):
            mine.append(python)
        elif version[:2] != sys.version_info[:2] and version >= (3, 9):
            others[version] = python
    return mine, [others[version] for version in sorted(others)]


def elf_versions(elf: Any) -> dict[str, str]:
    """Return the newest version that a library asks for, by family: GLIBC, GLIBCXX and so on."""
    newest: dict[str, tuple[int, ...]] = {}
    for _library, version in elf.version_needs:
        family, _, number = version.rpartition("_")
        parts = tuple(int(part) for part in number.split(".") if part.isdigit())
        newest[family] = max(newest.get(family, ()), parts)
    return {family: ".".join(map(str, parts)) for family, parts in sorted(newest.items())}


def describe_machine(load: float) -> dict[str, Any]:
    """Say what the figures were measured on, and its `load` before any of them was."""
    return {
        **bench_main_job.describe_machine(),
        "load": round(load, 1),
        "shared": load > FULLEST_LOAD,
        "torch": TORCH,
    }


def write_results(group: str, found: dict[str, Any]) -> dict[str, Any]:
    """Put one group's figures among the last ones and write both files; return all figures."""
    target = RESULTS / "promises.json"
    results: dict[str, Any] = json.loads(target.read_text()) if target.exists() else {}
    results[group] = found
    for path, text in (
        (target, json.dumps(results, indent=2, sort_keys=True) + "\n"),
        (target.with_suffix(".md"), render(results)),
    ):
        write_whole(path, text.encode())
    return results


def main() -> int:
    """Measure what is asked for, merge it with the last results, write both files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    groups: dict[str, Callable[[Path], dict[str, Any]]] = {
        "first": measure_first,
        "line": measure_line,
        "source": measure_source,
        "llama": measure_llama,
        "binary": measure_binary,
    }
    parser.add_argument("groups", nargs="*", choices=[*groups, []], help="default: all of them")
    chosen = parser.parse_args().groups or list(groups)
    load = os.getloadavg()[0]  # once: later it is that of the groups before
    for name in chosen:
        print(f"measuring: {name}", flush=True)
        machine = describe_machine(load)
        with tempfile.TemporaryDirectory() as scratch:
            found = {"machine": machine, **groups[name](Path(scratch))}
        results = write_results(name, found)
    print(render(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
