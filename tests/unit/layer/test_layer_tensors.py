"""Tensors in what a layer is called with, and copies of them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from kernels.layer.tensors import can_be_copied, copy_values, iterate_tensors


class Pair(NamedTuple):
    one: torch.Tensor
    other: int


X = torch.arange(24.0).reshape(4, 6)
STRIDED = [
    X,
    X.t(),
    X[1:, ::2],
    X[:, :1].expand(4, 5),
    X[:0],
    torch.tensor(3),
    X.half().reshape(2, 2, 6).permute(2, 0, 1),
]


def test_tensors_are_found_at_any_depth_in_order():
    one, two, three, four = torch.arange(4).unbind()
    values = ((one, {"a": [two, None], "b": 3}), {"c": Pair(three, 1), "d": {"e": four}})
    assert [each.item() for each in iterate_tensors(values)] == [0, 1, 2, 3]


@pytest.mark.parametrize("tensor", STRIDED, ids=lambda each: f"{tuple(each.shape)}")
def test_a_copy_has_values_and_strides_and_its_own_memory(tensor):
    copy = copy_values(tensor)
    torch.testing.assert_close(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert not copy.numel() or copy.data_ptr() != tensor.data_ptr()
    before = tensor.clone()
    if all(tensor.stride()):
        copy.add_(1)
    torch.testing.assert_close(tensor, before)


def test_a_copy_is_recorded_as_its_tensor_is():
    leaf = torch.ones(3, 4, requires_grad=True)
    inside = (leaf * 2)[:, ::2]
    copy = copy_values({"leaf": leaf, "inside": inside})
    assert copy["leaf"].is_leaf
    assert copy["leaf"].requires_grad
    assert not copy["inside"].is_leaf
    assert copy["inside"].stride() == inside.stride()
    copy["inside"].add_(1)  # as its tensor could be
    (gradient,) = torch.autograd.grad(copy["inside"].sum(), copy["inside"])
    torch.testing.assert_close(gradient, torch.ones(3, 2))
    assert leaf.grad is None


def test_lists_and_dictionaries_are_copied_with_what_is_in_them():
    values = ([X, None], {"pair": Pair(X, 7)}, torch.Size([2]), "text")
    assert can_be_copied(values)
    copy = copy_values(values)
    copy[0].append(1)
    copy[1]["new"] = 2
    copy[1]["pair"].one.zero_()
    assert (len(values[0]), list(values[1]), copy[1]["pair"].other) == (2, ["pair"], 7)
    assert X.sum() > 0
    assert copy[2:] == values[2:]


class Cache:
    """Something that a layer may write to."""


class Special(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Cache(),
        [Cache()],
        {"cache": Cache()},
        X.to_sparse(),
        X.as_subclass(Special),
        torch.Generator(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_could_be_changed_all_the_same_is_told(value):
    assert not can_be_copied((1, value))
