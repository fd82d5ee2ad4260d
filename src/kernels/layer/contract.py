"""What a kernel's layer must be like to stand for a model's: signature, attributes, no state.

Only ``forward`` of the kernel's layer is used: it is called with the model's layer as ``self``, by
callers who know the forward that it replaces. What would go wrong then is found here, by name.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from types import MappingProxyType
from typing import Any

Forward = Callable[..., Any]

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
# What of a tensor is no value of it.
_FACTS = frozenset({"device", "dim", "dtype", "is_cuda", "ndim", "requires_grad", "shape", "size"})
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def find_layer_faults(layer: object) -> tuple[str, ...]:
    """Say why a kernel's layer can stand for no layer at all; empty where it can."""
    from torch import nn

    if not inspect.isclass(layer) or not issubclass(layer, nn.Module):
        return (f"expected a subclass of torch.nn.Module, found {layer!r}",)
    if layer.__init__ is not nn.Module.__init__:
        return (
            f"{layer.__name__} has an __init__ of its own, so its forward relies on more than the "
            "layer that it is put into has",
        )
    cls: Any = layer
    code = getattr(inspect.unwrap(cls.forward), "__code__", None)
    if code is not None and "__class__" in code.co_freevars:
        return (
            f"the forward of {layer.__name__} calls super(), which it can in layers of its own "
            "class alone",
        )
    return ()


def find_missing_attributes(layer: type[Any], module: Any) -> tuple[str, ...]:
    """Name the attributes of ``self`` that a kernel's forward needs and a module lacks.

    Those are what it reads in every call; and of what it reads under conditions, as a kernel does
    that knows an epsilon by two names, one at least where its class declares one
    (``variance_epsilon: float``).
    """
    cls: Any = layer
    always, sometimes = read_attributes(cls.forward)
    missing = sorted(name for name in always if not hasattr(module, name))
    declared = sometimes & {name for each in cls.__mro__ for name in _annotated(each)}
    if declared and not any(hasattr(module, name) for name in sometimes):
        missing.append(" or ".join(sorted(sometimes)))
    return tuple(missing)


def find_passed_by(layer: type[Any], module: Any) -> tuple[str, ...]:
    """Say which layers in a module a kernel reads values of where the original calls them and they do more.

    So with quantised and adapted layers, whose weight is not all that they compute with, and with
    layers that something has hooks on. Those that torch itself brings are only their weights.
    """
    from torch import nn

    faults = []
    cls: Any = layer
    for child, name in sorted(read_parts(cls.forward)):
        part = getattr(module, child, None)
        if isinstance(part, nn.Module) and (reason := _why_more(part, name)):
            faults.append(f"it reads {child}.{name} and does not call {child}, {reason}")
    return tuple(faults)


def _why_more(part: Any, name: str) -> str:
    """Say why a layer does more than compute with its own tensor of a name; empty where it does not."""
    kind = type(part)
    if part._forward_hooks or part._forward_pre_hooks or "_hf_hook" in vars(part):
        return "which has hooks"
    held = {*part._parameters, *part._buffers, *getattr(part, "parametrizations", ())}
    if name not in held:
        return f"and {kind.__name__} {'computes' if hasattr(part, name) else 'does not have'} that"
    order = kind.__mro__
    written = next(index for index, each in enumerate(order) if "forward" in vars(each))
    if any(map(_is_of_torch, order[written + 1 :])) and not _is_of_torch(order[written]):
        return f"and {order[written].__name__} has a forward of its own"
    return ""


def _is_of_torch(cls: type[Any]) -> bool:
    return cls.__module__.startswith("torch.nn.modules.") and cls.__name__ != "Module"


@functools.lru_cache(maxsize=1024)
def find_signature_faults(kernel: Forward, original: Forward) -> tuple[str, ...]:
    """Say where calls that the original forward takes would fail, or mean something else.

    The first argument after ``self`` may have another name (see :func:`find_renamed`), and further
    arguments with defaults do no harm.
    """
    signatures = _signatures(kernel, original)
    if signatures is None:
        return ()
    return tuple(_compare(*signatures))


@functools.lru_cache(maxsize=1024)
def find_renamed(kernel: Forward, original: Forward) -> Mapping[str, str]:
    """Return the kernel's name of each argument that the original calls otherwise."""
    signatures = _signatures(kernel, original)
    if signatures is None:
        return _NO_NAMES
    ours, theirs = (_positional(each) for each in signatures)
    if not ours or not theirs or ours[0].name == theirs[0].name:
        return _NO_NAMES
    if theirs[0].kind is Parameter.POSITIONAL_ONLY:
        return _NO_NAMES
    return MappingProxyType({theirs[0].name: ours[0].name})


@functools.lru_cache(maxsize=1024)
def read_attributes(forward: Forward) -> tuple[frozenset[str], frozenset[str]]:
    """Read off the source of a forward what it reads of ``self``: in every call, and in some."""
    function = _parse(forward)
    if function is None:
        return frozenset(), frozenset()
    own = _name_of_self(function)

    def names(nodes: Iterator[ast.AST], context: type[ast.expr_context]) -> frozenset[str]:
        return frozenset(
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, context)
            if _is_name(node.value, own)
            # Inside a class Python gives names that begin with two underscores another name.
            if not node.attr.startswith("__")
        )

    stored = names(ast.walk(function), ast.Store)
    reads = (node for each in _unconditional(function.body) for node in _evaluated(each))
    always = names(reads, ast.Load) - stored
    return always, names(ast.walk(function), ast.Load) - always - stored


@functools.lru_cache(maxsize=1024)
def read_parts(forward: Forward) -> frozenset[tuple[str, str]]:
    """Read off the source of a forward what values it takes of layers in ``self`` that it never calls.

    Returns:
        Pairs of names: ``("gate", "weight")`` for ``self.gate.weight``. To ask a tensor for its
        dtype, device or shape is to take no value.
    """
    function = _parse(forward)
    if function is None:
        return frozenset()
    own = _name_of_self(function)
    calls = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    reads = [node for node in ast.walk(function) if isinstance(node, ast.Attribute)]
    called = {node.attr for node in reads if id(node) in calls and _is_name(node.value, own)}
    asked = {id(node.value) for node in reads if node.attr in _FACTS}
    return frozenset(
        (node.value.attr, node.attr)
        for node in reads
        if isinstance(node.value, ast.Attribute) and _is_name(node.value.value, own)
        if id(node) not in calls | asked and node.value.attr not in called
    )


def _parse(forward: Forward) -> ast.FunctionDef | None:
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(forward)))
        [function] = ast.parse(source).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return None
    return function if isinstance(function, ast.FunctionDef) else None


def _name_of_self(function: ast.FunctionDef) -> str:
    arguments = [*function.args.posonlyargs, *function.args.args]
    return arguments[0].arg if arguments else ""


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _annotated(cls: type[Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.get_annotations(cls))
    except NameError:  # Python 3.14 evaluates them, and they may name what is not imported
        return ()


def _signatures(
    kernel: Forward, original: Forward
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]] | None:
    try:
        return _without_self(kernel), _without_self(original)
    except (TypeError, ValueError):  # functions in C that do not tell
        return None


def _without_self(forward: Forward) -> tuple[Parameter, ...]:
    parameters = tuple(inspect.signature(forward).parameters.values())
    is_self = bool(parameters) and parameters[0].kind in _POSITIONAL
    return parameters[1:] if is_self else parameters


def _positional(parameters: tuple[Parameter, ...]) -> list[Parameter]:
    return [each for each in parameters if each.kind in _POSITIONAL]


def _compare(kernel: tuple[Parameter, ...], original: tuple[Parameter, ...]) -> Iterator[str]:
    ours, theirs = _positional(kernel), _positional(original)
    by_name = {each.name: each for each in kernel if each.kind is not Parameter.POSITIONAL_ONLY}
    kinds = {each.kind for each in kernel}
    for index, their in enumerate(theirs):
        if index < len(ours):
            yield from _compare_at(index, ours[index], their, by_name)
        elif Parameter.VAR_POSITIONAL not in kinds:
            yield f"the kernel takes no argument {their.name!r}"
    for their in original:
        match their.kind:
            case Parameter.KEYWORD_ONLY:
                if (our := by_name.get(their.name)) is not None:
                    yield from _compare_defaults(our, their)
                elif Parameter.VAR_KEYWORD not in kinds:
                    yield f"the kernel takes no argument {their.name!r}"
            case Parameter.VAR_POSITIONAL | Parameter.VAR_KEYWORD if their.kind not in kinds:
                stars = "*" if their.kind is Parameter.VAR_POSITIONAL else "**"
                yield f"the kernel takes no {stars}{their.name}"
    given = {each.name for each in original}
    for our in [*ours[len(theirs) :], *(p for p in kernel if p.kind is Parameter.KEYWORD_ONLY)]:
        if our.default is Parameter.empty and our.name not in given:
            yield f"the kernel needs an argument {our.name!r} that the layer does not have"


def _compare_at(
    index: int, our: Parameter, their: Parameter, by_name: Mapping[str, Parameter]
) -> Iterator[str]:
    if our.name != their.name:
        may_differ = their.kind is Parameter.POSITIONAL_ONLY or index == 0
        if not may_differ or their.name in by_name:
            yield f"argument {index + 1} is {our.name!r} in the kernel, {their.name!r} in the layer"
            return
    elif our.kind is Parameter.POSITIONAL_ONLY and their.kind is not Parameter.POSITIONAL_ONLY:
        yield f"argument {our.name!r} cannot be given by name in the kernel"
    yield from _compare_defaults(our, their)


def _compare_defaults(our: Parameter, their: Parameter) -> Iterator[str]:
    if their.default is Parameter.empty:
        return
    if our.default is Parameter.empty:
        yield f"argument {our.name!r} has no default in the kernel, {their.default!r} in the layer"
    elif not _equal(our.default, their.default):
        yield (
            f"the default of {our.name!r} is {our.default!r} in the kernel, "
            f"{their.default!r} in the layer"
        )


def _equal(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and repr(one) == repr(other))


def _unconditional(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what is evaluated whenever a body is, up to where it may be left early."""
    for statement in body:
        match statement:
            case ast.If(test=test) | ast.While(test=test):
                yield test
            case ast.For(iter=iterable):
                yield iterable
            case ast.Match(subject=subject):
                yield subject
            case ast.With(items=items, body=inner):
                yield from items
                if not any("suppress" in ast.dump(item) for item in items):
                    yield from _unconditional(inner)
            case ast.Try():
                pass
            case _:
                yield statement
        if any(isinstance(node, ast.Return | ast.Raise) for node in ast.walk(statement)):
            return


def _evaluated(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that an expression reads whatever its values are."""
    match node:
        case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return
        case ast.BoolOp(values=[first, *_]):
            children: list[ast.AST] = [first]
        case ast.IfExp(test=test):
            children = [test]
        case ast.Compare(left=left, comparators=[second, *_]):
            children = [left, second]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            children = [node.generators[0].iter]
        case _:
            children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield node
    for child in children:
        yield from _evaluated(child)
