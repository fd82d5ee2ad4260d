"""Takes the faster of a kernel and the original, by timing both on the shapes that a layer sees.

The first call with tensors of a new *shape class* (dtypes, the last sizes, and the number of rows
up to the next power of two) times both on copies of those tensors, which takes some milliseconds;
from then on the class is decided, in later processes too (:mod:`kernels.layer.timings`).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from kernels.forking import Renewed
from kernels.layer.tensors import can_be_copied, copy_values, iterate_tensors
from kernels.layer.timings import Timing, TimingsFile

Forward = Callable[..., Any]

# Calls of a function before any that counts.
_WARM_UP = 3
# Rounds, at least and at most, until the second-best is so many times the best, or less.
_ROUNDS = 5
_MOST_ROUNDS = 40
_AGREE = 1.05
# A round of a function: about so many seconds, and at most so many calls.
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
        untimed: why the last call that was not timed could not be; empty where there was none.
    """

    def __init__(
        self, file: TimingsFile, *, device_type: str, training: bool, compiled: bool
    ) -> None:
        self._file = file
        self._device_type = device_type
        self._autocast_type = _find_autocast_type(device_type)
        self._training = training
        self._compiled = compiled
        self._deciding = Renewed(threading.RLock)
        self._choices: dict[Any, bool] = {}
        self.timings: dict[str, Timing] = file.read()
        self.compiled_choice = self._choose_for_graphs()
        self.untimed = ""

    def make_forward(self, kernel: Forward, original: Forward) -> Forward:
        """Return a forward that calls whichever of two is faster on what it is given."""
        import torch

        is_compiling = torch.compiler.is_compiling
        is_grad_enabled = torch.is_grad_enabled
        is_autocast_enabled = torch.is_autocast_enabled
        tensor, autocast_type = torch.Tensor, self._autocast_type
        choices = self._choices

        @functools.wraps(original)
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                if self.compiled_choice:
                    return kernel(module, *args, **kwargs)
                return original(module, *args, **kwargs)
            # This part of every call is written for speed.
            key: list[Any] = [is_grad_enabled(), is_autocast_enabled(autocast_type)]
            try:
                for value in (*args, *kwargs.values()) if kwargs else args:
                    if isinstance(value, tensor):
                        key += (value.shape, value.dtype, value.get_device(), value.is_contiguous())
                    elif isinstance(value, list | tuple | dict):
                        key.append(self._describe(value))
                    else:
                        key.append(type(value))
            except RuntimeError:  # of nested tensors
                self.untimed = "it was called with a tensor that has no shape or no strides"
                key.clear()
            call_key = tuple(key)
            is_kernel = choices.get(call_key) if call_key else False
            if is_kernel is None:
                call = _Call(kernel, original, module, args, kwargs)
                is_kernel = self._decide(call_key, call)
            if is_kernel:
                return kernel(module, *args, **kwargs)
            return original(module, *args, **kwargs)

        forward.__name__ = "forward"
        return forward

    def _decide(self, key: Any, call: _Call) -> bool:
        if reason := _why_not_timed(call):
            self.untimed = reason
            if _is_never_timed(call):
                self._remember(key, is_kernel=False)
            return False
        with self._deciding.lock:
            is_kernel = self._find_faster(self._describe((call.args, call.kwargs)), call)
            self._remember(key, is_kernel=is_kernel)
        return is_kernel

    def _remember(self, key: Any, *, is_kernel: bool) -> None:
        if len(self._choices) >= _MOST_SHAPES:
            self._choices.clear()
        self._choices[key] = is_kernel

    def _find_faster(self, shape: str, call: _Call) -> bool:
        import torch

        timing = self.timings.get(shape)
        if timing is None:
            try:
                timing = self._file.settle(shape, lambda: self._measure(call))
            except torch.OutOfMemoryError:
                self.untimed = "there is no room for copies of what it is called with"
                return False
            self.timings[shape] = timing
            self.compiled_choice = self._choose_for_graphs()
        return timing.is_kernel_faster

    def _describe(self, values: Any) -> str:
        """Name the shape class of what a layer is called with."""
        import torch

        facts = [_describe_tensor(each, self._device_type) for each in iterate_tensors(values)]
        recorded = " recorded" if torch.is_grad_enabled() else ""
        autocast = " autocast" if torch.is_autocast_enabled(self._autocast_type) else ""
        return ", ".join(facts) + recorded + autocast

    def _choose_for_graphs(self) -> bool:
        return bool(self.timings) and all(each.is_kernel_faster for each in self.timings.values())

    def _measure(self, call: _Call) -> Timing:
        import torch

        # The layer may write to what it is called with, and in some milliseconds a thousand times.
        args, kwargs = copy_values((call.args, call.kwargs))
        trial = call._replace(args=args, kwargs=kwargs)
        runs = []
        for forward in (call.kernel, call.original):
            run = functools.partial(forward, call.module)
            if self._compiled:
                run = torch.compile(run, dynamic=False)
            runs.append(functools.partial(_run, run, trial, training=self._training))
        with _undisturbed(trial), _unseen_by_checkpoints():
            ours, theirs = time_both(runs[0], runs[1], _synchronizer(trial))
        return Timing(kernel_us=ours * 1e6, original_us=theirs * 1e6)


def _find_autocast_type(device_type: str) -> str:
    """Return the type of device whose autocast counts: torch raises where it does not know one."""
    import torch

    try:
        torch.is_autocast_enabled(device_type)
    except RuntimeError:
        return "cpu"
    return device_type


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

    outputs = [each for each in iterate_tensors(output) if each.requires_grad]
    inputs = [*iterate_tensors((call.args, call.kwargs)), *call.module.parameters()]
    wanted = [each for each in inputs if each.requires_grad]
    if outputs and wanted:
        ones = [torch.ones_like(each) for each in outputs]
        torch.autograd.grad(outputs, wanted, ones, allow_unused=True)


@contextmanager
def _undisturbed(call: _Call) -> Iterator[None]:
    """Leave random numbers and the layer as they were: its buffers, and what it keeps by itself."""
    import torch

    tensors = iterate_tensors((call.args, call.kwargs))
    on_gpu = {each.device.index for each in tensors if each.is_cuda}
    modules = list(call.module.modules())
    attributes = [dict(vars(each)) for each in modules]
    buffers = [dict(each._buffers) for each in modules]
    values = [each.clone() for each in call.module.buffers()]
    try:
        with torch.random.fork_rng(devices=sorted(on_gpu)):
            yield
    finally:
        for module, own, kept in zip(modules, attributes, buffers, strict=True):
            _restore(vars(module), own)
            _restore(module._buffers, kept)
        for buffer, value in zip(call.module.buffers(), values, strict=True):
            # One that was made in inference mode can be written to in that mode alone.
            with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                buffer.copy_(value)


def _restore(found: dict[str, Any], kept: dict[str, Any]) -> None:
    for name in found.keys() - kept.keys():
        del found[name]
    for name, value in kept.items():
        if found.get(name) is not value:
            found[name] = value


def _unseen_by_checkpoints() -> AbstractContextManager[None]:
    """Keep what trials save for their backward from who counts or moves what a model saves."""
    import torch

    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if top is not None and top(False) is None:
        return nullcontext()
    hooks: AbstractContextManager[None] = torch.autograd.graph.saved_tensors_hooks(_same, _same)
    return hooks


def _same(tensor: Any) -> Any:
    return tensor


def _why_not_timed(call: _Call) -> str:
    """Say why timing would tell nothing, or change something; empty where it would not."""
    import torch

    tensors = list(iterate_tensors((call.args, call.kwargs)))
    if not tensors or not all(map(_has_elements, tensors)):
        return "it was called without tensors that have elements"
    if _is_watched():
        return "torch traced or transformed its call"
    if not can_be_copied(call.args) or not can_be_copied(call.kwargs):
        return "it is called with what cannot be copied, so a trial would change it"
    if _may_wait(call.module):
        return "it may wait for other ranks, and a trial would ask them too often"
    if any(each.is_cuda for each in tensors) and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph was captured"
    return ""


def _is_never_timed(call: _Call) -> bool:
    """Whether no call with arguments of these types is timed: keys of calls hold types, not values."""
    import torch

    described = (torch.Tensor, list, tuple, dict)
    others = (
        each for each in (*call.args, *call.kwargs.values()) if not isinstance(each, described)
    )
    return not all(map(can_be_copied, others))


def _has_elements(tensor: Any) -> bool:
    return not tensor.is_meta and tensor.numel() > 0


def _may_wait(module: Any) -> bool:
    """Whether a call may wait for other ranks, which do not call it as often as timing does.

    A sharded parameter is gathered by its ranks together, and so is much of what layers within
    layers compute.
    """
    import torch
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return False
    is_sharded = any(type(each) is not torch.nn.Parameter for each in module.parameters())
    return distributed.get_world_size() > 1 and (bool(module._modules) or is_sharded)


def _is_watched() -> bool:
    """Whether torch traces, transforms or intercepts what is called now."""
    import torch

    return (
        torch.jit.is_tracing()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _describe_tensor(tensor: Any, device_type: str) -> str:
    """Name the shape class of a tensor: dtype, rounded rows and last size, and what is unusual of it."""
    last = tensor.shape[-1] if tensor.dim() else 1
    rows = tensor.numel() // last if last else 0
    rounded = 1 << (rows - 1).bit_length() if rows else 0
    strided = "" if tensor.is_contiguous() else " strided"
    elsewhere = "" if tensor.device.type == device_type else f" on {tensor.device.type}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {rounded}x{last}{strided}{elsewhere}"


def _synchronizer(call: _Call) -> Callable[[], None]:
    """Return what waits for the device that a call computes on; it does nothing where none computes."""
    import torch

    for tensor in iterate_tensors((call.args, call.kwargs)):
        api = getattr(torch, tensor.device.type, None)
        synchronize: Callable[[], None] | None = getattr(api, "synchronize", None)
        if synchronize is not None:
            return synchronize
    return lambda: None
