"""Every verb of every command refuses what it does not know in one form, and explains itself."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from kernel_builder import cli as builder
from kernel_builder.cli.frame import LazyGroup
from kernel_hub.cli import cli as hub
from kernel_spec.command import run
from kernels.cli import kernels

COMMANDS = {
    "kernels": kernels,
    "kernel-builder": LazyGroup("kernel-builder", verbs=builder.VERBS, help=""),
    "build2cmake": LazyGroup("build2cmake", verbs=builder.BUILD2CMAKE, help=""),
    "kernel-hub": hub,
}


def walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            verb = command.get_command(context, name)
            assert verb is not None
            yield from walk(verb, (*words, name))


VERBS = [words for name, command in COMMANDS.items() for words in walk(command, (name,))]


@pytest.fixture
def call(capsys):
    def call(name, *words):
        code = run(COMMANDS[name], words, name=name)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_an_option_that_there_is_not(call, words):
    code, out, err = call(*words, "--no-such-option")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "--no-such-option" in err.splitlines()[0]
    assert "usage: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_the_help_is_a_result(call, words):
    code, out, err = call(*words, "--help")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: ")


GROUPS = [words for words in VERBS if any(other[:-1] == words for other in VERBS)]


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_a_command_without_its_verb_is_explained_before_the_error(call, words):
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"Usage: {' '.join(words)} ")
    assert (
        err.splitlines()[-1] == f"error: {' '.join(words)}: which command? They are listed above."
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_verb_that_there_is_not(call, name):
    code, out, err = call(name, "upgrade-everything")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "upgrade-everything" in err.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "verb", "meant"),
    [("kernels", "doctr", "doctor"), ("kernel-builder", "buidl", "build")],
)
def test_a_verb_that_was_probably_meant_is_named(call, name, verb, meant):
    code, _, err = call(name, verb)
    assert code == 2
    assert err.splitlines()[0] == f"error: no command {verb!r}; did you mean {meant}?"


@pytest.mark.parametrize("name", COMMANDS)
def test_debug_is_taken_before_a_verb_and_after_it_but_not_after_two_dashes(call, name, tmp_path):
    assert call(name, "--debug", "--version")[0] == 0
    assert call(name, "--version", "--debug")[0] == 0
    code, _, err = call(name, "--", "--debug")
    assert (code, "--debug" in err.splitlines()[0]) == (2, True)
