"""Every verb of ``kernels``: it has help, writes one JSON document, and refuses what is wrong usage with 2."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
from collections.abc import Iterator

import click
import pytest

from kernels.cli import VERBS, kernels, run

# Each verb, in an order in which each finds what those before it have made: its words, and its exit code.
EXAMPLES = {
    "versions": ("acme/toy", 0),
    "info": ("acme/toy --version 1", 0),
    "doctor": ("acme/toy", 0),
    "lock": ("project", 0),
    "download": ("project", 0),
    "verify": ("project", 0),
    "verify-signature": ("acme/toy 1", 1),
    "check": ("acme/toy", 0),
    "to-wheel": ("acme/toy 1 --out wheels", 0),
    "update": ("acme/toy", 0),
    "trust add": ("acme --hub https://hub.corp", 0),
    "trust list": ("", 0),
    "trust remove": ("acme --hub https://hub.corp", 0),
    "bundle create": ("--target torch2.13-cpu-x86_64-linux acme/toy -o toy.bundle", 0),
    "bundle list": ("toy.bundle", 0),
    "bundle verify": ("toy.bundle", 0),
    "bundle install": ("toy.bundle --hub installed", 0),
    "cache list": ("", 0),
    "cache verify": ("", 0),
    "cache prune": ("", 0),
    "upload": ("project --repo-id acme/fresh --hub {hub} --dry-run", 0),
    # It times a second: tests/unit/bench has its JSON. Here there is nothing to time.
    "benchmark": ("acme/toy --device cpu --rounds 1", 1),
}


def leaves(group: click.Group = kernels, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every verb, those of groups with their group's name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name))


@pytest.fixture
def builder(monkeypatch):
    """The verbs that the builder brings, and torch for the one that times."""
    pytest.importorskip("kernel_builder.cli.upload")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    monkeypatch.setattr(importlib.metadata, "entry_points", _entry_points)


@pytest.fixture
def scene(publisher, tmp_path, monkeypatch, builder):
    """A hub with acme/toy, and a project that locks it and has a variant to publish."""
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "", "_ops.py": OPS}})
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/toy" = 1\n')
    variant = next(publisher.projects.iterdir()) / "build" / "torch-cpu"
    (project / "build").mkdir()
    (project / "build" / "torch-cpu").symlink_to(variant)
    monkeypatch.chdir(tmp_path)
    return publisher.url


OPS = """import torch

ops = torch.ops._toy_cpu_0123456789ab


def add_op_namespace_prefix(op_name: str) -> str:
    return f"_toy_cpu_0123456789ab::{op_name}"
"""


def _entry_points(*, group: str, name: str = "") -> list[importlib.metadata.EntryPoint]:
    """Return what a wheel declares; the checkout's own metadata may be older, and torch asks too."""
    values = {
        "check": "kernel_builder.check.variant:check_variant",
        "upload": "kernel_builder.cli.upload:upload",
    }
    return [importlib.metadata.EntryPoint(name, values[name], group)] if name in values else []


def test_every_verb_has_an_example():
    assert set(leaves()) == set(EXAMPLES)
    assert {verb.partition(" ")[0] for verb in EXAMPLES} == set(VERBS)


def test_every_verb_writes_one_document_and_ends_with_its_code(scene, capsys):
    for verb, (words, code) in EXAMPLES.items():
        arguments = [*verb.split(), *shlex.split(words.format(hub=scene))]
        found = run([*arguments, "--json"])
        captured = capsys.readouterr()
        assert found == code, f"{verb}: {captured.err}"
        assert "Traceback" not in captured.err
        document = json.loads(captured.out)
        if verb == "benchmark":
            assert "has no benchmarks/benchmark*.py" in document["error"]["message"]
            assert "has no benchmarks/benchmark*.py" in captured.err
        if verb == "trust remove":
            run(["trust", "add", *arguments[2:]])
        assert run(arguments) == code, f"{verb} without --json: {capsys.readouterr().err}"
        capsys.readouterr()


@pytest.mark.usefixtures("builder")
@pytest.mark.parametrize("verb", sorted(EXAMPLES))
def test_every_verb_has_help_and_refuses_what_it_does_not_know(verb, capsys):
    assert run([*verb.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: kernels {verb}")
    assert "--json" in said
    assert run([*verb.split(), "--no-such-option"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "no-such-option" in captured.err
    assert "Traceback" not in captured.err
    assert run([*verb.split(), "--no-such-option", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "UsageError"
    assert "no-such-option" in error["message"]
