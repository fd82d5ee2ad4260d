"""The rule that Python registers ops under the kernel's own namespace, found by reading alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.check.finding import Finding
from kernel_builder.check.subject import Subject

_PREFIX = "add_op_namespace_prefix"
# Functions of torch.library, and where each takes the name of an op or a namespace.
_TAKES_OP = frozenset(
    {
        "custom_op",
        "define",
        "impl",
        "impl_abstract",
        "register_autocast",
        "register_autograd",
        "register_fake",
        "register_kernel",
        "register_torch_dispatch",
        "register_vmap",
        "triton_op",
    }
)
_MAKES_OP = frozenset({"custom_op", "triton_op"})
_TAKES_NAMESPACE = "Library"
_KEYWORDS = frozenset({"name", "qualname", "op", "ns"})


def check_op_registration(subject: Subject) -> Iterator[Finding]:
    """Find ops that Python registers outside the namespace of the kernel.

    Two kernels, or two versions of one, that register the same name cannot be loaded together.
    """
    for path in sorted(subject.directory.rglob("*.py")):
        if not path.is_file():
            continue
        file = path.relative_to(subject.directory).as_posix()
        yield from check_source(path.read_bytes(), file=file, op_id=subject.metadata.id)


def check_source(source: bytes, *, file: str, op_id: str) -> Iterator[Finding]:
    """Check one Python file.

    Args:
        source: its bytes.
        file: its path in the variant.
        op_id: the namespace of the kernel.
    """
    try:
        tree = ast.parse(source, filename=Path(file).name)
    except (SyntaxError, ValueError) as err:
        yield Finding(
            file=file,
            rule="python-syntax",
            message=f"it cannot be parsed: {err}",
            fix="correct it",
        )
        return
    aliases = _read_aliases(tree)
    texts = _read_constants(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = _name_of(node.func, aliases)
        if function not in _TAKES_OP and function != _TAKES_NAMESPACE:
            continue
        for argument in _name_arguments(node):
            text = _literal(argument, texts)
            if text is not None and _is_foreign(function, text, op_id):
                yield _finding(file, node.lineno, function, text, op_id)


def _name_arguments(node: ast.Call) -> Iterator[ast.expr]:
    yield from node.args[:1]
    yield from (word.value for word in node.keywords if word.arg in _KEYWORDS)


def _is_foreign(function: str, text: str, op_id: str) -> bool:
    if function == _TAKES_NAMESPACE:
        return text != op_id
    if "::" in text:
        return not text.startswith(f"{op_id}::")
    # Without a namespace, `define` and `impl` are methods of a Library, and the first argument of
    # `register_kernel` may be a device.
    return function in _MAKES_OP


def _finding(file: str, line: int, function: str, text: str, op_id: str) -> Finding:
    bare = text.rpartition("::")[2] or "name"
    fix = (
        f"write {function}({_PREFIX}({bare!r}), ...), from ._ops"
        if function != _TAKES_NAMESPACE
        else "write Library(ops.name, ...), with ops from ._ops"
    )
    return Finding(
        file=f"{file}:{line}",
        rule="op-registration",
        symbol=text,
        message=f"{function} registers outside the namespace {op_id} of this kernel",
        fix=fix,
    )


def _name_of(function: ast.expr, aliases: dict[str, str]) -> str:
    match function:
        case ast.Attribute(attr=name):
            return name
        case ast.Name(id=name):
            return aliases.get(name, name)
        case _:
            return ""


def _read_aliases(tree: ast.Module) -> dict[str, str]:
    """Read what names imported from torch.library are called here."""
    return {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "torch.library"
        for alias in node.names
        if alias.asname is not None
    }


def _read_constants(tree: ast.Module) -> dict[str, str]:
    """Read variables that hold one text, wherever they are assigned."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                text = _literal(value, {})
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                text = _literal(value, {})
            case _:
                continue
        if text is not None:
            found[name] = text
    return found


def _literal(node: ast.expr, texts: dict[str, str]) -> str | None:
    """Return the text that an expression is, or begins with; None where only running it tells."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return texts.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _literal(left, texts), _literal(right, texts)
            return None if first is None else first + (second or "")
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if "::" in text:
            return text
        case _:
            return None
