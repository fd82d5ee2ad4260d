"""Write depends.toml: for each release of CUTLASS that builds may depend on, the wheel that has it.

    python tools/refresh_depends.py

The releases are those of known.toml. pip fetches a wheel of each; a release that no wheel has is left
out, and users then name its archive. That the headers in a wheel are those of the release is read from
their version.h.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from kernel_builder.known import read_known

TARGET = Path(__file__).parents[1] / "src/kernel_builder/depends.toml"
DISTRIBUTION = "nvidia-cutlass"
INCLUDE = ("cutlass_library/source/include", "cutlass_library/source/tools/util/include")
HEAD = """\
# Native dependencies whose headers come from pinned wheels. depends.py reads this file, and
# tools/refresh_depends.py writes it.
"""


def fetch(release: str, directory: Path) -> Path | None:
    """Fetch the wheel of a release, or return None where there is none."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(directory), f"{DISTRIBUTION}=={release}.*"]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode != 0:
        return None
    (wheel,) = directory.glob("*.whl")
    return wheel


def read_release(wheel: Path) -> str:
    """Read from the headers of a wheel which release they are."""
    with zipfile.ZipFile(wheel) as file:
        text = file.read(f"{INCLUDE[0]}/cutlass/version.h").decode()
        licence = next(
            name for name in file.namelist() if "dist-info" in name and "LICENSE" in name
        )
        assert "SPDX-License-Identifier: BSD-3-Clause" in file.read(licence).decode()
    numbers = [
        re.search(rf"define CUTLASS_{part} (\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(match[1] for match in numbers if match)


def format_row(name: str, wheel: Path) -> str:
    """Write the table of one release."""
    include = ", ".join(f'"{path}"' for path in INCLUDE)
    return "\n".join(
        [
            f"\n[{name}]",
            f'distribution = "{DISTRIBUTION}"',
            f'version = "{wheel.name.split("-")[1]}"',
            f'sha256 = "{hashlib.sha256(wheel.read_bytes()).hexdigest()}"',
            f"include = [{include}]",
            'license = "BSD-3-Clause"\n',
        ]
    )


def main() -> None:
    """Write the file whole."""
    text = HEAD
    for name, release in read_known().native_depends.items():
        if not name.startswith("cutlass_") or not release:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            wheel = fetch(release, Path(scratch))
            if wheel is None:
                print(f"{name}: no wheel of {DISTRIBUTION} {release}", file=sys.stderr)
                continue
            found = read_release(wheel)
            if found != release:
                sys.exit(f"{wheel.name} has the headers of {found}; expected {release}")
            text += format_row(name, wheel)
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
