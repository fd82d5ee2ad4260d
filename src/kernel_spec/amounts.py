"""How amounts are written for people: bytes in the unit that fits, and things with their plural."""

from __future__ import annotations


def format_size(size: int) -> str:
    """Write a number of bytes in the (decimal) unit that leaves one to three digits before the point."""
    amount, unit = float(size), "byte"
    for larger in ("kB", "MB", "GB", "TB"):
        # 999.95 would be written as 1000.0.
        if amount < 999.95:
            break
        amount, unit = amount / 1000, larger
    return format_count(size, unit) if unit == "byte" else f"{amount:.1f} {unit}"


def format_count(count: int, thing: str) -> str:
    """Write how many there are of a thing whose plural ends with ``s``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
