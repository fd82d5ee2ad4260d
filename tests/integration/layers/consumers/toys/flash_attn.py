"""The functions of flash-attention that the libraries look up, in plain torch."""

import types

from torch.nn.functional import scaled_dot_product_attention

CALLS = []


def flash_attn_func(q, k, v, *, softmax_scale=None, causal=False, **_):
    CALLS.append(tuple(q.shape))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = scaled_dot_product_attention(
        q, k, v, scale=softmax_scale, is_causal=causal, enable_gqa=True
    )
    return out.transpose(1, 2)


def flash_attn_varlen_func(q, k, v, *_, **__):
    raise NotImplementedError("packed sequences")


flash_attn_interface = types.SimpleNamespace(
    _flash_attn_forward=flash_attn_func,
    _flash_attn_backward=flash_attn_func,
    _flash_attn_varlen_forward=flash_attn_varlen_func,
    _flash_attn_varlen_backward=flash_attn_varlen_func,
)
