"""A Llama on a GPU whose norms and activations run our kernels, built on a machine without one.

First: kernel-builder build kernels-community/triton-layer-norm, and the same for activation with
--backend cuda. The model here is written in plain torch, since GPU images come without
transformers or with an older one; where theirs is new enough, it is tested too.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from torch import nn  # noqa: E402

from kernels import (  # noqa: E402
    CUDAProperties,
    Device,
    LocalLayerRepository,
    Mode,
    kernelize,
    replace_kernel_forward_from_hub,
    report,
    unkernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)

DEVICE = "cuda"
COMMUNITY = Path(__file__).resolve().parents[2] / "kernels-community"
COMPILED = Mode.INFERENCE | Mode.TORCH_COMPILE
HIDDEN, HEADS, LAYERS = 512, 8, 2


@use_kernel_forward_from_hub("RMSNorm")
class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(HIDDEN).uniform_(0.5, 1.5))
        self.variance_epsilon = 1e-6

    def forward(self, x: Any) -> Any:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(x.dtype)


@use_kernel_forward_from_hub("SiLU")
class SiLU(nn.Module):
    def forward(self, input: Any) -> Any:
        return nn.functional.silu(input)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(), RMSNorm()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate, self.up = (nn.Linear(HIDDEN, 2 * HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.act = SiLU()

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, HIDDEN))
        normed = self.mlp_norm(x)
        return x + self.down(self.act(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, HIDDEN)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = RMSNorm()
        self.head = nn.Linear(HIDDEN, 1000, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def ours(name: str, layer: str) -> LocalLayerRepository:
    project = COMMUNITY / name
    wanted = "torch-cuda" if name == "triton-layer-norm" else "*-cu*"
    if not list(project.glob(f"build/{wanted}")):
        pytest.skip(f"not built: run `kernel-builder build {project}` first")
    return LocalLayerRepository(project, layer_name=layer)


@pytest.fixture
def mapping() -> dict[str, Any]:
    return {
        "RMSNorm": {DEVICE: ours("triton-layer-norm", "LlamaRMSNorm")},
        "SiLU": {DEVICE: ours("activation", "Silu")},
    }


@pytest.fixture(params=["float32", "bfloat16", "float16"])
def dtype(request: pytest.FixtureRequest) -> Any:
    return getattr(torch, request.param)


def make_model(dtype: Any = torch.float32) -> Llama:
    torch.manual_seed(0)
    return Llama().to(DEVICE).to(dtype).eval()


def make_ids(batch: int = 2, length: int = 64) -> Any:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 1000, (batch, length), generator=generator).to(DEVICE)


def tolerance(dtype: Any) -> float:
    """Activations pass a dozen roundings of the dtype before they are compared."""
    return {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}[dtype]


def launched(model: nn.Module, ids: Any) -> list[str]:
    """The names of the device kernels of one call."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.no_grad():
        model(ids)
        with torch.profiler.profile(activities=activities) as profile:
            model(ids)
            torch.cuda.synchronize()
    return [event.name for event in profile.events() if "cuda" in str(event.device_type).lower()]


def test_the_model_runs_our_kernels(dtype: Any, mapping: dict[str, Any]) -> None:
    plain, ids = make_model(dtype), make_ids()
    model = copy.deepcopy(plain)
    with use_kernel_mapping(mapping):
        kernelize(model, mode=Mode.INFERENCE, strict=True)
    assert {layer.runs for layer in report(model).layers} == {"kernel"}
    assert {layer.device for layer in report(model).layers} == {
        f"cuda {10 * torch.cuda.get_device_capability()[0] + torch.cuda.get_device_capability()[1]}"
    }
    with torch.no_grad():
        torch.testing.assert_close(
            model(ids), plain(ids), rtol=tolerance(dtype), atol=tolerance(dtype)
        )
    names = launched(model, ids)
    assert sum("norm_forward_kernel" in name for name in names) == 2 * LAYERS + 1
    assert not any("norm_forward_kernel" in name for name in launched(plain, ids))


def test_gradients_are_those_of_the_model(mapping: dict[str, Any]) -> None:
    plain, ids = make_model(), make_ids()
    model = copy.deepcopy(plain)
    with use_kernel_mapping(mapping):
        kernelize(model.train(), mode=Mode.TRAINING, strict=True)
    for each in (model, plain):
        logits = each(ids)
        nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


def test_a_compiled_model_is_one_graph_and_equal(mapping: dict[str, Any]) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    plain, ids = make_model(), make_ids()
    model = copy.deepcopy(plain)
    with use_kernel_mapping(mapping):
        kernelize(model, mode=COMPILED, strict=True)
    assert {layer.runs for layer in report(model).layers} == {"kernel"}
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        torch.testing.assert_close(compiled(ids), plain(ids), rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1


def test_measured_selection_never_takes_the_slower_one(
    mapping: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plain = make_model(torch.float16)
    model = copy.deepcopy(plain)
    with use_kernel_mapping(mapping):
        kernelize(model, mode=Mode.INFERENCE, select="measured", strict=True)
    with torch.no_grad():
        for batch, length in ((1, 1), (2, 64), (16, 512)):
            ids = make_ids(batch, length)
            torch.testing.assert_close(model(ids), plain(ids), rtol=1e-2, atol=1e-2)
    found = report(model)
    print(found)
    shapes = [shape for layer in found.layers for shape in layer.shapes]
    assert len({shape.shape for shape in shapes}) >= 6
    for shape in shapes:
        assert (shape.runs == "kernel") == (shape.kernel_us <= shape.original_us)
    assert len(list((tmp_path / "kernels" / "measured").iterdir())) == 2


def test_a_graph_that_is_captured_unmeasured_gets_the_original(
    mapping: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plain, ids = make_model(), make_ids(3, 7)
    model = copy.deepcopy(plain)
    with torch.no_grad():
        expected = plain(ids)
        torch.cuda.synchronize()
        with use_kernel_mapping(mapping):
            kernelize(model, mode=Mode.INFERENCE, select="measured", strict=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = model(ids)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(captured, expected, rtol=1e-4, atol=1e-4)
    assert all(layer.shapes == () for layer in report(model).layers)


def test_the_capability_of_the_gpu_chooses(mapping: dict[str, Any]) -> None:
    major, minor = torch.cuda.get_device_capability()
    here, above = 10 * major + minor, 10 * major + minor + 1

    def only(low: int, high: int) -> Device:
        return Device("cuda", CUDAProperties(min_capability=low, max_capability=high))

    kernel = mapping["RMSNorm"][DEVICE]
    model = make_model()
    with use_kernel_mapping({"RMSNorm": {only(above, above + 9): kernel}}, inherit_mapping=False):
        kernelize(model, mode=Mode.INFERENCE)
    assert report(model).kernels == ()
    assert any(f"not for cuda {here}" in layer.reason for layer in report(model).layers)
    with use_kernel_mapping({"RMSNorm": {only(here, above): kernel}}, inherit_mapping=False):
        kernelize(model, mode=Mode.INFERENCE, device=torch.device("cuda", 0))
    assert len(report(model).kernels) == 2 * LAYERS + 1


def test_llama_of_transformers(mapping: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    try:
        from transformers.utils.import_utils import is_kernels_available
    except ImportError:
        pytest.skip(f"transformers {transformers.__version__} does not know kernels")
    if not is_kernels_available():
        pytest.skip(f"transformers {transformers.__version__} wants another version of kernels")
    config = transformers.LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        vocab_size=1000,
    )
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(config).to(DEVICE).eval()
    model, ids = copy.deepcopy(plain), make_ids()
    model.kernel_config = None
    with use_kernel_mapping(mapping, inherit_mapping=False):
        transformers.kernelize(model)
    found = report(model)
    assert len(found.kernels) == 3 * LAYERS + 1
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-4)
    names = launched(model, ids)
    assert sum("norm_forward_kernel" in name for name in names) == 2 * LAYERS + 1
    unkernelize(model)
    assert report(model).kernels == ()


def test_stable_diffusion_of_diffusers(mapping: dict[str, Any]) -> None:
    pytest.importorskip("diffusers")
    from diffusers import SD3Transformer2DModel
    from diffusers.models.normalization import RMSNorm as TheirNorm

    torch.manual_seed(0)
    plain = SD3Transformer2DModel(
        sample_size=8,
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=LAYERS,
        attention_head_dim=64,
        num_attention_heads=HEADS,
        caption_projection_dim=HIDDEN,
        joint_attention_dim=HIDDEN,
        pooled_projection_dim=64,
        qk_norm="rms_norm",
    )
    plain = plain.to(DEVICE).eval()
    inputs = {
        "hidden_states": torch.randn(2, 4, 8, 8, device=DEVICE),
        "encoder_hidden_states": torch.randn(2, 10, HIDDEN, device=DEVICE),
        "pooled_projections": torch.randn(2, 64, device=DEVICE),
        "timestep": torch.tensor([1.0, 2.0], device=DEVICE),
    }
    model = copy.deepcopy(plain)
    # diffusers marks no layers, so the user does, each with what the kernel needs of it.
    replace_kernel_forward_from_hub(TheirNorm, "RMSNorm", lambda norm: norm.bias is None)
    replace_kernel_forward_from_hub(nn.SiLU, "SiLU", lambda silu: not silu.inplace)
    with use_kernel_mapping(mapping, inherit_mapping=False):
        kernelize(model, mode=Mode.INFERENCE, strict=True)
    norms = sum(isinstance(module, TheirNorm) for module in plain.modules())
    activations = sum(isinstance(module, nn.SiLU) for module in plain.modules())
    assert norms > 0
    assert len(report(model).kernels) == norms + activations
    with torch.no_grad():
        torch.testing.assert_close(
            model(**inputs).sample, plain(**inputs).sample, rtol=1e-3, atol=1e-3
        )
