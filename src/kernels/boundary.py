"""Where errors leave this package: they show the line that called, not the thirty of ours below it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from kernel_spec.errors import KernelError

P = ParamSpec("P")
T = TypeVar("T")


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Let the errors of a public function begin where it was called; all lines with ``python -X dev``.

    Their messages say all that there is to know. What a kernel's own code raises, and an error of
    importing it, keeps every line.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except KernelError as err:
            if sys.flags.dev_mode or isinstance(err, ImportError):
                raise
            raise err.with_traceback(None)  # noqa: B904 - it is the same error, with its cause

    return call
