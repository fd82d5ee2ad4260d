"""The program that finds the kernels that a variant needs, as a load of it would, and runs none of them.

    python -I -B needed.py REQUEST

REQUEST is a file of JSON that :func:`kernel_builder.gate.story.run_gate` writes. The answer is one
document of JSON in the file that it names: ``needed``, or ``lacking`` with the reason.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# The exit code where a kernel cannot be had.
LACKING = 4


def find_needed(directory: Path, backend: str) -> list[dict[str, Any]]:
    """Bring the kernels that a variant names, and those that they name, to this disk.

    Returns:
        For each its ``repo_id``, the ``directory`` of its variant, and what it ``needs``, in the
        same form.

    Raises:
        KernelError: one cannot be had.
    """
    from kernel_spec.metadata import FILE_NAME, parse_metadata
    from kernels import install_kernel

    found = []
    for each in parse_metadata((directory / FILE_NAME).read_bytes()).kernel_depends:
        place = install_kernel(each.repo_id, each.revision, version=each.version, backend=backend)
        needs = find_needed(place, backend)
        found.append({"repo_id": each.repo_id, "directory": str(place), "needs": needs})
    return found


def main(request: dict[str, Any]) -> int:
    """Find them and answer; return the exit code."""
    sys.path.append(request["root"])
    from kernel_spec.errors import KernelError

    answer: dict[str, Any]
    try:
        answer = {"needed": find_needed(Path(request["directory"]), request["device"])}
    except KernelError as err:
        answer = {"lacking": str(err)}
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return LACKING if "lacking" in answer else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
