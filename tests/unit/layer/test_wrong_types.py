"""Every public function and class, each argument of a wrong type: one TypeError that names the argument."""

from __future__ import annotations

import contextlib
import inspect

import pytest
from torch import nn

import kernels
from kernel_spec.errors import KernelError, WrongTypeError
from kernels import CUDAProperties, Device, Mode
from kernels.layer.mode import KernelizeFallback

WRONG = [object(), b"acme/toy", 1.5, {1: 2}, [object()], kernels]

# A call that is right for every public name that takes arguments, by keywords.
HUB = {"repo_id": "acme/toy", "version": 1}
LAYER = {"repo_id": "acme/toy", "version": 1, "layer_name": "L"}
CALLS = {
    "get_kernel": HUB | {"check_arch": True, "refresh": False, "backend": "cpu"},
    "get_kernel_variants": HUB | {"backend": "cpu"},
    "has_kernel": HUB | {"check_arch": True, "backend": "cpu"},
    "install_kernel": HUB | {"local_files_only": False, "backend": "cpu"},
    "get_local_kernel": {"path": "nowhere", "backend": "cpu"},
    "get_locked_kernel": {"repo_id": "acme/toy", "lockfile": "nowhere", "local_files_only": False},
    "load_kernel": {"repo_id": "acme/toy", "lockfile": "nowhere", "backend": "cpu"},
    "get_kernel_dep": {"repo_id": "acme/toy"},
    "kernelize": {"model": nn.Linear(1, 1), "mode": Mode.INFERENCE, "strict": False},
    "unkernelize": {"model": nn.Linear(1, 1)},
    "report": {"model": nn.Linear(1, 1)},
    "register_kernel_mapping": {"mapping": {}, "inherit_mapping": True},
    "use_kernel_mapping": {"mapping": {}, "inherit_mapping": True},
    "use_kernel_forward_from_hub": {"layer_name": "L"},
    "use_kernel_func_from_hub": {"func_name": "f"},
    "replace_kernel_forward_from_hub": {"cls": nn.Linear, "layer_name": "L", "condition": None},
    "LayerRepository": LAYER,
    "FuncRepository": HUB | {"func_name": "f"},
    "LocalLayerRepository": {"repo_path": "nowhere", "layer_name": "L"},
    "LocalFuncRepository": {"repo_path": "nowhere", "func_name": "f"},
    "LockedLayerRepository": {"repo_id": "acme/toy", "lockfile": "nowhere", "layer_name": "L"},
    "LockedFuncRepository": {"repo_id": "acme/toy", "lockfile": "nowhere", "func_name": "f"},
    "CUDAProperties": {"min_capability": 80, "max_capability": 90},
    "ROCMProperties": {"min_capability": 94, "max_capability": 94},
    "Device": {"type": "cuda", "properties": CUDAProperties(80, 90)},
}
# What gives values and is not made by callers, takes nothing, or has Python's own check.
NOT_CALLED = {
    "KernelizeFallback",
    "LayerReport",
    "LoadedKernel",
    "Metadata",
    "Mode",
    "RepoInfo",
    "Report",
    "ShapeReport",
    "VariantAccepted",
    "VariantRejected",
    "__version__",
    "get_loaded_kernels",
    "use_kernelized_func",
}
# Any truth will do, or an older caller's name that is not looked at.
UNCHECKED = {("get_local_kernel", "package_name")}
OPTIONAL = {
    "trust_remote_code": (True, "acme/toy", None),
    "user_agent": (None, 7, ["a"]),
    "build_from_source": (None, 7),
    "revision": (None, 7),
    "device": (None, 7),
    "use_fallback": (KernelizeFallback.ALL, "yes", 1),
    "select": ("mapped", 7),
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELS_HUB", f"file://{tmp_path}")
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))


def call(name, arguments):
    with contextlib.ExitStack() as stack:
        result = getattr(kernels, name)(**arguments)
        if isinstance(result, contextlib.AbstractContextManager):
            stack.enter_context(result)


def cases():
    for name, arguments in CALLS.items():
        parameters = inspect.signature(getattr(kernels, name)).parameters
        for argument in parameters:
            if (name, argument) in UNCHECKED:
                continue
            yield pytest.param(name, arguments, argument, id=f"{name}-{argument}")


def test_every_public_name_is_walked():
    assert set(CALLS) | NOT_CALLED == set(kernels.__all__)


@pytest.mark.parametrize(("name", "arguments", "argument"), list(cases()))
def test_an_argument_of_a_wrong_type_is_a_type_error_that_names_it(name, arguments, argument):
    others = {key: value for key, value in arguments.items() if key != argument}
    if argument == "revision":
        others.pop("version", None)
    wrong = [w for w in WRONG if not may_be(argument, w)] + list(OPTIONAL.get(argument, ())[1:])
    for value in wrong:
        with pytest.raises(WrongTypeError) as caught:
            call(name, others | {argument: value})
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, ValueError), "as callers of the published client catch it"
        words = {"func_name": ("func_name", "layer_name")}.get(argument, (argument,))
        assert any(word in str(caught.value) for word in words)
        assert len(str(caught.value)) < 250


def may_be(argument, value):
    """Say whether a value of this kind is right there."""
    return (
        (argument == "mapping" and isinstance(value, dict))
        or (argument == "user_agent" and isinstance(value, dict))
        or (argument == "trust_remote_code" and isinstance(value, list | dict))
    )


def test_a_right_call_is_no_type_error():
    """So that the walk above cannot pass for another reason."""
    for name, arguments in CALLS.items():
        try:
            call(name, arguments)
        except WrongTypeError as err:
            pytest.fail(f"{name}: {err}")
        except KernelError:
            pass


def test_what_no_call_looks_at_twice_is_still_checked():
    with pytest.raises(WrongTypeError, match="use_kernelized_func: expected decorated functions"):
        kernels.use_kernelized_func(7)
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, found None"):
        kernels.report(None)
    assert Device("cpu").properties is None
