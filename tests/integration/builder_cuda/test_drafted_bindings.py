"""The bindings of CUDA variants: their objects are made under a draft of the id, and are those of the id itself."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.compile import stage_sources
from kernel_builder.config.read import read_build
from kernel_builder.drafts import draft_of, find_doubt, put_op_id, read_uses, takes_draft
from kernel_builder.environment import detect_host, prepare_environment
from kernel_builder.pipeline import build_project
from kernel_builder.plan import plan
from kernel_builder.planned import Selection
from kernel_builder.recipe import describe_unit
from kernel_builder.report import VariantReport, format_report
from kernel_builder.settings import Settings
from kernel_builder.sources import read_sources
from kernel_spec.backend import BackendKind

ROOT = Path(__file__).parents[3]
KERNELS = sorted(path.parent.name for path in ROOT.glob("kernels-community/*/build.toml"))
CUDA = Selection(backends=frozenset({BackendKind.CUDA}), archs=("9.0",))


@pytest.mark.parametrize("name", KERNELS)
def test_the_object_of_our_binding_is_that_of_the_id(
    name: str, settings: Settings, tmp_path: Path
) -> None:
    project = ROOT / "kernels-community" / name
    config = read_build(project)
    made = plan(config, read_sources(project, config), host=detect_host(settings), selection=CUDA)
    build = next(each for each in made.variants if each.units)
    environment = prepare_environment(build, settings)
    stage = stage_sources(project, build, tmp_path)
    headers = read_uses(build.headers, stage)
    (unit,) = (each for each in build.units if takes_draft(each, headers, environment, stage))
    assert unit.source == "torch-ext/torch_binding.cpp"
    objects = []
    for op_id in (draft_of(build.op_id), build.op_id):
        described = describe_unit(unit, 0, replace(build, op_id=op_id), environment, stage)
        command = [*described.compiler, *described.flags, "-c", unit.source, "-o", "../a.o"]
        subprocess.run(command, cwd=stage, check=True)
        objects.append((tmp_path / "a.o").read_bytes())
    assert find_doubt(objects[0], draft_of(build.op_id)) is None
    assert put_op_id(objects[0], build.op_id) == objects[1]


def build_cuda(project: Path, settings: Settings) -> VariantReport:
    report = build_project(project, selection=CUDA, settings=settings, jobs=2)
    assert report.exit_code == 0, format_report(report)
    (variant,) = report.variants
    return variant


@pytest.mark.parametrize("binding", ["torch-ext/torch_binding.cpp", "csrc/register.cu"])
def test_one_changed_file_compiles_one(binding: str, settings: Settings, tmp_path: Path) -> None:
    project = Path(shutil.copytree(ROOT / "tests/kits/add_device", tmp_path / "kit"))
    if binding.endswith(".cu"):
        (project / "torch-ext/torch_binding.cpp").rename(project / binding)
        config = project / "build.toml"
        text = config.read_text().replace('"torch-ext/torch_binding.cpp", ', "")
        config.write_text(text.replace('"csrc/add_cuda.cu"', f'"csrc/add_cuda.cu", "{binding}"'))
    first = build_cuda(project, settings)
    assert binding in [each.source for each in first.files]
    source = project / "csrc/add_cuda.cu"
    source.write_text(f"{source.read_text()}// {tmp_path}\n")
    changed = build_cuda(project, settings)
    assert [each.source for each in changed.files if not each.reused] == ["csrc/add_cuda.cu"]
