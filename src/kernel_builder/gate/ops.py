"""Whether each registered op is what its schema and its fake say: ``torch.library.opcheck``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from kernel_builder.gate.case import Case
from kernel_builder.gate.gradients import check_gradients
from kernel_builder.gate.outcome import Outcomes, Unproved, fault
from kernel_builder.gate.trial import call, make_inputs, tensors_of, unusual_sizes, usual_sizes

_FIXES = {
    "test_schema": "mark what the op writes with Tensor! in its schema, and return no input",
    "test_autograd_registration": "register the backward with torch.library.register_autograd",
    "test_faketensor": "register a fake that gives the shape, dtype and strides of the result",
    "test_aot_dispatch_dynamic": "correct the schema, the fake and the backward",
}
# Calls of one op that are checked in every way; each takes as long as a small compilation.
_CALLS = 2
# Calls of one op, at other sizes and of other dtypes, that are checked in the ways that compile nothing.
_MORE_CALLS = 16
_QUICK = ("test_schema", "test_faketensor")


class _Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Notes the ops of a namespace that are called, with copies of arguments that they take."""

    def __init__(self, namespace: str, most: int) -> None:
        super().__init__()
        self.namespace = namespace
        self.most = most
        self.calls: dict[Any, list[tuple[Any, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != self.namespace:
            return func(*args, **kwargs)
        calls = self.calls.setdefault(func, [])
        if len(calls) >= self.most:
            return func(*args, **kwargs)
        given = tree_map(_copy, (tuple(args), kwargs))
        result = func(*args, **kwargs)
        # A call that an op refuses proves nothing of it; whether it may, other checks say.
        calls.append(given)
        return result


def check_registered(
    namespace: str, cases: Iterable[Case], device: str, steady: Collection[str]
) -> Outcomes:
    """Check every op of a kernel with the arguments that its cases call it with.

    An op that has code for the device and that no case reaches is a fault: nothing is proved of it.

    Args:
        namespace: the id of the kernel.
        cases: the cases that call its ops.
        device: what the variant is for.
        steady: the names of the cases that end no process at unusual sizes.
    """
    recorder, more = _Recorder(namespace, _CALLS), _Recorder(namespace, _MORE_CALLS)
    for case in cases:
        _reach(case, recorder)
        if case.name in steady:
            _reach_unusual(case, more)
    for op, calls in recorder.calls.items():
        yield from _check(op, calls, more.calls.get(op, []))
    reached = {op.name().removeprefix(f"{namespace}::").partition(".")[0] for op in recorder.calls}
    for name in sorted(_list_ops(namespace) - reached):
        if not _serves(f"{namespace}::{name}", device):
            yield Unproved(message=f"op {name}: it has no code for {device}")
        else:
            yield fault("op-unreached", name, "no case calls this op", "add a case that calls it")


def _reach(case: Case, recorder: _Recorder) -> None:
    """Call a case so that its ops are noted; what is wrong with it, its own checks say."""
    for dtype in case.tolerance:
        try:
            with recorder:
                call(case, make_inputs(case, dtype, usual_sizes(case)))
        except Exception:  # noqa: BLE001
            continue
    try:
        with recorder:
            list(check_gradients(case))
    except Exception:  # noqa: BLE001
        return


def _reach_unusual(case: Case, recorder: _Recorder) -> None:
    """Call a case at each unusual size, and for every further dtype at one of them."""
    sizes = list(unusual_sizes(case))
    first, *others = case.tolerance
    trials = [*((first, each) for each in sizes), *((each, sizes[-2]) for each in others)]
    for dtype, chosen in trials:
        try:
            with recorder:
                call(case, make_inputs(case, dtype, chosen))
        except Exception:  # noqa: BLE001
            continue


def _check(op: Any, calls: list[tuple[Any, Any]], more: Sequence[tuple[Any, Any]]) -> Outcomes:
    """Check calls of an op in every way, and more of them in the ways that compile nothing."""
    name = op.name().partition("::")[2]
    failed: set[str] = set()
    every = tuple(_FIXES)
    todo = [*((every, each) for each in calls), *((_QUICK, each) for each in more)]
    for tests, (args, kwargs) in todo:
        answers = torch.library.opcheck(op, args, kwargs, test_utils=tests, raise_exception=False)
        if isinstance(answers.get("test_schema"), NotImplementedError):
            # torch cannot compare tensors of some dtypes, such as those of 8 bits.
            answers["test_schema"] = _compare_bits(op, args, kwargs)
        for test, answer in answers.items():
            if answer == "SUCCESS" or test in failed:
                continue
            failed.add(test)
            said = " ".join(f"{type(answer).__name__}: {answer}".split())[:400]
            yield fault(test.replace("test_", "op-"), name, f"opcheck: {said}", _FIXES[test])


def _compare_bits(op: Any, args: Any, kwargs: Any) -> Any:
    """Call an op, and say whether it wrote to, or returned, what its schema says it does not."""
    args, kwargs = tree_map(_copy, (args, kwargs))
    before = tree_map(_copy, (args, kwargs))
    results = tensors_of(op(*args, **kwargs))
    for index, argument in enumerate(op._schema.arguments):
        given = args[index] if index < len(args) else kwargs.get(argument.name)
        if not isinstance(given, torch.Tensor) or argument.alias_info is not None:
            continue
        kept = before[0][index] if index < len(args) else before[1][argument.name]
        if not torch.equal(_bits(given), _bits(kept)):
            return RuntimeError(
                f"Argument {argument.name} is not marked as mutable but was mutated"
            )
        place = given.untyped_storage().data_ptr()
        if any(place == each.untyped_storage().data_ptr() for each in results if each.numel()):
            return RuntimeError(f"Argument {argument.name} is returned and is not marked as alias")
    return "SUCCESS"


def _bits(tensor: Any) -> Any:
    return tensor.reshape(-1).clone().view(torch.uint8)


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if 0 in value.stride():
        return value.detach().clone()
    return torch.empty_strided(
        value.size(), value.stride(), dtype=value.dtype, device=value.device
    ).copy_(value.detach())


def _list_ops(namespace: str) -> set[str]:
    names = (name for name in torch._C._dispatch_get_all_op_names())
    prefix = f"{namespace}::"
    return {
        name.removeprefix(prefix).partition(".")[0]
        for name in names
        if name.startswith(prefix) and _takes_tensors(name)
    }


def _takes_tensors(name: str) -> bool:
    base, _, overload = name.partition(".")
    schemas = torch._C._jit_get_schemas_for_operator(base)
    return any(
        "Tensor" in str(argument.type)
        for schema in schemas
        if schema.overload_name == overload
        for argument in schema.arguments
    )


def _serves(name: str, device: str) -> bool:
    keys = (device.upper(), "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)
