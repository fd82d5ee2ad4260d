"""The norms as modules, to stand in for a model's own layers or to be subclassed.

They have no ``__init__`` and no parameters of their own: the weight is that of the layer
into which their ``forward`` is put, or of the subclass.
"""

from __future__ import annotations

import torch
from torch import nn

from . import functions

__all__ = ["LayerNorm", "LlamaRMSNorm"]


class LlamaRMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x²) + epsilon)`` over the last dimension.

    The epsilon is the layer's `variance_epsilon`, or `eps` if it has none of that name.
    """

    can_torch_compile: bool = True
    has_backward: bool = True

    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        attributes = self.__dict__
        eps = attributes.get("variance_epsilon")
        if eps is None:
            eps = self.eps if "eps" in attributes else self.variance_epsilon
        # A module's own look-up of a parameter is Python, and takes as long as recording the call.
        parameters = attributes["_parameters"]
        weight = parameters["weight"] if "weight" in parameters else self.weight  # noqa: SIM401
        return functions.norm(hidden_states, weight, None, eps, True)


class LayerNorm(nn.Module):
    """``F.layer_norm`` over the last dimension, with the layer's `weight`, `bias` and `eps`.

    The epsilon may also be called `variance_epsilon`; weight and bias may be None.
    """

    can_torch_compile: bool = True
    has_backward: bool = True

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    eps: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        attributes = self.__dict__
        eps = attributes.get("eps")
        if eps is None:
            eps = self.variance_epsilon if "variance_epsilon" in attributes else self.eps
        parameters = attributes["_parameters"]
        weight = parameters["weight"] if "weight" in parameters else self.weight  # noqa: SIM401
        bias = parameters["bias"] if "bias" in parameters else getattr(self, "bias", None)
        return functions.norm(hidden_states, weight, bias, eps, False)
