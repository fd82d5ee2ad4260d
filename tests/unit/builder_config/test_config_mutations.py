"""Whatever is done to a valid ``build.toml``: it is read, or every fault is one line that names one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError

VALID = sorted((Path(__file__).parents[2] / "fixtures" / "buildtoml" / "valid").glob("*.toml"))
VALUES = [
    "1", "-1", "1.5", "nan", "true", '""', '"x"', "[]", "[[]]", '["a", 1]', "{}", "{a = [{}]}",
    "1979-05-27", "07:32:00", "'''a\n'''", '"\\u0000"', '"\\u001b[31m"', '"a\\nb"', '"../x"',
    "9" * 5000, "[{}, {a = 1}]",
]  # fmt: skip
LINES = [
    "[kernel]", "kernel = 1", "[general.hub]", "[[general]]", "[torch]", "[torch-noarch]",
    "[tvm-ffi]", "[general.cuda]", "a.b.c = 1", "[[kernel.x]]", '[kernel.""]', "edition = 99",
    '"" = 1', "[", "\x00",
]  # fmt: skip
KEYS = [
    "edition", "version", "name", "license", "backends", "backend", "src", "depends", "include",
    "stable-abi", "repo-id", "cuda-capabilities", "pyext", "minver", "universal", "upstream",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    lines = draw(st.sampled_from(VALID)).read_text().split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["value", "key", "line", "swap", "drop", "byte"])):
            case "value":
                lines[at] = lines[at].partition("=")[0] + "= " + draw(st.sampled_from(VALUES))
            case "key":
                lines[at] = f"{draw(st.sampled_from(KEYS))} = {draw(st.sampled_from(VALUES))}"
            case "line":
                lines.insert(at, draw(st.sampled_from([*LINES, lines[at]])))
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "drop":
                lines[at] = ""
            case _:
                lines[at] += draw(st.characters(exclude_categories=["Cs"]))
    return "\n".join(lines).encode()


@given(mutated())
def test_every_fault_is_one_printable_line(data: bytes) -> None:
    text = ""
    try:
        parse_build(data)
    except ConfigError as err:
        text = str(err)
    for line in text.splitlines():
        match = re.match(r"build\.toml:(\d+): .", line)
        assert match is not None, line
        assert 1 <= int(match[1]) <= data.count(b"\n") + 1
        assert line.isprintable(), line


def test_text_of_the_file_cannot_steer_a_terminal_or_break_a_line() -> None:
    text = '[general]\nname = "\\u001b[31m"\nbackends = """a\nb"""\n'
    with pytest.raises(ConfigError) as caught:
        parse_build(text.encode())
    assert all(line.isprintable() for line in caught.value.lines)
    assert r'found "\x1b[31m"' in caught.value.lines[0]
