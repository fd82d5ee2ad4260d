"""What in C++ sources keeps a kernel from torch's stable ABI, and what replaces it, found by reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from kernel_builder.check.finding import Finding
from kernel_builder.policy import Replacement, read_replacements
from kernel_builder.registrations import find_schemas, find_text_arguments
from kernel_builder.sources import blank_dead

SUFFIXES = frozenset(
    {".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hip", ".hpp", ".inl", ".mm", ".sycl"}
)
RULE = "stable-abi"
TEXT_RULE = "stable-text"

# Comments and texts, and what looks like one inside the other; lines are kept.
_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'',
    re.DOTALL,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_NAME = re.compile(r"(?<![\w:])(?:::)?(at|c10|torch)::((?:\w+::)*\w+)")
_USING = re.compile(r"\busing\s+namespace\s+((?:at|c10|torch)(?:::\w+)*)\s*;")
_MACRO = re.compile(r"\b([A-Z][A-Z0-9_]{4,})\s*\(")
_METHOD = re.compile(r"(?:\.|->)\s*(?:template\s+)?(\w+)\s*([<(])")
_PYTHON = re.compile(r"\b(py|pybind11)::(\w+)")
# What the stable interface itself has in these namespaces.
_STABLE = ("stable", "headeronly")
_STABLE_HEADERS = ("torch/csrc/stable/", "torch/headeronly/", "torch/csrc/inductor/aoti_torch/c/")


def check_stable_source(text: str, file: str) -> Iterator[Finding]:
    """Find what of a C++ source the stable ABI does not have, in the order of its lines.

    It is read, not compiled: what stands behind a condition of the preprocessor other than ``#if 0``
    counts too, and a name that a macro puts together is not seen. :func:`check_stable_abi` sees what
    a library really asks for.

    Args:
        text: the source.
        file: its path in the project.
    """
    text = blank_dead(text.encode()).decode(errors="replace")
    includes = list(_INCLUDE.finditer(text))
    found = [
        (match.start(1), "header", match[1])
        for match in includes
        if not match[1].startswith(_STABLE_HEADERS)
    ]
    code = _HIDDEN.sub(_blank, text)
    found += [(match.start(), "using", match[1]) for match in _USING.finditer(code)]
    code = _USING.sub(_blank, code)
    found += [
        (match.start(), "name", f"{match[1]}::{match[2]}")
        for match in _NAME.finditer(code)
        if match[2].partition("::")[0] not in _STABLE
    ]
    found += [(match.start(1), "macro", match[1]) for match in _MACRO.finditer(code)]
    found += [(match.start(1), "method", match[1] + match[2]) for match in _METHOD.finditer(code)]
    found += [(match.start(), "python", match[0]) for match in _PYTHON.finditer(code)]
    for place, kind, symbol in sorted(found):
        finding = _judge(kind, symbol, f"{file}:{text.count(chr(10), 0, place) + 1}")
        if finding is not None:
            yield finding


def check_texts(text: str, file: str) -> Iterator[Finding]:
    """Find the ops of a C++ source that take texts, which works and costs memory at each call.

    Args:
        text: the source.
        file: its path in the project.
    """
    code = _HIDDEN.sub(_blank_comment, blank_dead(text.encode()).decode(errors="replace"))
    for place, schema in find_schemas(code):
        yield from judge_schema(schema, f"{file}:{code.count(chr(10), 0, place) + 1}")


def judge_schema(schema: str, place: str) -> Iterator[Finding]:
    """Find the texts that an op takes through torch's stable interface.

    It copies each with ``new`` and deletes no copy: ``ToImpl<std::string>`` in
    torch/csrc/stable/stableivalue_conversions.h, read in torch 2.13. In calls, 53 bytes were seen.
    """
    names = find_text_arguments(schema)
    if names:
        what = "str arguments are" if len(names) > 1 else "a str argument is"
        yield Finding(
            file=place,
            rule=TEXT_RULE,
            symbol=f"{schema.partition('(')[0].strip()}({', '.join(names)})",
            message=f"{what} copied at each call by torch's stable interface, which never frees the copy: "
            "some 50 bytes a call, more for a long text",
            fix="take an int that stands for the text, which Python looks up, or make an op for each text",
        )


def _judge(kind: str, symbol: str, place: str) -> Finding | None:
    if kind == "using":
        namespace = symbol.split("::")
        if len(namespace) > 1 and namespace[1] in _STABLE:
            return None
        return _find(place, symbol, "it opens a namespace of torch's full interface", None)
    if kind == "python":
        replacement = Replacement(
            kind=kind,
            match=(),
            write="arguments that ops have: tensors, numbers and lists of them",
        )
        return _find(place, symbol, "pybind11 is bound to one Python and one torch", replacement)
    bare = symbol.partition("::")[2] if kind == "name" else symbol
    for each in read_replacements():
        if each.kind == kind and any(fnmatchcase(bare, pattern) for pattern in each.match):
            return _find(place, symbol, "it is not in torch's stable interface", each)
    return None


def _find(place: str, symbol: str, message: str, replacement: Replacement | None) -> Finding:
    fix = "name what is used of it"
    if replacement is not None:
        since = f" (torch {replacement.since} and later)" if replacement.since else ""
        fix = f"use {replacement.write}{since}"
    return Finding(file=place, rule=RULE, symbol=symbol, message=message, fix=fix)


def _blank_comment(match: re.Match[str]) -> str:
    return _blank(match) if match[0].startswith("/") else match[0]


def _blank(match: re.Match[str]) -> str:
    """Replace what is matched by blanks, so that places and lines stay."""
    return re.sub(r"[^\n]", " ", match[0])
