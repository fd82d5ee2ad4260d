"""What the functions of this kernel compute, in plain torch.

Each takes the input alone and returns a new tensor of its dtype. Tests call them in
float64; benchmarks call them to see that what they time is right.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

__all__ = [
    "fatrelu_and_mul",
    "gelu",
    "gelu_and_mul",
    "gelu_fast",
    "gelu_new",
    "gelu_quick",
    "gelu_tanh",
    "gelu_tanh_and_mul",
    "mul_and_silu",
    "silu",
    "silu_and_mul",
]


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; erfc keeps the left tail exact."""
    return x * torch.special.erfc(-x / math.sqrt(2)) / 2


def gelu_fast(x: torch.Tensor) -> torch.Tensor:
    """The tanh approximation of the same paper, as ``x sigmoid(2 u)``: (1 + tanh u) / 2 cancels."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x))


def gelu_new(x: torch.Tensor) -> torch.Tensor:
    """The same function as `gelu_fast`, written with a cube in its source."""
    return gelu_fast(x)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """The same function as `gelu_fast`, by its name in torch."""
    return gelu_fast(x)


def gelu_quick(x: torch.Tensor) -> torch.Tensor:
    """The sigmoid approximation of the paper."""
    return x * torch.sigmoid(1.702 * x)


def silu(x: torch.Tensor) -> torch.Tensor:
    """Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units", 2017."""
    return x * torch.sigmoid(x)


def fatrelu(x: torch.Tensor, threshold: float) -> torch.Tensor:
    """Kurtz et al., "Inducing and exploiting activation sparsity", 2020."""
    return F.threshold(x, threshold, 0.0)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """SwiGLU's product: Shazeer, "GLU variants improve transformer", 2020."""
    a, b = x.chunk(2, dim=-1)
    return silu(a) * b


def mul_and_silu(x: torch.Tensor) -> torch.Tensor:
    """`silu_and_mul` with the halves exchanged."""
    a, b = x.chunk(2, dim=-1)
    return a * silu(b)


def gelu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """GeGLU's product."""
    a, b = x.chunk(2, dim=-1)
    return gelu(a) * b


def gelu_tanh_and_mul(x: torch.Tensor) -> torch.Tensor:
    """GeGLU's product with the tanh approximation."""
    a, b = x.chunk(2, dim=-1)
    return gelu_tanh(a) * b


def fatrelu_and_mul(x: torch.Tensor, threshold: float = 0.0) -> torch.Tensor:
    """A gated FATReLU."""
    a, b = x.chunk(2, dim=-1)
    return fatrelu(a, threshold) * b
