"""Each rule on facts made by hand; that real libraries give such facts is an integration test."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.glibc import check_symbol_versions
from kernel_builder.check.linkage import check_linkage
from kernel_builder.check.python_abi import check_python_abi
from kernel_builder.check.subject import SharedLibrary, Subject
from kernel_builder.check.symbols import demangle, is_foreign_to_torch, mentions_torch
from kernel_builder.check.torch_abi import check_full_abi, check_stable_abi, list_unproved
from kernel_spec.backend import BackendKind
from kernel_spec.binary import ElfFacts, Symbol
from kernel_spec.metadata import Metadata
from kernel_spec.variant import parse_variant
from kernel_spec.version import MajorMinor

TARGET = MajorMinor(2, 10)
CLEAN = ElfFacts(
    machine="x86_64",
    soname=None,
    needed=("libtorch.so", "libstdc++.so.6", "libc.so.6"),
    rpath=(),
    symbols=(Symbol("PyInit__k", None, None, True, "global"),),
    version_needs=(("libc.so.6", "GLIBC_2.14"),),
    executable_stack=False,
)
SUBJECT = Subject(
    directory=Path("torch-stable-abi210-cpu-x86_64-linux"),
    variant=parse_variant("torch-stable-abi210-cpu-x86_64-linux"),
    metadata=Metadata(name="k", id="_k", version=1, license="MIT", backend=BackendKind.CPU),
)


def _library(*undefined: Symbol | str, **changes: object) -> SharedLibrary:
    symbols = tuple(
        Symbol(each, None, None, False, "global") if isinstance(each, str) else each
        for each in undefined
    )
    facts = replace(CLEAN, symbols=(*CLEAN.symbols, *symbols), **changes)  # type: ignore[arg-type]
    return SharedLibrary(file="k.abi3.so", facts=facts)


def test_a_clean_library_has_no_finding() -> None:
    clean = _library("aoti_torch_get_numel", "PyModule_Create2", "__gmon_start__")
    assert list(check_linkage(clean, SUBJECT)) == []
    assert list(check_symbol_versions(clean)) == []
    assert list(check_python_abi(clean)) == []
    assert list(check_stable_abi(clean, TARGET)) == []


def test_a_symbol_version_above_the_cap_names_the_symbol() -> None:
    library = _library(Symbol("pow", "GLIBC_2.29", "libm.so.6", False, "global"))
    (finding,) = check_symbol_versions(library)
    assert finding.symbol == "pow@GLIBC_2.29"
    assert "GLIBC_2.28" in finding.message
    assert "manylinux_2_28" in finding.message


def test_a_version_record_that_no_symbol_uses_counts() -> None:
    library = _library(version_needs=(("libc.so.6", "GLIBC_2.34"),))
    (finding,) = check_symbol_versions(library)
    assert finding.symbol == "GLIBC_2.34"


@pytest.mark.parametrize("version", ["GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "CXXABI_FLOAT128"])
def test_a_version_of_no_known_family_is_a_finding_not_a_crash(version: str) -> None:
    (finding,) = check_symbol_versions(_library(version_needs=(("libc.so.6", version),)))
    assert version in str(finding)


@pytest.mark.parametrize("needed", ["libgomp.so.1", "libcudart.so.13", "libtorch_python.so"])
def test_a_library_that_is_not_sure_to_be_there(needed: str) -> None:
    (finding,) = check_linkage(_library(needed=(*CLEAN.needed, needed)), SUBJECT)
    assert finding.rule == "needed-library"
    assert finding.symbol == needed


def test_a_cuda_variant_may_ask_for_the_cuda_runtime() -> None:
    metadata = replace(SUBJECT.metadata, backend=BackendKind.CUDA)
    subject = replace(SUBJECT, metadata=metadata)
    library = _library(needed=("libcudart.so.13", "libtorch_cuda.so", "libc.so.6"))
    assert list(check_linkage(library, subject)) == []


def test_a_library_whose_versions_are_used_and_that_is_not_asked_for() -> None:
    needs = (("libstdc++.so.6", "GLIBCXX_3.4"), ("libc.so.6", "GLIBC_2.14"))
    library = _library(needed=("libtorch.so", "libc.so.6"), version_needs=needs)
    (finding,) = check_linkage(library, SUBJECT)
    assert (finding.rule, finding.symbol) == ("needed-library", "libstdc++.so.6")
    assert "not asked for" in finding.message


@pytest.mark.parametrize("symbol", ["aoti_torch_get_numel", "_ZN3c1011SymInt3intEv"])
def test_torch_that_is_used_and_not_asked_for(symbol: str) -> None:
    library = _library(symbol, needed=("libc.so.6",))
    (finding,) = check_linkage(library, SUBJECT)
    assert (finding.rule, finding.symbol) == ("needed-library", "libtorch.so")
    asked = _library(symbol, needed=("libc.so.6", "libtorch_cpu.so"))
    assert list(check_linkage(asked, SUBJECT)) == []


def test_search_paths_unique_symbols_stack_and_machine() -> None:
    library = _library(
        Symbol("_ZN1kE", None, None, True, "unique"),
        rpath=("/home/me/torch/lib",),
        executable_stack=True,
        machine="aarch64",
    )
    rules = {finding.rule: finding for finding in check_linkage(library, SUBJECT)}
    assert set(rules) == {"rpath", "gnu-unique", "executable-stack", "machine"}
    assert rules["rpath"].symbol == "/home/me/torch/lib"
    assert "-fno-gnu-unique" in rules["gnu-unique"].fix


def test_python_symbols_outside_the_stable_abi() -> None:
    old, new = check_python_abi(_library("PyUnicode_AsUTF8", "PyUnicode_AsUTF8AndSize"))
    assert (old.symbol, new.symbol) == ("PyUnicode_AsUTF8", "PyUnicode_AsUTF8AndSize")
    assert "not in Python's stable ABI" in old.message
    assert "since 3.10" in new.message


def test_private_python_symbols_count() -> None:
    (finding,) = check_python_abi(_library("_PyObject_GetDictPtr"))
    assert finding.symbol == "_PyObject_GetDictPtr"


def test_a_shim_that_is_too_new_names_the_version_that_has_it() -> None:
    (finding,) = check_stable_abi(_library("torch_from_blob"), TARGET)
    assert "since 2.11" in finding.message
    assert 'stable-abi = "2.11"' in finding.fix
    assert list(check_stable_abi(_library("torch_from_blob"), MajorMinor(2, 11))) == []


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_ZN3c1019UndefinedTensorImpl10_singletonE", "c10::UndefinedTensorImpl::_singleton"),
        ("_ZTIN3c105ErrorE", "typeinfo for c10::Error"),
        ("_ZTVN2at10TensorBaseE", "vtable for at::TensorBase"),
        ("_Z4makeIiEN2at6TensorET_", "at::Tensor make<int>(int)"),
        (
            "_ZNK2at10TensorBase8data_ptrIfEEPT_v",
            "float* at::TensorBase::data_ptr<float>() const",
        ),
        ("_ZNR5torch7Library4_defEv", "torch::Library::_def() &"),
        ("_ZN6caffe28TypeMeta13typeMetaDatasEv", "caffe2::TypeMeta::typeMetaDatas()"),
        (
            "_ZN3c10lsERSoRKNS_12OperatorNameE",
            "c10::operator<<(std::ostream&, c10::OperatorName const&)",
        ),
    ],
)
def test_torch_in_any_place_of_a_cpp_name_is_unstable(mangled: str, readable: str) -> None:
    assert mentions_torch(mangled)
    assert demangle(mangled) == readable
    (finding,) = check_stable_abi(_library(mangled), TARGET)
    assert finding.rule == "torch-stable-abi"
    assert finding.symbol == readable


def test_a_weak_typeinfo_of_torch_is_unstable_too() -> None:
    weak = Symbol("_ZTIN3c105ErrorE", None, None, False, "weak")
    (finding,) = check_stable_abi(_library(weak), TARGET)
    assert finding.symbol == "typeinfo for c10::Error"


@pytest.mark.parametrize("name", ["_ZN2ab6TensorE", "at_exit", "_ZN6c10lib1fEv", "torch_like"])
def test_names_that_only_look_like_torch(name: str) -> None:
    assert not mentions_torch(name)


@pytest.mark.parametrize("name", ["nobody_has_this", "_Z4helpv", "torch_not_yet_there"])
def test_what_nobody_defines_is_found_in_either_interface(name: str) -> None:
    for findings in (
        check_stable_abi(_library(name), TARGET),
        check_full_abi(_library(name), frozenset({"at_something"})),
        check_full_abi(_library(name), None),
    ):
        (finding,) = findings
        assert finding.rule == "undefined-symbol"


def test_the_full_interface_is_what_torch_exports() -> None:
    name = "_ZN2at6detail5emptyEv"
    assert list(check_full_abi(_library(name), frozenset({name}))) == []
    assert list(check_full_abi(_library(name), None)) == []
    (finding,) = check_full_abi(_library(name), frozenset({"other"}))
    assert finding.symbol == "at::detail::empty()"


def test_openmp_says_what_to_call_instead() -> None:
    (finding,) = check_stable_abi(_library("GOMP_parallel"), TARGET)
    assert "parallel_for" in finding.fix


def test_a_finding_names_file_rule_symbol_and_fix() -> None:
    (finding,) = check_stable_abi(_library("nobody_has_this"), TARGET)
    for word in (finding.file, finding.rule, "nobody_has_this", finding.fix):
        assert word in str(finding)


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("_Z12row_norm_cpuRN5torch6stable6TensorE", True),
        ("_ZN4mine8row_normERKN2at6TensorE", True),
        ("_ZN5torch4reluERKN2at6TensorE", False),
        ("_ZNK2at6Tensor3sumEv", False),
        ("_ZTIN3c105ErrorE", False),
    ],
)
def test_a_function_of_the_author_is_told_from_one_of_torch(name: str, foreign: bool) -> None:
    assert is_foreign_to_torch(name) is foreign


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("_ZN3c104cuda20getCurrentCUDAStreamEa", True),
        ("_ZTVN3c104cuda4impl13CUDAGuardImplE", True),
        ("_ZNK3c104cuda10CUDAStream5queryEv", True),
        ("_ZN2at4cuda26getCurrentDevicePropertiesEv", True),
        ("_ZN2at6native9something_Ev", False),
        ("_ZN4mine4cuda4thatEv", False),
        ("_Z4thatN3c104cuda10CUDAStreamE", False),
        ("cusparseGetErrorString", False),
    ],
)
def test_only_names_of_torchs_cuda_namespaces_may_be_unproved(name: str, *, passes: bool) -> None:
    exports = frozenset({"other"})
    cuda = list(check_full_abi(_library(name), exports, BackendKind.CUDA))
    assert (cuda == []) is passes
    assert list_unproved(_library(name), exports, BackendKind.CUDA) == ((name,) if passes else ())
    assert list(check_full_abi(_library(name), exports, BackendKind.CPU))
    assert not list_unproved(_library(name), frozenset({name}), BackendKind.CUDA)
