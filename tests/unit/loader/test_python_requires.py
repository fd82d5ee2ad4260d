"""Packages that a kernel declares with their versions: found, too old, missing, or no requirement."""

from __future__ import annotations

import pytest

from kernel_spec.backend import BackendKind
from kernel_spec.metadata import Metadata, format_metadata, parse_metadata
from kernels.python_depends import find_missing


def metadata(*requires: object) -> Metadata:
    made = Metadata(
        name="kit",
        id="_kit",
        version=1,
        license="MIT",
        backend=BackendKind.CPU,
        extension={"python-requires": list(requires)},
    )
    return parse_metadata(format_metadata(made))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("packaging>=20", False),
        ("packaging>=9999", True),
        ("no-such-package>=1", True),
        ('no-such-package>=1; python_version < "3"', False),
    ],
)
def test_a_package_with_its_versions(text: str, missing: bool) -> None:
    assert find_missing(metadata(text)) == [text] * missing


def test_what_is_no_requirement_of_an_index_is_never_handed_to_pip() -> None:
    odd = ("x @ https://host/x.whl", "--index-url=https://host", "", 3, None)
    assert metadata(*odd).python_requires == ()
    assert find_missing(metadata(*odd)) == []


def test_an_extension_of_another_shape_is_passed_over() -> None:
    made = Metadata(
        name="kit",
        id="_kit",
        version=1,
        license="MIT",
        backend=BackendKind.CPU,
        extension={"python-requires": "numpy"},
    )
    assert made.python_requires == ()
