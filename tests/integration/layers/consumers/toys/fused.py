"""A norm and the MLP after it as one layer, with the layout that transformers gives to a model."""

import sys

from torch import nn
from transformers.core_model_loading import WeightRenaming

CALLS = []


class NormMLP(nn.Module):
    can_torch_compile = True

    def forward(self, hidden_states):
        CALLS.append(tuple(hidden_states.shape))
        return self.mlp(self.norm(hidden_states))


class NormMLPLayout(nn.Module):
    conversion_mapping = (
        WeightRenaming(r"post_attention_layernorm\.weight", "post_attention_layernorm.norm.weight"),
        WeightRenaming(r"\.mlp\.", ".post_attention_layernorm.mlp."),
    )

    def __init__(self, norm, mlp):
        super().__init__()
        self.norm = norm
        self.mlp = mlp


layers = sys.modules[__name__]
