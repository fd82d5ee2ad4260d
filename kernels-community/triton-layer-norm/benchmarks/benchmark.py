"""What ``kernels benchmark`` times: the norms against eager torch, torch's own, torch.compile and Liger.

The weights are random: ones would hide errors. The model is that of the tutorial, 4096-4096-10, with
autograd recording, as the tutorial times it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import nn

from kernels.bench import Case

HIDDEN = 4096
EPS = 1e-5
# |found - exact| / (1 + |exact|): the rounding of the dtype, and that of the weight's factor.
TOLERANCES = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 2e-6}
GPU_ROWS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
OTHER_HIDDEN = (2048, 5120, 8192, 16384)
Norm = Callable[[torch.Tensor], torch.Tensor]


class RMSNorm(nn.Module):
    """As a model without any kernel has it."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden))
        self.variance_epsilon = EPS

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return (self.weight * (x * torch.rsqrt(variance + EPS))).to(x.dtype)


class LayerNorm(nn.Module):
    """The same for LayerNorm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden))
        self.bias = nn.Parameter(torch.randn(hidden))
        self.eps = EPS

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide - wide.mean(-1, keepdim=True)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return (wide * scale * self.weight + self.bias).to(x.dtype)


MODULES = {"rms_norm": RMSNorm, "layer_norm": LayerNorm}
LAYERS = {"rms_norm": "LlamaRMSNorm", "layer_norm": "LayerNorm"}
OWN = {"rms_norm": F.rms_norm, "layer_norm": F.layer_norm}


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    if device.type == "cpu":
        for op in MODULES:
            yield norm(kernel, op, shape=(256, HIDDEN), dtype=torch.float32, device=device)
        return
    half = torch.float16
    for rows in GPU_ROWS:
        yield model(kernel, rows, device)
    for op, rows in (("rms_norm", 4096), ("rms_norm", 16384), ("layer_norm", 4096)):
        yield training(kernel, op, shape=(rows, HIDDEN), dtype=half, device=device)
    for rows in GPU_ROWS:
        yield norm(kernel, "rms_norm", shape=(rows, HIDDEN), dtype=half, device=device)
    for hidden in OTHER_HIDDEN:
        for rows in (1024, 16384):
            yield norm(kernel, "rms_norm", shape=(rows, hidden), dtype=half, device=device)
    yield norm(kernel, "rms_norm", shape=(32768, HIDDEN), dtype=torch.bfloat16, device=device)
    for rows in (256, 1024, 4096, 32768):
        yield norm(kernel, "layer_norm", shape=(rows, HIDDEN), dtype=half, device=device)


def norm(
    kernel: ModuleType,
    op: str,
    *,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> Case:
    torch.manual_seed(0)
    x = torch.randn(shape, device=device, dtype=dtype)
    module = MODULES[op](shape[1]).to(device, dtype).requires_grad_(False)
    calls = {name: bind(call, x) for name, call in ways(kernel, op, module).items()}
    return Case(
        op=op,
        shape=shape,
        dtype=spell(dtype),
        ours=calls.pop("ours"),
        expected=lambda: exact(op, module, x.double()),
        tolerance=TOLERANCES[dtype],
        peers=calls,
        references={"copy": x.clone} if shape[1] == HIDDEN else {},
        moved_bytes=2 * x.numel() * x.element_size(),
    )


def training(
    kernel: ModuleType,
    op: str,
    *,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> Case:
    """Forward and backward together."""
    torch.manual_seed(0)
    x = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
    dy = torch.randn_like(x)
    module = MODULES[op](shape[1]).to(device, dtype)
    leaves = (x, *module.parameters())

    def train(call: Norm) -> Callable[[], torch.Tensor]:
        return lambda: torch.autograd.grad(call(x), leaves, dy)[0]

    def expected() -> torch.Tensor:
        wide = x.detach().double().requires_grad_()
        return torch.autograd.grad(exact(op, module, wide), wide, dy.double())[0]

    calls = {name: train(call) for name, call in ways(kernel, op, module).items()}
    return Case(
        op=f"{op}+backward",
        shape=shape,
        dtype=spell(dtype),
        ours=calls.pop("ours"),
        expected=expected,
        tolerance=2 * TOLERANCES[dtype],
        peers=calls,
        moved_bytes=5 * x.numel() * x.element_size(),
    )


class Model(nn.Module):
    """The tutorial's model, around a norm."""

    def __init__(self, norm: Norm, first: nn.Linear, last: nn.Linear) -> None:
        super().__init__()
        self.first, self.norm, self.activation, self.last = first, norm, nn.GELU(), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.activation(self.norm(self.first(x))))


def model(kernel: ModuleType, rows: int, device: torch.device) -> Case:
    torch.manual_seed(0)
    x = torch.randn(rows, HIDDEN, device=device, dtype=torch.float16)
    module = RMSNorm(HIDDEN).to(device, torch.float16)
    first = nn.Linear(HIDDEN, HIDDEN).to(device, torch.float16)
    last = nn.Linear(HIDDEN, 10).to(device, torch.float16)
    models = {
        name: Model(call, first, last) for name, call in ways(kernel, "rms_norm", module).items()
    }

    def expected() -> torch.Tensor:
        with torch.no_grad():
            return models["torch"](x).double()

    calls = {name: bind(call, x) for name, call in models.items()}
    return Case(
        op="model",
        shape=(rows, HIDDEN),
        dtype="float16",
        ours=calls.pop("ours"),
        # The products round more than the norm does: it is checked against torch's own model.
        expected=expected,
        tolerance=1e-2,
        peers=calls,
        flops=2 * rows * HIDDEN * (HIDDEN + 10),
    )


def ways(kernel: ModuleType, op: str, module: nn.Module) -> dict[str, Norm]:
    """Every way to the module's norm, ours among them."""
    forward = getattr(kernel.layers, LAYERS[op]).forward
    rest = (module.weight, module.bias) if op == "layer_norm" else (module.weight,)
    calls: dict[str, Norm] = {
        "ours": lambda x: forward(module, x),
        "eager": module,
        "torch": lambda x: OWN[op](x, (x.shape[-1],), *rest, eps=EPS),
    }
    if module.weight.device.type == "cpu":
        return calls
    torch._dynamo.config.recompile_limit = 256
    calls["compile"] = torch.compile(module, dynamic=False)
    try:
        from liger_kernel.transformers import LigerRMSNorm
        from liger_kernel.transformers.layer_norm import LigerLayerNorm
    except ImportError:
        return calls
    liger = {"rms_norm": LigerRMSNorm, "layer_norm": LigerLayerNorm}[op](
        module.weight.shape[0], eps=EPS
    )
    liger.weight = module.weight
    if op == "layer_norm":
        liger.bias = module.bias
    return calls | {"liger": liger}


def exact(op: str, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    parameters = [parameter.detach().double() for parameter in module.parameters()]
    return OWN[op](x, (x.shape[-1],), *parameters, eps=EPS)


def bind(call: Norm, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: call(x)


def spell(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
