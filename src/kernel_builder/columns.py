"""Rows of a table as text: columns of equal width, two blanks apart. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def format_columns(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Write rows of equal length; no line ends in blanks.

    Args:
        rows: the rows, a head among them where there is one.
        right: the columns that are set to the right, by number.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
