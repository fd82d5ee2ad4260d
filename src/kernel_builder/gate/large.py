"""Whether the arithmetic of indices holds beyond 2^31 elements, in little memory where that can be.

On a CPU the tensors are one block of memory that is mapped again and again, and at their end a block
of its own, which lies beyond 2^31 elements. The same bytes are read as in a tensor that takes all of
its memory, and what a kernel does with a wrong index is seen: the last block is not written, or
memory is touched where there is none, which ends the process.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import find_difference
from kernel_builder.gate.outcome import Outcomes, Refused, Unproved, fault
from kernel_builder.gate.trial import expected, make_inputs, poison, tensors_of, usual_sizes

_ELEMENTS = 1 << 31
_BLOCK_BYTES = 8 << 20
# What a function that allocates its result may need besides, as a multiple of the result.
_TEMPORARIES = 8
_PROT = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000


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
    if need > _memory_available(one[0].device):
        yield Unproved(message=f"2^31 elements: {need >> 30} GiB of memory are not free here")
        return
    first = make_inputs(case, dtype, {**sizes, case.batch: count})
    last = tuple(
        _turn_over(each) if grows else each for each, grows in zip(first, batched, strict=True)
    )
    whole = [
        _stack(one_block, other, blocks) if grows else one_block
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
    out = _stack(block, block, blocks)
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


def _memory_available(device: Any) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def _stack(block: Any, last: Any, blocks: int) -> Any:
    """Return a dense tensor that is `block` again and again, and then `last`."""
    if block.device.type != "cpu":
        # As bytes: torch does not copy every dtype on every device.
        whole = torch.cat([_bytes(block).repeat(blocks - 1), _bytes(last)])
        return whole.view(block.dtype).view(blocks * block.shape[0], *block.shape[1:])
    block, last = block.contiguous(), last.contiguous()
    size = block.numel() * block.element_size()
    address = _map_repeatedly(size, blocks)
    raw = torch.frombuffer(
        (ctypes.c_char * (size * blocks)).from_address(address), dtype=torch.uint8
    )
    flat = raw.view(block.dtype).view(blocks * block.shape[0], *block.shape[1:])
    flat[: block.shape[0]].copy_(block)
    flat[-block.shape[0] :].copy_(last)
    return flat


def _bytes(tensor: Any) -> Any:
    return tensor.reshape(-1).clone().view(torch.uint8)


def _turn_over(tensor: Any) -> Any:
    """Return the rows of a tensor in the other order."""
    width = tensor[:1].numel() * tensor.element_size()
    turned = _bytes(tensor).view(tensor.shape[0], width).flip(0)
    return turned.reshape(-1).view(tensor.dtype).view(tensor.shape)


def _map_repeatedly(size: int, blocks: int) -> int:
    """Map one block of memory `blocks - 1` times in a row, and another behind it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    start = libc.mmap(None, size * blocks, _PROT, anonymous, -1, 0)
    handle = os.memfd_create("gate")
    os.ftruncate(handle, 2 * size)
    for index in range(blocks):
        offset = 0 if index < blocks - 1 else size
        place = libc.mmap(
            start + index * size, size, _PROT, mmap.MAP_SHARED | _MAP_FIXED, handle, offset
        )
        if place != start + index * size:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(handle)
    return int(start)
