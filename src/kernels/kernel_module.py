"""The module of a kernel: Python's own, but that a missing name is told with the kernel and what it has."""

from __future__ import annotations

from types import ModuleType
from typing import Any

SHOWN_NAMES = 20

# How messages call a kernel, by the name of its module.
_titles: dict[str, str] = {}


class KernelModule(ModuleType):
    """A kernel's module.

    Callers look functions up by name in what a branch brings today; "module 'kernels.copies._toy_…' has no
    attribute" tells them neither which kernel that was nor at which commit.
    """

    def __getattr__(self, name: str) -> Any:
        """Say what is missing; only names that are not there come here.

        Raises:
            AttributeError: the kernel has no such name.
        """
        if (own := vars(self).get("__getattr__")) is not None:
            # The kernel answers for such names, and its words were lost on the way here.
            return own(name)
        title = _titles.get(self.__name__, self.__name__)
        message = f"The kernel {title} has no {name!r}."
        if not name.startswith("__"):
            names = sorted(each for each in vars(self) if not each.startswith("_"))
            more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
            message += f" It has: {', '.join(names[:SHOWN_NAMES]) or 'no public names'}{more}."
        raise AttributeError(message, name=name, obj=self)


def name_kernel(module: str, title: str) -> None:
    """Say how messages call the kernel of a module."""
    _titles[module] = title
