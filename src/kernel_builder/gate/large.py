"""Whether the arithmetic of indices holds beyond 2^31 elements, in little memory where that can be.

On a CPU the tensors are one block of memory that is mapped again and again, and at their end a block
of its own, which lies beyond 2^31 elements. The same bytes are read as in a tensor that takes all of
its memory, and what a kernel does with a wrong index is seen: the last block is not written, or
memory is touched where there is none, which ends the process.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import find_difference
from kernel_builder.gate.memory import bytes_of, find_available, stack
from kernel_builder.gate.outcome import Outcomes, Refused, Unproved, fault
from kernel_builder.gate.trial import expected, make_inputs, poison, tensors_of, usual_sizes

_ELEMENTS = 1 << 31
_BLOCK_BYTES = 8 << 20
# What a function that allocates its result may need besides, as a multiple of the result.
_TEMPORARIES = 8


def check_large(case: Case) -> Outcomes:
    """Try more than 2^31 elements of the smallest dtype."""
    if case.batch is None:
        yield Unproved(message="2^31 elements: the case names no batch")
        return
    dtype = min(case.tolerance, key=lambda each: int(each.itemsize))
    sizes = {**usual_sizes(case), case.batch: case.sizes[case.batch]}
    step = sizes[case.batch]
    one = make_inputs(case, dtype, sizes)
    two = make_inputs(case, dtype, {**sizes, case.batch: 2 * step})
    batched = [_is_batched(small, wide) for small, wide in zip(one, two, strict=True)]
    outputs = [case.out(*one)] if case.out else list(tensors_of(case.function(*one)))
    rows = [each for each, grows in zip(one, batched, strict=True) if grows] + outputs
    if not any(batched):
        yield Unproved(message=f"2^31 elements: no input begins with a dimension of {case.batch}")
        return
    count = _choose_rows(rows)
    blocks = _ELEMENTS // (count * max(each[:1].numel() for each in rows)) + 2
    need = _memory_needed(case, rows, outputs, count * blocks)
    if need > find_available(one[0].device):
        yield Unproved(message=f"2^31 elements: {need >> 30} GiB of memory are not free here")
        return
    first = make_inputs(case, dtype, {**sizes, case.batch: count})
    last = tuple(
        _turn_over(each) if grows else each for each, grows in zip(first, batched, strict=True)
    )
    whole = [
        stack(one_block, other, blocks) if grows else one_block
        for one_block, other, grows in zip(first, last, batched, strict=True)
    ]
    try:
        results = _call(case, whole, first, blocks)
    except ValueError as err:
        yield Refused(message=f"2^31 elements: {err}")
        return
    for what, part, inputs in (
        ("first", slice(0, count), first),
        ("last", slice(-count, None), last),
    ):
        found = tuple(each[part] for each in results)
        said = find_difference(found, expected(case, inputs), case.tolerance[dtype])
        if said is not None:
            yield fault(
                "large",
                case.name,
                f"{dtype}, more than 2^31 elements: the {what} {count} rows: {said}",
                "compute offsets in 64 bits (int64_t, tl.int64)",
            )


def _call(case: Case, whole: Sequence[Any], first: Sequence[Any], blocks: int) -> tuple[Any, ...]:
    if case.out is None:
        return tensors_of(case.function(*whole))
    block = poison(case.out(*first))
    out = stack(block, block, blocks)
    case.function(out, *whole)
    return (out,)


def _is_batched(small: Any, wide: Any) -> bool:
    return (
        isinstance(small, torch.Tensor)
        and small.dim() > 0
        and wide.shape[0] == 2 * small.shape[0]
        and wide.shape[1:] == small.shape[1:]
    )


def _choose_rows(rows: Sequence[Any]) -> int:
    """Return how many rows a block has, so that in every tensor a block is whole pages."""
    count = 1
    for each in rows:
        width = int(each[:1].numel() * each.element_size())
        count = math.lcm(count, mmap.PAGESIZE // math.gcd(mmap.PAGESIZE, width))
    widest = max(int(each[:1].numel() * each.element_size()) for each in rows)
    return count * max(1, _BLOCK_BYTES // (count * widest))


def _memory_needed(case: Case, rows: Sequence[Any], outputs: Sequence[Any], total: int) -> int:
    def size(tensors: Sequence[Any]) -> int:
        return total * sum(int(each[:1].numel() * each.element_size()) for each in tensors)

    if rows[0].is_cuda:
        return 2 * size(rows)
    return 0 if case.out is not None else _TEMPORARIES * size(outputs)


def _turn_over(tensor: Any) -> Any:
    """Return the rows of a tensor in the other order."""
    width = tensor[:1].numel() * tensor.element_size()
    turned = bytes_of(tensor).view(tensor.shape[0], width).flip(0)
    return turned.reshape(-1).view(tensor.dtype).view(tensor.shape)
