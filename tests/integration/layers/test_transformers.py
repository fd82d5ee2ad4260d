"""transformers 5.24.0 with this distribution beside it. Budget: see conftest."""

from __future__ import annotations


def test_llama_runs_our_kernels(run_consumer):
    result = run_consumer("llama.py")
    assert result["version"].startswith("0.18.2")
    for found in result["dtypes"].values():
        kernels = {path: kernel for path, runs, kernel in found["layers"] if runs == "kernel"}
        # Two norms a layer and one at the end, two activations, and the function they share.
        assert len(found["layers"]) == len(kernels) == 5 + 2 + 1
        assert kernels["model.norm"] == "kernels-community/triton-layer-norm@v1:LlamaRMSNorm"
        assert kernels["model.layers.1.mlp.act_fn"] == "kernels-community/activation@v1:Silu"
        assert (found["norms"], found["silus"], found["rotated"]) == (5, 2, 2)
    assert result["training"]["RMSNorm"] == "kernel"
    assert {reason.partition(" ")[0] for reason in result["use_kernels"]} == {
        *("RMSNorm", "SiLU", "rotary_pos_emb"),
    }
    assert all(reason.endswith("not for cpu") for reason in result["use_kernels"])
    assert result["kernel_config"] == [["RMSNorm", "rotary_pos_emb"], ["SiLU"]]
    assert result["attention"] == [True, 2]


def test_every_marked_layer_takes_the_kernels_that_transformers_names(run_consumer):
    result = run_consumer("signatures.py")
    assert result["modules"] > 150
    assert result["layers"] > 150
    assert result["functions"] > 100
    assert result["faults"] == {}
    checked = {repository.split("/")[1]: count for repository, count in result["checked"].items()}
    assert checked["liger-kernels@v3:LigerRMSNorm"] > 100
    assert checked["rotary@v2:apply_rotary_transformers"] > 100
    assert checked["mamba-ssm@v5:causal_conv1d_fn"] > 20
    assert len(checked) > 20


def test_a_layout_of_a_kernel_stands_for_two_layers(run_consumer):
    result = run_consumer("fused.py")
    assert result["calls"] == 2
    kernel = "kernels-community/fused@v1:NormMLP"
    assert result["kernels"] == [
        [f"model.layers.{index}.post_attention_layernorm", kernel] for index in range(2)
    ]


def test_wrapped_models_run_our_kernels(run_consumer):
    assert run_consumer("wrappers.py") == {
        "ddp around": [5, 5],
        "ddp before": [5, 5],
        "fully_shard around": [5, 5],
        "fully_shard before": [5, 5],
        "accelerate": [5, 5, 5],
        "accelerate after": [0, 0],
        "copy": [5, 5],
    }


def test_ranks_that_measure_decide_alike(run_consumer):
    for name, (one, other) in run_consumer("ranks.py").items():
        assert one == other, name
        # The norms of a model share what is measured; of its MLPs others are waited for.
        assert len(one["RMSNorm"]) >= 5
        assert len({shape for shape, _ in one["RMSNorm"]}) == 1
        assert one["MLP"] == []
