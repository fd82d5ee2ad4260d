"""Checks of the tree that no linter makes: module length, module docstrings, stray words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_MODULE = 700
LONGEST_FUNCTION = 80
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
# Absolute paths of a developer's machine do not belong into a repository.
STRAY = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/[\w.-]+")


def tracked(*patterns: str) -> list[Path]:
    """List the tracked files that match."""
    listing = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / line for line in listing.splitlines() if (ROOT / line).is_file()]


def module_faults(path: Path) -> list[str]:
    """Judge one Python module of ``src``."""
    place = path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    faults = []
    if lines > LONGEST_MODULE:
        faults.append(f"{place}: {lines} lines, at most {LONGEST_MODULE}; split it")
    if path.stem in FORBIDDEN_NAMES:
        faults.append(f"{place}: name it after what it owns")
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        faults.append(f"{place}: a module begins with one sentence on what it owns")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                faults.append(
                    f"{place}:{node.lineno}: {node.name} has {length} lines, at most {LONGEST_FUNCTION}"
                )
    return faults


def stray_faults(path: Path) -> list[str]:
    """Find absolute paths of somebody's machine in one text file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    return [
        f"{path.relative_to(ROOT)}:{number}: an absolute path, {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in [STRAY.search(line)]
        if match and path != Path(__file__).resolve()
    ]


def main() -> int:
    """Print every fault; exit 1 if there is one."""
    faults = [fault for path in tracked("src/*.py") for fault in module_faults(path)]
    # Tests make up homes of people who do not exist.
    faults += [fault for path in tracked(":!tests") for fault in stray_faults(path)]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
