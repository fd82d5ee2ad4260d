"""What stands in for the kernels that a variant needs, while it is imported without them."""

from __future__ import annotations

import copy

import pytest

from kernel_builder.variant_import import make_stand_ins


def test_whatever_a_kernel_does_with_another_while_it_is_imported_works() -> None:
    found = make_stand_ins(["acme/base", "bob/other"])
    assert list(found) == ["acme/base", "bob/other"]
    base = found["acme/base"]

    class Layer(base.layers.Linear):  # type: ignore[misc, name-defined]
        width = base.limits.MOST

    @base.decorate
    def decorated() -> None: ...

    assert Layer(1).forward is not None
    assert decorated is not None
    assert base.ops.add_one(1, out=2).shape is not None


def test_what_python_asks_for_itself_is_not_made_up() -> None:
    (module,) = make_stand_ins(["acme/base"]).values()
    assert not hasattr(module, "__all__")
    with pytest.raises(AttributeError):
        module.layer.__wrapped__  # noqa: B018
    assert copy.copy(module.layer()) is not None
