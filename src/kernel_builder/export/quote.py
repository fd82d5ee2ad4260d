"""Texts as CMake, Python and TOML read them. Pure. CMake: https://cmake.org/cmake/help/latest/manual/cmake-language.7.html"""

from __future__ import annotations

import json
import re

from kernel_builder.errors import ExportError

# Written without quotes, these are what they say.
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")
_LINE = 80


def quote_cmake(text: str) -> str:
    """Write a text as one argument of a CMake command."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def quote_path(path: str) -> str:
    """Write the path of a file of the project as one argument.

    Raises:
        ExportError: CMake cannot name such a file.
    """
    if ";" in path or "$<" in path or "\n" in path:
        raise ExportError(
            f'"{path}": CMake has no way to name a file with ";" or "$<" in its name; rename it'
        )
    return quote_cmake(path)


def quote_option(text: str) -> str:
    """Write a compiler's flag as an element of a list of options.

    Raises:
        ExportError: CMake cannot hand on such a flag.
    """
    if text.count("[") != text.count("]") or "\n" in text:
        raise ExportError(
            f"the flag {text}: CMake cannot hand on a flag with a line break, or with a bracket "
            "that is not closed; define the macro in a header of the project"
        )
    # Semicolons part the elements of a list, and "$<" begins a generator expression.
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace(";", "\\\\;")
    return f'"{text.replace("$<", "$<1:$><").replace("$", chr(92) + "$")}"'


def quote_text(text: str) -> str:
    """Write a text as Python and TOML both read it."""
    return json.dumps(text, ensure_ascii=False)


def format_python(value: object) -> str:
    """Write lists, dictionaries and texts as Python, one element a line where they are long."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(line) <= _LINE:
        return line
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=4)
