"""Two kernels whose libraries define one GNU-unique name share it, whatever else keeps them apart."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kernels
from kernel_spec.binary import read_elf
from kernels import log
from kernels.errors import SharedSymbolError
from kernels.linkage import shared
from kernels.linkage.names import describe_symbol, is_own_variable
from kernels.system import detect

BINARY = Path(__file__).parents[2] / "fixtures" / "binary"
UNIQUE = (BINARY / "unique.so").read_bytes()
COUNTER = "_ZZ12tiny_countervE5value"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or detect().cpu != "x86_64",
    reason="the libraries are for Linux, x86_64",
)


@pytest.fixture(autouse=True)
def nothing_loaded():
    shared.forget()
    log.forget()
    yield
    shared.forget()


@pytest.fixture
def kernel_with(tmp_path, make_variant):
    """Write a kernel whose folder holds a library; its code does not load that."""

    def make(name, library):
        return make_variant(
            tmp_path / name / "build" / "torch-cpu",
            {"__init__.py": f"VALUE = {name!r}\n", "tiny.so": library},
            name=name,
        )

    return make


def resized(library, size):
    """Give the shared counter another size in the library's table of symbols."""
    [symbol] = [s for s in read_elf(BINARY / "unique.so").symbols if s.name == COUNTER]
    # Of an entry of .dynsym: binding "unique" and kind "object", then the size.
    at = next(
        i
        for i in range(0, len(library) - 24, 8)
        if library[i + 4] == 0xA1 and library[i + 16 : i + 24] == struct.pack("<Q", symbol.size)
    )
    return library[: at + 16] + struct.pack("<Q", size) + library[at + 24 :]


def test_kernels_that_share_a_variable_are_named_once(kernel_with, warnings_of):
    """kernels PR 740: statics of two kernels collided, and state leaked without a word."""
    first, second = kernel_with("one", UNIQUE), kernel_with("two", UNIQUE + b"\0")
    assert kernels.get_local_kernel(first).VALUE == "one"
    assert warnings_of() == []
    for _ in range(2):
        assert kernels.get_local_kernel(second).VALUE == "two"
    [line] = warnings_of()
    for word in (str(first / "tiny.so"), str(second / "tiny.so"), "tiny_counter::value"):
        assert word in line
    assert "-fno-gnu-unique" in line


def test_the_same_library_twice_is_one_library(kernel_with, warnings_of):
    for name in ("one", "two"):
        kernels.get_local_kernel(kernel_with(name, UNIQUE))
    assert warnings_of() == []


def test_a_variable_of_another_size_is_refused_before_anything_runs(kernel_with):
    kernels.get_local_kernel(kernel_with("one", UNIQUE))
    other = kernel_with("two", resized(UNIQUE, 64))
    with pytest.raises(SharedSymbolError, match="with different sizes") as caught:
        kernels.get_local_kernel(other)
    assert caught.value.symbols == ("tiny_counter::value",)
    loaded = [Path(k.module.__file__).parent for k in kernels.get_loaded_kernels()]
    assert other not in loaded
    # What was refused holds no name: the next one is compared with the first alone.
    assert kernels.get_local_kernel(kernel_with("three", UNIQUE + b"\0")).VALUE == "three"


def test_a_refused_kernel_loads_in_a_process_without_the_other(kernel_with):
    assert kernels.get_local_kernel(kernel_with("two", resized(UNIQUE, 64))).VALUE == "two"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (COUNTER, True),
        ("_ZN4mine5tableE", True),
        ("_ZZN4mine3runEvE5cache", True),
        ("_ZGVZ12tiny_countervE5value", False),  # a guard goes with its variable
        ("_ZZNSt19_Sp_make_shared_tag5_S_tiEvE5__tag", False),
        ("_ZZN3c106detail4nameEvE4text", False),
        ("_ZN2at6detail5tableE", False),
        ("_ZZNK5torch3jit4Node4kindEvE4kind", False),
    ],
)
def test_what_torch_and_the_cxx_library_share_by_design_is_no_kernels_own(name, own):
    assert is_own_variable(name) is own


def test_a_static_variable_is_named_with_its_function():
    assert describe_symbol(COUNTER) == "tiny_counter::value"
    assert describe_symbol("_ZZN4mine3runEvE5cache") == "mine::run::cache"


def test_the_size_of_a_symbol_is_read_and_not_compared():
    [symbol] = [s for s in read_elf(BINARY / "unique.so").symbols if s.name == COUNTER]
    assert (symbol.binding, symbol.size) == ("unique", 4)
    assert symbol == replace(symbol, size=0)
