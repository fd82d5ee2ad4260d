"""What the module of a kernel says of a name that it does not have: which kernel that is, and what it has."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

SHOWN_NAMES = 20

# How messages call a kernel, by the name of its module.
_titles: dict[str, str] = {}


def explain_missing(module: ModuleType) -> None:
    """Let a module answer for the names that it does not have, unless it does so by itself.

    Callers look functions up by name in what a branch brings today; "module 'kernels.copies._toy_…' has no
    attribute" tells them neither which kernel that was nor at which commit. A module of another class could say
    it too, and each look-up of a name that is there would take fifteen times as long.
    """
    names: dict[str, Any] = vars(module)

    def refuse(name: str) -> NoReturn:
        """Say what is missing; only names that are not there come here.

        Raises:
            AttributeError: the kernel has no such name.
        """
        message = f"The kernel {_titles.get(module.__name__, module.__name__)} has no {name!r}."
        if not name.startswith("__"):
            public = sorted(each for each in names if not each.startswith("_"))
            more = f" and {len(public) - SHOWN_NAMES} more" if len(public) > SHOWN_NAMES else ""
            message += f" It has: {', '.join(public[:SHOWN_NAMES]) or 'no public names'}{more}."
        raise AttributeError(message, name=name, obj=module)

    names.setdefault("__getattr__", refuse)


def name_kernel(module: str, title: str) -> None:
    """Say how messages call the kernel of a module."""
    _titles[module] = title
