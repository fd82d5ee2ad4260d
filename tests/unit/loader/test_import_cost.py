"""What ``import kernels`` and a warm load must not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
LOADER = [
    "_version",
    "admit",
    "answers",
    "asked",
    "boundary",
    "connect",
    "errors",
    "hub",
    "hub_address",
    "load",
    "load_locked",
    "loaded",
    "log",
    "redirect",
    "request",
    "resolve",
    "revision",
    "settings",
    "source",
    "store",
    "trees",
]


def modules_after(code: str) -> set[str]:
    """Return the names of all modules of a new process that has run this."""
    source = Path(kernels.__file__).parents[1]
    program = f"import sys\n{code}\nimport json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    return set(json.loads(done.stdout))


def imported_after(code: str) -> set[str]:
    """Return the top-level names of those modules."""
    return {name.partition(".")[0] for name in modules_after(code)}


def test_the_import_brings_nothing_but_itself():
    found = modules_after("import kernels") - modules_after("")
    assert found == {"kernels", "kernels._version"}


def test_a_name_of_the_loader_brings_no_layers_and_nothing_heavy():
    found = modules_after("from kernels import get_kernel, load_kernel, has_kernel")
    assert {name.partition(".")[0] for name in found} & HEAVY == set()
    assert "hashlib" not in found
    # What is here is what every process defines that names a function of the loader.
    assert {name for name in found if name.startswith(("kernel_spec.", "kernels."))} == {
        *(f"kernel_spec.{name}" for name in ("document", "errors", "names", "whole_file", "wire")),
        *(f"kernels.{name}" for name in LOADER),
    }


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_command_line_begins_without_what_a_verb_needs(word):
    code = f"from kernels.cli import run\nimport io\nsys.stdout = io.StringIO()\nrun([{word!r}])\nsys.stdout = sys.__stdout__"
    found = modules_after(code)
    assert {name.partition(".")[0] for name in found} & (HEAVY - {"click"}) == set()
    assert not found & {"kernels.load", "kernels.source", "kernels.layer", "kernel_spec.metadata"}


def test_a_submodule_is_there_after_the_import_alone():
    code = (
        "import kernels\nassert kernels.layer.kernelize is kernels.kernelize\nkernels.load.forget()"
    )
    assert "kernels.layer" in modules_after(code)


def test_what_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="get_kernle"):
        kernels.get_kernle  # noqa: B018 - the attribute is what is tested


def test_dir_lists_every_public_name_before_any_was_asked_for():
    code = "import kernels\nassert set(kernels.__all__) <= set(dir(kernels))"
    assert "kernels.load" not in modules_after(code)


def test_a_warm_load_is_light(publisher):
    publisher.publish("acme/toy")
    kernels.install_kernel("acme/toy")
    found = imported_after("import kernels\nassert kernels.get_kernel('acme/toy').VALUE == 1")
    assert found & HEAVY == set()


def test_the_public_names_are_all_there():
    assert all(getattr(kernels, name) is not None for name in kernels.__all__)
