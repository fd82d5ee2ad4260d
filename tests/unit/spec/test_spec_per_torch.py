import pytest

from kernel_spec.per_torch import format_per_torch, parse_per_torch
from kernel_spec.version import MajorMinor


@pytest.mark.parametrize(
    ("release", "name"),
    [
        (MajorMinor(2, 9), "_norm_cuda_0123456789ab.torch29.so"),
        (MajorMinor(2, 11), "_norm_cuda_0123456789ab.torch211.so"),
    ],
)
def test_a_name_says_its_release(release: MajorMinor, name: str) -> None:
    assert format_per_torch("_norm_cuda_0123456789ab", release) == name
    assert parse_per_torch(name) == release


@pytest.mark.parametrize(
    "name",
    [
        "_norm_cuda_0123456789ab.abi3.so",
        "_norm.torch.so",
        "_norm.torch2.so",
        "x.torch211.so.1",
        ".torch211.so",
        "x.torch2011.so",  # no other name than torch211 is for 2.11
        "x.torch0211.so",
    ],
)
def test_other_libraries_are_for_no_release(name: str) -> None:
    assert parse_per_torch(name) is None
