"""Mangled C++ names of torch, as far as a message needs them.

Source: Itanium C++ ABI, chapter 5.1, "External Names".
"""

from __future__ import annotations

import re

# _Z, then a special name (vtable, typeinfo) or guard, qualifiers, and a namespace of torch.
_TORCH = re.compile(r"_Z(?:T[VTIS]|GV|GR)?N?[VK]*(?:3c10|2at|5torch|6caffe2)", re.ASCII)
# The same of a static variable in one of their functions (_ZZ), and those of the C++ library and compiler.
_BY_DESIGN = re.compile(
    r"_Z(?:T[VTIS]|GR)?Z?N?[VKr]*(?:St|3c10|2at|5torch|6caffe2|9__gnu_cxx|10__cxxabiv1)", re.ASCII
)
_GUARD = "_ZGV"
_LOCAL = re.compile(r"E\d+([A-Za-z_]\w*)$", re.ASCII)
_C_NAMES = ("aoti_torch_", "torch_", "c10_")
# The abbreviation of std::string, which names the C++98 layout alone.
_OLD_STRING = re.compile(r"(?<![0-9A-Za-z_])Ss|(?<=[A-Z0-9_])Ss|Ss$", re.ASCII)


def is_torch_symbol(name: str) -> bool:
    """Say whether a symbol is one that torch's libraries must define."""
    return _TORCH.match(name) is not None or name.startswith(_C_NAMES)


def is_own_variable(name: str) -> bool:
    """Say whether a symbol is a variable of a kernel's own code, and no guard of one.

    What torch's and the C++ library's headers define in every library is one for all by design.
    """
    return not name.startswith(_GUARD) and _BY_DESIGN.match(name) is None


def is_old_layout(name: str) -> bool:
    """Say whether a function takes or returns a string of the C++98 layout."""
    return "__cxx11" not in name and _OLD_STRING.search(_without_identifiers(name)) is not None


def _without_identifiers(name: str) -> str:
    """Leave out what follows a length, so that letters of identifiers mean nothing."""
    kept, position = [], 0
    while position < len(name):
        match = re.compile(r"\d+").match(name, position)
        if match is None or name[position - 1 : position] in {"S", "T"}:
            kept.append(name[position])
            position += 1
            continue
        kept.append("_")
        position = match.end() + int(match[0])
    return "".join(kept)


def describe_symbol(name: str) -> str:
    """Return the qualified name of a mangled function, without its arguments.

    ``_ZN3c105ErrorC1ENS_14SourceLocationESs`` is ``c10::Error::Error``. A name that is not of that
    form is returned as it is. A static variable of a function comes with the function's name.
    """
    match = re.match(r"_Z(?:T[VTIS]|GV)?Z?(N?)[VK]*", name)
    if match is None:
        return name
    parts: list[str] = []
    position = match.end()
    while (length := re.compile(r"\d+").match(name, position)) is not None:
        end = length.end() + int(length[0])
        parts.append(name[length.end() : end])
        position = end
        if not match[1]:
            break
    if not parts or not all(parts):
        return name
    tail = name[position : position + 2]
    if tail in {"C1", "C2"}:
        parts.append(parts[-1])
    elif tail in {"D0", "D1", "D2"}:
        parts.append(f"~{parts[-1]}")
    if name.startswith("_ZZ") and (local := _LOCAL.search(name)) is not None:
        parts.append(local[1])
    return "::".join(parts)
