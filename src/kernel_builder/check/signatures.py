"""The rule that a C++ function takes and returns what the schema of its op says.

torch's full interface compares the two when a library is loaded. Its stable interface knows a boxed
function alone: a wrong number of arguments fails at the first call, and a wrong kind is read as other
bits. The name of the boxed function holds the type of the C++ function, and so it is read there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernel_builder.check.finding import Finding
from kernel_builder.check.registered import RegisteredOp
from kernel_builder.registrations import Registrations
from kernel_spec.amounts import format_count

# torch::stable::detail::boxer<...>::boxed_fn, which TORCH_BOX names; and not a part that GCC split off.
BOXED = re.compile(r"_ZN5torch6stable6detail5boxerI.*E8boxed_fnE\w*")

_OPEN, _CLOSE = "<([{", ">)]}"
# By the kind of a schema, as torch's parser names it: the C++ types that torch's stable interface
# converts to and from it (torch/csrc/stable/stableivalue_conversions.h).
_TYPES: dict[str, frozenset[str]] = {
    "Tensor": frozenset({"torch::stable::Tensor", "AtenTensorOpaque*"}),
    "int": frozenset({"long", "long long", "unsigned long", "unsigned long long"}),
    "float": frozenset({"double"}),
    "bool": frozenset({"bool"}),
    "str": frozenset({"std::string", "std::string_view"}),
    "ScalarType": frozenset({"c10::ScalarType"}),
    "Layout": frozenset({"c10::Layout"}),
    "MemoryFormat": frozenset({"c10::MemoryFormat"}),
    "Device": frozenset({"torch::stable::Device"}),
    "Generator": frozenset({"torch::stable::Generator"}),
}
_OTHER = frozenset(
    {"int", "unsigned int", "short", "unsigned short", "char", "signed char", "unsigned char"}
    | {"float", "char*"}
)
_KNOWN = _OTHER.union(*_TYPES.values())
_ADVICE = {
    "int": "an int of a schema is an int64_t",
    "float": "a float of a schema is a double",
    "str": "a str of a schema is a std::string or a std::string_view",
}
_SPELT = {
    "long": "int64_t",
    "unsigned long": "uint64_t",
    "torch::stable::Tensor": "Tensor",
    "c10::ScalarType": "ScalarType",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxed:
    """A function that a library gave an op, as the library's own symbols name it.

    Attributes:
        key: the dispatch key that it was given for.
        name: the op, without namespace.
        symbol: the mangled name of the boxed function; None: no symbol begins there.
    """

    key: str
    name: str
    symbol: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """What a C++ function takes and returns, as types without const, references and allocators."""

    arguments: tuple[str, ...]
    returns: tuple[str, ...]

    def __str__(self) -> str:
        return f"({_spell(self.arguments)}) -> ({_spell(self.returns)})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """What an op takes and returns, in the words of torch's parser (``Optional[int]``)."""

    arguments: tuple[str, ...]
    returns: tuple[str, ...]


def check_signatures(
    file: str,
    boxed: Iterable[tuple[Boxed, str]],
    ops: Mapping[str, RegisteredOp],
    schemas: Mapping[str, Schema],
    sources: Registrations,
) -> Iterator[Finding]:
    """Find ops whose C++ function takes or returns something else than their schema says.

    Args:
        file: the library.
        boxed: each function that it gave an op, with the readable form of its symbol.
        ops: the ops that torch has.
        schemas: what each of these takes and returns.
        sources: where the calls stand.
    """
    for each, readable in boxed:
        signature = parse_signature(readable)
        schema = schemas.get(each.name)
        if signature is None or schema is None:
            continue
        said = [*_compare(schema, signature)]
        if said:
            calls = [call for call in sources.calls if call.name == each.name]
            text = next((call.schema for call in calls if call.schema), ops[each.name].schema)
            place = next((call.source for call in calls if call.key == each.key), file)
            yield Finding(
                file=place,
                rule="op-signature",
                symbol=each.name,
                message=f"the schema says {text}, and the C++ function for "
                f"{each.key} is {signature}: {'; '.join(said)}",
                fix="change one of the two; torch's stable interface would find out at a call, or never",
            )


def list_unread(boxed: Iterable[tuple[Boxed, str]], schemas: Mapping[str, Schema]) -> list[str]:
    """Return the ops of which a function cannot be compared, or has types that nothing is known of."""
    names = set()
    for each, readable in boxed:
        signature, schema = parse_signature(readable), schemas.get(each.name)
        if schema is not None and (signature is None or _is_vague(schema, signature)):
            names.add(each.name)
    return sorted(names)


def parse_signature(readable: str) -> Signature | None:
    """Read the type of the C++ function in the readable name of its boxed one; None: it has none."""
    start = readable.find("boxer<")
    if start < 0:
        return None
    function = _split(readable[start + len("boxer<") :])[0].strip()
    function = re.sub(r"(?<=\w)\[abi:\w+\]", "", function)
    if not function.endswith(")"):
        return None
    begin = _find_open(function)
    arguments = _split(function[begin + 1 : -1])
    returned = _simplify(function[:begin])
    returns = (
        _split(returned[len("std::tuple<") : -1]) if returned.startswith("std::tuple<") else ()
    )
    return Signature(
        arguments=tuple(_simplify(text) for text in arguments),
        returns=tuple(_simplify(text) for text in returns or [returned] if text != "void"),
    )


def _compare(schema: Schema, signature: Signature) -> Iterator[str]:
    for what, expected, found in (
        ("argument", schema.arguments, signature.arguments),
        ("result", schema.returns, signature.returns),
    ):
        if len(expected) != len(found):
            yield f"{format_count(len(expected), what)} in the schema, {len(found)} in C++"
            continue
        for place, (kind, cxx) in enumerate(zip(expected, found, strict=True), 1):
            if _fits(kind, cxx) is False:
                base = kind.removeprefix("Optional[").removeprefix("List[").rstrip("]")
                advice = f" ({_ADVICE[base]})" if base in _ADVICE else ""
                yield f"{what} {place} is {_spell_kind(kind)} in the schema, {_spell([cxx])} in C++{advice}"


def _is_vague(schema: Schema, signature: Signature) -> bool:
    pairs = (
        *zip(schema.arguments, signature.arguments, strict=False),
        *zip(schema.returns, signature.returns, strict=False),
    )
    return any(_fits(kind, cxx) is None for kind, cxx in pairs)


def _fits(kind: str, cxx: str) -> bool | None:
    """Say whether a C++ type is what a kind of a schema is; None: nothing is known of one of them."""
    for wrapper, holders in (
        ("Optional", ("std::optional",)),
        ("List", ("std::vector", "c10::HeaderOnlyArrayRef")),
    ):
        if kind.startswith(f"{wrapper}["):
            holder, _, rest = cxx.partition("<")
            if holder in holders:
                return _fits(kind[len(wrapper) + 1 : -1], rest[:-1])
            return False if cxx in _KNOWN or rest else None
    if kind not in _TYPES:
        return None
    if cxx in _TYPES[kind]:
        return True
    wrapped = cxx.startswith(("std::optional<", "std::vector<", "c10::HeaderOnlyArrayRef<"))
    return False if wrapped or cxx in _KNOWN else None


def _simplify(text: str) -> str:
    """Write a type without const, references, allocators and character traits."""
    text = re.sub(r"\bstd::__cxx11::", "std::", text)
    text = re.sub(
        r"std::basic_string(_view)?<char, [^<>]*<char>[^<>]*(<char> )?>", r"std::string\1", text
    )
    text = re.sub(r"\bconst\b", "", text).replace("&", "")
    while True:
        shorter = re.sub(r", std::allocator<(?:[^<>]|<[^<>]*>)*> ?>", ">", text)
        if shorter == text:
            break
        text = shorter
    return re.sub(r" +(?=[>*])", "", " ".join(text.split()))


def _spell(types: Iterable[str]) -> str:
    """Write types as authors do."""
    text = ", ".join(types)
    for name, spelt in _SPELT.items():
        text = re.sub(rf"(?<![\w:]){re.escape(name)}(?![\w:])(?! long)", spelt, text)
    return text


def _spell_kind(kind: str) -> str:
    """Write a kind as schemas do: ``int?`` and ``int[]``."""
    for wrapper, mark in (("Optional[", "?"), ("List[", "[]")):
        if kind.startswith(wrapper):
            return _spell_kind(kind[len(wrapper) : -1]) + mark
    return kind


def _split(text: str) -> list[str]:
    """Split a list at the commas that are in no bracket, up to the bracket that ends it."""
    parts, depth, begin = [], 0, 0
    for place, char in enumerate(text):
        if char in _CLOSE and depth == 0:
            text = text[:place]
            break
        depth += (char in _OPEN) - (char in _CLOSE)
        if char == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    last = text[begin:].strip()
    return [*parts, last] if last or parts else []


def _find_open(text: str) -> int:
    """Return where the bracket opens that ends a text."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] in _CLOSE) - (text[place] in _OPEN)
        if depth == 0:
            return place
    return 0
