"""Kernelizes a Llama of transformers as it is published; one part of ``bench_promises.py``.

It runs in an environment of transformers with this project's packages on PYTHONPATH, and prints one
JSON document. transformers is compared with the hashes that pip recorded when it installed it.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import importlib.metadata
import json

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

# --- what a user writes
from kernels import LayerRepository, report, use_kernel_mapping

MAPPING = {
    name: {"cpu": LayerRepository(f"kernels-community/{kernel}", layer_name=layer, version=1)}
    for name, kernel, layer in (
        ("RMSNorm", "triton-layer-norm", "LlamaRMSNorm"),
        ("SiLU", "activation", "Silu"),
    )
}


def use_kernels(model: LlamaForCausalLM) -> None:
    with use_kernel_mapping(MAPPING):
        transformers.kernelize(model)


# --- what is measured


def changed_files() -> list[str]:
    """Return the files of transformers that are not as pip installed them."""
    changed = []
    for file in importlib.metadata.distribution("transformers").files or []:
        if file.hash is None or file.suffix != ".py":
            continue
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            changed.append(str(file))
    return changed


def main() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=1000,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    plain = copy.deepcopy(model)
    model.kernel_config = None
    use_kernels(model)
    tokens = torch.randint(0, 1000, (2, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, expected = model(tokens).logits, plain(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    what_runs = report(model)
    layers = [layer for layer in what_runs.layers if layer.layer_name in MAPPING]
    assert layers, str(what_runs)
    assert all(layer.runs == "kernel" for layer in layers), str(what_runs)
    found = {
        "transformers": transformers.__version__,
        "changed_files": changed_files(),
        "python_files": sum(
            file.suffix == ".py" for file in importlib.metadata.distribution("transformers").files
        ),
        "layers": len(layers),
        "kernels": sum(layer.runs == "kernel" for layer in layers),
        "largest_difference": (logits - expected).abs().max().item(),
        "largest_logit": expected.abs().max().item(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
