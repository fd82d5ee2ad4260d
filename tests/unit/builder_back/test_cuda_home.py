"""A toolkit of the user's own: found in every layout, asked what it is, refused in words."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.environment import detect_host, identify_environment
from kernel_builder.errors import SelectionError, ToolchainError
from kernel_builder.planned import VariantBuild
from kernel_builder.settings import Settings, read_settings
from kernel_builder.toolchain.cuda import read_cuda
from kernel_builder.toolchain.cuda_home import CudaFiles, find_files
from kernel_builder.units import CompileUnit
from kernel_spec.backend import BackendKind
from kernel_spec.variant import parse_variant
from kernel_spec.version import MajorMinor

# Talks as nvcc 12.4 and 13.0 do: an option begins its line, and is mentioned elsewhere.
NVCC = """\
#!/bin/sh
here=$(dirname "$0")
case "$1" in
--version) echo "Cuda compilation tools, release 12.4, V12.4.131" ;;
--help)
  echo '--lineinfo                                          (-lineinfo)                 '
  echo '        See also --compress-mode.'
  echo '--split-compile <number>                            (-split-compile)            ' ;;
--dryrun)
  echo "#$ _HERE_=$here"
  echo "#$ NVVMIR_LIBRARY_DIR=$here/../nvvm/libdevice"
  echo "#$ PATH=$here/../nvvm/bin:$here:$PATH" ;;
esac
"""


def write(path: Path, text: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Lay a toolkit out as NVIDIA's installer does."""
    root = tmp_path / "cuda-12.4"
    for name in ("bin/cudafe++", "bin/fatbinary", "bin/ptxas", "nvvm/bin/cicc"):
        write(root / name, mode=0o755)
    write(root / "bin" / "nvcc", NVCC, 0o755)
    write(root / "nvvm" / "libdevice" / "libdevice.10.bc")
    target = root / "targets" / "x86_64-linux"
    write(target / "include" / "cuda_runtime_api.h", "#define CUDART_VERSION  12040\n")
    write(target / "lib" / "libcudart.so.12")
    (root / "include").symlink_to("targets/x86_64-linux/include")
    (root / "lib64").symlink_to("targets/x86_64-linux/lib")
    return root


@pytest.fixture
def settings(home: Path) -> Settings:
    return replace(read_settings({"HOME": str(home.parent)}), cuda_home=home)


def read(home: Path, path: str = "/usr/bin:/bin"):
    return read_cuda(home, variables={"PATH": path})


def test_it_says_its_version_and_options(home: Path, settings: Settings) -> None:
    assert detect_host(settings).toolkits == {BackendKind.CUDA: MajorMinor(12, 4)}
    found = read(home)
    assert (found.version, found.answer.release) == (MajorMinor(12, 4), "12.4.131")
    assert found.takes("--split-compile=2")
    assert found.takes("-maxrregcount=1")
    assert not found.takes("--compress-mode=size")
    assert not found.takes("-frandom-seed=1")
    assert {path.name for path in found.answer.programs} == {
        *("nvcc", "cudafe++", "cicc", "ptxas", "fatbinary", "libdevice.10.bc"),
    }
    assert found.outside == ()


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        (["bin/nvcc"], "it has no bin/nvcc"),
        (["include"], "it has no include/cuda_runtime_api.h"),
        (["lib64", "targets/x86_64-linux/lib"], r"it has no libcudart\.so\.12"),
        (["bin/nvcc", "include"], "it has no bin/nvcc and no include/cuda_runtime_api.h"),
    ],
)
def test_what_is_lacking_is_said_before_anything_is_planned(
    home: Path, settings: Settings, lacking: list[str], said: str
) -> None:
    (home / "include" / "cuda_runtime_api.h").replace(home / "kept")
    write(home / "include" / "cuda_runtime_api.h", (home / "kept").read_text())
    for name in lacking:
        if name == "include":
            (home / "include").unlink()
            shutil.rmtree(home / "targets" / "x86_64-linux" / "include")
        elif (home / name).is_dir() and not (home / name).is_symlink():
            shutil.rmtree(home / name)
        else:
            (home / name).unlink()
    with pytest.raises(SelectionError, match=f"--cuda-home {home} is no whole CUDA .*{said};"):
        detect_host(settings)


def test_a_wrong_directory_is_told_from_a_toolkit_that_lacks_something(
    home: Path, settings: Settings
) -> None:
    with pytest.raises(SelectionError, match="nowhere: no such directory"):
        detect_host(replace(settings, cuda_home=home / "nowhere"))
    with pytest.raises(SelectionError, match=rf"; did you mean {home}\?"):
        detect_host(replace(settings, cuda_home=home / "bin"))


def test_headers_of_another_version_are_told(home: Path) -> None:
    write(home / "include" / "cuda_runtime_api.h", "#define CUDART_VERSION  12060\n")
    with pytest.raises(ToolchainError, match=r"release 12\.4, and the headers .* of CUDA 12\.6"):
        read(home)


def test_a_program_that_is_not_there_or_anothers_is_told(home: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other" / "bin" / "ptxas", mode=0o755)
    (home / "bin" / "ptxas").unlink()
    (home / "nvvm" / "bin" / "cicc").unlink()
    for path in ("/usr/bin", f"{other.parent}:/usr/bin:/bin"):
        with pytest.raises(ToolchainError, match=r"nvcc finds no cicc and no ptxas of its toolkit"):
            read(home, path)


def test_debian_has_the_parts_apart(home: Path, tmp_path: Path) -> None:
    usr = tmp_path / "usr"
    own = usr / "lib" / "nvidia-cuda-toolkit"
    write(usr / "bin" / "nvcc", f'#!/bin/sh\nexec {own}/bin/nvcc "$@"\n', 0o755)
    for name in ("cudafe++", "fatbinary", "ptxas"):
        (home / "bin" / name).rename(usr / "bin" / name)
    write(own / "bin" / "nvcc", NVCC, 0o755)
    write(own / "bin" / "cicc", mode=0o755)
    (home / "include").resolve().rename(usr / "include")
    write(usr / "lib" / "x86_64-linux-gnu" / "libcudart.so.12")
    (usr / "lib" / "cuda" / "bin").mkdir(parents=True)
    another = write(tmp_path / "other" / "bin" / "ptxas", mode=0o755).parent
    for name in ("", "lib/cuda", "lib/nvidia-cuda-toolkit"):
        found = read(usr / name, f"{usr}/bin:/usr/bin")
        assert found.root == usr
        assert {own / "bin" / "nvcc", own / "bin" / "cicc", usr / "bin" / "ptxas"} <= set(
            found.answer.programs
        )
        assert found.command == (f"{usr}/bin/nvcc",)
        path = f"{another}:/usr/bin"
        found = read(usr / name, path)
        assert usr / "bin" / "ptxas" in found.answer.programs
        assert found.command == ("env", f"PATH={usr}/bin:{path}", f"{usr}/bin/nvcc")
    shared = CudaFiles(
        root=Path("/usr"),
        version=MajorMinor(12, 4),
        nvcc=Path("/usr/bin/nvcc"),
        include=Path("/usr/include"),
        cudart=Path("/usr/lib/x86_64-linux-gnu/libcudart.so.12"),
    )
    assert shared.shares_include
    assert not find_files(usr).shares_include


def test_either_directory_of_headers_may_be_the_link(home: Path) -> None:
    target = home / "targets" / "x86_64-linux" / "include"
    assert read(home).header_places == (home / "include", target)
    (home / "include").unlink()
    target.rename(home / "include")
    target.symlink_to("../../include")
    found = read(home)
    assert (found.include, found.header_places) == (home / "include", (home / "include", target))


def test_conda_has_headers_below_targets_alone(home: Path) -> None:
    (home / "include").unlink()
    write(home / "include" / "zlib.h")
    found = find_files(home)
    assert found.include == home / "targets" / "x86_64-linux" / "include"
    assert found.header_places == (found.include,)


def test_a_directory_of_links_brings_what_they_lead_to(home: Path, tmp_path: Path) -> None:
    assert read(home).outside == ()
    farm = tmp_path / "view"
    shutil.copytree(home, farm, copy_function=lambda source, to: Path(to).symlink_to(source))
    assert set(read(farm).outside) == {
        home / "bin",
        home / "nvvm" / "bin" / "cicc",
        home / "nvvm" / "libdevice" / "libdevice.10.bc",
        home / "targets" / "x86_64-linux" / "include" / "cuda_runtime_api.h",
        home / "targets" / "x86_64-linux" / "lib" / "libcudart.so.12",
        # The names that the links to those two have for them.
        home / "include" / "cuda_runtime_api.h",
        home / "lib64" / "libcudart.so.12",
    }
    (farm / "bin" / "itself").symlink_to("itself")
    assert home / "bin" in read(farm).outside
    whole = tmp_path / "alias"
    whole.symlink_to(home)
    assert read(whole).outside == ()


def test_it_changes_with_any_of_its_programs(home: Path) -> None:
    before = find_files(home).identify()
    for name in ("bin/ptxas", "nvvm/bin/cicc", "include/cuda_runtime_api.h"):
        write(home / name, (home / name).read_text() + "\n", 0o755)
        after = find_files(home).identify()
        assert after != before
        before = after


def test_a_build_is_another_after_any_header_has_changed(home: Path) -> None:
    settings = read_settings({"PATH": "", "HOME": str(home), "CXX": str(home / "bin" / "nvcc")})
    build = VariantBuild(
        variant=parse_variant("tvm-ffi01-cu124-x86_64-linux"),
        backend=BackendKind.CUDA,
        op_id="_kit_cuda_0123456789ab",
        module="kit",
        package=(),
        name="kit",
        version=1,
        license="MIT",
        units=(CompileUnit(source="a.cu", component="a", backend=BackendKind.CUDA),),
    )

    def identify() -> str:
        return identify_environment(build, replace(settings, cuda_home=home))

    before = identify()
    assert identify() == before
    header = write(home / "include" / "cub" / "cub.cuh", "one")
    added = identify()
    write(header, "other")
    assert len({before, added, identify()}) == 3
    header.unlink()
    header.parent.rmdir()
    assert identify() == before


def test_the_runtime_of_cuda_11_has_a_longer_name(home: Path) -> None:
    write(home / "include" / "cuda_runtime_api.h", "#define CUDART_VERSION  11080\n")
    write(home / "lib64" / "libcudart.so.11.0")
    assert find_files(home).version == MajorMinor(11, 8)
