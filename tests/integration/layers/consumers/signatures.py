"""Can every model that marks layers be imported, and do those take the kernels that transformers names?

The kernels run on GPUs alone; what is known of them without one is how their forwards are called
and what they read of a layer: from huggingface/kernels-community, ``*/torch-ext/*/layers.py``.
"""

import importlib
import json
import runpy
import tempfile
from pathlib import Path

import transformers
from torch import nn
from transformers.integrations.hub_kernels import _build_kernel_mapping

from kernels.layer.contract import (
    find_layer_faults,
    find_missing_attributes,
    find_signature_faults,
    read_attributes,
)
from kernels.layer.extensible import NAME

RULE = "g, beta, chunk_size=64, initial_state=None, output_final_state=False"
INNER = "x_proj_weight, delta_proj_weight, out_proj_weight, out_proj_bias"
# What each layer's forward takes, and what it reads of the layer that it stands for.
FORWARDS = {
    "activation": dict.fromkeys(
        ["Silu", "Gelu", "GeluTanh", "FastGELU", "NewGELU", "QuickGELU"], ("x", "")
    ),
    "fla": {
        "FusedRMSNormGated": ("hidden_states, gate=None", "weight activation variance_epsilon"),
        "chunk_gated_delta_rule": (
            f"query, key, value, {RULE}, use_qk_l2norm_in_kernel=False, **kwargs",
            "",
        ),
        "chunk_kimi_delta_attention": (
            f"query, key, value, {RULE}, use_qk_l2norm_in_kernel=False, **kwargs",
            "",
        ),
        "recurrent_kimi_delta_attention": (
            "query, key, value, g, beta, initial_state, output_final_state, "
            "use_qk_l2norm_in_kernel=False, **kwargs",
            "",
        ),
    },
    "liger-kernels": {
        "LigerRMSNorm": ("hidden_states", "weight variance_epsilon"),
        "LigerSwiGLUMLP": ("x", "gate_proj up_proj down_proj"),
        "LigerGEGLUMLP": ("x", "gate_proj up_proj down_proj"),
    },
    "mamba-ssm": {
        "causal_conv1d_fn": ("hidden_states, weight, bias=None, activation=None, **kwargs", ""),
        "causal_conv1d_update": (
            "hidden_states, conv_state, weight, bias=None, activation=None",
            "",
        ),
        "mamba_inner_fn": (
            f"xz, conv1d_weight, conv1d_bias, {INNER}, A, B=None, C=None, D=None, delta_bias=None, "
            "delta_softplus=True, b_rms_weight=None, c_rms_weight=None, dt_rms_weight=None, "
            "b_c_dt_rms_eps=1e-6, **kwargs",
            "",
        ),
        "mamba_split_conv1d_scan_combined": (
            "zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, chunk_size, initial_states=None, "
            "dt_limit=(0.0, float('inf')), return_final_states=False, activation='silu', "
            "rmsnorm_weight=None, rmsnorm_eps=1e-6, outproj_weight=None, outproj_bias=None, "
            "headdim=None, ngroups=1, norm_before_gate=True, **kwargs",
            "",
        ),
        "mamba_chunk_scan_combined": (
            "hidden_states, dt, A, B, C, chunk_size, D=None, dt_bias=None, initial_states=None, "
            "dt_softplus=False, dt_limit=(0.0, float('inf')), return_final_states=False, **kwargs",
            "",
        ),
        "selective_state_update": (
            "state, hidden_states, dt, A, B, C, D=None, dt_bias=None, dt_softplus=False, z=None, "
            "**kwargs",
            "",
        ),
        "selective_scan_fn": (
            "hidden_states, dt, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, "
            "return_last_state=False, use_mambapy=False, use_associative_scan=False, **kwargs",
            "",
        ),
    },
    "megablocks": {"MegaBlocksMoeMLP": ("x", "router experts")},
    "rmsnorm": {"RMSNorm": ("hidden_states", "weight variance_epsilon")},
    "rotary": {"apply_rotary_transformers": ("q, k, cos, sin, unsqueeze_dim=1", "")},
}
SOURCE = """class {name}(nn.Module):
    def forward(self, {takes}):
        return [{reads}]
"""


def write_layers():
    """Return a class for each; in a file, since what a forward reads is read off its source."""
    layers = {}
    with tempfile.TemporaryDirectory() as folder:
        for repository, forwards in FORWARDS.items():
            classes = [
                SOURCE.format(
                    name=name,
                    takes=takes,
                    reads=", ".join(f"self.{each}" for each in reads.split()),
                )
                for name, (takes, reads) in forwards.items()
            ]
            file = Path(folder, f"{repository}.py")
            file.write_text("\n".join(["from torch import nn", *classes]))
            found = runpy.run_path(str(file))
            for name in forwards:
                layers[f"kernels-community/{repository}", name] = found[name]
                read_attributes(found[name].forward)  # while the file is there
    return layers


def find_marked():
    """Import every model that marks layers or functions; return their classes, by module."""
    root = Path(transformers.__file__).parent
    names = ["activations", "integrations.mxfp4"]
    for file in sorted(root.glob("models/*/modeling_*.py")):
        if "use_kernel" in file.read_text(encoding="utf-8"):
            names.append(f"models.{file.parent.name}.{file.stem}")
    marked = {}
    for name in names:
        classes = marked[name] = {"layers": [], "functions": []}
        for value in vars(importlib.import_module(f"transformers.{name}")).values():
            if isinstance(value, type) and issubclass(value, nn.Module) and NAME in vars(value):
                classes["layers"].append(value)
            elif isinstance(value, nn.Module) and hasattr(value, NAME):
                classes["functions"].append(type(value))
    return marked


layers, kernels_of = write_layers(), {}
for layer_name, devices in _build_kernel_mapping().items():
    for modes in devices.values():
        for repository in modes.values() if isinstance(modes, dict) else [modes]:
            kernel = layers.get((repository.repo_id, repository.layer_name))
            if kernel is not None:
                kernels_of.setdefault(layer_name, {})[str(repository)] = kernel
norm = layers["kernels-community/liger-kernels", "LigerRMSNorm"]
assert find_missing_attributes(norm, nn.LayerNorm(8)) == ("variance_epsilon",)
checked, faults = {}, {}
marked = find_marked()
counts = {
    kind: [cls for each in marked.values() for cls in each[kind]]
    for kind in ("layers", "functions")
}
for cls in (*counts["layers"], *counts["functions"]):
    for repository, kernel in kernels_of.get(getattr(cls, NAME), {}).items():
        checked[repository] = checked.get(repository, 0) + 1
        found = [*find_layer_faults(kernel), *find_signature_faults(kernel.forward, cls.forward)]
        if getattr(cls, NAME) in ("RMSNorm", "RMSNormGated"):
            found += find_missing_attributes(kernel, cls(8))
        if found:
            faults[f"{cls.__module__}.{cls.__qualname__}, {repository}"] = found
result = {"checked": checked, "faults": faults, "modules": len(marked)}
print(json.dumps(result | {kind: len(classes) for kind, classes in counts.items()}))
