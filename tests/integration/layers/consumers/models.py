"""One script for the published client and for ours: real architectures, kernelized, used as people use them.

The kernels are plain torch and write down that they ran. What came of each use is printed as JSON:
whether results and gradients are those of the plain model, and which kernels ran how often.
"""

import copy
import io
import json
import os
import pickle
import tempfile
import threading
import warnings
from collections import Counter

# transformers marks nothing itself: this script does, for both.
os.environ["USE_HUB_KERNELS"] = "NO"

import diffusers
import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.utils import parametrize, prune
from transformers.activations import GELUActivation
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.mixtral.modeling_mixtral import MixtralRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RMSNorm
from transformers.testing_utils import preserve_module_forwards

import kernels
from kernels import Mode, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
diffusers.logging.set_verbosity_error()
RAN = []
INFERENCE, TRAINING = Mode.INFERENCE, Mode.TRAINING


def ran(name):
    if not torch.compiler.is_compiling():
        RAN.append(name)


class Kernel:
    """A kernel's layer that need not be loaded from anywhere."""

    def __init__(self, cls):
        self.cls = cls

    def load(self):
        return self.cls

    def __str__(self):
        return self.cls.__name__


class Norm(nn.Module):
    can_torch_compile = True

    def forward(self, hidden_states):
        ran("norm")
        x = hidden_states.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(hidden_states.dtype)


class LayerNorm(nn.Module):
    can_torch_compile = True

    def forward(self, input):
        ran("layer norm")
        shape = self.normalized_shape
        return nn.functional.layer_norm(input, shape, self.weight, self.bias, self.eps)


class Silu(nn.Module):
    can_torch_compile = True

    def forward(self, input):
        ran("silu")
        return input * torch.sigmoid(input)


class Gelu(nn.Module):
    can_torch_compile = True

    def forward(self, input):
        ran("gelu")
        return nn.functional.gelu(input)


class Mlp(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        ran("mlp")
        gate = self.gate_proj(x)
        return self.down_proj(gate * torch.sigmoid(gate) * self.up_proj(x))


KERNELS = {each.__name__: {"cpu": Kernel(each)} for each in (Norm, LayerNorm, Silu, Gelu, Mlp)}
for cls in (LlamaRMSNorm, Qwen3RMSNorm, MixtralRMSNorm):
    replace_kernel_forward_from_hub(cls, "Norm")
for cls in (LlamaMLP, Qwen3MLP):
    replace_kernel_forward_from_hub(cls, "Mlp")
replace_kernel_forward_from_hub(nn.LayerNorm, "LayerNorm", lambda norm: norm.elementwise_affine)
replace_kernel_forward_from_hub(nn.SiLU, "Silu")
replace_kernel_forward_from_hub(GELUActivation, "Gelu")

IDS = torch.arange(12).reshape(2, 6)
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "max_position_embeddings": 64}
DIFFUSION = {
    "in_channels": 4,
    "num_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
}


def make(kind, seed=0):
    """Make a tiny model with random weights, norms among them: ones would hide errors."""
    torch.manual_seed(seed)
    match kind:
        case "llama":
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED))
        case "qwen3":
            config = transformers.Qwen3Config(**GROUPED, head_dim=8)
            model = transformers.Qwen3ForCausalLM(config)
        case "mixtral":
            config = transformers.MixtralConfig(**GROUPED, num_local_experts=4)
            model = transformers.MixtralForCausalLM(config)
        case "bert":
            model = transformers.BertModel(transformers.BertConfig(**SIZES))
        case "sd3":
            more = {"sample_size": 8, "patch_size": 2, "caption_projection_dim": 32}
            more |= {"pooled_projection_dim": 16, "out_channels": 4}
            model = diffusers.SD3Transformer2DModel(**DIFFUSION, **more)
        case "flux":
            more = {"patch_size": 1, "num_single_layers": 1, "axes_dims_rope": (4, 4, 8)}
            model = diffusers.FluxTransformer2DModel(**DIFFUSION, **more, pooled_projection_dim=16)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return model.eval()


def call(kind, model):
    noise = torch.Generator().manual_seed(1)
    match kind:
        case "llama" | "qwen3" | "mixtral":
            return model(IDS).logits
        case "bert":
            return model(IDS).last_hidden_state
    text = {
        "encoder_hidden_states": torch.randn(1, 5, 32, generator=noise),
        "pooled_projections": torch.randn(1, 16, generator=noise),
        "timestep": torch.tensor([1.0]),
    }
    if kind == "sd3":
        return model(torch.randn(1, 4, 8, 8, generator=noise), **text).sample
    places = {"img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(5, 3)}
    return model(torch.randn(1, 16, 4, generator=noise), **text, **places).sample


def kernelized(model, mode=INFERENCE):
    with use_kernel_mapping(KERNELS):
        return kernelize(model, mode=mode, device="cpu")


def close(one, other, tolerance=1e-4):
    return torch.allclose(one.float(), other.float(), rtol=tolerance, atol=tolerance)


def gradients_close(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all((a.grad is None and b.grad is None) or close(a.grad, b.grad) for a, b in pairs)


result, reports = {}, {}


def use(function):
    """Write down what a use gives, and which kernels ran meanwhile."""
    RAN.clear()
    with torch.set_grad_enabled("train" in function.__name__):
        found = function()
    result[function.__name__] = [found, dict(sorted(Counter(RAN).items()))]
    return function


def use_as(name, function):
    function.__name__ = name
    use(function)


def use_model(kind):
    plain = make(kind)
    with torch.no_grad():
        wanted = call(kind, plain)

    def infer():
        model = kernelized(make(kind))
        if hasattr(kernels, "report"):
            layers = kernels.report(model).layers
            reports[kind] = dict(Counter(f"{each.layer_name} {each.runs}" for each in layers))
        return close(call(kind, model), wanted)

    def train():
        models = (kernelized(make(kind).train(), TRAINING), make(kind).train())
        for model in models:
            torch.manual_seed(5)  # of dropout
            call(kind, model).float().pow(2).mean().backward()
        return gradients_close(*models)

    def compile_whole():
        model = kernelized(make(kind), INFERENCE | Mode.TORCH_COMPILE)
        torch._dynamo.reset()
        return close(call(kind, torch.compile(model, fullgraph=True, backend="eager")), wanted)

    def change_a_copy():
        model, other = copy.deepcopy(kernelized(make(kind))), make(kind)
        for parameter in (*model.parameters(), *other.parameters()):
            parameter.mul_(1.5)
        # A copy that used the weights of its model would give what that gives.
        return close(call(kind, model), call(kind, other))

    def halve():
        models = (kernelized(make(kind)).bfloat16(), make(kind).bfloat16())
        one, other = (call(kind, model) for model in models)
        return [close(one, other, 1e-1), str(one.dtype)]

    uses = [infer, train, compile_whole, change_a_copy]
    for each in uses if kind in ("sd3", "flux") else [*uses, halve]:
        use_as(f"{kind}: {each.__name__}", each)


for kind in ("llama", "qwen3", "mixtral", "bert", "sd3", "flux"):
    use_model(kind)


def loss(model):
    torch.manual_seed(5)
    return model(IDS, labels=IDS).loss


def train_with_checkpoints(*, reentrant):
    model, plain = kernelized(make("llama").train(), TRAINING), make("llama").train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    loss(model).backward()
    loss(plain).backward()
    return gradients_close(model, plain)


def train_adapters(*, before):
    """LoRA: only the adapters learn, and they are merged afterwards."""

    def adapt(model):
        torch.manual_seed(3)
        targets = ["q_proj", "gate_proj", "down_proj"]
        return get_peft_model(
            model, LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
        )

    model, plain = make("llama").train(), adapt(make("llama").train())
    model = adapt(kernelized(model, TRAINING)) if before else kernelized(adapt(model), TRAINING)
    loss(model).backward()
    loss(plain).backward()
    is_close = gradients_close(model, plain)
    merged, other = model.merge_and_unload()(IDS).logits, plain.merge_and_unload()(IDS).logits
    return [is_close, close(merged, other)]


for flag in (False, True):
    use_as(f"train with checkpoints, {flag}", lambda: train_with_checkpoints(reentrant=flag))  # noqa: B023
    use_as(f"train adapters, {flag}", lambda: train_adapters(before=flag))  # noqa: B023


def logits(model):
    return model(IDS).logits


def norm_of(seed=0):
    return make("llama", seed).model.norm


@use
def pickle_and_save():
    model, stream = kernelized(make("llama")), io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    twins = (pickle.loads(pickle.dumps(model)), torch.load(stream, weights_only=False))
    return [close(logits(each), logits(make("llama"))) for each in twins]


@use
def save_and_load_weights():
    model = kernelized(make("llama"))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = transformers.LlamaForCausalLM.from_pretrained(folder)
    assert model.state_dict().keys() == make("llama").state_dict().keys()
    return close(logits(loaded), logits(model))


@use
def export_trace_and_script():
    x, mlp = torch.randn(2, 3, 32), make("llama").model.layers[0].mlp
    model = kernelized(copy.deepcopy(mlp))
    exported = torch.export.export(model, (x,)).module()
    traced = torch.jit.trace(model, (x,))
    return [close(each(x), mlp(x)) for each in (exported, traced)]


@use
def weights_from_elsewhere():
    model, other = kernelized(make("llama")), make("llama", 7)
    called = torch.func.functional_call(model, dict(other.named_parameters()), (IDS,)).logits
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(other.state_dict())
    model.model.rotary_emb = other.model.rotary_emb
    return [close(called, logits(other)), close(logits(model), logits(other))]


@use
def parametrize_and_prune():
    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    found, x = [], torch.randn(2, 32)
    model, plain = kernelized(norm_of()), norm_of()
    for each in (model, plain):
        parametrize.register_parametrization(each, "weight", Twice())
    found.append(close(model(x), plain(x)))
    found.append(close(kernelized(model)(x), plain(x)))
    for each in (model, plain):
        parametrize.remove_parametrizations(each, "weight")
        prune.l1_unstructured(each, "weight", amount=0.5)
    return [*found, close(model(x), plain(x))]


@use
def kernelize_again():
    model = kernelized(make("llama"))
    with use_kernel_mapping({"Mlp": KERNELS["Mlp"]}, inherit_mapping=False):
        kernelize(model, mode=INFERENCE, device="cpu")
    logits(model)
    some = Counter(RAN)
    kernelize(model, mode=INFERENCE, device="cpu")
    logits(model)
    return [some == Counter(mlp=2), Counter(RAN) == some]


@use
def an_error_half_way():
    class Broken:
        def load(self):
            raise RuntimeError

    model = make("llama")
    try:
        with use_kernel_mapping({"Norm": KERNELS["Norm"], "Mlp": {"cpu": Broken()}}):
            kernelize(model, mode=INFERENCE, device="cpu")
    except RuntimeError:
        return close(logits(model), logits(make("llama")))


@use
def several_threads():
    models = [make("llama", seed) for seed in range(4)]
    threads = [threading.Thread(target=kernelized, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plain = [make("llama", seed) for seed in range(4)]
    return [close(logits(one), logits(other)) for one, other in zip(models, plain, strict=True)]


@use
def hooks():
    norm, seen = kernelized(norm_of()), []
    norm.register_forward_pre_hook(lambda *_: seen.append("before"))
    norm.register_forward_hook(lambda *_: seen.append("after"))
    norm(torch.randn(1, 32))
    return seen


@use
def generate():
    more = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    wanted = make("llama").generate(IDS, **more)
    model = kernelized(make("llama"))
    found = [model.generate(IDS, **more)]
    found.append(model.generate(IDS, **more, cache_implementation="static"))
    return [torch.equal(each, wanted) for each in found]


@use
def undone_by_transformers():
    model = make("llama")
    with preserve_module_forwards(model):
        kernelized(model)
    return close(logits(model), logits(make("llama")))


@use
def one_layer_in_two_places():
    silu = nn.SiLU()
    return kernelized(nn.Sequential(silu, nn.Sequential(silu)))(torch.ones(1)).item() < 1


@use
def a_module_that_compiles_itself():
    model = kernelized(make("llama"), INFERENCE | Mode.TORCH_COMPILE)
    torch._dynamo.reset()
    model.compile(fullgraph=True, backend="eager")
    return close(logits(model), logits(make("llama")))


print(json.dumps({"uses": result, "reports": reports, "version": kernels.__version__}))
