"""The line index finds what tomllib finds, where the file has it, as the file spells it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.config.lines import format_path, index_lines


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each key path that tomllib found, and its value."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from paths_of(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from paths_of(each, (*path, index))


def assert_agrees(text: str) -> None:
    found = dict(paths_of(tomllib.loads(text)))
    places = index_lines(text)
    assert set(places) == set(found)
    lines = text.split("\n")
    for path, value in found.items():
        place = places[path]
        assert 1 <= place.line <= len(lines)
        if place.text is not None:
            assert repr(tomllib.loads(f"k = {place.text}\n")["k"]) == repr(value)
        elif not isinstance(value, dict):
            assert isinstance(value, list)
            assert all(isinstance(each, dict) for each in value)


SCALARS = st.one_of(
    st.booleans().map(lambda flag: "true" if flag else "false"),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.sampled_from(["2.10", "1e3", "-0.5", "inf", "0xff", "1_000", "1979-05-27", "07:32:00"]),
    st.sampled_from(["1979-05-27 07:32:00", '""', "''", '"a # b"', "'c:\\d'", '"\\"]"', '"é"']),
    st.sampled_from(['"""a\n"b" \\" ""c"""', "'''\nit's ''x''''", '"""""""', '"""\\\n  z"""']),
)
GAPS = st.sampled_from(["", " ", "\n", "\n\n  ", " # ], x = 1\n", "\t"])


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["scalar", "scalar", "array", "inline"])) if depth else "scalar"
    if kind == "scalar":
        return draw(SCALARS)
    if kind == "array":
        items = [
            draw(GAPS) + draw(values(depth - 1)) + draw(GAPS)
            for _ in range(draw(st.integers(0, 3)))
        ]
        comma = "," if items and draw(st.booleans()) else ""
        return f"[{','.join(items)}{comma}{draw(GAPS)}]"
    keys = draw(st.lists(KEYS, max_size=3, unique_by=lambda key: key[0]))
    pairs = [f"{draw(st.sampled_from(key))} = {draw(values(depth - 1))}" for key in keys]
    return "{ " + ", ".join(pairs) + " }"


# Each name with ways to spell it.
NAMES = ["a", "b-c", "d_1", "2", "e f", "g.h", "", "i#", 'j"k']
KEYS = st.sampled_from(NAMES).map(
    lambda name: [
        '"' + name.replace('"', '\\"') + '"',
        *([f"'{name}'"] if "'" not in name else []),
        *([name] if name and name.replace("-", "").replace("_", "").isalnum() else []),
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Write a TOML text of headers, arrays of tables and pairs; some are not valid."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 8))):
        key = " . ".join(draw(st.sampled_from(draw(KEYS))) for _ in range(draw(st.integers(1, 3))))
        match draw(st.sampled_from(["pair", "pair", "pair", "table", "array", "blank"])):
            case "pair":
                lines.append(f"{key} = {draw(values())} {draw(st.sampled_from(['', '# = [']))}")
            case "table":
                lines.append(f"[{key}]")
            case "array":
                lines.append(f"  [[ {key} ]] # ]]")
            case _:
                lines.append("# [x]")
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"]))


@given(documents())
def test_every_path_of_tomllib_has_a_line(text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert_agrees(text)


@given(st.text(alphabet="ab=.[]{},\"'#\n 1\\", max_size=40))
def test_any_text_that_tomllib_reads_is_indexed(text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert_agrees(text)


@pytest.mark.parametrize(
    ("text", "path", "line", "spelling"),
    [
        ('x = [\n  "a",\n\n  "b", # c\n]', ("x", 1), 4, '"b"'),
        ("x = 2.10 # two", ("x",), 1, "2.10"),
        ('a = """\n[b]\nc = 1\n"""\nd = 1', ("d",), 5, "1"),
        ("[a.b]\n[a]\nc = 1", ("a",), 2, None),
        ("[a.b]\nc = 1", ("a",), 1, None),
        ("[[a]]\n[a.b]\nc = 1\n[[a]]\n[a.b]\nc = 2", ("a", 1, "b", "c"), 6, "2"),
        ("a.b.c = 1", ("a", "b"), 1, None),
        ("x = { y = { z = 1 } }", ("x", "y", "z"), 1, "1"),
        ("x = [\n {y = 1},\n {y = 2}]", ("x", 1, "y"), 3, "2"),
        ('\r\n"a\\u0062" = 1\r\n', ("ab",), 2, "1"),
    ],
)
def test_places(text: str, path: tuple[Any, ...], line: int, spelling: str | None) -> None:
    place = index_lines(text)[path]
    assert (place.line, place.text) == (line, spelling)


def test_paths_are_written_as_toml_writes_them() -> None:
    path = ("general", "kernel-depends", 2, "a b", 'c"d')
    assert format_path(path) == 'general.kernel-depends[2]."a b"."c\\"d"'
