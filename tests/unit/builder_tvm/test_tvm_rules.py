"""Each rule for libraries of TVM FFI, on facts made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.layout import library_name
from kernel_builder.check.linkage import check_linkage
from kernel_builder.check.subject import SharedLibrary, Subject
from kernel_builder.check.tvm_ffi import check_tvm_ffi, find_oldest_release, list_functions
from kernel_builder.package import format_ops
from kernel_builder.policy import read_tvm_ffi_symbols
from kernel_builder.tvm_ffi_check import find_unknown
from kernel_spec.backend import BackendKind
from kernel_spec.binary import ElfFacts, Symbol
from kernel_spec.metadata import Metadata
from kernel_spec.variant import parse_variant

CLEAN = ElfFacts(
    machine="x86_64",
    soname=None,
    needed=("libtvm_ffi.so", "libstdc++.so.6", "libc.so.6"),
    rpath=(),
    symbols=(
        Symbol("__tvm_ffi_add_one", None, None, True, "global"),
        Symbol("__tvm_ffi__metadata_add_one", None, None, True, "global"),
    ),
    version_needs=(("libc.so.6", "GLIBC_2.14"),),
    executable_stack=False,
)
NAME = "tvm-ffi01-cpu-x86_64-linux"
SUBJECT = Subject(
    directory=Path(NAME),
    variant=parse_variant(NAME),
    metadata=Metadata(name="k", id="_k", version=1, license="MIT", backend=BackendKind.CPU),
)


def library(*undefined: str, facts: ElfFacts = CLEAN) -> SharedLibrary:
    symbols = tuple(Symbol(name, None, None, False, "global") for name in undefined)
    return SharedLibrary(file="_k.so", facts=replace(facts, symbols=(*facts.symbols, *symbols)))


def test_a_clean_library_has_no_finding_and_its_functions_are_known() -> None:
    clean = library("TVMFFIErrorSetRaised", "TVMFFIEnvGetStream", "__gmon_start__")
    assert list(check_tvm_ffi(clean)) == []
    assert list(check_linkage(clean, SUBJECT)) == []
    # What begins with a third underscore is documentation and types.
    assert list_functions(clean) == ("add_one",)
    assert library_name(SUBJECT) == "_k.so"


def test_a_library_that_exports_no_function_is_told_how_to() -> None:
    (finding,) = check_tvm_ffi(library(facts=replace(CLEAN, symbols=CLEAN.symbols[1:])))
    assert finding.rule == "tvm-ffi-function"
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC" in finding.fix


@pytest.mark.parametrize(
    ("name", "words"),
    [
        # Also what is in Python's stable ABI.
        ("PyModule_Create2", "it is of Python"),
        ("aoti_torch_get_numel", "it is of torch"),
        ("_ZNK2at6Tensor5numelEv", "it is of torch"),
        ("TVMFFIOfTomorrow", "no release of TVM FFI up to 0.1."),
        ("_ZN3tvm3ffi8TomorrowEv", "no release of TVM FFI up to 0.1."),
        ("_Z7add_onev", "nothing that a variant may rely on defines it"),
    ],
)
def test_what_nobody_defines_is_named_with_whose_it_is(name: str, words: str) -> None:
    (finding,) = check_tvm_ffi(library(name))
    assert finding.rule == "undefined-symbol"
    assert words in finding.message


def test_torchs_libraries_may_not_be_asked_for_and_tvm_ffis_only_here() -> None:
    needed = (*CLEAN.needed, "libtorch.so")
    (finding,) = check_linkage(library(facts=replace(CLEAN, needed=needed)), SUBJECT)
    assert finding.symbol == "libtorch.so"
    torch = replace(SUBJECT, variant=parse_variant("torch-stable-abi210-cpu-x86_64-linux"))
    (finding,) = check_linkage(library(), torch)
    assert finding.symbol == "libtvm_ffi.so"


def test_tvm_ffi_that_is_used_and_not_asked_for() -> None:
    facts = replace(CLEAN, needed=CLEAN.needed[1:])
    assert list(check_linkage(library(facts=facts), SUBJECT)) == []
    (finding,) = check_linkage(library("TVMFFIFunctionCall", facts=facts), SUBJECT)
    assert (finding.rule, finding.symbol) == ("needed-library", "libtvm_ffi.so")


def test_the_oldest_release_is_that_of_the_newest_function() -> None:
    assert find_oldest_release(library("TVMFFIErrorSetRaised")) is None
    assert find_oldest_release(library("TVMFFIErrorSetRaised", "TVMFFIHandleInitOnce")) == "0.1.5"
    newer = library("TVMFFIHandleInitOnce", "_ZN3tvm3ffi8DeepCopyERKNS0_3AnyE")
    assert find_oldest_release(newer) == "0.1.9"
    assert set(read_tvm_ffi_symbols()) >= {"TVMFFIEnvGetStream", "TVMFFIFunctionCall"}


def test_the_generated_python_loads_the_library_beside_it() -> None:
    text = format_ops("_k_cpu_1", compiled=True, tvm_ffi=True)
    calls = []
    names = {"__file__": "/variant/_ops.py"}
    # The first releases of TVM FFI 0.1 take a text alone.
    code = text.replace("import tvm_ffi", "")
    fake = type("tvm_ffi", (), {"load_module": staticmethod(calls.append)})
    exec(code, names | {"tvm_ffi": fake})
    assert calls == ["/variant/_k_cpu_1.so"]
    assert "torch" not in code.partition("def ")[0]


def test_python_that_calls_what_is_not_exported_is_told_and_may(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text(
        "from ._ops import ops\nfrom .other import ops as others\n\n\n"
        "def f(x):\n    ops.add_one(x)\n    return ops.add_two(x), others.add_three(x)\n"
    )
    assert list(find_unknown(tmp_path, ("add_one",))) == [
        "__init__.py:7: ops.add_two is not in this library, which has add_one"
    ]
