"""Tiny kernels with layers, written on the fly, and a process without any mapping."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from toy_variant import write_toy_metadata

import kernels.load
from kernels import (
    LocalLayerRepository,
    Mode,
    kernelize,
    log,
    report,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)
from kernels.layer import mapping, measured, selection
from kernels.settings import VARIABLES

LAYERS = """
import torch
from torch import nn

CALLS = []


class Double(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        CALLS.append("Double")
        return 2 * x


class Scale(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        return x * self.weight


class OnlyEager(nn.Module):
    def forward(self, x):
        CALLS.append("OnlyEager")
        return 2 * x


class NoBackward(nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, x):
        CALLS.append("NoBackward")
        return (2 * x).detach()
"""
INIT = "from . import layers\n\n\ndef twice(x):\n    return 2 * x\n"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own settings, its own table of kernels, and lines not said yet."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "KERNELS_CACHE", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("KERNELS_HUB", f"file://{tmp_path / 'nowhere'}")
    monkeypatch.setattr(mapping, "_registered", {})
    kernels.load.forget()
    log.forget()


@pytest.fixture
def write_kernel(tmp_path: Path) -> Callable[..., Path]:
    """Write a kernel whose module ``layers`` has a given source; return its project."""

    def write(
        layers: str = LAYERS,
        *,
        name: str = "toy",
        init: str = INIT,
        extension: Mapping[str, object] | None = None,
    ) -> Path:
        project = tmp_path / name
        variant = project / "build" / "torch-cpu"
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text(init)
        (variant / "layers.py").write_text(layers)
        write_toy_metadata(variant, name, extension=extension)
        return project

    return write


@pytest.fixture
def toy(write_kernel: Callable[..., Path]) -> Path:
    return write_kernel()


@pytest.fixture
def calls(toy: Path) -> list[str]:
    """Return what the layers of ``toy`` write down when they run."""
    recorded: list[str] = kernels.get_local_kernel(toy).layers.CALLS
    return recorded


@use_kernel_forward_from_hub("Double")
class ModelDouble(nn.Module):
    """A layer as a model has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


class Model(nn.Module):
    """Two extensible layers, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.layers = nn.ModuleList([ModelDouble(), ModelDouble()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 4)


# Layers that are measured ------------------------------------------------------------------------

SLOW = """
import time
import torch
from torch import nn

CALLS = []
SECONDS = {"few": 0.004, "many": 0.0}


class Slow(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        CALLS.append(tuple(x.shape))
        time.sleep(SECONDS["few" if x.numel() <= 8 * 4 else "many"])
        return x * self.weight
"""


@use_kernel_forward_from_hub("Layer")
class Layer(nn.Module):
    """Slower than the kernel for many rows, faster for few."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        time.sleep(0.002)
        return x * self.weight


@pytest.fixture
def layer_class() -> type[nn.Module]:
    return Layer


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure for a short time, and anew."""
    monkeypatch.setattr(measured, "_WARM_UP", 1)
    monkeypatch.setattr(measured, "_ROUNDS", 3)
    selection._share.cache_clear()


@pytest.fixture
def slow(write_kernel: Callable[..., Path]) -> Path:
    """Write the kernel that a ``Layer`` is measured against; return its project."""
    return write_kernel(SLOW, name="slow")


@pytest.fixture
def kernelized(slow: Path) -> Callable[..., nn.Module]:
    """Return a function that makes a model of one layer which is measured."""
    kernel = LocalLayerRepository(slow, layer_name="Slow")

    def make(mode: Mode = Mode.INFERENCE) -> nn.Module:
        with use_kernel_mapping({"Layer": {"cpu": kernel}}):
            return kernelize(nn.Sequential(Layer()), mode=mode, select="measured", strict=True)

    return make


@pytest.fixture
def shapes() -> Callable[[nn.Module], dict[str, str]]:
    """Return a function that tells what was decided for the first layer of a model."""

    def tell(model: nn.Module) -> dict[str, str]:
        return {each.shape: each.runs for each in report(model).layers[0].shapes}

    return tell
