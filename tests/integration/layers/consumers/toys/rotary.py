"""A rotary embedding with the layer that transformers maps ``rotary_pos_emb`` to."""

import sys

import torch
from torch import nn

CALLS = []


class apply_rotary_transformers(nn.Module):  # noqa: N801 - its published name
    can_torch_compile = True

    def forward(self, q, k, cos, sin, unsqueeze_dim=1):
        CALLS.append(tuple(q.shape))
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return tuple(x * cos + _rotate(x) * sin for x in (q, k))


def _rotate(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


layers = sys.modules[__name__]
