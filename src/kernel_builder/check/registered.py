"""The rules of the ops that a library really registers: each whole, and as its sources say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from difflib import get_close_matches

from kernel_builder.check.finding import Finding
from kernel_builder.registrations import Registration, Registrations

# Keys whose code serves every device.
_FOR_ALL = frozenset(
    {
        "CompositeImplicitAutograd",
        "CompositeExplicitAutograd",
        "CompositeExplicitAutogradNonFunctional",
    }
)

_NOTHING = Registrations()


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredOp:
    """An op as torch's dispatcher has it.

    Attributes:
        schema: the schema, as torch writes it.
        keys: the dispatch keys that have code.
    """

    schema: str
    keys: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Registered:
    """What torch has after a library was loaded, of its namespace alone.

    Attributes:
        ops: the ops by their names without namespace.
        dangling: the names of ops that have code and no schema.
        parsed: for each schema of the sources, what torch writes for it; None: no schema at all.
    """

    ops: Mapping[str, RegisteredOp]
    dangling: frozenset[str] = frozenset()
    parsed: Mapping[str, str | None] = field(default_factory=dict)


def check_sources(
    file: str, op_id: str, sources: Registrations, registered: Registered
) -> Iterator[Finding]:
    """Find where a library and its sources do not agree on what is registered.

    Args:
        file: the library.
        op_id: the namespace of the kernel.
        sources: what the sources register.
        registered: what torch has after the library alone was loaded.
    """
    yield from check_calls(op_id, sources)
    own = [call for call in sources.calls if call.namespace == op_id]
    defined = {call.name: call for call in own if call.defines}
    for name, call in defined.items():
        op = registered.ops.get(name)
        if op is None:
            yield Finding(
                file=call.source,
                rule="op-not-registered",
                symbol=name,
                message=f"the source defines it, and {file} does not register it",
                fix="keep the library's block in a source that build.toml lists, outside templates",
            )
        elif call.schema is not None:
            yield from _compare_schema(call.source, call.schema, op, registered)
    for call in own:
        op = registered.ops.get(call.name)
        if call.key is not None and op is not None and call.key not in op.keys:
            yield Finding(
                file=call.source,
                rule="op-not-registered",
                symbol=call.name,
                message=f"the source gives it code for {call.key}, and {file} registers code for "
                f"{', '.join(sorted(op.keys)) or 'nothing'}",
                fix="keep the library's block in a source that build.toml lists, outside templates",
            )
    yield from _find_unknown(file, own, defined.keys(), registered)


def check_calls(op_id: str, sources: Registrations) -> Iterator[Finding]:
    """Find what is wrong with the calls themselves: unreadable, or of another namespace."""
    for text in sources.unread:
        place, _, said = text.partition(": ")
        yield Finding(
            file=place,
            rule="op-unread",
            symbol=said,
            message="the name of the op is not written out there, so it cannot be compared",
            fix="write the schema or the name as one text in the call",
        )
    for call in sources.calls:
        if call.namespace != op_id:
            yield Finding(
                file=call.source,
                rule="op-namespace",
                symbol=f"{call.namespace}::{call.name}",
                message="two kernels, or two versions of one, could not be loaded together",
                fix="write TORCH_EXTENSION_NAME for the namespace, in the _EXPAND form of the macro",
            )


def _find_unknown(
    file: str, own: list[Registration], defined: Set[str], registered: Registered
) -> Iterator[Finding]:
    """Find what is registered and stands in no source."""
    given = {(call.name, call.key) for call in own}
    for name, op in sorted(registered.ops.items()):
        if name not in defined:
            yield Finding(
                file=file,
                rule="op-not-in-sources",
                symbol=name,
                message="it is registered, and no source defines it in a block of torch's macros",
                fix="define it in TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ...)",
            )
            continue
        for key in sorted(op.keys):
            if (name, key) not in given:
                yield Finding(
                    file=file,
                    rule="op-not-in-sources",
                    symbol=name,
                    message=f"it has code for {key}, and no source gives it in a block of torch's "
                    "macros",
                    fix=f"give it in TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, {key}, ...)",
                )


def _compare_schema(
    source: str, text: str, op: RegisteredOp, registered: Registered
) -> Iterator[Finding]:
    expected = registered.parsed.get(text)
    if expected != op.schema:
        yield Finding(
            file=source,
            rule="op-schema",
            symbol=text.partition("(")[0],
            message=f"the source says {text}, and torch has {op.schema}",
            fix="define each op once, and build the variant again",
        )


def check_complete(
    file: str,
    registered: Registered,
    *,
    backend: str,
    carried: Iterable[str] = (),
    sources: Registrations = _NOTHING,
) -> Iterator[Finding]:
    """Find ops that cannot be called, or not on the devices of their variant.

    Args:
        file: the library.
        registered: what torch has after the variant was imported.
        backend: the dispatch key of the variant's own backend.
        carried: the keys that the variant has compiled code for.
        sources: where the calls stand.
    """
    misspelt = _find_misspelt(registered, sources)
    for call, meant in misspelt.items():
        yield Finding(
            file=call.source,
            rule="op-name",
            symbol=call.name,
            message=f"it gets code for {call.key}, and no op has this name; {meant} is defined, "
            f"and has no code for {call.key}",
            fix=f'did you mean ops.impl("{meant}", ...)?',
        )
    # One misspelt name is one fault: neither the name itself, nor the op that lacks its code, is another.
    for name in sorted(registered.dangling - {call.name for call in misspelt}):
        yield Finding(
            file=file,
            rule="op-without-schema",
            symbol=name,
            message="it has code and no schema, so torch has no such op",
            fix=f'define it: ops.def("{name}(...) -> ...")',
        )
    for name, op in sorted(registered.ops.items()):
        if name in misspelt.values():
            continue
        if not op.keys:
            yield Finding(
                file=file,
                rule="op-without-code",
                symbol=name,
                message="it is defined, and no backend has code for it",
                fix=f"give it code: {_impl(backend, name)}",
            )
        elif not op.keys & _FOR_ALL:
            yield from _check_devices(file, name, op, backend)
    for key in carried:
        if key not in {call.key for call in misspelt}:
            yield from _check_carried(file, registered, key)


def _check_carried(file: str, registered: Registered, key: str) -> Iterator[Finding]:
    """Find that a variant carries code for a device, and no op reaches it."""
    served = {key, *_FOR_ALL}
    if registered.ops and not any(served & op.keys for op in registered.ops.values()):
        yield Finding(
            file=file,
            rule="op-without-code",
            symbol=key,
            message=f"the variant carries code for {key}, and none of its ops has any",
            fix=f"register it: {_impl(key, 'name')}",
        )


def _find_misspelt(registered: Registered, sources: Registrations) -> dict[Registration, str]:
    """Return the calls that give code to a name that no op has, each with the op that was meant.

    That is the op of the most similar name that lacks this code.
    """
    found: dict[Registration, str] = {}
    for call in dict.fromkeys(sources.calls):
        if call.name not in registered.dangling or call.key is None:
            continue
        lacking = [name for name, op in registered.ops.items() if call.key not in op.keys]
        close = get_close_matches(call.name, lacking, n=1, cutoff=0.7)
        if close:
            found[call] = close[0]
    return found


def _check_devices(file: str, name: str, op: RegisteredOp, backend: str) -> Iterator[Finding]:
    """Check an op that has code for some devices alone."""
    takes_tensors = "Tensor" in op.schema.rpartition("->")[0]
    have = ", ".join(sorted(op.keys))
    if takes_tensors and backend not in op.keys:
        yield Finding(
            file=file,
            rule="op-without-code",
            symbol=name,
            message=f"this variant is for {backend}, and the op has code for {have} alone",
            fix=f"give it code: {_impl(backend, name)}; or, where the code is right for every "
            "device, register it for CompositeExplicitAutograd",
        )
    if not takes_tensors and "BackendSelect" not in op.keys:
        yield Finding(
            file=file,
            rule="op-without-code",
            symbol=name,
            message=f"it takes no tensor that says a device, and has code for {have} alone: torch "
            "cannot call it",
            fix=f"register it for every device: {_impl('CompositeExplicitAutograd', name)}",
        )


def _impl(key: str, name: str) -> str:
    return (
        f'TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, {key}, ops) {{ ops.impl("{name}", ...) }}'
    )
