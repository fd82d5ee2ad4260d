"""Reading one TOML table key by key: typed access that notes each fault and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from kernel_builder.config.lines import KeyPath, Place, format_path
from kernel_builder.errors import ConfigFault

Check = Callable[[str], "Objection | None"]


@dataclass(frozen=True, slots=True)
class Objection:
    """What a check has against a value: the kind, the message, what was probably meant."""

    kind: str
    message: str
    suggestion: str | None = None


def find_close(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most like this one, or None."""
    matches = get_close_matches(word.lower(), sorted(known), n=1, cutoff=0.7)
    return matches[0] if matches else None


_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    str: "a string",
    int: "a whole number",
    float: "a number with a point",
    list: "a list",
    dict: "a table",
}


def type_name(value: object) -> str:
    """Name the TOML type of a value."""
    return _TYPE_NAMES.get(type(value), "a date or time")


class Faults:
    """The faults found so far in one file, and where its keys stand."""

    def __init__(self, places: Mapping[KeyPath, Place]) -> None:
        self.places = places
        self.found: list[ConfigFault] = []
        self.doubts: list[ConfigFault] = []

    def line(self, path: KeyPath) -> int:
        """Return the line of a path, or of the nearest table around it that has one."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]].line
        return 1

    def text(self, path: KeyPath) -> str | None:
        """Return how the file spells the value of a path."""
        place = self.places.get(path)
        return None if place is None else place.text

    def add(self, path: KeyPath, kind: str, message: str, suggestion: str | None = None) -> None:
        """Note a fault."""
        self.found.append(self._make(path, kind, message, suggestion))

    def doubt(self, path: KeyPath, kind: str, message: str, suggestion: str | None = None) -> None:
        """Note what is allowed, and probably not meant."""
        self.doubts.append(self._make(path, kind, message, suggestion))

    def _make(self, path: KeyPath, kind: str, message: str, suggestion: str | None) -> ConfigFault:
        return ConfigFault(
            line=self.line(path),
            path=format_path(path),
            kind=kind,
            message=" ".join(message.split()),
            suggestion=suggestion,
        )

    def add_wrong_type(self, path: KeyPath, value: object, expected: str) -> None:
        """Note a value of another type than the expected one, as the file spells it."""
        spelling = self.text(path)
        shown = type_name(value) if spelling is None else f"{type_name(value)}, {shorten(spelling)}"
        suggestion = None
        if isinstance(value, int | float) and expected == "a string" and spelling is not None:
            suggestion = f'"{spelling}"'
        elif isinstance(value, str) and expected == "a whole number" and value.isdecimal():
            suggestion = value
        elif isinstance(value, str) and expected == "a list of strings":
            suggestion = f"[{spelling}]"
        self.add(path, "wrong-type", f"found {shown}; expected {expected}", suggestion)


def shorten(spelling: str) -> str:
    """Cut the spelling of a value to what fits into a message."""
    line = " ".join(spelling.split())
    return line if len(line) <= 60 else line[:57] + "..."


@dataclass
class Table:
    """One table being read.

    Attributes:
        data: its content.
        path: where it stands.
        faults: where faults go.
        known: the keys that were asked for.
        absent: the required keys that were asked for and are not there.
    """

    data: Mapping[str, Any]
    path: KeyPath
    faults: Faults
    known: set[str] = field(default_factory=set)
    absent: list[str] = field(default_factory=list)

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def add(self, key: str, objection: Objection, *index: int) -> None:
        """Note a fault of a key, or of an element of its list."""
        self.faults.add(
            (*self.path, key, *index), objection.kind, objection.message, objection.suggestion
        )

    def find(self, key: str, expected: type, name: str, *, required: bool = False) -> Any:
        """Return the value of a key where it is of this type, else None."""
        self.known.add(key)
        if key not in self.data:
            if required:
                self.absent.append(key)
            return None
        value = self.data[key]
        # In Python, true is an int; in TOML it is not.
        if isinstance(value, expected) and not (isinstance(value, bool) and expected is not bool):
            return value
        self.faults.add_wrong_type((*self.path, key), value, name)
        return None

    def text(self, key: str, check: Check | None = None, *, required: bool = False) -> str | None:
        """Return the string of a key, where it is there and passes the check."""
        value: str | None = self.find(key, str, "a string", required=required)
        if value is None or check is None:
            return value
        objection = check(value)
        if objection is None:
            return value
        self.add(key, objection)
        return None

    def number(self, key: str, *, required: bool = False) -> int | None:
        """Return the whole number, from 0, of a key."""
        value: int | None = self.find(key, int, "a whole number", required=required)
        if value is not None and value < 0:
            self.add(key, Objection("bad-value", f"found {value}; expected a number from 0"))
            return None
        return value

    def flag(self, key: str) -> bool | None:
        """Return true or false, where the key is there."""
        value: bool | None = self.find(key, bool, "true or false")
        return value

    def texts(
        self,
        key: str,
        check: Check | None = None,
        *,
        required: bool = False,
        unique: bool = False,
    ) -> tuple[str, ...] | None:
        """Return the strings of a key that pass the check, in order; None where the key is bad."""
        value = self.find(key, list, "a list of strings", required=required)
        if value is None:
            return None
        good: list[str] = []
        seen: dict[str, int] = {}
        for index, element in enumerate(value):
            if not isinstance(element, str):
                self.faults.add_wrong_type((*self.path, key, index), element, "a string")
                continue
            objection = check(element) if check is not None else None
            if objection is None and unique and element in seen:
                message = f'"{element}" stands here twice; keep one'
                objection = Objection("duplicate", message)
            if objection is None:
                good.append(element)
                seen[element] = index
            else:
                self.add(key, objection, index)
        return tuple(good)

    def table(self, key: str, *, required: bool = False) -> Table | None:
        """Return the table of a key."""
        value = self.find(key, dict, "a table", required=required)
        return None if value is None else Table(value, (*self.path, key), self.faults)

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return the tables of a list of tables."""
        value = self.find(key, list, "a list of tables")
        rows = []
        for index, element in enumerate(value or ()):
            path = (*self.path, key, index)
            if isinstance(element, dict):
                rows.append(Table(element, path, self.faults))
            else:
                self.faults.add_wrong_type(path, element, "a table")
        return tuple(rows)

    def finish(self, elsewhere: Mapping[str, Objection] | None = None) -> None:
        """Note the keys that nobody asked for, and the required ones that are not there.

        A required key that an unknown one is a misspelling of is not reported as well.

        Args:
            elsewhere: what to say of keys that belong somewhere else.
        """
        meant: set[str] = set()
        for key in self.data:
            if key in self.known:
                continue
            if elsewhere and key in elsewhere:
                self.add(key, elsewhere[key])
                continue
            suggestion = find_close(key, self.known - set(self.data))
            if suggestion is not None:
                meant.add(suggestion)
            message = f"no such key in {self.name()}"
            if suggestion is None and self.known:
                message += f"; expected one of {', '.join(sorted(self.known - set(self.data)))}"
            self.add(key, Objection("unknown-key", message, suggestion))
        for key in self.absent:
            if key not in meant:
                what = "is missing" if self.path else "the table is missing"
                self.add(key, Objection("missing-key", f"{what}; {self.name()} needs it"))

    def name(self) -> str:
        """Name the table for a message."""
        return f"[{format_path(self.path)}]" if self.path else "build.toml"
