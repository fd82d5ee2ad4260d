"""Every code block of a page is run by a test or says why not; every command that a page names exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from listings import ROOT, find_listings, find_unsaid, list_pages, parse_listings, parse_session
from listings import read_listings as read

from kernel_builder.cli import BUILD2CMAKE
from kernel_builder.cli import VERBS as BUILDER
from kernel_hub.cli import cli as hub
from kernels.cli import kernels

PAGES = list_pages()


def taken() -> Iterator[tuple[str, str, str]]:
    """Yield the test, the page and the beginning of each block that a test takes."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if path == Path(__file__) or "get_listing" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "get_listing":
                page, start = (ast.literal_eval(argument) for argument in node.args)
                yield path.relative_to(ROOT).as_posix(), page, start


TAKEN = tuple(taken())


@pytest.mark.parametrize(("test", "page", "start"), TAKEN)
def test_what_a_test_takes_is_one_block_that_is_not_excused(test, page, start):
    [block] = find_listings(page, start)
    assert block.reason is None, f"{test} runs it: take the comment out of {block.place}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page):
    starts = [start for _, of, start in TAKEN if of == page]
    idle = [
        block.place
        for block in read(page)
        if block.reason is None and not any(block.text.startswith(start) for start in starts)
    ]
    assert idle == [], "run it in a test by get_listing(page, start), or write <!-- not run: … -->"


def test_blocks_reasons_and_sessions_are_read():
    page = "a\n<!-- not run: it needs a GPU -->\n```sh\nx\n```\n\n```\ny\nz\n```\n"
    first, second = parse_listings("page.md", page)
    assert (first.line, first.language, first.text) == (3, "sh", "x\n")
    assert (first.reason, second.reason) == ("it needs a GPU", None)
    assert second.place == "page.md:7: y"
    session = "$ one\n$ two -x\nsaid\nmore\n"
    assert parse_session(session) == (("one", ""), ("two -x", "said\nmore\n"))


def test_what_is_printed_is_compared_line_by_line():
    said = "warning: w\nv1 at 3f2c: 6 files\n  + a\n  + b\n"
    assert find_unsaid("v1 at …: 6 files\n + b\n", said) == []
    assert find_unsaid("v1 at …: 7 files\n + b\n", said) == ["v1 at …: 7 files"]
    assert find_unsaid(" + b\n + a\n", said) == [" + a"]


INLINE = re.compile(r"(?<!`)`(?!`)([^`]+)`(?!`)")
PROGRAM = re.compile(
    r"^(?:\$ |RUN )?(?:\w+=\S* )*(?:python -m )?((?:kernels|kernel-builder|build2cmake|kernel-hub) [a-z-].*)"
)


def calls(page: str) -> Iterator[str]:
    """Yield each call of one of our commands in a page, in its text and in its blocks."""
    text = (ROOT / page).read_text()
    shells = [b.text for b in read(page) if b.language in {"sh", "console", "dockerfile", ""}]
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in shells for line in block.splitlines()]
    lines += [re.sub(r"\s+", " ", found) for found in INLINE.findall(prose)]
    for line in lines:
        for part in re.split(r" && | \|\| |; | > ", line.partition(" #")[0].replace("\\|", "/")):
            if (match := PROGRAM.search(part.strip())) is not None:
                yield match[1]


def find_command(words: list[str]) -> tuple[click.Command | None, list[str]]:
    """Return the command that a line calls, and what follows its name."""
    program, *rest = words
    if rest[0] == "upload":
        program = "kernel-builder"  # the loader's command hands over to that one
    if program in {"kernel-builder", "build2cmake"}:
        verbs = BUILDER if program == "kernel-builder" else BUILD2CMAKE
        module, _, name = verbs.get(rest[0], "").partition(":")
        return (getattr(import_module(module), name) if module else None), rest[1:]
    command: click.Command | None = {"kernels": kernels, "kernel-hub": hub}[program]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, *rest = rest
        command = command.get_command(click.Context(command), name)
    return command, rest


def faults(line: str) -> list[str]:
    """Say what is wrong with a call: a verb or an option that is not there."""
    words = shlex.split(line.replace("…", "x").replace("'", "").replace('"', ""))
    command, rest = find_command(words)
    if command is None:
        return [f"{line}: no such command"]
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    known |= {"--help", "-h", "--debug", "--version"}
    rest = rest[: rest.index("--")] if "--" in rest else rest
    options = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    attached = {o[:2] for o in options if not o.startswith("--")}
    long = {option for option in options if option.startswith("--")}
    return [f"{line}: {option}" for option in sorted((long | attached) - known)]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_in_a_page_exists(page):
    # What is gone, and what the published tools have, is what these pages are about.
    if not page.startswith(("docs/compatibility", "CHANGELOG")):
        assert [fault for call in calls(page) for fault in faults(call)] == []


def test_a_command_that_is_not_there_would_be_found():
    assert faults("kernels nonsense x") == ["kernels nonsense x: no such command"]
    assert faults("kernels cache prune --unused-fro 3d") != []
    assert faults("kernel-builder build -j1 --cuda 13.2 x") == []
    assert len({call.split()[0] for page in PAGES for call in calls(page)}) == 4


def test_every_variable_in_a_page_is_one_that_is_read():
    source = "".join(p.read_text() for p in ROOT.glob("src/*/**/*.py"))
    source += "".join(p.read_text() for p in ROOT.glob("kernels-community/*/csrc/**/*.[ch]*"))
    named = {
        (page, name)
        for page in PAGES
        for name in re.findall(
            r"\b((?:KERNELS?|LOCAL_KERNELS|DISABLE_KERNEL)_[A-Z_]+)\b", (ROOT / page).read_text()
        )
    }
    assert named
    assert [each for each in sorted(named) if each[1] not in source] == []
