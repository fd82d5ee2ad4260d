"""What a forked child finds: no kernel half imported by a thread that it does not have, and no lock that stays held.

Python's lock of a module that another thread of the parent was importing is never given back in the
child, which then waits for it without end. So a fork waits until kernels are imported, and what begins
to import one meanwhile waits for the fork. Nobody waits longer than ``PATIENCE``: an import may itself
need what the forking thread holds. Then the child knows which kernels were cut off. Parts that a kernel
imports later, as it is called, begin within that lock, too late to wait; the child begins them anew.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from weakref import WeakSet

# Seconds.
PATIENCE = 20.0


class Renewed:
    """A lock that a forked child has anew, since a thread of the parent may have held the old one.

    Attributes:
        lock: the lock of this process; to be looked up each time.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[bool]]) -> None:
        self._make = make
        self.renew()
        _renewed.add(self)

    def renew(self) -> None:
        """Take another lock."""
        self.lock = self._make()


_renewed: WeakSet[Renewed] = WeakSet()


def _renew_locks() -> None:
    for each in _renewed:
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class _Gate:
    """Which threads import kernels and which are about to fork; a child begins with another one."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        # The names of what each thread imports, the outermost first.
        self.importing: dict[int, list[str]] = {}
        self.forking: set[int] = set()
        self.cut_off: frozenset[str] = frozenset()

    def imported_by_others(self, but: Collection[int] = ()) -> list[str]:
        """Return what threads import, but for this one and some others."""
        not_these = {threading.get_ident(), *but}
        return [
            name
            for thread, names in self.importing.items()
            if thread not in not_these
            for name in names
        ]


_gate = _Gate()


@contextmanager
def importing(name: str, *, waits: bool = True) -> Iterator[None]:
    """Let forks of other threads wait for an import, and the import for a fork that is under way.

    Args:
        name: the module.
        waits: False inside Python's lock of the module: there it is too late to wait.
    """
    gate, here = _gate, threading.get_ident()
    with gate.changed:
        if waits and here not in gate.importing:
            gate.changed.wait_for(lambda: not gate.forking - {here}, PATIENCE)
        gate.importing.setdefault(here, []).append(name)
    try:
        yield
    finally:
        # In a child that was forked within the import it is the child's.
        gate = _gate
        with gate.changed:
            gate.importing[here].pop()
            if not gate.importing[here]:
                del gate.importing[here]
                gate.changed.notify_all()


def was_cut_off(name: str) -> bool:
    """Say whether this process was forked while another thread imported a module."""
    return name in _gate.cut_off


def guard_imports(prefix: str) -> None:
    """Let forks wait from now on, and children import anew what was cut off all the same.

    Args:
        prefix: how the names of modules begin that are imported under :func:`importing`.
    """
    if not hasattr(os, "register_at_fork"):
        return
    # What is registered first runs last. This one's hook takes a lock that imports may need.
    import concurrent.futures.thread  # noqa: F401

    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_in_parent,
        after_in_child=lambda: _after_in_child(prefix),
    )


def _before_fork() -> None:
    gate = _gate
    with gate.changed:
        gate.forking.add(threading.get_ident())
        gate.changed.notify_all()
        # Two imports that fork would wait for each other.
        gate.changed.wait_for(lambda: not gate.imported_by_others(but=gate.forking), PATIENCE)


def _after_in_parent() -> None:
    with _gate.changed:
        _gate.forking.discard(threading.get_ident())
        _gate.changed.notify_all()


def _after_in_child(prefix: str) -> None:
    global _gate  # noqa: PLW0603 - the one gate of the process
    before, here = _gate, threading.get_ident()
    _gate = _Gate()
    _gate.cut_off = before.cut_off.union(before.imported_by_others())
    if here in before.importing:
        _gate.importing[here] = before.importing[here]
    # Python keeps these locks to itself; where they are called otherwise, such an import waits as ever.
    locks = getattr(importlib._bootstrap, "_module_locks", {})
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if name.startswith(prefix) and owner not in (None, here):
            del locks[name]
            sys.modules.pop(name, None)
