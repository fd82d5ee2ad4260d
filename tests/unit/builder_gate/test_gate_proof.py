"""What a proof adds to ``metadata.json``, and what is left without it."""

from pathlib import Path

import pytest

from kernel_builder.errors import ProjectError
from kernel_builder.gate.case import Case
from kernel_builder.gate.story import find_gate_file
from kernel_builder.proof import add_proof, remove_proof, without_proof
from kernel_builder.state import digest_directory
from kernel_spec.backend import BackendKind
from kernel_spec.metadata import Metadata, format_metadata

PLAIN = Metadata(
    name="kit",
    id="_k",
    version=1,
    license="MIT",
    backend=BackendKind.CPU,
    extension={"depends": {"cutlass": "1"}},
)
LAYERS = {"Silu": {"has_backward": False, "can_torch_compile": True}}


def test_a_document_without_its_proof_is_the_one_before() -> None:
    before = format_metadata(PLAIN)
    proved = add_proof(PLAIN, "cpu", {"torch": "2.13.0"}, LAYERS)
    assert proved.extension["proof"] == {"cpu": {"torch": "2.13.0"}}
    assert proved.extension["layers"] == LAYERS
    assert proved.extension["depends"] == {"cutlass": "1"}
    assert without_proof(format_metadata(proved)) == before
    assert without_proof(before) == before


def test_proofs_on_two_devices_stand_side_by_side() -> None:
    both = add_proof(add_proof(PLAIN, "cpu", {"a": 1}, {}), "cuda", {"a": 2}, {})
    assert both.extension["proof"] == {"cpu": {"a": 1}, "cuda": {"a": 2}}
    left = remove_proof(both, "cpu")
    assert left.extension["proof"] == {"cuda": {"a": 2}}
    assert remove_proof(left, "cuda") == PLAIN


@pytest.mark.parametrize("data", [b"", b"{", b'{"proof": 1}', b'{"kernels-ext": {"proof": 1}}'])
def test_what_is_no_document_stays_as_it_is(data: bytes) -> None:
    assert without_proof(data) == data


def test_a_proof_does_not_make_another_variant(tmp_path: Path) -> None:
    place = tmp_path / "metadata.json"
    place.write_bytes(format_metadata(PLAIN))
    before, _ = digest_directory(tmp_path)
    place.write_bytes(format_metadata(add_proof(PLAIN, "cpu", {}, LAYERS)))
    assert digest_directory(tmp_path)[0] == before
    place.write_bytes(format_metadata(add_proof(PLAIN, "cpu", {}, {})).replace(b"MIT", b"BSD"))
    assert digest_directory(tmp_path)[0] != before


def test_the_gate_file_is_found_from_a_project_and_a_variant(tmp_path: Path) -> None:
    variant = tmp_path / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    with pytest.raises(ProjectError, match=r"no tests/gate\.py there"):
        find_gate_file(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "gate.py").touch()
    for start in (tmp_path, tmp_path / "build", variant):
        assert find_gate_file(start) == tmp_path / "tests" / "gate.py"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tolerance": {}}, "names no dtype"),
        ({"sizes": {}}, "has no sizes"),
        ({"sizes": {"rows": 0}}, "expected 1 or more"),
        ({"batch": "cols"}, r"none of its sizes \(rows\)"),
    ],
)
def test_a_case_that_could_prove_nothing_is_refused(
    change: dict[str, object], message: str
) -> None:
    fields: dict[str, object] = {"name": "f", "function": abs, "reference": abs, "inputs": tuple}
    fields |= {"sizes": {"rows": 1}, "tolerance": {"float32": 0.0}, **change}
    with pytest.raises(ValueError, match=message):
        Case(**fields)  # type: ignore[arg-type]
