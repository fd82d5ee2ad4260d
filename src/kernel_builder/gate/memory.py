"""Tensors beyond 2^31 elements that take little memory: the same pages again and again, or none between."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import torch

_PROT = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE


def find_available(device: Any) -> int:
    """Return how many bytes of memory are free on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def stack(block: Any, last: Any, blocks: int) -> Any:
    """Return a dense tensor that is `block` again and again, and then `last`, along the first dimension."""
    if block.device.type != "cpu":
        # As bytes: torch does not copy every dtype on every device.
        whole = torch.cat([bytes_of(block).repeat(blocks - 1), bytes_of(last)])
        return whole.view(block.dtype).view(blocks * block.shape[0], *block.shape[1:])
    block, last = block.contiguous(), last.contiguous()
    size = block.numel() * block.element_size()
    raw = _as_bytes(_map_repeatedly(size, blocks), size * blocks)
    flat = raw.view(block.dtype).view(blocks * block.shape[0], *block.shape[1:])
    flat[: block.shape[0]].copy_(block)
    flat[-block.shape[0] :].copy_(last)
    return flat


def spread_rows(tensor: Any, step: int) -> Any:
    """Return the same values with rows, or what the first dimension counts, `step` elements apart.

    On a CPU the memory between them is addresses alone; on a GPU it is taken.

    Raises:
        OSError: the system gives no such memory.
    """
    row = tensor[:1].contiguous()
    count = (tensor.shape[0] - 1) * step + row.numel()
    if tensor.device.type == "cpu":
        size = count * tensor.element_size()
        flat = _as_bytes(_map(None, size, _ANONYMOUS, -1, 0), size).view(tensor.dtype)
    else:
        flat = torch.empty(count, dtype=tensor.dtype, device=tensor.device)
    far = flat.as_strided(tensor.shape, (step, *row.stride()[1:]))
    if tensor.element_size() == 1:
        # As bytes: torch does not copy every dtype on every device.
        far.view(torch.uint8).copy_(tensor.contiguous().view(torch.uint8))
        return far
    return far.copy_(tensor)


def bytes_of(tensor: Any) -> Any:
    """Return a copy of a tensor's elements as bytes."""
    return tensor.reshape(-1).clone().view(torch.uint8)


def _as_bytes(address: int, size: int) -> Any:
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)


def _map_repeatedly(size: int, blocks: int) -> int:
    """Map one block of memory `blocks - 1` times in a row, and another behind it."""
    start = _map(None, size * blocks, _ANONYMOUS, -1, 0)
    handle = os.memfd_create("gate")
    os.ftruncate(handle, 2 * size)
    for index in range(blocks):
        offset = 0 if index < blocks - 1 else size
        _map(start + index * size, size, mmap.MAP_SHARED | _MAP_FIXED, handle, offset)
    os.close(handle)
    return start


def _map(address: int | None, size: int, flags: int, handle: int, offset: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    place = libc.mmap(address, size, _PROT, flags, handle, offset)
    if place == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(place)
