"""Lets a kernel import itself by its public name, in whichever copy it finds itself.

A kernel is imported under a name of its copy, so ``from flash_attn.config import X`` would find no
module, or somebody else's. Such statements are compiled as if they named the copy. They are
rewritten, not caught at run time, because ``torch.compile`` resolves the imports that it traces on
its own. Where a module of that name is installed, it keeps its bare name: the copy is then meant only by
what it alone can be, a module that it has below that name. Source: Python language reference, "The import statement".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import CodeType
from typing import NamedTuple


class SelfName(NamedTuple):
    """The two names of a kernel's package, and what is in it.

    Attributes:
        public: the name that its author writes.
        copy: the name that it has in this process.
        has: whether it has a module, by the dotted path below it; what it has not may be found in
            an installed package of the public name.
    """

    public: str
    copy: str
    has: Callable[[str], bool]


def may_import_itself(source: bytes, name: SelfName) -> bool:
    """Say quickly whether a module may import its own kernel by its public name."""
    public = re.escape(name.public).encode()
    return re.search(rb"\b(?:import|from)\b[^\n]*\b%b\b" % public, source) is not None


def compile_with(source: bytes, path: str, name: SelfName) -> CodeType:
    """Compile a module with its imports of itself rewritten; lines and columns stay.

    Raises:
        SyntaxError: the source is no Python.
    """
    tree = _Rewriter(name).visit(ast.parse(source, path))
    code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return code


def is_installed(module: str) -> bool:
    """Say whether Python has a module of that name; a folder without ``__init__.py`` is none."""
    if module in sys.modules:
        return True
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


class _Rewriter(ast.NodeTransformer):
    def __init__(self, name: SelfName) -> None:
        self._name = name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """``from toy.cfg import X`` names the copy."""
        if node.level or not node.module:
            return node
        own = self._own(node.module)
        if own is None and node.module == self._name.public:
            own = self._name.copy if all(self._name.has(a.name) for a in node.names) else None
        return node if own is None else ast.copy_location(ast.ImportFrom(own, node.names, 0), node)

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        """``import toy.cfg`` imports the copy's module and binds the copy as ``toy``."""
        statements: list[ast.stmt] = []
        for alias in node.names:
            own = self._own(alias.name)
            if own is None or alias.asname:
                wanted = [ast.alias(own or alias.name, alias.asname)]
            elif own == self._name.copy:
                wanted = [ast.alias(own, self._name.public)]
            else:
                # The first only imports; the second binds the name that the author reads.
                wanted = [ast.alias(module, self._name.public) for module in (own, self._name.copy)]
            statements += [ast.copy_location(ast.Import([one]), node) for one in wanted]
        return statements

    def _own(self, module: str) -> str | None:
        """Return the name in this copy of a module of the kernel; None for any other module."""
        head, _, below = module.partition(".")
        if head != self._name.public or (below and not self._name.has(below)):
            return None
        if not below and is_installed(self._name.public):
            return None
        return f"{self._name.copy}.{below}" if below else self._name.copy
