"""Kernelized models under torch.compile. Budget: see conftest."""

from __future__ import annotations


def test_compiled_models_are_one_graph_and_equal(run_consumer):
    result = run_consumer("compiled.py")
    assert result["llama_kernels"] == 8
    assert result["llama_graphs"] == 1
    assert result["silu_in_graph"]
    # The change is seen: it is compiled again.
    assert result["graphs_after_unkernelize"] == 2
    assert result["inductor_graphs"] == 1
    assert result["recorded_graphs"] == 1
    assert result["kernel_in_graph"] == [False, True]
    assert result["measured_graphs"] == 1
    assert result["measured"]
    assert result["verdict_graphs"]
    graphs, reason = result["eager_only"]
    assert graphs == 1
    assert reason == "kernels-community/eager-only@v1:Silu cannot be compiled by torch.compile"
