"""An activation that no gradient goes through."""

import sys

import torch
from torch import nn


class Silu(nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, x):
        with torch.no_grad():
            return x * torch.sigmoid(x)


layers = sys.modules[__name__]
