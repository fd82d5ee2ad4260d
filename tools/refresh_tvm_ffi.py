"""Write what the builder knows of TVM FFI: its pinned wheels, and which release has each symbol first.

    python tools/refresh_tvm_ffi.py 0.1.15.post2 0.1.0 0.1.1 ...

The first release is the one that kernels are built with; of all of them, pip fetches the wheel of this
Python, and the names that ``libtvm_ffi.so`` defines are read. pip tells the hashes of the pinned
wheels for every Python and processor; nothing is installed.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.version import Version

from kernel_builder.archives import hash_tree
from kernel_spec.binary import read_elf

BUILDER = Path(__file__).parents[1] / "src/kernel_builder"
WHEELS = BUILDER / "toolchain/tvm-ffi-wheels.toml"
SYMBOLS = BUILDER / "policy/tvm_ffi_symbols.json"
NAME = "apache-tvm-ffi"
LIBRARY = "tvm_ffi/lib/libtvm_ffi.so"
HEADERS = "tvm_ffi/include"
PYTHONS = (("3.11", "cp311"), ("3.12", "cp312"), ("3.13", "cp313"), ("3.14", "cp314"))
FREE_THREADED = (("3.14", "cp314t"),)
MACHINES = ("x86_64", "aarch64")
HEAD = """\
# TVM FFI as pinned wheels: headers to compile with, and the library and package to load kernels with.
# toolchain/tvm_ffi.py reads this file, pip checks the hashes, and tools/refresh_tvm_ffi.py writes it.

"""


def report(requirement: str, *options: str) -> dict[str, str]:
    """Ask pip what it would install for one requirement."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
        command += ["--ignore-installed", "--only-binary=:all:", "--target", scratch, *options]
        subprocess.run(
            [*command, "--report", str(place), requirement], check=True, stdout=sys.stderr
        )
        (found,) = json.loads(place.read_text())["install"]
    return {
        "name": found["metadata"]["name"],
        "version": found["metadata"]["version"],
        "sha256": found["download_info"]["archive_info"]["hashes"]["sha256"],
    }


def format_wheels(release: str) -> str:
    """Write the file of the pinned wheels."""
    lines = [f'version = "{release}"', 'license = "Apache-2.0"']
    with tempfile.TemporaryDirectory() as scratch:
        unpack(release, Path(scratch))
        lines += ["# One hash of its headers, which are the same in every wheel."]
        lines += [f'headers = "{hash_tree(Path(scratch), [HEADERS])}"', ""]
    lines += ["# What the package imports besides itself."]
    needs = report("typing-extensions")
    words = ", ".join(f'{key} = "{text}"' for key, text in needs.items())
    lines += [f"needs = [{{ {words} }}]", ""]
    lines += ["# The hash of the wheel for each interpreter and processor."]
    for machine in MACHINES:
        lines.append(f"[wheels.{machine}]")
        for version, abi in (*PYTHONS, *FREE_THREADED):
            options = ["--python-version", version, "--abi", abi]
            options += ["--platform", f"manylinux_2_28_{machine}"]
            lines.append(f'{abi} = "{report(f"{NAME}=={release}", *options)["sha256"]}"')
        lines.append("")
    return HEAD + "\n".join(lines).rstrip() + "\n"


def unpack(release: str, target: Path) -> None:
    """Fetch the wheel of a release for this Python, and unpack its headers and its library."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(target), f"{NAME}=={release}"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        wanted = [name for name in archive.namelist() if name.startswith((LIBRARY, HEADERS))]
        archive.extractall(target, wanted)


def list_symbols(release: str) -> set[str]:
    """Return the names that the library of a release defines."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(release, Path(scratch))
        symbols = read_elf(Path(scratch) / LIBRARY).symbols
    return {each.name for each in symbols if each.defined and each.binding == "global"}


def format_symbols(releases: list[str]) -> str:
    """Write which release has each symbol first; one that a later release lacks is left out."""
    ordered = sorted(releases, key=Version)
    having = {release: list_symbols(release) for release in ordered}
    since: dict[str, list[str]] = {release: [] for release in ordered}
    for name in sorted(having[ordered[-1]]):
        lacking = [number for number, each in enumerate(ordered) if name not in having[each]]
        since[ordered[lacking[-1] + 1 if lacking else 0]].append(name)
    document = {
        "source": f"the names that {LIBRARY} of each release of {NAME} defines",
        "known_to": ordered[-1],
        "since": {release: names for release, names in since.items() if names},
    }
    return json.dumps(document, indent=1) + "\n"


def main(releases: list[str]) -> None:
    """Write both files whole."""
    if not releases:
        sys.exit(__doc__)
    wheels, symbols = format_wheels(releases[0]), format_symbols(releases)
    WHEELS.write_text(wheels)
    SYMBOLS.write_text(symbols)


if __name__ == "__main__":
    main(sys.argv[1:])
