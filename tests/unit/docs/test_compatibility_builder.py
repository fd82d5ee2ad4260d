"""docs/compatibility-builder.md names every key and option of the published builder, and only what is true here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from kernel_builder.cli import BUILD2CMAKE, VERBS
from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError

PAGE = (Path(__file__).parents[3] / "docs" / "compatibility-builder.md").read_text()
_, KEYS, COMMANDS, *_ = re.split(r"^## ", PAGE, flags=re.MULTILINE)

# Facts of the published builder at its edition 5: tables and their keys.
PUBLISHED_KEYS = {
    "general": "name version edition license backends upstream source python-depends kernel-depends",
    "general.hub": "repo-id branch",
    "general.cuda": "minver maxver kernel-depends python-depends",
    "general.neuron": "kernel-depends python-depends",
    "general.tpu": "python-depends",
    "general.xpu": "kernel-depends python-depends",
    "torch": "src include pyext minver maxver cxx-flags stable-abi",
    "torch-noarch": "pyext cuda_capabilities rocm_archs",
    "tvm-ffi": "src include pyext cxx-flags",
    "kernel.a": "backend depends src include cxx-flags cuda-capabilities cuda-flags cuda-minver",
    "kernel.b": "backend rocm-archs hip-flags",
    "kernel.c": "backend sycl-flags",
}
BACKENDS = {"kernel.a": "cuda", "kernel.b": "rocm", "kernel.c": "xpu"}
# Its commands and their options.
PUBLISHED_COMMANDS = {
    "init": "--name --backends --license --overwrite",
    "build": "--variant --max-jobs --cores --print-build-logs",
    "build-and-copy": "",
    "build-and-upload": "",
    "upload": "--repo-id --branch --private --repo-type --create-pr --output-json --quiet",
    "check-config": "",
    "check-abi": "--manylinux --macos --python-abi --torch-stable-abi",
    "check-builds": "",
    "create-pyproject": "--force --unique-id --kernel-sha --kernel-dirty",
    "clean-pyproject": "--dry-run --force --ops-id",
    "devshell": "--variant",
    "testshell": "--variant",
    "list-variants": "--arch",
    "hash": "",
    "update-build": "",
    "skills add": "",
    "completions": "",
    "fill-card": "",
    "generate-docs": "",
    "build2cmake generate-torch": "--force --ops-id --backend",
    "build2cmake update-build": "",
    "build2cmake validate": "",
    "build2cmake clean": "",
}


def rows(section: str) -> list[list[str]]:
    """Return the cells of each row of the tables of a section, without heads."""
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines][1:]


def calls(cell: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a cell with its options."""
    for text in re.findall(r"`([^`]+)`", cell):
        words = text.split()
        options = [word for word in words if word.startswith("--")]
        yield " ".join(word for word in words if not word.startswith("--")), options


def faults_of(table: str, key: str) -> list[str]:
    """Return the unknown keys of a file in which this key stands."""
    lines = ["[general]", "edition = 5"]
    framework = table if table in {"torch-noarch", "tvm-ffi"} else "torch"
    lines += [f"[{framework}]"] if table != framework else []
    lines += [f"[{table}]"] if table != "general" else []
    lines += [f'backend = "{BACKENDS[table]}"'] if table in BACKENDS and key != "backend" else []
    stated = key in {"edition"}
    value = f'"{BACKENDS[table]}"' if key == "backend" else "[]"
    text = "\n".join([*lines, *([] if stated else [f"{key} = {value}"])])
    if table == "general":
        text = text.replace(f"\n[torch]\n{key} = {value}", f"\n{key} = {value}\n[torch]")
    try:
        parse_build(text.encode())
    except ConfigError as err:
        return [fault.path for fault in err.faults if fault.kind == "unknown-key"]
    return []


@pytest.mark.parametrize(
    ("table", "key"),
    [(table, key) for table, keys in PUBLISHED_KEYS.items() for key in keys.split()],
)
def test_every_key_is_read(table: str, key: str) -> None:
    assert faults_of(table, key) == []
    assert faults_of(table, "no-such-key") != []


def test_keys_in_the_table_are_keys_there() -> None:
    published = {f"{table}.{key}" for table, keys in PUBLISHED_KEYS.items() for key in keys.split()}
    published = {re.sub(r"^kernel\.[abc]\.", "kernel.", name) for name in published}
    shown = {key for row in rows(KEYS) for key in re.findall(r"`([^`]+)`", row[0])}
    assert shown
    assert shown <= published
    assert all(len(row) == 3 and all(row) for row in rows(KEYS))


def test_every_command_and_option_has_a_row() -> None:
    shown: dict[str, set[str]] = {}
    here: dict[str, set[str]] = {}
    for row in rows(COMMANDS):
        for column, found in ((row[0], shown), (row[1], here)):
            for name, options in calls(column):
                found.setdefault(name, set()).update(options)
    for name, options in PUBLISHED_COMMANDS.items():
        assert name in shown
        # Options of the same name stand in the column of what is here.
        assert set(options.split()) <= shown[name] | here.get(name, set()), name


@pytest.mark.parametrize("row", rows(COMMANDS), ids=lambda row: row[0].replace("`", ""))
def test_what_stands_for_it_is_there(row: list[str]) -> None:
    _, here, why = row
    if here == "not taken":
        assert len(why) > 20
        return
    for name, options in calls(here):
        tool, _, verb = name.rpartition(" ")
        module, _, attribute = (BUILD2CMAKE if tool else VERBS)[verb].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(options) <= known, name
