"""JSON documents: read strictly, with every fault collected, and written in one canonical form."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from kernel_spec.errors import Fault

# What reading a document of our own can raise where others wrote it: ``json`` gives up on depth,
# and ``int`` on the infinity that 1e999 is.
UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)

_TYPE_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


class _Doubled(dict[str, Any]):
    """An object of a document that gave some of its keys twice."""

    keys_given_twice: tuple[str, ...] = ()


class Reader:
    """Collects the faults of one document while its values are taken out.

    Attributes:
        faults: what was found so far.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def add(self, kind: str, where: str, message: str, entry: str | None = None) -> None:
        """Note a fault."""
        self.faults.append(Fault(kind=kind, where=where, message=message, entry=entry))

    def load(self, data: bytes) -> Any:
        """Read UTF-8 JSON; None with a fault where it is none.

        Faults are ``bad-json`` and, for every key given twice in one object, ``duplicate-key``.
        """
        import json
        from collections import Counter

        doubled = False

        def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            nonlocal doubled
            built = dict(pairs)
            if len(built) == len(pairs):
                return built
            doubled = True
            marked = _Doubled(built)
            times = Counter(key for key, _ in pairs)
            marked.keys_given_twice = tuple(key for key in built if times[key] > 1)
            return marked

        def refuse(constant: str) -> NoReturn:
            raise ValueError(f"{constant} is not JSON")

        def read_float(text: str) -> float:
            number = float(text)
            # What is read can be written again.
            return number if math.isfinite(number) else refuse(text[:40])

        try:
            value = json.loads(
                data.decode("utf-8"),
                object_pairs_hook=build,
                parse_constant=refuse,
                parse_float=read_float,
            )
        except (ValueError, RecursionError) as err:
            self.add("bad-json", "", f"not JSON: {err}")
            return None
        if doubled:
            self._note_doubled(value)
        return value

    def _note_doubled(self, document: Any) -> None:
        """Note the keys that were given twice, outermost first.

        A stack of its own: ``json`` of Python 3.12 reads deeper than functions may call each other.
        """
        left: list[tuple[Any, str]] = [(document, "")]
        while left:
            value, where = left.pop()
            if isinstance(value, _Doubled):
                for key in value.keys_given_twice:
                    self.add("duplicate-key", join(where, key), "given twice")
            if isinstance(value, dict):
                left += [(value[key], join(where, key)) for key in reversed(value)]
            elif isinstance(value, list):
                left += [(value[at], f"{where}[{at}]") for at in reversed(range(len(value)))]

    def check_type(self, value: Any, expected: type, where: str, entry: str | None = None) -> bool:
        """Say whether a value has a JSON type, with a ``wrong-type`` fault where it has not."""
        if type(value) is expected or (expected is dict and isinstance(value, dict)):
            return True
        found = _TYPE_NAMES.get(type(value), "an object")
        self.add("wrong-type", where, f"expected {_TYPE_NAMES[expected]}, found {found}", entry)
        return False

    def take(
        self,
        table: Mapping[str, Any],
        key: str,
        expected: type,
        where: str,
        *,
        required: bool = False,
    ) -> Any:
        """Return a member of an object, or None with a fault where it is not as expected.

        An optional member that is null counts as absent.
        """
        if key not in table:
            if required:
                self.add("missing-key", join(where, key), "is required")
            return None
        value = table[key]
        if value is None and not required:
            return None
        return value if self.check_type(value, expected, join(where, key)) else None

    def take_checked(
        self,
        table: Mapping[str, Any],
        key: str,
        where: str,
        check: Callable[[str], str | None],
        *,
        kind: str,
        required: bool = False,
    ) -> str | None:
        """Return a text for which ``check`` finds no fault, or None with a fault."""
        value: str | None = self.take(table, key, str, where, required=required)
        if value is None:
            return None
        message = check(value)
        if message is not None:
            self.add(kind, join(where, key), message)
            return None
        return value

    def take_number(
        self, table: Mapping[str, Any], key: str, where: str, *, required: bool = False
    ) -> int | None:
        """Return a whole number of zero or more, or None with a fault."""
        value: int | None = self.take(table, key, int, where, required=required)
        if value is not None and value < 0:
            self.add("bad-value", join(where, key), f"expected zero or more, found {value}")
            return None
        return value

    def refuse_unknown(self, table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        """Note every key that is not known."""
        for key in table:
            if key not in known:
                self.add(
                    "unknown-key", join(where, key), f"expected one of {', '.join(sorted(known))}"
                )


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file to read it.

    Raises:
        OSError: it cannot be read, or is something else; opening a FIFO would wait for ever.
    """
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_plain(path: Path) -> bytes:
    """Return the bytes of a plain file.

    Raises:
        OSError: as :func:`open_plain`.
    """
    with open_plain(path) as file:
        return file.read()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say in an OSError which file it is about: of an open one, on a full disk, the system does not.

    Raises:
        OSError: as inside, with the path where it named none.
    """
    try:
        yield
    except OSError as err:
        if err.filename is None:
            err.filename = str(path)
        raise


def join(where: str, key: str) -> str:
    """Return the path of a member of the object at a path."""
    return f"{where}.{key}" if where else key


def write_json(value: Any, *, indent: int | None = 2) -> bytes:
    """Write JSON with sorted keys, in ASCII, with a final newline."""
    import json

    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, sort_keys=True, indent=indent, separators=separators, allow_nan=False)
    return f"{text}\n".encode("ascii")
