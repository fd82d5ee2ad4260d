"""diffusers 0.42.1 with this distribution beside it. Budget: see conftest."""

from __future__ import annotations


def test_a_diffusion_transformer_runs_our_kernels(run_consumer):
    result = run_consumer("diffusion.py")
    assert result["runs"] == ["kernel"]
    mapped = result["mapped"]
    assert mapped == {"RMSNorm": 8, "LayerNorm": 8, "SiLU": 7}
    # Each norm runs once, and the second block's context norm that nothing reads not at all.
    assert result["norms"] == mapped["RMSNorm"] + mapped["LayerNorm"]
    assert result["silus"] == mapped["SiLU"]
    assert result["attention"] == 1
