"""The gate on kits that are each wrong in one way (about four minutes on an idle machine)."""

import json
from pathlib import Path

import pytest

from kernel_builder.errors import ProjectError
from kernel_builder.gate.story import GateResult, choose_variants, find_gate_file, run_gate
from kernel_builder.settings import Settings

GATE = """
import torch
from kernel_builder.gate import Case

def cases(kernel, device):
    yield Case(
        name="right",
        function=kernel.{function},
        reference=lambda x: 2 * x,
        inputs=lambda dtype, rows: (torch.randn(rows, 3).to(dtype),),
        sizes={{"rows": 1}},
        tolerance={{torch.float32: 1e-6, torch.float64: 1e-12}},
        layer="Double",
    )
"""


def run(project: Path, settings: Settings, *, seconds: float = 300) -> GateResult:
    (variant,) = choose_variants(project, "cpu")
    gate_file = find_gate_file(project)
    return run_gate(variant, gate_file=gate_file, device="cpu", settings=settings, seconds=seconds)


@pytest.fixture(scope="module")
def broken(build_kit, settings: Settings) -> GateResult:
    return run(build_kit("broken_gate"), settings)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("lying_schema", "gate-op-schema"),
        ("lying_schema", "gate-inputs"),
        ("lying_schema_of_8_bits", "gate-op-schema"),
        ("no_fake", "gate-op-faketensor"),
        ("no_fake", "gate-compile"),
        ("fake_shape", "gate-op-faketensor"),
        ("fake_dtype", "gate-op-faketensor"),
        ("fake_strides", "gate-op-faketensor"),
        ("no_backward", "gate-gradients"),
        ("wrong_backward", "gate-gradients"),
        ("other_compiled", "gate-compile"),
        ("zero_scale", "gate-zeros"),
        ("unwritten_end", "gate-unwritten"),
        ("unwritten_own", "gate-unwritten"),
        ("overflow", "gate-large"),
        ("strided", "gate-layouts"),
        ("killed", "gate-sizes"),
        ("unreached", "gate-op-unreached"),
    ],
)
def test_a_planted_fault_is_found(broken: GateResult, name: str, rule: str) -> None:
    found = [each for each in broken.faults if (each.symbol, each.rule) == (name, rule)]
    assert len(found) == 1, broken.faults


def test_what_is_right_has_no_fault(broken: GateResult) -> None:
    assert not [each for each in broken.faults if each.symbol == "right"]


def test_a_check_that_ends_the_process_is_named_and_the_others_go_on(broken: GateResult) -> None:
    deaths = [each for each in broken.faults if "signal 11" in each.message]
    assert {(each.symbol, each.rule) for each in deaths} == {
        ("killed", "gate-unwritten"),
        ("killed", "gate-sizes"),
    }


@pytest.fixture(scope="module")
def subtle(build_kit, settings: Settings) -> GateResult:
    return run(build_kit("subtle_gate"), settings)


@pytest.mark.parametrize(
    ("name", "rule", "said"),
    [
        ("raises", "gate-values", "its other checks were not run"),
        ("inference", "gate-values", "under torch.no_grad()"),
        ("training", "gate-gradients", "its result, where a gradient is recorded"),
        ("stateful", "gate-compile", "compiled and eager differ"),
        ("one_size", "gate-compile", "called again at rows=7"),
        ("padded_fake", "gate-op-faketensor", "Shapes"),
        ("expanded", "gate-layouts", "all rows are one in memory"),
        ("changes_strided", "gate-inputs", "every second element of memory"),
        ("far", "gate-far", "rows 536870976 elements apart"),
        ("tiny_scale", "gate-zeros", "denormal numbers for input 1: NaN at 1 places"),
        ("backward_of_all", "gate-gradients", "input 0 alone needs one"),
        ("dense_gradient", "gate-gradients", "of a sum, whose elements are one in memory"),
        ("lost_factor", "gate-gradients", "the gradient of input 1: 3 of 3 elements"),
        ("compiled_backward", "gate-compile", "in training: compiled and eager differ"),
    ],
)
def test_a_fault_that_shows_in_one_situation_alone_is_found(
    subtle: GateResult, name: str, rule: str, said: str
) -> None:
    found = [each for each in subtle.faults if (each.symbol, each.rule) == (name, rule)]
    assert len(found) == 1, subtle.faults
    assert said in found[0].message


def test_each_subtle_fault_is_told_once(subtle: GateResult) -> None:
    assert {each.symbol for each in subtle.faults} == {
        *("raises", "inference", "training", "stateful", "one_size", "expanded", "far"),
        *("changes_strided", "tiny_scale", "backward_of_all", "dense_gradient", "lost_factor"),
        *("compiled_backward", "padded_fake"),
    }
    assert len(subtle.faults) == 14, subtle.faults


def test_no_proof_is_left_of_what_has_a_fault(broken: GateResult) -> None:
    assert broken.proof is None
    assert b"proof" not in (broken.variant / "metadata.json").read_bytes()


def test_a_proof_comes_and_goes_with_what_it_is_of(build_kit, settings: Settings) -> None:
    project = build_kit("broken_gate")
    # Only what is right: the ops that no case reaches are then the fault.
    module = project / "torch-ext" / "broken_gate" / "__init__.py"
    text = module.read_text()
    start, end = text.index('    ("lying_schema"'), text.index("):\n    _define(")
    module.write_text(text[:start] + text[end:])
    (project / "tests" / "gate.py").write_text(GATE.format(function="right"))
    from kernel_builder.pipeline import build_project

    assert build_project(project, settings=settings).exit_code == 0
    result = run(project, settings)
    assert result.faults == ()
    place = result.variant / "metadata.json"
    extension = json.loads(place.read_bytes())["kernels-ext"]
    proof = extension["proof"]["cpu"]
    assert proof["torch"].startswith("2.")
    assert proof["cases"]["right"]["dtypes"] == ["float32", "float64"]
    assert {"values", "gradients", "compile"} <= set(proof["cases"]["right"]["proved"])
    assert "large" not in proof["cases"]["right"]["proved"]
    assert extension["layers"] == {"Double": {"has_backward": True, "can_torch_compile": True}}
    # A proof does not make the variant another one: nothing is built again.
    (again,) = build_project(project, settings=settings).variants
    assert again.outcome.value == "up to date"
    assert b"proof" in place.read_bytes()
    (project / "tests" / "gate.py").write_text(GATE.format(function="zero_scale"))
    assert run(project, settings).faults
    assert b"proof" not in place.read_bytes()


def test_what_takes_too_long_is_ended_and_named(build_kit, settings: Settings) -> None:
    project = build_kit("broken_gate")
    slow = "import time\n" + GATE.replace("lambda x: 2 * x", "lambda x: time.sleep(120)")
    (project / "tests" / "gate.py").write_text(slow.format(function="right"))
    result = run(project, settings, seconds=30)
    (late,) = result.faults
    assert (late.symbol, late.rule) == ("right", "gate-values")
    assert "not done after 30 s" in late.message


COMPILED = """
import torch
from kernel_builder.gate import Case

def cases(kernel, device):
    yield Case(
        name="add_one",
        function=lambda out, x: kernel.ops.add_one(out, x),
        reference=lambda x: x + 1,
        inputs=lambda dtype, rows: (torch.randn(rows, 1024).to(dtype),),
        out=torch.empty_like,
        sizes={"rows": 1},
        tolerance={torch.float32: 1e-6},
        differentiable=False,
        batch="rows",
    )
"""


@pytest.mark.parametrize(
    ("changes", "planted"),
    [
        ({}, set()),
        (
            {
                "(int64_t i = 0; i < input.numel()": "(int i = 0; i < static_cast<int>(input.numel())",
                "Tensor! out": "Tensor out",
            },
            {"gate-large", "gate-op-schema"},
        ),
    ],
    ids=["as it is", "int and a lie"],
)
def test_a_compiled_kernel(
    build_kit, settings: Settings, *, changes: dict[str, str], planted: set[str]
) -> None:
    project = build_kit("add_stable", changes)
    (project / "tests").mkdir()
    (project / "tests" / "gate.py").write_text(COMPILED)
    found = {each.rule for each in run(project, settings).faults}
    # The kit takes every input for dense; what is planted comes on top.
    assert "gate-layouts" in found
    assert found & {"gate-large", "gate-op-schema"} == planted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (\n", r"gate\.py:1: SyntaxError"),
        (
            "import torch\n\ndef cases(kernel, device):\n    return kernel.nothing\n",
            r"gate\.py:4: ",
        ),
        ("", "expected a function cases"),
        ("def cases(kernel, device):\n    return []\n", "yields no kernel_builder.gate.Case"),
    ],
)
def test_a_gate_file_that_is_wrong_is_named_with_its_line(
    build_kit, settings: Settings, text: str, said: str
) -> None:
    project = build_kit("scale_noarch")
    (project / "tests").mkdir()
    (project / "tests" / "gate.py").write_text(text)
    with pytest.raises(ProjectError, match=said):
        run(project, settings)
