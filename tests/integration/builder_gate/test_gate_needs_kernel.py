"""The gate of a kernel that needs another one (no compiler; about twenty seconds)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_builder.errors import ImportCheckError
from kernel_builder.gate.story import GateResult, choose_variants, find_gate_file, run_gate
from kernel_builder.pipeline import build_project
from kernel_builder.settings import Settings

GATE = """
import torch

from kernel_builder.gate import Case


def cases(kernel, device):
    yield Case(
        name="scale_twice",
        function=lambda x: kernel.scale_twice(x, 3.0),
        reference=lambda x: 9 * x,
        inputs=lambda dtype, rows: (torch.randn(rows, device=device).to(dtype),),
        sizes={"rows": 1},
        tolerance={torch.float32: 1e-6},
        differentiable=False,
        compiles=False,
    )
"""


@pytest.fixture(scope="module")
def project(build_kit) -> Path:
    project = build_kit("needs_kernel")
    (project / "tests").mkdir()
    (project / "tests/gate.py").write_text(GATE)
    return project


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub on this disk that has nothing."""
    hub = tmp_path / "hub"
    hub.mkdir()
    monkeypatch.setenv("KERNELS_HUB", f"file://{hub}")
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    return hub


def gate(project: Path, settings: Settings) -> GateResult:
    variant = choose_variants(project, "cpu")[0]
    file = find_gate_file(project)
    return run_gate(variant, gate_file=file, device="cpu", settings=settings, seconds=120)


def test_it_runs_with_the_other_kernel_and_a_fault_of_that_one_shows(
    project: Path, build_kit, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = build_kit("scale_noarch")
    monkeypatch.setenv("LOCAL_KERNELS", f"acme/scale-noarch={base / 'build'}")
    result = gate(project, settings)
    assert result.faults == ()
    assert result.proof is not None
    assert "values" in result.proof["cases"]["scale_twice"]["proved"]
    metadata = json.loads((project / "build/torch-cpu/metadata.json").read_text())
    assert "scale_twice" in metadata["kernels-ext"]["proof"]["cpu"]["cases"]
    module = base / "torch-ext/scale_noarch/__init__.py"
    module.write_text(module.read_text().replace("input * factor\n", "input * (factor + 1)\n"))
    assert build_project(base, settings=settings).exit_code == 0
    assert {each.rule for each in gate(project, settings).faults} >= {"gate-values"}


def test_where_the_other_kernel_is_nowhere_it_says_what_to_do(
    project: Path, hub: Path, settings: Settings
) -> None:
    with pytest.raises(ImportCheckError) as caught:
        gate(project, settings)
    said = str(caught.value)
    assert "acme/scale-noarch" in said
    assert str(hub) in said
    assert "LOCAL_KERNELS=owner/name=path" in said
    assert "Add it to kernel-depends" not in said
    assert caught.value.exit_code == 1
