"""Write toolchain/cuda-wheels.toml: for each CUDA toolkit and machine, the wheels and their hashes.

    python tools/refresh_cuda_wheels.py 13.0 13.2 13.3

pip resolves the meta-package ``cuda-toolkit``, whose extras name exact versions, and reports the
hashes that the package index states. The first toolkit is the default of builds. Nothing is
installed. The programs of a toolkit run on the machine that it is listed for.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/kernel_builder/toolchain/cuda-wheels.toml"
MACHINES = ("x86_64", "aarch64")
EXTRAS = "nvcc,cccl,cudart"
HEAD = """\
# CUDA toolkits as pinned wheels; the first is the default. toolchain/wheels.py reads this file, pip
# checks the hashes, and tools/refresh_cuda_wheels.py writes it.
"""


def resolve(version: str, machine: str) -> list[dict[str, str]]:
    """Ask pip for the wheels of a toolkit, by name."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary=:all:", "--target", scratch]
        for platform in ("manylinux2014", "manylinux_2_17", "manylinux_2_28"):
            command += ["--platform", f"{platform}_{machine}"]
        command += ["--report", str(report), f"cuda-toolkit[{EXTRAS}]=={version}.*"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found = json.loads(report.read_text())["install"]
    wheels = [
        {
            "name": each["metadata"]["name"],
            "version": each["metadata"]["version"],
            "sha256": each["download_info"]["archive_info"]["hashes"]["sha256"],
        }
        for each in found
    ]
    return sorted(
        (each for each in wheels if each["name"] != "cuda-toolkit"), key=lambda each: each["name"]
    )


def format_toolkit(version: str, machine: str, wheels: list[dict[str, str]]) -> str:
    """Write the table of one toolkit."""
    lines = ["", "[[toolkit]]", f'version = "{version}"', f'machine = "{machine}"', "wheels = ["]
    for each in wheels:
        words = ", ".join(f'{key} = "{each[key]}"' for key in ("name", "version", "sha256"))
        lines.append(f"  {{ {words} }},")
    return "\n".join([*lines, "]", ""])


def main(versions: list[str]) -> None:
    """Write the file whole."""
    if not versions:
        sys.exit(__doc__)
    text = HEAD
    for version in versions:
        for machine in MACHINES:
            text += format_toolkit(version, machine, resolve(version, machine))
    TARGET.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
