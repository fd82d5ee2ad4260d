"""A variant for another processor: built and checked here, and said not to have been loaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kernel_builder.check.variant import check_variant
from kernel_builder.errors import CheckError
from kernel_builder.pipeline import build_project
from kernel_builder.report import format_report
from kernel_builder.settings import Settings
from kernel_spec.binary import read_elf

Kit = Callable[[str], Path]


def test_a_variant_for_another_processor(kit: Kit, settings: Settings, other_cpu: str) -> None:
    project = kit("add_stable")
    report = build_project(project, settings=replace(settings, cpu=other_cpu))
    (variant,) = report.variants
    assert variant.error is None, format_report(report)
    assert variant.variant == f"torch-stable-abi210-cpu-{other_cpu}-linux"
    assert variant.warnings == (
        f"built for {other_cpu} and not loaded here: what its ops register is not proved",
    )
    assert variant.path is not None
    assert not check_variant(variant.path, settings=settings)
    (library,) = variant.path.glob("*.so")
    assert read_elf(library).machine == other_cpu
    # Each processor has its own stubs: building for this one still links.
    assert build_project(project, settings=settings).exit_code == 0


def test_what_can_be_seen_without_loading_is_still_checked(
    kit: Kit, settings: Settings, other_cpu: str
) -> None:
    project = kit("add_stable")
    binding = project / "torch-ext" / "torch_binding.cpp"
    binding.write_text(
        binding.read_text().replace("IMPL_EXPAND(TORCH_EXTENSION_NAME", "IMPL_EXPAND(mine")
    )
    report = build_project(project, settings=replace(settings, cpu=other_cpu))
    (variant,) = report.variants
    assert isinstance(variant.error, CheckError)
    assert [each.rule for each in variant.error.findings] == ["op-namespace"]


def test_per_torch_libraries_for_another_processor(
    kit: Kit, settings: Settings, other_cpu: str
) -> None:
    """The headers are those of that processor's wheel, and the symbols are looked for in its libraries."""
    project = kit("scale_node")
    described = project / "build.toml"
    bound = 'stable-abi = "2.10"\nminver = "2.13"\nmaxver = "2.13"'
    described.write_text(described.read_text().replace('stable-abi = "2.10"', bound))
    other = replace(settings, cpu=other_cpu)
    report = build_project(project, settings=other)
    (variant,) = report.variants
    assert variant.error is None, format_report(report)
    assert variant.path is not None
    assert not check_variant(variant.path, settings=settings)
    (library,) = variant.path.glob("*.torch213.so")
    assert read_elf(library).machine == other_cpu
    assert any(
        "libraries for torch 2.13 have all their symbols there and were not loaded, since they are "
        "for another processor" in warning
        for warning in variant.warnings
    )
    assert any(f"torch-2.13.0-{other_cpu}" in path.name for path in other.toolchains.iterdir())
    node = project / "csrc" / "scale_node.cpp"
    text = node.read_text().replace(
        "namespace {", "namespace at { void lacking(); }\nnamespace {", 1
    )
    node.write_text(text.replace("return Scale::apply", "at::lacking(); return Scale::apply"))
    (variant,) = build_project(project, settings=other).variants
    assert isinstance(variant.error, CheckError)
    assert any("lacking" in (each.symbol or "") for each in variant.error.findings)
