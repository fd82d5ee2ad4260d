"""What the scripts share: a tiny Llama with random weights, our kernels as mappings, call counts."""

import sys
from contextlib import contextmanager

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kernels import LayerRepository, get_kernel

IDS = torch.randint(0, 100, (2, 16), generator=torch.Generator().manual_seed(1))


def make_llama(dtype=torch.float32, layers=2):
    """Two layers of hidden size 64; norms weighted at random, since ones would hide errors."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).to(dtype).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def ours(name, layer, version=1):
    return LayerRepository(f"kernels-community/{name}", layer_name=layer, version=version)


MAPPING = {
    "RMSNorm": {"cpu": ours("triton-layer-norm", "LlamaRMSNorm")},
    "SiLU": {"cpu": ours("activation", "Silu")},
    "rotary_pos_emb": {"cpu": ours("rotary", "apply_rotary_transformers", 2)},
}


@contextmanager
def count_norms():
    """Count the calls of triton-layer-norm's way in."""
    kernel = get_kernel("kernels-community/triton-layer-norm", version=1)
    functions = sys.modules[f"{kernel.__name__}.functions"]
    calls, norm = [], functions.norm

    def counted(x, *more):
        calls.append(tuple(x.shape))
        return norm(x, *more)

    functions.norm = counted
    try:
        yield calls
    finally:
        functions.norm = norm


@contextmanager
def count_ops(name):
    """Count the calls of an op of a kernel, which fills or returns, as torch's profiler sees them."""
    counts = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        yield counts
    counts += [
        event.name
        for event in profile.events()
        if event.name.startswith("_activation")
        and event.name.endswith((f"::{name}", f"::{name}_value"))
    ]
