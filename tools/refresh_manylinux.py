"""Write ``manylinux.json`` and ``manylinux_versions.json`` from the policy file of an installed auditwheel.

    python tools/refresh_manylinux.py .../site-packages/auditwheel/policy/manylinux-policy.json

Of the permitted libraries only those of the C and C++ runtime are taken: a kernel has no use for
X11, and libatomic and zlib are not in every container image.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/kernel_builder/policy/manylinux.json"
EVERY = TARGET.with_name("manylinux_versions.json")
POLICY = "manylinux_2_28"
MACHINES = ("aarch64", "x86_64")
FAMILIES = ("CXXABI", "GCC", "GLIBC", "GLIBCXX")
RUNTIME = (
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libmvec.so.1",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
)


def newest(versions: list[str]) -> str:
    """Return the highest of dotted versions; names such as ``FLOAT128`` are left out."""
    numbers = [text for text in versions if text.replace(".", "").isdigit()]
    return max(numbers, key=lambda text: [int(part) for part in text.split(".")])


def make_document(policies: list[dict[str, object]]) -> dict[str, object]:
    """Choose what the builder needs of auditwheel's policies.

    Raises:
        ValueError: there is no such policy, machines differ, or a library is not permitted.
    """
    policy = next((each for each in policies if each["name"] == POLICY), None)
    if policy is None:
        raise ValueError(f"no policy {POLICY}")
    symbols, permitted = policy["symbol_versions"], policy["lib_whitelist"]
    assert isinstance(symbols, dict)
    assert isinstance(permitted, list)
    found = [{name: newest(symbols[machine][name]) for name in FAMILIES} for machine in MACHINES]
    if any(each != found[0] for each in found):
        raise ValueError(f"the caps of {' and '.join(MACHINES)} differ: {found}")
    refused = sorted(set(RUNTIME) - set(permitted))
    if refused:
        raise ValueError(f"{POLICY} does not permit {', '.join(refused)}")
    return {
        "name": POLICY,
        "source": "tools/refresh_manylinux.py, from the policies of auditwheel (PEP 600)",
        "versions": found[0],
        "libraries": {
            "all": list(RUNTIME),
            "aarch64": ["ld-linux-aarch64.so.1"],
            "x86_64": ["ld-linux-x86-64.so.2"],
        },
    }


def make_versions(policies: list[dict[str, object]]) -> dict[str, object]:
    """Return the newest versions of each policy and machine, for ``check-abi --manylinux``."""
    found: dict[str, object] = {}
    for policy in policies:
        name, symbols = str(policy["name"]), policy["symbol_versions"]
        assert isinstance(symbols, dict)
        if name.startswith("manylinux_"):
            found[name] = {
                machine: {family: newest(symbols[machine][family]) for family in FAMILIES}
                for machine in MACHINES
                if machine in symbols
            }
    return {
        "source": "tools/refresh_manylinux.py, from the policies of auditwheel (PEP 600)",
        "policies": found,
    }


def main() -> None:
    policies = json.loads(Path(sys.argv[1]).read_text())
    for target, document in ((TARGET, make_document(policies)), (EVERY, make_versions(policies))):
        target.write_text(json.dumps(document, indent=2) + "\n")
        print(target)


if __name__ == "__main__":
    main()
