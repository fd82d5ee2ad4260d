"""One call of a case: its inputs, made the same each time, and its result with a poisoned output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.fresh_memory import POISON_BYTE

# How many steps each size has where another one is varied, and what it is varied to.
_USUAL = 5
_UNUSUAL = (0, 1, 7, 33)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A call that the kernel refused by a ValueError, which is a fair answer to an unusual input."""

    message: str


def usual_sizes(case: Case) -> dict[str, int]:
    """Return sizes that a case must take."""
    return {name: _USUAL * step for name, step in case.sizes.items()}


def unusual_sizes(case: Case) -> Iterator[dict[str, int]]:
    """Yield sizes with one of them empty, one step, or odd; then all of them one step."""
    usual = usual_sizes(case)
    for name, step in case.sizes.items():
        for count in _UNUSUAL:
            yield {**usual, name: count * step}
    yield dict(case.sizes)


def make_inputs(case: Case, dtype: Any, sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """Make the arguments of a call; the same arguments give the same values."""
    torch.manual_seed(0)
    return tuple(case.inputs(dtype, **sizes))


def call(case: Case, inputs: Sequence[Any], *, function: Callable[..., Any] | None = None) -> Any:
    """Call the function of a case; an output of the caller's is poisoned before.

    Returns:
        The result, a tensor or a tuple of them; a Refusal where it raised ValueError.
    """
    # Not `or`: a compiled module that has no length raises where its truth is asked for.
    run = case.function if function is None else function
    try:
        if case.out is None:
            return run(*inputs)
        out = poison(case.out(*inputs))
        run(out, *inputs)
    except ValueError as err:
        return Refusal(message=str(err))
    return out


def expected(case: Case, inputs: Sequence[Any]) -> Any:
    """Return what the reference makes of the same inputs, in float64."""
    return case.reference(*map(widen, inputs))


def widen(value: Any) -> Any:
    """Return a floating tensor in float64, and anything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double()
    return value


def is_computed_with(value: Any) -> bool:
    """Say whether a value is a tensor of floating numbers of 16 bits or more: torch computes with no others."""
    return (
        isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() > 1
    )


def turn(tensor: Any) -> Any:
    """Return the same values with the order of their dimensions turned round in memory."""
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def poison(tensor: Any) -> Any:
    """Fill a tensor with what no kernel computes: NaN, or an odd pattern of bits."""
    with torch.no_grad():
        if is_computed_with(tensor):
            return tensor.fill_(float("nan"))
        if tensor.dtype is torch.bool:
            return tensor.fill_(True)
        return tensor.fill_(_poison_of(tensor))


def _poison_of(tensor: Any) -> Any:
    """Return the number whose bytes are all the poison."""
    data = torch.full((tensor.element_size(),), POISON_BYTE, dtype=torch.uint8)
    return data.view(tensor.dtype).to(tensor.device)[0]


def tensors_of(result: Any) -> tuple[Any, ...]:
    """Return the tensors of a result."""
    if isinstance(result, torch.Tensor):
        return (result,)
    if isinstance(result, tuple | list):
        return tuple(each for each in result if isinstance(each, torch.Tensor))
    return ()
