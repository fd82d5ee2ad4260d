"""Tiny real models with the published client and with ours: one script, the same results. Budget: see conftest."""

from __future__ import annotations

EXPECTED = {
    "llama: infer": [True, {"mlp": 2, "norm": 5}],
    "qwen3: train": [True, {"mlp": 2, "norm": 9}],
    "mixtral: halve": [[True, "torch.bfloat16"], {"norm": 5}],
    "bert: change_a_copy": [True, {"gelu": 2, "layer norm": 5}],
    "sd3: compile_whole": [True, {}],
    "flux: infer": [True, {"silu": 6}],
    # The blocks of a layer run again before its backward.
    "train with checkpoints, True": [True, {"mlp": 4, "norm": 9}],
    "train adapters, True": [[True, True], {"mlp": 4, "norm": 10}],
    "pickle_and_save": [[True, True], {}],
}


def test_every_use_gives_what_the_published_client_gives(run_consumer, published):
    ours = run_consumer("models.py")
    theirs = run_consumer("models.py", before=published)
    assert (theirs["version"], ours["version"].startswith("0.18.2")) == ("0.17.2", True)
    assert ours["uses"] == theirs["uses"]
    assert EXPECTED.items() <= ours["uses"].items()
    assert "false" not in str(list(ours["uses"].values())).lower()
    runs = {kind: set(layers) for kind, layers in ours["reports"].items()}
    assert runs["llama"] == runs["qwen3"] == {"Norm kernel", "Mlp kernel"}
    assert runs["mixtral"] == {"Norm kernel"}
    assert runs["bert"] == {"LayerNorm kernel", "Gelu kernel"}
    # Their norms have no weights: the condition excludes them.
    assert runs["sd3"] == runs["flux"] == {"Silu kernel", "LayerNorm original"}
