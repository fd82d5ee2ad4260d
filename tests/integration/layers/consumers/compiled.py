"""Kernelized models under torch.compile(fullgraph=True): one graph, the same numbers."""

import copy
import json

import torch
from scene import IDS, MAPPING, make_llama, ours
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from kernels import (
    Mode,
    kernelize,
    report,
    unkernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)

COMPILED = Mode.INFERENCE | Mode.TORCH_COMPILE
result = {}


def compile_whole(model, backend="aot_eager"):
    """Compile without graph breaks; the counter tells how many graphs there were."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    return torch.compile(model, fullgraph=True, backend=counter), counter


model = make_llama()
with torch.no_grad():
    expected = model(IDS, use_cache=False).logits
    with use_kernel_mapping(MAPPING):
        kernelize(model, mode=COMPILED, strict=True)
    result["llama_kernels"] = len(report(model).kernels)
    compiled, counter = compile_whole(model)
    torch.testing.assert_close(compiled(IDS, use_cache=False).logits, expected)
    result["llama_graphs"] = counter.frame_count
    names = {str(node.target) for graph in counter.graphs for node in graph.graph.nodes}
    result["silu_in_graph"] = any("activation" in name and "silu" in name for name in names)
    # Kernelized after it was compiled: what runs is what the report says.
    unkernelize(model)
    torch.testing.assert_close(compiled(IDS, use_cache=False).logits, expected)
    result["graphs_after_unkernelize"] = counter.frame_count


@use_kernel_forward_from_hub("SiLU")
class Activation(nn.Module):
    def forward(self, x):
        return nn.functional.silu(x)


def make_mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), Activation(), nn.Linear(64, 8))


x = torch.randn(16, 32)
plain = make_mlp()

# inductor, as users compile.
model = copy.deepcopy(plain)
with use_kernel_mapping(MAPPING):
    kernelize(model, mode=COMPILED, strict=True)
with torch.no_grad():
    compiled, counter = compile_whole(model, "inductor")
    torch.testing.assert_close(compiled(x), plain(x))
result["inductor_graphs"] = counter.frame_count

# A kernel without backward, in a model for inference that is compiled and then trained: where
# autograd records it is not in the graph, and otherwise it is.
model = copy.deepcopy(plain)
with use_kernel_mapping({"SiLU": {"cpu": ours("no-backward", "Silu")}}):
    kernelize(model, mode=Mode.INFERENCE, strict=True)
compiled, counter = compile_whole(model)
compiled(x).sum().backward()
plain(x).sum().backward()
for one, other in zip(model.parameters(), plain.parameters(), strict=True):
    torch.testing.assert_close(one.grad, other.grad)
result["recorded_graphs"] = counter.frame_count
with torch.no_grad():
    torch.testing.assert_close(compiled(x), plain(x))
graphs = [{str(node.target) for node in graph.graph.nodes} for graph in counter.graphs]
result["kernel_in_graph"] = [any("sigmoid" in name for name in names) for names in graphs]

# Measured: decided before it is compiled, and still one graph.
model = copy.deepcopy(plain)
with use_kernel_mapping(MAPPING):
    kernelize(model, mode=Mode.INFERENCE, select="measured", strict=True)
with torch.no_grad():
    model(x)
    [shape] = report(model).layers[0].shapes
    compiled, counter = compile_whole(model)
    torch.testing.assert_close(compiled(x), plain(x))
result["measured_graphs"] = counter.frame_count
names = {str(node.target) for graph in counter.graphs for node in graph.graph.nodes}
result["measured"] = shape.runs == (
    "kernel" if any("activation" in n for n in names) else "original"
)

# Measured for torch.compile: both are timed compiled, and what won is in the graph.
model = copy.deepcopy(plain)
with use_kernel_mapping(MAPPING):
    kernelize(model, mode=COMPILED, select="measured", strict=True)
with torch.no_grad():
    compiled, counter = compile_whole(model)
    torch.testing.assert_close(compiled(x), plain(x))
    assert report(model).layers[0].shapes == ()  # nothing is measured while compiling
    assert "until the model was called" in report(model).layers[0].reason
    torch.testing.assert_close(model(x), plain(x))
    [shape] = report(model).layers[0].shapes
    torch.testing.assert_close(compiled(x), plain(x))
# A verdict for the kernel comes after the graph was made with the original: it is made anew.
result["verdict_graphs"] = counter.frame_count == (2 if shape.runs == "kernel" else 1)

# A kernel that cannot be compiled breaks no graph: its layer's own forward is compiled.
rotary = {"SiLU": {"cpu": ours("eager-only", "Silu", 1)}}
with use_kernel_mapping(rotary):
    model = kernelize(copy.deepcopy(plain), mode=Mode.INFERENCE, strict=True)
with torch.no_grad():
    torch.testing.assert_close(model(x), plain(x))
    compiled, counter = compile_whole(model)
    torch.testing.assert_close(compiled(x), plain(x))
    with use_kernel_mapping(rotary):
        kernelize(model, mode=COMPILED)
result["eager_only"] = [counter.frame_count, report(model).layers[0].reason]
print(json.dumps(result))
