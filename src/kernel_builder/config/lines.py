"""Where in a TOML text each key path stands, and how the file spells its value.

Neither tomllib nor tomlkit gives line numbers. This scanner follows the TOML 1.0 grammar over a text
that tomllib has accepted, so it never has to judge, only to keep count.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
_LONG_BASIC = re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL)
_SCALAR = re.compile(r"[^\n#,\]}]*")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key path stands.

    Attributes:
        line: from 1: the line of the key; of an element of an array, the line it begins on; of
            a table, the line of its header, else of the first key that makes it.
        text: how the file spells the value; None for tables.
    """

    line: int
    text: str | None


class _Scanner:
    """A position in a text, and what was found up to there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.places: dict[KeyPath, Place] = {}
        self.arrays: dict[KeyPath, int] = {}

    def line(self) -> int:
        return bisect_right(self.starts, self.at)

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None, f"not TOML at offset {self.at}"
        self.at = match.end()
        return match[0]

    def here(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def skip(self, token: str) -> None:
        assert self.here(token), f"expected {token!r} at offset {self.at}"
        self.at += len(token)

    def key_part(self) -> str:
        if self.here('"'):
            return str(tomllib.loads(f"k = {self.take(_BASIC)}")["k"])
        if self.here("'"):
            return self.take(_LITERAL)[1:-1]
        return self.take(_BARE_KEY)

    def dotted_key(self) -> list[str]:
        parts = []
        while True:
            self.take(_BLANK)
            parts.append(self.key_part())
            self.take(_BLANK)
            if not self.here("."):
                return parts
            self.skip(".")

    def note(self, path: KeyPath, line: int, text: str | None) -> None:
        """Note a place; the first word on a table stands."""
        self.places.setdefault(path, Place(line, text))

    def enter(self, parts: list[str]) -> KeyPath:
        """Return the path of a header's parent, inside the last element of arrays on the way."""
        path: KeyPath = ()
        for part in parts:
            path = (*path, part)
            self.note(path, self.line(), None)
            if path in self.arrays:
                path = (*path, self.arrays[path] - 1)
        return path

    def header(self) -> KeyPath:
        line = self.line()
        token = "[[" if self.here("[[") else "["
        self.skip(token)
        *parents, last = self.dotted_key()
        self.skip("]" * len(token))
        path: KeyPath = (*self.enter(parents), last)
        if token == "[":
            # An explicit header is the place of a table that was implied before it.
            self.places[path] = Place(line, None)
            return path
        self.note(path, line, None)
        count = self.arrays.get(path, 0)
        self.arrays[path] = count + 1
        path = (*path, count)
        self.note(path, line, None)
        return path

    def pair(self, table: KeyPath) -> None:
        line = self.line()
        *parents, last = self.dotted_key()
        path = table
        for part in parents:
            path = (*path, part)
            self.note(path, line, None)
        self.skip("=")
        self.take(_BLANK)
        self.value((*path, last), line)

    def value(self, path: KeyPath, line: int) -> None:
        start = self.at
        if self.here("["):
            self.array(path, line)
        elif self.here("{"):
            self.note(path, line, None)
            self.inline_table(path)
        else:
            pattern = _SCALAR
            for token, candidate in (
                ('"""', _LONG_BASIC),
                ("'''", _LONG_LITERAL),
                ('"', _BASIC),
                ("'", _LITERAL),
            ):
                if self.here(token):
                    pattern = candidate
                    break
            self.take(pattern)
            self.note(path, line, self.text[start : self.at].strip())

    def array(self, path: KeyPath, line: int) -> None:
        start = self.at
        self.skip("[")
        self.take(_GAP)
        index = 0
        while not self.here("]"):
            self.value((*path, index), self.line())
            index += 1
            self.take(_GAP)
            if self.here(","):
                self.skip(",")
                self.take(_GAP)
        self.skip("]")
        self.note(path, line, self.text[start : self.at])

    def inline_table(self, path: KeyPath) -> None:
        self.skip("{")
        self.take(_GAP)
        while not self.here("}"):
            self.pair(path)
            self.take(_GAP)
            if self.here(","):
                self.skip(",")
                self.take(_GAP)
        self.skip("}")


def index_lines(text: str) -> dict[KeyPath, Place]:
    """Return the place of every key path of a valid TOML text.

    A path is what leads to a value in the result of ``tomllib.loads``: names of keys, and numbers
    for the elements of arrays.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    table: KeyPath = ()
    scanner.take(_GAP)
    while scanner.at < len(scanner.text):
        if scanner.here("["):
            table = scanner.header()
        else:
            scanner.pair(table)
        scanner.take(_GAP)
    return scanner.places


def format_path(path: KeyPath) -> str:
    """Write a key path as TOML spells it: ``general.backends[1]``, ``kernel."a b".src``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = part if _BARE_KEY.fullmatch(part) else '"' + part.replace('"', '\\"') + '"'
            text += f".{quoted}" if text else quoted
    return text
