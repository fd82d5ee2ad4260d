"""Write ``torch_shims.json`` from the headers of an installed torch.

    python tools/refresh_torch_shims.py [TORCH_DIRECTORY]

Torch puts each function of its stable C interface behind the version that first has it. A function
without such a guard is older than the guards, which begin with 2.10.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from kernel_builder.toolchain.torch import TorchInstall, get_torch, read_torch
from kernel_spec.version import MajorMinor

TARGET = Path(__file__).parents[1] / "src/kernel_builder/policy/torch_shims.json"
FIRST = MajorMinor(2, 10)
HEADERS = (
    "torch/csrc/stable/c/*.h",
    "torch/csrc/inductor/aoti_torch/c/*.h",
    "torch/csrc/inductor/aoti_torch/generated/*.h",
)

_GUARD = re.compile(r"TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_\d+")
_CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|else|elif|endif)\b(.*)$")
_FUNCTION = re.compile(r"\bAOTI_TORCH_EXPORT\b[^;{(]*?\b(\w+)\s*\(")


def read_functions(text: str) -> dict[str, MajorMinor]:
    """Read which version first has each exported function of a header."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text).replace("\\\n", " ")
    found: dict[str, MajorMinor] = {}
    guards: list[MajorMinor] = []
    pending: list[str] = []

    def flush() -> None:
        since = max([FIRST, *guards])
        for name in _FUNCTION.findall("\n".join(pending)):
            found[name] = since
        pending.clear()

    for line in text.splitlines():
        condition = _CONDITION.match(line)
        if condition is None:
            if not line.lstrip().startswith("#"):
                pending.append(line)
            continue
        flush()
        match condition[1]:
            case "if" | "ifdef" | "ifndef":
                guards.append(_version_of(condition[2]))
            case "elif" | "else":
                guards[-1] = _version_of(condition[2])
            case _:
                guards.pop()
    flush()
    return found


def _version_of(condition: str) -> MajorMinor:
    guard = _GUARD.search(condition)
    return FIRST if guard is None else MajorMinor(int(guard[1]), int(guard[2]))


def read_all(torch: TorchInstall) -> dict[str, MajorMinor]:
    """Read the functions of every header; one that several declare counts from the earliest."""
    found: dict[str, MajorMinor] = {}
    for pattern in HEADERS:
        for header in sorted(torch.include_dirs[0].glob(pattern)):
            for name, since in read_functions(header.read_text()).items():
                found[name] = min(since, found.get(name, since))
    return found


def main() -> None:
    torch = read_torch(Path(sys.argv[1])) if len(sys.argv) > 1 else get_torch()
    by_version: dict[str, list[str]] = defaultdict(list)
    for name, since in sorted(read_all(torch).items()):
        by_version[str(since)].append(name)
    document = {
        "source": "tools/refresh_torch_shims.py, from the headers of torch",
        "torch": str(torch.build.release),
        "functions": dict(
            sorted(by_version.items(), key=lambda item: MajorMinor(*map(int, item[0].split("."))))
        ),
    }
    TARGET.write_text(json.dumps(document, indent=1) + "\n")
    print(
        f"{TARGET}: {sum(map(len, by_version.values()))} functions of torch {torch.build.release}"
    )


if __name__ == "__main__":
    main()
