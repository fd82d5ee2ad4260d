from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.diagnose import CompileFailure, Toolkit, find_hint
from kernel_builder.environment import Environment
from kernel_builder.errors import ToolchainError
from kernel_builder.flags import compile_flags, format_target, list_left_out, preprocessor_flags
from kernel_builder.planned import VariantBuild
from kernel_builder.toolchain.cpu import CpuToolchain, Family
from kernel_builder.toolchain.cuda import CudaToolchain
from kernel_builder.toolchain.cuda_home import CudaAnswer
from kernel_builder.toolchain.link import LinkKit, link_command
from kernel_builder.toolchain.torch import TorchInstall
from kernel_builder.units import CompileUnit
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.variant import parse_variant
from kernel_spec.version import MajorMinor

TORCH = TorchBuild(version="2.13.0+cpu", release=MajorMinor(2, 13))
UNIT = CompileUnit(source="csrc/a.cpp", component="a", backend=BackendKind.CPU)
BUILD = VariantBuild(
    variant=parse_variant("torch-stable-abi210-cpu-x86_64-linux"),
    backend=BackendKind.CPU,
    op_id="_kit_cpu_0123456789ab",
    module="kit",
    units=(UNIT,),
    headers=(),
    package=(),
    torch=TORCH,
    archs=(),
    depends=(),
    name="kit",
    version=1,
    license="MIT",
)
TOOLCHAIN = CpuToolchain(
    command=("/usr/bin/g++",),
    family=Family.GCC,
    version="g++ 12",
    cpu="x86_64",
    identity="i",
    files={
        name: Path("/gcc") / name
        for name in ("crti.o", "crtbeginS.o", "crtendS.o", "crtn.o", "libstdc++.a", "libgcc.a")
    },
    shared=(),
)
ENVIRONMENT = Environment(
    toolchain=TOOLCHAIN,
    torch=TorchInstall(root=Path("/site/torch"), build=TORCH),
    libraries=("torch",),
    python_include=Path("/usr/include/python3.11"),
    kit=LinkKit(system=Path("/stubs"), framework=Path("/torch-stubs"), compat=Path("/compat.o")),
)


def flags(
    unit: CompileUnit = UNIT,
    build: VariantBuild = BUILD,
    environment: Environment = ENVIRONMENT,
    stage: Path = Path("/run/src"),
) -> tuple[str, ...]:
    return compile_flags(unit, build, environment, stage)


def test_versions_as_torch_writes_them() -> None:
    assert format_target(MajorMinor(2, 10)) == "0x020a000000000000"


def test_the_stable_abi_is_asked_for_by_version() -> None:
    assert "-DTORCH_TARGET_VERSION=0x020a000000000000" in flags()
    full = flags(build=replace(BUILD, variant=parse_variant("torch213-cxx11-cpu-x86_64-linux")))
    assert not any("TORCH_TARGET_VERSION" in flag for flag in full)


@pytest.mark.parametrize(("minor", "standard"), [(11, "c++17"), (12, "c++20"), (13, "c++20")])
def test_the_standard_follows_torch(minor: int, standard: str) -> None:
    torch = TorchBuild(version=f"2.{minor}.0", release=MajorMinor(2, minor))
    install = TorchInstall(root=Path("/t"), build=torch)
    assert f"-std={standard}" in flags(environment=replace(ENVIRONMENT, torch=install))


def test_the_author_has_the_last_word() -> None:
    unit = replace(UNIT, cxx_flags=("-O1", "-std=c++23"))
    assert flags(unit)[-2:] == ("-O1", "-std=c++23")


def test_directories_are_relative_and_only_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "own").mkdir()
    unit = replace(UNIT, include=("own", "gone"))
    include = [flag for flag in flags(unit, stage=tmp_path) if flag.startswith("-I")]
    assert include == ["-Iown", "-Icsrc", "-I../gen"]


def test_the_root_of_a_project_does_not_shadow_standard_headers() -> None:
    assert "-iquote." in flags()
    assert "-I." not in flags()


def test_places_of_this_machine_are_mapped_away() -> None:
    found = flags()
    for place in ("/site/torch=torch", "/usr/include/python3.11=python", "/run=."):
        assert f"-ffile-prefix-map={place}" in found


def test_clang_is_spared_what_only_gcc_knows() -> None:
    clang = replace(ENVIRONMENT, toolchain=replace(TOOLCHAIN, family=Family.CLANG))
    assert "-fno-gnu-unique" in flags()
    assert "-fno-gnu-unique" not in flags(environment=clang)


def test_other_backends_are_refused() -> None:
    with pytest.raises(ToolchainError, match=r"a\.hip: files for rocm"):
        flags(replace(UNIT, source="a.hip", backend=BackendKind.ROCM))


CUDA = CudaToolchain(
    root=Path("/cuda"),
    version=MajorMinor(13, 0),
    nvcc=Path("/cuda/bin/nvcc"),
    include=Path("/cuda/include"),
    cudart=Path("/cuda/lib/libcudart.so.13"),
    identity="c",
)
CUDA_BUILD = replace(
    BUILD,
    variant=parse_variant("torch-stable-abi210-cu130-x86_64-linux"),
    backend=BackendKind.CUDA,
)
DEVICE_UNIT = replace(
    UNIT,
    source="csrc/a.cu",
    backend=BackendKind.CUDA,
    archs=("8.0", "9.0a+PTX"),
    cxx_flags=("-Wl,-z",),
    backend_flags=("-lineinfo",),
)


def test_device_code_is_compiled_for_the_archs_of_its_file() -> None:
    found = flags(DEVICE_UNIT, build=CUDA_BUILD, environment=replace(ENVIRONMENT, cuda=CUDA))
    assert [word for word in found if "-gencode" in word] == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]",
    ]
    assert {"-DCUDA_KERNEL", "-DUSE_CUDA=1", "-Xcompiler=-fno-gnu-unique"} <= set(found)
    assert {"-Xcompiler=-fPIC", "-Xcompiler=-ffile-prefix-map=/cuda=cuda"} <= set(found)
    assert found[-2:] == ("-Xcompiler=-Wl\\,-z", "-lineinfo")


def test_the_cpu_files_of_a_cuda_variant_find_the_toolkit_and_no_archs() -> None:
    found = flags(UNIT, build=CUDA_BUILD, environment=replace(ENVIRONMENT, cuda=CUDA))
    assert "-isystem/cuda/include" in found
    assert "-DCUDA_KERNEL" in found
    assert not any("gencode" in word or "Xcompiler" in word for word in found)


def test_a_cuda_library_asks_for_the_shared_runtime_and_keeps_no_local_names() -> None:
    command = link_command(
        TOOLCHAIN,
        ENVIRONMENT.kit,
        objects=["a.o"],
        libraries=["torch"],
        version_script="exports.map",
        output="k.so",
        cudart=CUDA.cudart,
    )
    assert command.index("a.o") < command.index("/cuda/lib/libcudart.so.13")
    assert "-Wl,--strip-all" in command
    assert "-Wl,--strip-debug" not in command  # the later one of the two would win


def test_the_link_exports_the_entry_alone_and_has_no_search_path() -> None:
    command = link_command(
        TOOLCHAIN,
        ENVIRONMENT.kit,
        objects=["a.o", "b.o"],
        libraries=["torch"],
        version_script="exports.map",
        output="k.so",
    )
    assert command.index("a.o") < command.index("b.o") < command.index("/torch-stubs/libtorch.so")
    for flag in ("-nostdlib", "-Wl,--exclude-libs,ALL", "-Wl,-z,noexecstack", "-Wl,-z,relro"):
        assert flag in command
    assert "-Wl,--version-script=exports.map" in command
    assert not any("rpath" in word for word in command)


def test_a_failure_shows_the_fault_first_and_the_log_last() -> None:
    said = "In file included from a.cpp:1:\na.h:3:1: error: no\n  3 | no\n"
    failure = CompileFailure(
        source="a.cpp", command="g++ -c a.cpp", output=said, hint="do this", log=Path("/logs/a.log")
    )
    assert str(failure).splitlines() == [
        "a.h:3:1: error: no",
        "  3 | no",
        "a.cpp: does not compile",
        "  hint: do this",
        "  the command and all that was said: /logs/a.log",
    ]


def test_long_words_are_cut_and_words_of_nvcc_are_known() -> None:
    long = "x.cu(7): error: undefined\n" + "note\n" * 99
    failure = CompileFailure(source="x.cu", command="nvcc", output=f"warning: w\n{long}")
    lines = failure.excerpt.splitlines()
    assert lines[0] == "x.cu(7): error: undefined"
    assert (len(lines), lines[-1]) == (41, "... 60 more lines")
    killed = replace(failure, output="nvcc: killed\n")
    assert killed.excerpt == "nvcc: killed"


def test_hints(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "x.h").touch()
    (tmp_path / "build" / "v").mkdir(parents=True)
    (tmp_path / "build" / "v" / "y.h").touch()
    absent = "a.cpp:1:10: fatal error: {}: No such file or directory"
    assert "csrc/x.h is in the project" in str(find_hint(tmp_path, absent.format("x.h")))
    assert "name what brings it under depends" in str(find_hint(tmp_path, absent.format("y.h")))
    for pybind in (
        "/t/include/pybind11/buffer_info.h:108:35: error: expected ')'",
        "a.cpp:9:17: error: expected constructor before '(' token\n 9 | PYBIND11_MODULE(x, m) {",
        "a.cpp:4:3: error: 'py' has not been declared",
    ):
        assert "TORCH_LIBRARY_EXPAND" in str(find_hint(tmp_path, pybind))
    assert "memory" in str(find_hint(tmp_path, "g++: fatal error: Killed signal terminated"))
    for header in ("curand_kernel.h", "cublas_v2.h", "nvtx3/nvToolsExt.h"):
        assert "--cuda-home" in str(find_hint(tmp_path, absent.format(header)))
    assert "--cuda-home" in str(find_hint(tmp_path, 'error: identifier "CUBLAS_OP_N" is undefined'))
    later = "#error -- unsupported GNU version! gcc versions later than 13 are not supported!"
    assert "set CXX=g++-13" in str(find_hint(tmp_path, later))
    assert find_hint(tmp_path, "error: expected ';'") is None


def test_hints_for_a_toolkit_that_is_too_old_or_lacks_a_part(tmp_path: Path) -> None:
    own = Toolkit(version="12.4", home=Path("/opt/cuda"))
    absent = "a.cpp:1:10: fatal error: {}: No such file or directory"
    for header in ("nv/target", "crt/host_config.h", "cublas_v2.h", "cuda_fp8.h"):
        said = str(find_hint(tmp_path, absent.format(header), own))
        assert said.startswith(
            f"{header} belongs to CUDA, and CUDA 12.4 in /opt/cuda is without it"
        )
    assert "under depends" in str(find_hint(tmp_path, absent.format("fmt/core.h"), own))
    library = 'error: identifier "CUBLAS_OP_N" is undefined'
    assert "/opt/cuda has no cuBLAS" in str(find_hint(tmp_path, library, own))
    for words, what in (
        ('a.cu(1): error: identifier "cudaNewThing" is undefined', "cudaNewThing is not in"),
        ("a.cpp:1:2: error: 'cuTensorMapNew' was not declared in this scope", "cuTensorMapNew is"),
        ("ptxas a, line 9; error : Feature 'x' requires PTX ISA .version 8.6 or later", "than 8.6"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_100'", "than compute_100"),
    ):
        for toolkit in (own, Toolkit(version="13.0")):
            said = str(find_hint(tmp_path, words, toolkit))
            assert what in said
            assert "cuda-minver" in said
    # It need not be too old: whoever forgets a header gets the same words of a compiler.
    forgotten = "a.cpp:1:2: error: 'cudaStream_t' does not name a type"
    assert "include the one that has it, such as cuda_runtime.h" in str(
        find_hint(tmp_path, forgotten, Toolkit(version="13.0"))
    )
    assert find_hint(tmp_path, 'error: identifier "custom" is undefined', own) is None


def test_a_toolkit_without_the_standard_of_torchs_headers_is_refused() -> None:
    cuda = replace(CUDA, version=MajorMinor(11, 8))
    new = replace(ENVIRONMENT, cuda=cuda)
    with pytest.raises(
        ToolchainError, match=r"need C\+\+20, .* since CUDA 12\.0, and /cuda is CUDA 11"
    ):
        flags(DEVICE_UNIT, build=CUDA_BUILD, environment=new)
    assert new.torch is not None
    release = replace(new.torch.build, version="2.11.0", release=MajorMinor(2, 11))
    old = replace(new, torch=replace(new.torch, build=release))
    assert "-std=c++17" in flags(DEVICE_UNIT, build=CUDA_BUILD, environment=old)


def test_an_older_toolkit_gets_what_it_understands() -> None:
    unit = replace(
        DEVICE_UNIT,
        backend_flags=(
            "-static-global-template-stub=false",
            "-lineinfo",
            "--compress-mode",
            "size",
            "--maxrregcount",
            "64",
        ),
    )
    new = flags(unit, build=CUDA_BUILD, environment=replace(ENVIRONMENT, cuda=CUDA))
    assert "-static-global-template-stub=false" in new
    assert "-frandom-seed=csrc/a.cu" in new
    assert "size" in new
    older = replace(
        CUDA, version=MajorMinor(12, 4), answer=CudaAnswer(options=frozenset({"maxrregcount"}))
    )
    old = flags(unit, build=CUDA_BUILD, environment=replace(ENVIRONMENT, cuda=older))
    assert "-static-global-template-stub=false" not in old
    assert "-lineinfo" in old
    assert old[-2:] == ("--maxrregcount", "64")
    assert not {"--compress-mode", "size"} & set(old)
    left = list_left_out(replace(CUDA_BUILD, units=(unit, unit)), replace(ENVIRONMENT, cuda=older))
    assert left == ("-static-global-template-stub=false", "--compress-mode size")
    assert "-std=c++20" in old
    assert "-Xcompiler=-frandom-seed=csrc/a.cu" in old
    assert "-frandom-seed=csrc/a.cu" not in old


def test_the_preprocessor_sees_what_the_compiler_sees() -> None:
    unit = replace(DEVICE_UNIT, cxx_flags=("-DMINE",), backend_flags=("-DOTHER=1", "-lineinfo"))
    environment = replace(ENVIRONMENT, cuda=CUDA, cuda_headers=Path("/more"))
    found = preprocessor_flags(unit, CUDA_BUILD, environment, Path("/stage/src"))
    assert {"-DMINE", "-DOTHER=1", "-DCUDA_KERNEL", "-O3"} <= set(found)
    assert f"-DTORCH_EXTENSION_NAME={CUDA_BUILD.op_id}" in found
    assert found.index("-isystem/cuda/include") < found.index("-isystem/more")
    assert "-lineinfo" not in found
