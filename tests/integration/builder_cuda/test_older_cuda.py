"""A toolkit of CUDA 12 that the user brings: real builds with 12.4, in each layout, and what is refused."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import older_cuda
import peers
import pytest
from lacking import give_up

from kernel_builder.check.variant import check_variant
from kernel_builder.errors import ArchError, SelectionError
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import Report, format_report
from kernel_builder.settings import SandboxMode, Settings
from kernel_builder.toolchain.cuda import get_cuda
from kernel_spec.backend import BackendKind
from kernel_spec.binary import DeviceCode, read_device_code, read_elf

ROOT = Path(__file__).parents[3]
KITS = ROOT / "tests" / "kits"
CUDA = Selection(backends=frozenset({BackendKind.CUDA}))
NAME = "torch-stable-abi210-cu124-x86_64-linux"
# What a toolkit before 12.8 compiles for where the project does not say.
ARCHS = ["7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0+PTX"]

_CALL = """
import ctypes, os, sys, torch
from pathlib import Path
sys.setdlopenflags(os.RTLD_LAZY)
ctypes.CDLL(sys.argv[2])
from kernels.importer import load_directory
kernel = load_directory(Path(sys.argv[1]))
torch.manual_seed(0)
"""
_IMAGE = """
image = torch.randint(0, 256, (33, 17, 3), dtype=torch.uint8)
weighted = (image.double() * torch.tensor([0.21, 0.72, 0.07], dtype=torch.double)).sum(-1)
assert (kernel.img2gray(image).double() - weighted.floor()).abs().max() <= 1
"""
_ACTIVATION = """
x = torch.randn(3, 130)
out = torch.empty(3, 65)
kernel.silu_and_mul(out, x)
torch.testing.assert_close(out, torch.nn.functional.silu(x[:, :65]) * x[:, 65:])
"""


@pytest.fixture(scope="session")
def older() -> older_cuda.OlderCuda:
    if platform.machine() != "x86_64":
        pytest.skip("the toolkit is one for x86_64")
    try:
        return older_cuda.fetch()
    except peers.PeerUnavailableError as err:
        give_up(err)


@pytest.fixture(scope="module")
def own(settings: Settings, older: older_cuda.OlderCuda) -> Settings:
    """Settings with the toolkit that an installer has made; nothing can be fetched."""
    return replace(settings, cuda_home=older.home, pip_variables={"PIP_NO_INDEX": "1"})


def copy(name: str, to: Path) -> Path:
    place = KITS / name if (KITS / name).is_dir() else ROOT / "kernels-community" / name
    return Path(shutil.copytree(place, to / name, ignore=lambda *_: {"build"}))


def build(project: Path, settings: Settings, selection: Selection = CUDA) -> Report:
    report = build_project(project, settings=settings, selection=selection, jobs=2)
    assert report.exit_code == 0, format_report(report)
    return report


def read_files(variant: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in variant.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def image(own: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = copy("img2gray", tmp_path_factory.mktemp("image"))
    report = build(project, own)
    (variant,) = report.variants
    assert variant.variant == NAME
    assert "12.4 does not know --compress-mode=size" in format_report(report)
    return project / "build" / NAME


@pytest.mark.parametrize(("name", "program"), [("img2gray", _IMAGE), ("activation", _ACTIVATION)])
def test_our_kernels_are_built_checked_and_compute(
    image: Path, own: Settings, tmp_path: Path, name: str, program: str
) -> None:
    variant, archs = image, ARCHS
    if name != "img2gray":
        project, archs = copy(name, tmp_path), ["9.0"]
        build(project, own, replace(CUDA, archs=("9.0",)))
        variant = project / "build" / NAME
    assert not check_variant(variant)
    assert json.loads((variant / "metadata.json").read_text())["backend"]["archs"] == archs
    (library,) = variant.glob("*.abi3.so")
    cubins = {str(code.arch) for code in read_device_code(library) if code.kind == "cubin"}
    assert cubins == {arch.removesuffix("+PTX") for arch in archs}
    facts = read_elf(library)
    assert "libcudart.so.12" in facts.needed
    assert not facts.rpath
    assert not [symbol for symbol in facts.symbols if symbol.binding == "unique"]
    command = [sys.executable, "-c", _CALL + program, variant, get_cuda(own).cudart]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_toolkit_of_links_elsewhere_gives_the_same_bytes_and_cannot_be_written(
    image: Path, own: Settings, older: older_cuda.OlderCuda, tmp_path: Path
) -> None:
    farm = tmp_path / "a" / "view"
    shutil.copytree(older.home, farm, copy_function=lambda source, to: Path(to).symlink_to(source))
    nvcc = farm / "bin" / "nvcc"
    nvcc.unlink()
    tries = f'case "$*" in *.cu*) touch "{farm}/here" "{older.home}/here" 2>/dev/null ;; esac'
    nvcc.write_text(f'#!/bin/sh\n{tries}\nexec {older.home}/bin/nvcc "$@"\n')
    nvcc.chmod(0o755)
    fresh = replace(own, cuda_home=farm, cache=tmp_path / "cache", sandbox=SandboxMode.REQUIRE)
    project = copy("img2gray", tmp_path)
    build(project, fresh)
    assert read_files(project / "build" / NAME) == read_files(image)
    assert not (farm / "here").exists()
    assert not (older.home / "here").exists()


def test_debians_packages_are_a_toolkit(
    image: Path, older: older_cuda.OlderCuda, tmp_path: Path
) -> None:
    """Their files are laid over those of this machine: the headers are beside all others there."""
    project = copy("img2gray", tmp_path)
    lay = " && ".join(
        f"mount -t overlay overlay -o lowerdir={older.root}/{name}:/{name} /{name}"
        for name in ("usr", "etc")
    )
    inside = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    tried = subprocess.run([*inside, lay], capture_output=True, text=True, check=False)
    if tried.returncode:
        give_up(tried.stderr)
    program = "from kernel_builder.cli import main; main()"
    command = [sys.executable, "-c", program, "build", project, "--cuda-home", "/usr/lib/cuda"]
    command += ["--backend", "cuda", "--jobs", "2"]
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [*inside, f'{lay} && exec "$@"', "sh", *command],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_files(project / "build" / NAME) == read_files(image)


def test_the_directory_of_headers_may_have_either_name(
    own: Settings, older: older_cuda.OlderCuda, tmp_path: Path
) -> None:
    """Wheels that were unpacked in one place have them in include, and the link below targets."""
    turned = tmp_path / "cuda"
    shutil.copytree(older.home, turned, symlinks=True, copy_function=os.link)
    place = turned / "targets" / "x86_64-linux" / "include"
    (turned / "include").unlink()
    place.rename(turned / "include")
    place.symlink_to("../../include")
    build(copy("two_cuda", tmp_path), replace(own, cuda_home=turned))


def test_components_get_what_12_has_and_what_it_lacks_is_said(
    own: Settings, tmp_path: Path
) -> None:
    project = copy("two_cuda", tmp_path)
    notes = " ".join(build(project, own).notes)
    assert "[kernel.new]: 10.0+PTX is not compiled" in notes
    assert "[kernel.newest] is left out: its cuda-minver is 13.2, and this is cuda 12.4" in notes
    (library,) = (project / "build" / NAME).glob("*.so")
    assert set(read_device_code(library)) == {
        DeviceCode("cubin", "7.5"),
        DeviceCode("cubin", "8.0"),
        DeviceCode("cubin", "9.0a"),
    }
    with pytest.raises(ArchError, match=r"CUDA 12\.4 does not compile for 10\.0; expected .* 9\.0"):
        build_project(project, settings=own, selection=replace(CUDA, archs=("10.0",)))


def test_the_full_interface_of_torch_is_compiled(own: Settings, tmp_path: Path) -> None:
    project = copy("add_cuda_full", tmp_path)
    device = project / "csrc" / "add_cuda.cu"
    text = device.read_text().replace("torch/all.h", "ATen/ATen.h").replace("torch::", "at::")
    device.write_text(text)  # the same interface in half of the time
    (variant,) = build(project, own).variants
    assert variant.variant.endswith("-cxx11-cu124-x86_64-linux")
    assert variant.path is not None
    (library,) = variant.path.glob("*.so")
    assert {"libcudart.so.12", "libc10_cuda.so"} <= set(read_elf(library).needed)
    assert list(read_device_code(library)) == [DeviceCode("cubin", "9.0")]


def call(settings: Settings, *words: object, code: int = 0) -> str:
    """Run kernel-builder with a cache that is there, and return all that it says."""
    program = "from kernel_builder.cli import main; main()"
    variables = {**os.environ, "XDG_CACHE_HOME": str(settings.cache.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_plan_and_lock_say_which_toolkit(own: Settings, tmp_path: Path) -> None:
    project = copy("two_cuda", tmp_path)
    assert NAME in call(own, "plan", project, "--cuda-home", own.cuda_home)
    call(own, "lock", project, "--cuda-home", own.cuda_home)
    lock = json.loads((project / "kernel-builder.lock").read_text())
    toolkit = lock["inputs"]["cuda-12.4"]
    assert (toolkit["kind"], toolkit["version"]) == ("system", older_cuda.RELEASE)
    # It does not matter where the toolkit lies.
    other = tmp_path / "cuda"
    shutil.copytree(own.cuda_home or "", other, symlinks=True)
    assert "is right" in call(own, "lock", project, "--cuda-home", other)


def test_what_was_published_can_be_rebuilt_with_the_toolkit_alone(
    own: Settings, tmp_path: Path
) -> None:
    project = copy("two_cuda", tmp_path)
    build(project, own)
    metadata = json.loads((project / "build" / NAME / "metadata.json").read_text())
    assert metadata["kernels-ext"]["cuda-toolkit"] == older_cuda.RELEASE
    hub = tmp_path / "hub"
    hub.mkdir()
    where = ("--hub", hub.as_uri())
    call(own, "upload", project, "--repo-id", "acme/two-cuda", *where)
    rebuild = ("rebuild", "acme/two-cuda", "--project", project, *where)
    said = call(own, *rebuild, code=1)
    assert "is built with CUDA 12.4, and pinned are 13.0" in said
    assert "--cuda-home PATH" in said
    assert "byte for byte" in call(own, *rebuild, "--cuda-home", own.cuda_home)


def test_headers_of_another_toolkit_are_not_taken_for_its_own(
    own: Settings, settings: Settings, older: older_cuda.OlderCuda, tmp_path: Path
) -> None:
    mixed = tmp_path / "cuda"
    newer = get_cuda(settings)
    shutil.copytree(older.home, mixed, symlinks=True)
    (mixed / "include").unlink()
    (mixed / "include").symlink_to(newer.include)
    (mixed / "lib").symlink_to(newer.cudart.parent)
    project = copy("two_cuda", tmp_path)
    report = build_project(project, settings=replace(own, cuda_home=mixed), selection=CUDA)
    said = format_report(report)
    assert "nvcc says release 12.4, and the headers beside it are of CUDA 13.0" in said


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("nvvm/bin/cicc", "finds no cicc of its toolkit: install it whole"),
        ("targets/x86_64-linux/include/nv", "nv/target belongs to CUDA, and CUDA 12.4 in"),
        ("targets/x86_64-linux/include/crt", "crt/host_config.h belongs to CUDA, and"),
    ],
)
def test_a_part_that_is_lacking_is_named(
    own: Settings, older: older_cuda.OlderCuda, tmp_path: Path, lacking: str, said: str
) -> None:
    less = tmp_path / "cuda"
    shutil.copytree(older.home, less, symlinks=True, copy_function=os.link)
    gone = less / lacking
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    project = copy("two_cuda", tmp_path)
    source = project / "csrc" / "old" / "old_step.cu"
    source.write_text(f"#include <cuda_fp16.h>\n{source.read_text()}")
    report = build_project(project, settings=replace(own, cuda_home=less), selection=CUDA, jobs=2)
    assert report.exit_code == 1
    assert said in format_report(report)


def test_no_toolkit_at_all_is_refused_before_anything_is_built(
    own: Settings, tmp_path: Path
) -> None:
    project = copy("add_device", tmp_path)
    with pytest.raises(SelectionError, match="it has no bin/nvcc and no include/"):
        build_project(project, settings=replace(own, cuda_home=tmp_path))
    assert not (project / "build").exists()


def test_a_compiler_that_is_too_new_is_told_with_the_one_that_is_not(
    own: Settings, tmp_path: Path
) -> None:
    newer = tmp_path / "g++-14"
    newer.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=14 "$@"\n')
    newer.chmod(0o755)
    project = copy("two_cuda", tmp_path)
    report = build_project(project, settings=replace(own, cxx=str(newer)), selection=CUDA, jobs=2)
    assert "this nvcc takes g++ up to 13: install it" in format_report(report)


def test_a_function_that_came_later_is_named_with_what_to_write(
    own: Settings, tmp_path: Path
) -> None:
    project = copy("two_cuda", tmp_path)
    source = project / "csrc" / "old" / "old_step.cu"
    later = "auto *later() { return &cudaGetDriverEntryPointByVersion; }\n"
    source.write_text(f"#include <cuda_runtime.h>\n{later}{source.read_text()}")
    report = build_project(project, settings=own, selection=CUDA, jobs=2)
    said = format_report(report)
    assert "cudaGetDriverEntryPointByVersion is not in the headers of CUDA 12.4" in said
    assert "write that as cuda-minver of this component" in said
