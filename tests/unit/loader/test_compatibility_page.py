"""Every row of docs/compatibility.md does what the page says."""

from __future__ import annotations

import builtins
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

import kernels
from kernels.cli import run

PAGE = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text()


def rows(title: str) -> list[tuple[str, str]]:
    """Return the first and the last cell of each row of a section's table."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [(cells[0].strip("`"), cells[-1]) for cells in table[2:]]


@pytest.fixture(autouse=True)
def world(publisher, make_variant, tmp_path, monkeypatch):
    publisher.publish("acme/toy", tags=("v1.0.0",))
    publisher.publish("acme/cuda", variants={"torch-cuda": {"__init__.py": ""}})
    status = 'kind = "redirect"\ndestination = "acme/toy"\n'
    publisher.publish("acme/old", branch="main", variants={}, extra={"kernel-status.toml": status})
    make_variant(tmp_path / "local" / "build" / "torch-cpu", name="local")
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/toy" = 1\n')
    monkeypatch.chdir(app)
    assert run(["lock"]) == 0
    assert run(["download"]) == 0
    document = (tmp_path / "local" / "build" / "torch-cpu" / "metadata.json").read_bytes()
    document = json.dumps(json.loads(document) | {"kernels-minver": "0.14.0"}).encode()
    return {"project": tmp_path / "local", "lock": app / "kernels.lock", "document": document}


def shape(value: object) -> str:
    match value:
        case ModuleType():
            return "module"
        case Path():
            return "path"
        case list():
            return "list"
        case _:
            return str(value)


@pytest.mark.parametrize(("call", "gives"), rows("Calls"))
def test_a_call_gives_what_the_page_says(call, gives, world):
    word = re.split(r"[: ;]", gives)[0]
    kind = getattr(builtins, word, None)
    # As a prompt in the project would: the caller's lock is that of the current folder.
    namespace = {"K": kernels, "__name__": "__main__", "__spec__": None, **world}
    if isinstance(kind, type) and issubclass(kind, Exception):
        with pytest.raises(kind):
            eval(call, namespace)
    else:
        assert shape(eval(call, namespace)) == word


@pytest.mark.parametrize(("command", "gives"), rows("Commands"))
def test_a_command_does_what_the_page_says(command, gives, monkeypatch):
    if "check" in command or "upload" in command:
        pytest.importorskip("kernel_builder.cli.upload")
        monkeypatch.setattr("importlib.metadata.entry_points", _builder)
    # A published form holds no ranges and no digests: written beside ours, never over it.
    word, *arguments = shlex.split(command)
    assert word == "kernels"
    allowed = {int(number) for number in re.findall(r"\d", gives.partition(":")[0])}
    assert run(arguments) in allowed


def _builder(*, group: str, name: str) -> list[object]:
    """Return what a wheel declares; the checkout's own metadata may be older."""
    from importlib.metadata import EntryPoint

    from kernel_builder.check.variant import check_variant
    from kernel_builder.cli.upload import upload

    assert check_variant
    assert upload
    values = {
        "check": "kernel_builder.check.variant:check_variant",
        "upload": "kernel_builder.cli.upload:upload",
    }
    return [EntryPoint(name, values[name], group)]


def test_the_page_has_its_tables():
    assert len(rows("Calls")) > 30
    assert len(rows("Commands")) > 10
