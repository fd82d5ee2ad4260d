"""Which ops C++ text registers with torch, read after the preprocessor.

The preprocessor runs with :data:`WRAPPERS` before torch's own headers. They turn each of torch's
macros for libraries of ops into one word, so that its block can be read whatever macros and
conditions the author has put around it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

_MARK = "KERNEL_BUILDER_OPS"

# By header: what stands before it on the search path.
WRAPPERS = {
    place: f"#pragma once\n#include_next <{place}>\n"
    + "".join(
        f"#undef {name}\n#define {name}({parameters}) {_MARK}(ns, {key}, m)\n"
        for name, parameters, key in (
            (f"{prefix}TORCH_LIBRARY", "ns, m", ""),
            (f"{prefix}TORCH_LIBRARY_FRAGMENT", "ns, m", ""),
            (f"{prefix}TORCH_LIBRARY_IMPL", "ns, k, m", "k"),
        )
    )
    for place, prefix in (("torch/library.h", ""), ("torch/csrc/stable/library.h", "STABLE_"))
}

# Where nothing else is said, an implementation serves every device.
CATCH_ALL = "CompositeImplicitAutograd"

_HEAD = re.compile(rf"\b{_MARK}\s*\(([^,()]*),([^,()]*),[^,()]*\)\s*\{{")
_CALL = re.compile(r"\.\s*(def|impl)\s*\(")
_LITERAL = re.compile(r'R"([^()\s\\]{0,16})\((.*?)\)\1"|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
# What may stand around the text of a schema: torch::schema("...", ...), SelectiveStr<true>("...").
_AROUND = re.compile(r"[\w:<>(){}\s,]*")
_KEY = re.compile(
    r"\b(?:DispatchKey|DeviceType)::(\w+)|\b(?:torch|at|c10)::k([A-Z]\w*)|^k([A-Z]\w*)$"
)
# In a schema: a default that is a text, and an argument that is one.
_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
_TEXT_ARGUMENT = re.compile(r"[(,]\s*str[\[\]?\d]*\s+(\w+)")
_DISPATCH = re.compile(r"(?:\w+::)*dispatch\s*\(")


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """One call that defines an op or gives it code.

    Attributes:
        source: the file, as a POSIX path in the project.
        namespace: the library that it is in.
        name: the op, without namespace, and with its overload where it has one.
        schema: the text of the schema; None: the call gives code, or leaves the schema to torch.
        defines: whether the call defines the op.
        key: the dispatch key that the call gives code for; None: it gives none.
    """

    source: str
    namespace: str
    name: str
    schema: str | None = None
    defines: bool = False
    key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Registrations:
    """All that the sources of a variant register.

    Attributes:
        calls: each call.
        unread: the calls whose op is not written out as a text, as ``file: call``.
    """

    calls: tuple[Registration, ...] = ()
    unread: tuple[str, ...] = ()


def join_registrations(each: Iterable[Registrations]) -> Registrations:
    """Put what several files register together."""
    found = tuple(each)
    return Registrations(
        calls=tuple(call for one in found for call in one.calls),
        unread=tuple(text for one in found for text in one.unread),
    )


def mentions_library(text: bytes) -> bool:
    """Say whether C++ text can register ops itself."""
    return b"TORCH_LIBRARY" in text


def parse_registrations(text: str, *, source: str) -> Registrations:
    """Read the output of the preprocessor.

    Args:
        text: the output, made with :data:`WRAPPERS`.
        source: the file that it was made from.
    """
    calls: list[Registration] = []
    unread: list[str] = []
    for head in _HEAD.finditer(text):
        namespace, key = head[1].strip(), head[2].strip()
        block = text[head.end() : _find_end(text, head.end())]
        for _, kind, arguments in _find_calls(block):
            found = _read_call(kind, arguments, source=source, namespace=namespace, key=key)
            if found:
                calls += found
            else:
                unread.append(f"{source}: {kind}({' '.join(', '.join(arguments).split())[:80]})")
    return Registrations(calls=tuple(calls), unread=tuple(unread))


def find_schemas(text: str) -> Iterator[tuple[int, str]]:
    """Yield each schema that is written out in C++ text as it stands, and where.

    Args:
        text: the text, without comments.
    """
    for place, kind, arguments in _find_calls(text):
        schema = _read_text(arguments[0]) if kind == "def" else None
        if schema is not None and "(" in schema:
            yield place, schema


def find_text_arguments(schema: str) -> tuple[str, ...]:
    """Return the names of the arguments of a schema that are texts (``str``), or lists of them."""
    arguments = _QUOTED.sub('""', schema).partition("->")[0]
    return tuple(_TEXT_ARGUMENT.findall(arguments))


def _find_calls(block: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each ``def`` and ``impl`` of a block: where it stands, which it is, and its arguments."""
    texts = [(match.start(), match.end()) for match in _LITERAL.finditer(block)]
    for call in _CALL.finditer(block):
        if any(begin < call.start() < end for begin, end in texts):
            continue
        begin = max(block.rfind(char, 0, call.start()) for char in ";{}")
        if "class_<" in block[begin + 1 : call.start()]:
            continue  # a method of a class that TorchScript sees is no op
        end = _find_end(block, call.end())
        yield call.start(), call[1], _split(block[call.end() : end])


def _read_call(
    kind: str, arguments: list[str], *, source: str, namespace: str, key: str
) -> list[Registration]:
    """Read one call; nothing where its op is not written out."""
    text = _read_text(arguments[0])
    if text is None:
        return []
    name = text.partition("(")[0].strip().removeprefix(f"{namespace}::")
    code = arguments[1] if len(arguments) > 1 else None
    if kind == "def":
        gives = code is not None and not code.startswith("{") and "Tag::" not in code
        return [
            Registration(
                source=source,
                namespace=namespace,
                name=name,
                schema=text if "(" in text else None,
                defines=True,
                key=(_read_key(code) or CATCH_ALL) if gives and code is not None else None,
            )
        ]
    stated = None if code is None else _read_key(code)
    return [
        Registration(source=source, namespace=namespace, name=name, key=stated or key or CATCH_ALL)
    ]


def _read_key(argument: str) -> str | None:
    """Read the dispatch key that an argument names, bare or in ``torch::dispatch(KEY, f)``."""
    wrapped = _DISPATCH.match(argument)
    place = argument[wrapped.end() :].partition(",")[0].strip() if wrapped else argument
    if not wrapped and not re.fullmatch(r"[\w:]+", argument):
        return None
    match = _KEY.search(place)
    return None if match is None else next(each for each in match.groups() if each)


def _read_text(argument: str) -> str | None:
    """Return the string that an argument is; None where only running it tells."""
    literals = list(_LITERAL.finditer(argument))
    if not literals or _AROUND.fullmatch(_LITERAL.sub("", argument)) is None:
        return None
    between = [argument[a.end() : b.start()] for a, b in pairwise(literals)]
    if any(each.strip() for each in between):
        return None
    return "".join(ast.literal_eval(each[0]) if each[0][0] == '"' else each[2] for each in literals)


def _split(text: str) -> list[str]:
    """Split arguments at the commas that are in no bracket and no text."""
    parts, depth, begin, place = [], 0, 0, 0
    while place < len(text):
        literal = _LITERAL.match(text, place)
        if literal is not None:
            place = literal.end()
            continue
        char = text[place]
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
        place += 1
    return [*parts, text[begin:].strip()]


def _find_end(text: str, place: int) -> int:
    """Return where the bracket closes that was opened before a place."""
    depth = 1
    while place < len(text):
        literal = _LITERAL.match(text, place) if text[place] in 'R"' else None
        if literal is not None:
            place = literal.end()
            continue
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place
        place += 1
    return len(text)
