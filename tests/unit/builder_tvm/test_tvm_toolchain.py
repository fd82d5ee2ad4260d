"""The pinned TVM FFI as data, and how files are compiled and linked with it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_builder.compile import stage_sources
from kernel_builder.config.read import read_build
from kernel_builder.depends import describe_depends
from kernel_builder.environment import Environment, framework_libraries
from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.flags import compile_flags, name_extension
from kernel_builder.plan import plan
from kernel_builder.planned import Host, VariantBuild
from kernel_builder.sources import read_sources
from kernel_builder.toolchain import tvm_ffi
from kernel_builder.toolchain.cpu import CpuToolchain, Family
from kernel_builder.toolchain.link import LinkKit
from kernel_builder.toolchain.tvm_ffi import TvmFfiInstall, describe_pinned, pinned_interface
from kernel_spec.variant import parse_variant
from kernel_spec.version import MajorMinor

KIT = Path(__file__).parents[2] / "kits" / "tvm_add"
INSTALL = TvmFfiInstall(root=Path("/pinned"), release="0.1.15")
ENVIRONMENT = Environment(
    toolchain=CpuToolchain(
        command=("/usr/bin/g++",),
        family=Family.GCC,
        version="g++ 12",
        cpu="x86_64",
        identity="g++",
        files={},
        shared=(),
    ),
    torch=None,
    libraries=("tvm_ffi",),
    python_include=None,
    kit=LinkKit(system=Path("/stubs"), framework=Path("/fw"), compat=Path("/compat.o")),
    tvm_ffi=INSTALL,
)


@pytest.fixture
def variant() -> VariantBuild:
    build = read_build(KIT)
    host = Host(cpu="x86_64", os="linux", torch=None)
    (made,) = plan(build, read_sources(KIT, build), host=host).variants
    return made


def test_the_pinned_wheels_are_whole() -> None:
    data: dict[str, Any] = tvm_ffi._read()
    assert pinned_interface() == MajorMinor(0, 1)
    assert {"cp311", "cp312", "cp313"} <= set(data["wheels"]["x86_64"])
    hashes = [
        data["headers"],
        *(text for tags in data["wheels"].values() for text in tags.values()),
    ]
    assert all(re.fullmatch(r"[0-9a-f]{64}", text) for text in hashes)
    assert len(set(hashes)) == len(hashes)
    record = describe_pinned()
    assert record["license"] == "Apache-2.0"
    assert describe_depends((), tvm_ffi=True) == {"depends": {"tvm-ffi": record}}
    assert describe_depends(()) == {}


def test_the_wheel_is_that_of_this_python_and_what_it_needs_is_pinned_too() -> None:
    data = tvm_ffi._read()
    wheels = tvm_ffi._choose_wheels(data, "x86_64", "cp312")
    assert wheels.requirements.count("--hash=sha256:") == 2
    assert data["wheels"]["x86_64"]["cp312"] in wheels.requirements
    assert wheels.key != tvm_ffi._choose_wheels(data, "x86_64", "cp311").key


def test_a_python_without_a_wheel_is_told_which_have_one() -> None:
    with pytest.raises(ToolchainUnavailableError, match=r"no wheel for cp399 on x86_64.*cp312"):
        tvm_ffi._choose_wheels(tvm_ffi._read(), "x86_64", "cp399")


def test_a_file_sees_tvm_ffi_and_neither_torch_nor_python(
    variant: VariantBuild, tmp_path: Path
) -> None:
    stage = tmp_path / "src"
    (stage / "tvm-ffi-ext").mkdir(parents=True)
    flags = compile_flags(variant.units[0], variant, ENVIRONMENT, stage)
    assert "-isystem/pinned/tvm_ffi/include" in flags
    assert "-Itvm-ffi-ext" in flags
    assert "-DCPU_KERNEL" in flags
    assert "-std=c++17" in flags
    assert "-ffile-prefix-map=/pinned=tvm-ffi" in flags
    assert not [
        flag for flag in flags if "Py_LIMITED" in flag or "TORCH" in flag or "python" in flag
    ]
    assert name_extension(variant) == f"-DTVM_FFI_EXTENSION_NAME={variant.op_id}"
    assert framework_libraries(variant) == ("tvm_ffi",)


def test_a_stage_exports_functions_and_holds_no_header_of_torch(
    variant: VariantBuild, tmp_path: Path
) -> None:
    stage_sources(KIT, variant, tmp_path)
    assert (tmp_path / "exports.map").read_text() == "{ global: __tvm_ffi_*; local: *; };\n"
    assert list((tmp_path / "gen").iterdir()) == []
    torch = replace(variant, variant=parse_variant("torch-stable-abi210-cpu-x86_64-linux"))
    work = tmp_path / "torch"
    work.mkdir()
    stage_sources(KIT, torch, work)
    assert "PyInit_" in (work / "exports.map").read_text()
    assert (work / "gen" / "registration.h").is_file()


def test_what_cannot_be_fetched_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_builder.errors import CommandError
    from kernel_builder.settings import read_settings
    from kernel_builder.toolchain import wheels

    def fail(*_: object, **__: object) -> None:
        finished = SimpleNamespace(output="ERROR: no such thing", code=1)
        raise CommandError("pip", finished=finished)  # type: ignore[arg-type]

    monkeypatch.setattr(wheels, "run", fail)
    settings = read_settings({"HOME": str(tmp_path), "PATH": ""})
    with pytest.raises(ToolchainUnavailableError) as caught:
        tvm_ffi.get_tvm_ffi(settings)
    assert "PIP_INDEX_URL" in str(caught.value)
    assert "--cuda-home" not in str(caught.value)
    assert not [path for path in (settings.cache / "toolchains").iterdir() if path.is_dir()]
