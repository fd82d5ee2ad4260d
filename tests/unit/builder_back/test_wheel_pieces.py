"""Bytes of a wheel at the very edges of the parts that were fetched: pins ask for no byte more than they use."""

from __future__ import annotations

import pytest

from kernel_builder.toolchain.packed import Part, read_bytes

PARTS = (Part(100, b"headers"), Part(107, b"names"))


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (100, 107, b"headers"),
        (107, 112, b"names"),
        (100, None, b"headers"),
        (111, None, b"s"),
    ],
)
def test_a_whole_part_is_read(start: int, end: int | None, found: bytes) -> None:
    assert read_bytes(PARTS, start, end) == found


@pytest.mark.parametrize(("start", "end"), [(99, 107), (100, 108), (107, 113), (112, None)])
def test_a_byte_more_is_in_no_part(start: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="in no part that is here"):
        read_bytes(PARTS, start, end)
