"""How long the next thing that a hub sends is waited for, however it dribbles."""

from __future__ import annotations

import math
import time


class TooSlowError(Exception):
    """The hub sent something now and then, and not all of it in time; no client takes it for its own."""


class Wait:
    """The time-out of each read, and the end of all reads of one wait.

    The clients bound each read alone, and whoever sends a byte now and then keeps within that for
    ever: in a header, in what belongs to a chunk, by ``100 Continue``. They hand a read's time-out
    down to :meth:`socket.socket.settimeout` as it is, which asks an object for whole seconds. So
    this one is asked before each read, on a connection that is used again and behind a proxy too.
    """

    def __init__(self, *, read: float, whole: float) -> None:
        """Begin to wait.

        Args:
            read: seconds for one read.
            whole: seconds for all reads from one :meth:`begin` to the next.
        """
        self.read = read
        self.whole = whole
        self.begin()

    def begin(self) -> None:
        """Begin to wait for the next thing."""
        self._until = time.monotonic() + self.whole

    @property
    def left(self) -> float:
        """The seconds that are left, 0 or more."""
        return max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._until

    def __index__(self) -> int:
        """Return the whole seconds that the next read may last.

        Raises:
            TooSlowError: none are left.
        """
        left = self._until - time.monotonic()
        if left <= 0:
            raise TooSlowError
        return math.ceil(min(self.read, left))
