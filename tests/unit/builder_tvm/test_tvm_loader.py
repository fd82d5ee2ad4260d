"""What the loader makes of TVM FFI: which system it is, and what would not link."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_spec.backend import Backend, BackendKind
from kernel_spec.binary import ElfFacts, Symbol
from kernel_spec.compat import Rejected, decide
from kernel_spec.system import System
from kernel_spec.version import MajorMinor
from kernels import system as system_module
from kernels.doctor_advice import advise
from kernels.linkage import judge as judge_module
from kernels.linkage.host import Host, fingerprint
from kernels.system import describe, detect

SYSTEM = System(
    torch=None,
    backend=Backend(BackendKind.CPU),
    cpu="x86_64",
    os="linux",
    python=MajorMinor(3, 11),
    tvm_ffi=MajorMinor(0, 1),
)
NAME = "tvm-ffi01-cpu-x86_64-linux"


@pytest.mark.parametrize(
    ("found", "words"), [(None, "has no apache-tvm-ffi"), (MajorMinor(0, 2), "has tvm-ffi 0.2")]
)
def test_a_missing_or_other_tvm_ffi_is_the_reason_and_the_doctor_names_the_package(
    found: MajorMinor | None, words: str
) -> None:
    system = replace(SYSTEM, tvm_ffi=found)
    (decision,) = decide(system, [NAME])
    assert isinstance(decision, Rejected)
    assert words in decision.reason
    # "tvm-ffi" is another project's name on package indexes.
    assert advise("acme/k", (decision,), system).command == "pip install 'apache-tvm-ffi==0.1.*'"


def test_the_system_is_described_with_tvm_ffi() -> None:
    assert describe(SYSTEM).startswith("no torch, tvm-ffi 0.1, cpu")
    assert "tvm-ffi" not in describe(replace(SYSTEM, tvm_ffi=None))


class FakeLibrary:
    """The CUDA runtime of a machine, as far as it is asked."""

    def __init__(self, version: int) -> None:
        self.version = version

    def cudaRuntimeGetVersion(self, place: object) -> int:  # noqa: N802
        place._obj.value = self.version  # type: ignore[attr-defined]
        return 0


@pytest.mark.parametrize(
    ("libraries", "expected"),
    [
        ({}, Backend(BackendKind.CPU)),
        # A toolkit without a driver is no GPU.
        ({"libcudart.so.13": 13000}, Backend(BackendKind.CPU)),
        ({"libcuda.so.1": 0}, Backend(BackendKind.CPU)),
        (
            {"libcuda.so.1": 0, "libcudart.so.13": 13020},
            Backend(BackendKind.CUDA, MajorMinor(13, 2)),
        ),
        (
            {"libcuda.so.1": 0, "libcudart.so.12": 12080},
            Backend(BackendKind.CUDA, MajorMinor(12, 8)),
        ),
    ],
)
def test_without_torch_cuda_is_what_a_kernel_would_be_linked_with(
    monkeypatch: pytest.MonkeyPatch, libraries: dict[str, int], expected: Backend
) -> None:
    def load(name: str) -> FakeLibrary:
        if name not in libraries:
            raise OSError(name)
        return FakeLibrary(libraries[name])

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(system_module, "_detect_torch", lambda: (None, Backend(BackendKind.CPU)))
    monkeypatch.setattr(system_module, "_detect_tvm_ffi", lambda: MajorMinor(0, 1))
    assert detect().backend == expected
    monkeypatch.setattr(system_module, "_detect_tvm_ffi", lambda: None)
    assert detect().backend == Backend(BackendKind.CPU)


def judge(monkeypatch: pytest.MonkeyPatch, defined: set[str], host: Host) -> list[str]:
    symbols = tuple(
        Symbol(name, None, None, False, "global") for name in ("TVMFFIOld", "TVMFFINew")
    )
    facts = ElfFacts(
        machine="x86_64",
        soname=None,
        needed=("libtvm_ffi.so",),
        rpath=(),
        symbols=symbols,
        version_needs=(),
        executable_stack=False,
    )
    monkeypatch.setattr(judge_module, "find_defined", lambda _, names: defined & set(names))
    found = judge_module._judge_library(Path("_k.so"), facts, host, [])
    return [f"{reason.kind}: {reason.text}" for reason in found]


def test_a_function_of_a_later_release_is_found_before_the_library_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "libtvm_ffi.so"
    library.write_bytes(b"")
    host = Host(system=SYSTEM, tvm_ffi=library)
    assert judge(monkeypatch, {"TVMFFIOld", "TVMFFINew"}, host) == []
    (reason,) = judge(monkeypatch, {"TVMFFIOld"}, host)
    assert reason == (
        "tvm-ffi-symbols: _k.so needs TVMFFINew, which the installed apache-tvm-ffi (0.1) does "
        "not have"
    )
    # Where its library is not found, nothing is held against the variant.
    assert judge(monkeypatch, set(), Host(system=SYSTEM)) == []


def test_another_tvm_ffi_is_another_host(tmp_path: Path) -> None:
    library = tmp_path / "libtvm_ffi.so"
    library.write_bytes(b"one")
    host = Host(system=SYSTEM, tvm_ffi=library)
    before = fingerprint(host)
    library.write_bytes(b"another")
    assert fingerprint(host) != before
