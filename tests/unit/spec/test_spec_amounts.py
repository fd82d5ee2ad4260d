"""Amounts as people read them."""

from __future__ import annotations

import pytest

from kernel_spec.amounts import format_count, format_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (46_749, "46.7 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (10_000_000_000, "10.0 GB"),
        (5_000_000_000_000_000, "5000.0 TB"),
    ],
)
def test_a_size_has_the_unit_that_fits(size, text):
    assert format_size(size) == text


def test_one_thing_is_no_plural():
    assert [format_count(n, "variant") for n in (0, 1, 2, 1234)] == [
        "0 variants",
        "1 variant",
        "2 variants",
        "1,234 variants",
    ]
