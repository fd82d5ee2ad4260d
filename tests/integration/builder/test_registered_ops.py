"""Ops that torch really has, against the sources: each way to get them wrong fails the build."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.registered import check_sources
from kernel_builder.config.read import read_build
from kernel_builder.environment import detect_host
from kernel_builder.errors import CheckError, ImportCheckError
from kernel_builder.import_check import check_import
from kernel_builder.pipeline import build_project
from kernel_builder.plan import plan
from kernel_builder.registrations import Registration, Registrations
from kernel_builder.settings import Settings
from kernel_builder.sources import read_sources

Kit = Callable[[str], Path]
BROKEN = Path(__file__).parents[2] / "kits" / "broken_ops"


def find(project: Path, settings: Settings) -> set[tuple[str, str | None]]:
    (report,) = build_project(project, settings=settings).variants
    assert isinstance(report.error, CheckError), report.error
    assert not (project / "build").exists()
    return {(each.rule, each.symbol) for each in report.error.findings}


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        ("op_without_code", {("op-without-code", "add_two")}),
        ("op_without_schema", {("op-without-schema", "add_two")}),
        ("other_device", {("op-without-code", "add_one"), ("op-without-code", "CPU")}),
        ("no_device", {("op-without-code", "size_limit")}),
        (
            "wrong_signature",
            {("op-signature", "add_one"), ("op-signature", "scale"), ("op-signature", "split")},
        ),
        ("foreign_namespace", {("op-namespace", "shared_ops::add_one")}),
        (
            "computed_name",
            {
                ("op-unread", "impl(name.c_str(), torch::stable::detail::boxer<"),
                ("op-not-in-sources", "add_one"),
            },
        ),
        ("hidden", {("op-not-in-sources", "add_more"), ("op-without-code", "add_more")}),
    ],
)
def test_ops_that_are_wrong_are_named(
    binding: str, expected: set[tuple[str, str]], kit: Kit, settings: Settings
) -> None:
    project = kit("add_stable")
    text = (BROKEN / f"{binding}.cpp").read_text()
    (project / "torch-ext" / "torch_binding.cpp").write_text(text)
    found = {(rule, (symbol or "")[:48].rstrip()) for rule, symbol in find(project, settings)}
    assert found == {(rule, symbol[:48]) for rule, symbol in expected}


@pytest.mark.parametrize("faulty", ["Tensr! out", "Tensor! out -> ("])
def test_a_schema_that_torch_cannot_read_is_shown(
    faulty: str, kit: Kit, settings: Settings
) -> None:
    project = kit("add_stable")
    binding = project / "torch-ext" / "torch_binding.cpp"
    binding.write_text(binding.read_text().replace("Tensor! out", faulty))
    (report,) = build_project(project, settings=settings).variants
    assert isinstance(report.error, ImportCheckError)
    assert f'torch cannot read the schema "add_one({faulty}' in str(report.error)
    assert "<--- HERE" in str(report.error)


def test_ops_behind_macros_and_conditions_are_seen_as_compiled(
    kit: Kit, settings: Settings
) -> None:
    project = kit("add_stable")
    binding = project / "torch-ext" / "torch_binding.cpp"
    text = binding.read_text().replace(
        '  ops.def("add_one(Tensor! out, Tensor input) -> ()");',
        '#define OUT_OF_PLACE(name) ops.def(#name "(Tensor! out, Tensor input) -> ()")\n'
        "#if defined(CPU_KERNEL) && TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0\n"
        "  OUT_OF_PLACE(add_one);\n"
        '#else\n  ops.def("never(Tensor x) -> ()");\n#endif',
    )
    assert "OUT_OF_PLACE" in text
    binding.write_text(text)
    (report,) = build_project(project, settings=settings).variants
    assert report.error is None


def test_a_schema_that_differs_is_named(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    assert build_project(project, settings=settings).exit_code == 0
    (variant,) = (project / "build").iterdir()
    build = read_build(project)
    (planned,) = plan(build, read_sources(project, build), host=detect_host(settings)).variants
    library, op_id = planned.library, planned.op_id
    right = Registration(
        source="b.cpp",
        namespace=op_id,
        name="add_one",
        schema="add_one( Tensor! out,Tensor input ) -> ()",
        defines=True,
        key="CPU",
    )
    for call, rules in (
        (right, []),
        (replace(right, schema="add_one(Tensor out, Tensor input) -> ()"), ["op-schema"]),
        (replace(right, schema="add_one(Tensor! out"), ["op-schema"]),
    ):
        assert call.schema is not None
        answer = check_import(variant, planned, schemas=[call.schema], settings=settings)
        assert answer.library is not None
        assert answer.imported is not None
        sources = Registrations(calls=(call,))
        found = check_sources(library, op_id, sources, answer.library)
        assert [each.rule for each in found] == rules


@pytest.mark.parametrize("call", ["def", "impl"])
def test_one_misspelt_name_is_one_fault(call: str, kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    binding = project / "torch-ext" / "torch_binding.cpp"
    text = binding.read_text()
    binding.write_text(text.replace(f'ops.{call}("add_one', f'ops.{call}("ad_one'))
    assert binding.read_text() != text
    name = "ad_one" if call == "impl" else "add_one"
    assert find(project, settings) == {("op-name", name)}


def test_a_function_that_is_boxed_by_hand_is_told_of(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    text = (BROKEN / "wrong_signature.cpp").read_text()
    for wrong, right in (
        ('"add_one(Tensor! out)', '"add_one(Tensor! out, Tensor input)'),
        ("float factor) {}", "double factor) {}"),
        ("str mode) -> Tensor", "str mode) -> (Tensor, int)"),
    ):
        assert wrong in text
        text = text.replace(wrong, right)
    (project / "torch-ext" / "torch_binding.cpp").write_text(text)
    (report,) = build_project(project, settings=settings).variants
    assert report.error is None
    (told,) = [text for text in report.warnings if "could not be compared" in text]
    assert told.startswith("clamp: ")
    (told,) = [text for text in report.warnings if "stable-text" in text]
    assert told.startswith("torch-ext/torch_binding.cpp: stable-text: split(mode): a str argument")


def test_torch_itself_compares_what_its_full_interface_registers(
    kit: Kit, settings: Settings
) -> None:
    project = kit("throw_full")
    binding = project / "torch-ext" / "torch_binding.cpp"
    text = binding.read_text()
    binding.write_text(text.replace("(Tensor", "(int more, Tensor", 1))
    assert binding.read_text() != text
    (report,) = build_project(project, settings=settings).variants
    assert isinstance(report.error, ImportCheckError)
    assert "number of arguments is different" in str(report.error)
