"""Writing Ninja files. Pure. The format: https://ninja-build.org/manual.html#_writing_your_own_ninja_files"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# A variable of these names on an edge takes the place of what the rule says.
_SETTINGS = frozenset({"command", "depfile", "deps", "description", "generator", "pool", "restat"})

_NEEDS_ESCAPE = re.compile(r"[$: ]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A way to make files.

    Attributes:
        name: its name.
        command: the shell command, in which ``$in``, ``$out`` and variables of an edge stand.
        description: what is shown while it runs.
    """

    name: str
    command: str
    description: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """One thing to make.

    Attributes:
        outputs: the files that it makes.
        rule: the name of its rule.
        inputs: the files that the command names.
        variables: variables of the rule, as they stand in the shell command.
    """

    outputs: tuple[str, ...]
    rule: str
    inputs: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


def escape_path(path: str) -> str:
    """Write a path as Ninja reads it.

    Raises:
        ValueError: the path holds a line break, which Ninja cannot express.
    """
    if "\n" in path:
        raise ValueError(f"a path with a line break cannot be built: {path!r}")
    return _NEEDS_ESCAPE.sub(lambda match: f"${match[0]}", path)


def escape_value(text: str) -> str:
    """Write a text as the value of a variable, so that Ninja expands nothing in it."""
    return text.replace("$", "$$")


def quote_flags(flags: Iterable[str]) -> str:
    """Write command-line arguments as the value of a variable that a shell command contains."""
    return escape_value(shlex.join(flags))


def format_ninja(rules: Iterable[Rule], edges: Iterable[Edge], *, builddir: str) -> str:
    """Write a Ninja file: the rules, then the edges, both in the given order.

    Args:
        rules: the ways to make files.
        edges: what to make.
        builddir: where Ninja keeps its own log.

    Raises:
        ValueError: a path with a line break, or a variable that would replace a rule's setting.
    """
    lines = ["ninja_required_version = 1.8", f"builddir = {escape_path(builddir)}"]
    for rule in rules:
        lines += ["", f"rule {rule.name}", f"  command = {rule.command}"]
        lines.append(f"  description = {rule.description}")
    for edge in edges:
        outputs = " ".join(escape_path(path) for path in edge.outputs)
        inputs = [escape_path(path) for path in edge.inputs]
        lines += ["", " ".join([f"build {outputs}: {edge.rule}", *inputs])]
        clashing = sorted(_SETTINGS.intersection(edge.variables))
        if clashing:
            raise ValueError(f"variables of {edge.rule} that are settings: {', '.join(clashing)}")
        lines += [f"  {name} = {value}" for name, value in edge.variables.items()]
    return "\n".join([*lines, ""])
