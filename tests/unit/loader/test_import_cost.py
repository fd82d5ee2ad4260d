"""What ``import kernels`` and a warm load must not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import kernels

HEAVY = {
    "torch",
    "huggingface_hub",
    "elftools",
    "click",
    "packaging",
    "filelock",
    "httpx",
    "httpx2",
    "tqdm",
    "yaml",
}


def imported_after(code: str) -> set[str]:
    source = Path(kernels.__file__).parents[1]
    program = f"import sys\n{code}\nimport json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_the_import_is_light():
    assert imported_after("import kernels") & HEAVY == set()


def test_a_warm_load_is_light(publisher):
    publisher.publish("acme/toy")
    kernels.install_kernel("acme/toy")
    found = imported_after("import kernels\nassert kernels.get_kernel('acme/toy').VALUE == 1")
    assert found & HEAVY == set()


def test_the_public_names_are_all_there():
    assert all(getattr(kernels, name) is not None for name in kernels.__all__)
