import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.ninja import Edge, Rule, escape_path, escape_value, format_ninja, quote_flags


def _unescape(text: str) -> str:
    """Read a value as Ninja does: `$` keeps the character after it."""
    out, characters = [], iter(text)
    for character in characters:
        out.append(next(characters) if character == "$" else character)
    return "".join(out)


def test_a_file_of_one_edge() -> None:
    text = format_ninja(
        [Rule(name="cxx", command="g++ $flags -c $in -o $out", description="$in")],
        [
            Edge(
                outputs=("out dir/a.o",),
                rule="cxx",
                inputs=("c:src/a.cpp",),
                variables={"flags": quote_flags(["-DX=a b", "-O3"])},
            )
        ],
        builddir="../obj",
    )
    assert text == (
        "ninja_required_version = 1.8\n"
        "builddir = ../obj\n"
        "\n"
        "rule cxx\n"
        "  command = g++ $flags -c $in -o $out\n"
        "  description = $in\n"
        "\n"
        "build out$ dir/a.o: cxx c$:src/a.cpp\n"
        "  flags = '-DX=a b' -O3\n"
    )


@given(st.lists(st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]))))
def test_flags_reach_the_shell_as_they_are(flags: list[str]) -> None:
    assert shlex.split(_unescape(quote_flags(flags))) == flags


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_paths_and_values_read_back(text: str) -> None:
    assert _unescape(escape_path(text)) == text
    assert _unescape(escape_value(text)) == text


def test_a_path_with_a_line_break_is_refused() -> None:
    with pytest.raises(ValueError, match="line break"):
        escape_path("a\nb")


def test_a_variable_that_would_replace_the_command_is_refused() -> None:
    edge = Edge(outputs=("a",), rule="r", inputs=(), variables={"command": "true"})
    with pytest.raises(ValueError, match="variables of r that are settings: command"):
        format_ninja([], [edge], builddir=".")
