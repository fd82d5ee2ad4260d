"""A CUDA variant for another processor: its device code, its host code and the runtime that it asks for."""

import platform
import shutil
from dataclasses import replace
from pathlib import Path

from kernel_builder.check.variant import check_variant
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.rebuild import format_verdicts, verify_rebuild
from kernel_builder.remote_directory import DirectoryRemote
from kernel_builder.report import format_report
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cuda import get_cuda
from kernel_builder.upload import UploadOptions, upload
from kernel_spec.backend import BackendKind
from kernel_spec.binary import DeviceCode, read_device_code, read_elf
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import parse_repo_id

KIT = Path(__file__).parents[2] / "kits" / "add_device"
CUDA = Selection(backends=frozenset({BackendKind.CUDA}))


def build(settings: Settings, place: Path) -> Path:
    project = Path(shutil.copytree(KIT, place / "kit"))
    report = build_project(project, settings=settings, selection=CUDA, jobs=1)
    (variant,) = report.variants
    assert variant.error is None, format_report(report)
    assert variant.path is not None
    return variant.path


def test_a_cuda_variant_for_another_processor(
    settings: Settings, tmp_path: Path, other_cpu: str
) -> None:
    other = replace(settings, cpu=other_cpu)
    made = build(other, tmp_path / "a")
    assert made.name == f"torch-stable-abi210-cu130-{other_cpu}-linux"
    assert not check_variant(made, settings=settings)
    (library,) = made.glob("*.so")
    facts = read_elf(library)
    assert facts.machine == other_cpu
    assert "libcudart.so.13" in facts.needed
    assert set(read_device_code(library)) == {
        DeviceCode("cubin", "8.0"),
        DeviceCode("ptx", "8.0"),
        DeviceCode("cubin", "9.0a"),
    }
    # The compiler is this machine's; what is linked with is the other one's.
    toolkit, own = get_cuda(other), get_cuda(settings)
    assert (toolkit.nvcc, read_elf(toolkit.cudart).machine) == (own.nvcc, other_cpu)
    assert read_elf(own.cudart).machine == platform.machine()
    # Who has fetched it rebuilds it from its sources, in an empty cache, and gets the same bytes.
    remote = DirectoryRemote(DirectoryHub(tmp_path / "hub"))
    project, repo = made.parents[1], parse_repo_id("acme/add-device")
    upload(project, remote, settings=settings, options=UploadOptions(repo_id=str(repo)))
    verdicts = verify_rebuild(repo, remote, settings=settings, project=project, jobs=1)
    assert [each.variant for each in verdicts] == [made.name]
    assert verdicts[0].is_same, format_verdicts(verdicts)
