"""Takes the faster of a kernel and the original, by timing both on the shapes that a layer sees.

The first call with tensors of a new *shape class* (dtypes, the last sizes, and the number of rows
up to the next power of two) times both on those very tensors, which takes some milliseconds; from
then on the class is decided, in later processes too (:mod:`kernels.layer.timings`).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kernels.layer.timings import Timing, TimingsFile

Forward = Callable[..., Any]

_WARM_UP = 3
_ROUNDS = 5
_MOST_ROUNDS = 40
_AGREE = 1.05
_ROUND_SECONDS = 1e-3
_MOST_CALLS = 50
# Shapes that are remembered beside their classes; a model with ever new ones starts over.
_MOST_SHAPES = 4096


class _Call(NamedTuple):
    """A call of a layer, and the two forwards that could answer it."""

    kernel: Forward
    original: Forward
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Selection:
    """What was measured of a kernel and the original that it may stand for, on one device.

    Attributes:
        timings: both times by shape class.
        compiled_choice: whether a compiled model gets the kernel: where it won in every class that
            was measured.
    """

    def __init__(self, file: TimingsFile, *, training: bool, compiled: bool) -> None:
        self._file = file
        self._training = training
        self._compiled = compiled
        self._lock = threading.RLock()
        self._choices: dict[Any, bool] = {}
        self.timings: dict[str, Timing] = file.read()
        self.compiled_choice = self._choose_for_graphs()

    def make_forward(self, kernel: Forward, original: Forward) -> Forward:
        """Return a forward that calls whichever of two is faster on what it is given."""
        import torch

        is_compiling = torch.compiler.is_compiling
        is_grad_enabled = torch.is_grad_enabled
        tensor = torch.Tensor
        choices = self._choices

        @functools.wraps(original)
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                if self.compiled_choice:
                    return kernel(module, *args, **kwargs)
                return original(module, *args, **kwargs)
            # This part of every call is written for speed.
            key: list[Any] = [is_grad_enabled()]
            for value in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(value, tensor):
                    key += (value.shape, value.dtype, value.get_device(), value.is_contiguous())
                elif isinstance(value, list | tuple):
                    key.append(_shape_class((value,), {}))
                else:
                    key.append(type(value))
            call_key = tuple(key)
            is_kernel = choices.get(call_key)
            if is_kernel is None:
                call = _Call(kernel, original, module, args, kwargs)
                is_kernel = self._decide(call_key, call)
            if is_kernel:
                return kernel(module, *args, **kwargs)
            return original(module, *args, **kwargs)

        forward.__name__ = "forward"
        return forward

    def _decide(self, key: Any, call: _Call) -> bool:
        shape = _shape_class(call.args, call.kwargs)
        if shape is None:
            return False
        with self._lock:
            timing = self.timings.get(shape)
            if timing is None:
                timing = self._measure(call)
                self.timings[shape] = timing
                self.compiled_choice = self._choose_for_graphs()
                self._file.add(shape, timing)
            if len(self._choices) >= _MOST_SHAPES:
                self._choices.clear()
            self._choices[key] = timing.is_kernel_faster
        return timing.is_kernel_faster

    def _choose_for_graphs(self) -> bool:
        return bool(self.timings) and all(each.is_kernel_faster for each in self.timings.values())

    def _measure(self, call: _Call) -> Timing:
        runs = []
        for forward in (call.kernel, call.original):
            run = functools.partial(forward, call.module)
            if self._compiled:
                import torch

                run = torch.compile(run, dynamic=False)
            runs.append(functools.partial(_run, run, call, training=self._training))
        with _undisturbed(call):
            ours, theirs = time_both(runs[0], runs[1], _synchronizer(call))
        return Timing(kernel_us=ours * 1e6, original_us=theirs * 1e6)


def time_both(
    one: Callable[[], None], other: Callable[[], None], synchronize: Callable[[], None]
) -> tuple[float, float]:
    """Time two functions in turns; return the seconds of a call of each, in its best round.

    A busy machine makes rounds slower, never faster. There are rounds until the best two of each
    function agree, so that a slow one is not believed for having had no luck.
    """
    runs = (one, other)
    calls = []
    for run in runs:
        for _ in range(_WARM_UP):
            run()
        once = _time(run, 1, synchronize)
        calls.append(max(1, min(_MOST_CALLS, int(_ROUND_SECONDS / max(once, 1e-9)))))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(_MOST_ROUNDS):
        for run, each, count in zip(runs, times, calls, strict=True):
            each.append(_time(run, count, synchronize))
        if turn + 1 >= _ROUNDS and all(map(_is_settled, times)):
            break
    return min(times[0]), min(times[1])


def _is_settled(times: list[float]) -> bool:
    best, second = sorted(times)[:2]
    return second <= best * _AGREE


def _time(run: Callable[[], None], calls: int, synchronize: Callable[[], None]) -> float:
    synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    synchronize()
    return (time.perf_counter() - begin) / calls


def _run(run: Forward, call: _Call, *, training: bool) -> None:
    """Call a forward as the model does, and in training its backward too."""
    output = run(*call.args, **call.kwargs)
    if not training:
        return
    import torch

    outputs = [each for each in _tensors((output,), {}) if each.requires_grad]
    inputs = [*_tensors(call.args, call.kwargs), *call.module._parameters.values()]
    wanted = [each for each in inputs if each is not None and each.requires_grad]
    if outputs and wanted:
        ones = [torch.ones_like(each) for each in outputs]
        torch.autograd.grad(outputs, wanted, ones, allow_unused=True)


@contextmanager
def _undisturbed(call: _Call) -> Iterator[None]:
    """Leave random numbers and the layer's buffers as they were."""
    import torch

    buffers = call.module._buffers
    kept = {name: each.clone() for name, each in buffers.items() if each is not None}
    on_gpu = {each.device.index for each in _tensors(call.args, call.kwargs) if each.is_cuda}
    with torch.random.fork_rng(devices=sorted(on_gpu)):
        yield
    with torch.no_grad():
        for name, value in kept.items():
            buffers[name].copy_(value)


def _shape_class(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Name the class of what a layer is called with; None where timing would tell nothing."""
    import torch

    tensors = _tensors(args, kwargs)
    if not tensors or not all(map(_can_be_timed, tensors)) or _is_watched():
        return None
    if any(each.is_cuda for each in tensors) and torch.cuda.is_current_stream_capturing():
        return None
    recorded = " recorded" if torch.is_grad_enabled() else ""
    return ", ".join(map(_describe, tensors)) + recorded


def _can_be_timed(tensor: Any) -> bool:
    import torch

    is_plain = type(tensor) in {torch.Tensor, torch.nn.Parameter}
    return is_plain and not tensor.is_meta and tensor.numel() > 0


def _is_watched() -> bool:
    """Whether torch traces, transforms or intercepts what is called now."""
    import torch

    return (
        torch.jit.is_tracing()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _describe(tensor: Any) -> str:
    last = tensor.shape[-1] if tensor.dim() else 1
    rows = tensor.numel() // last
    rounded = 1 << (rows - 1).bit_length()
    strided = "" if tensor.is_contiguous() else " strided"
    return f"{str(tensor.dtype).removeprefix('torch.')} {rounded}x{last}{strided}"


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    import torch

    found: list[Any] = []
    stack: list[Any] = [*reversed(list(kwargs.values())), *reversed(args)]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            stack += reversed(value)
    return found


def _synchronizer(call: _Call) -> Callable[[], None]:
    import torch

    for tensor in _tensors(call.args, call.kwargs):
        synchronize = getattr(getattr(torch, tensor.device.type, None), "synchronize", None)
        if synchronize is not None:
            return functools.partial(synchronize)
    return lambda: None
