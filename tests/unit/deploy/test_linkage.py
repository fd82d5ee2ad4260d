"""Libraries are judged before they are loaded; each kind that does not link has a tiny library here."""

from __future__ import annotations

import ctypes
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_spec.backend import Backend, BackendKind
from kernel_spec.binary import read_elf
from kernel_spec.errors import BinaryFormatError
from kernel_spec.system import System, TorchBuild
from kernel_spec.version import MajorMinor
from kernels.linkage import verdicts
from kernels.linkage.exports import find_defined, gnu_hash
from kernels.linkage.host import Host, fingerprint, read_host
from kernels.linkage.judge import judge_libraries
from kernels.linkage.names import describe_symbol, is_old_layout, is_torch_symbol
from kernels.linkage.verdicts import judge_variant
from kernels.system import detect

FIXTURES = Path(__file__).parents[2] / "fixtures"
LINKAGE, BINARY = FIXTURES / "linkage", FIXTURES / "binary"
OLD = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
NEW = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are Linux's")


@pytest.fixture
def host():
    """A machine with a torch of the C++11 layout, whose only library is a stand-in."""
    system = System(
        torch=TorchBuild("2.13.0+cpu", MajorMinor(2, 13)),
        backend=Backend(BackendKind.CPU),
        cpu="x86_64",
        os="linux",
        python=MajorMinor(3, 11),
        glibc=MajorMinor(2, 36),
    )
    return Host(system=system, torch_libraries=(LINKAGE / "libc10.so",))


def judge(name, host):
    return judge_libraries(LINKAGE, [name], host).reasons


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("shim.so", "torch-symbols", ["aoti_torch_of_tomorrow", "torch 2.13.0+cpu does not have"]),
        ("python.so", "python", ["PyTomorrow_New", "Python 3.11"]),
        ("glibc.so", "glibc", ["needs glibc 2.99", "this system has 2.36"]),
        ("cudart.so", "library", ["libcudart.so.99", "torch 2.13.0+cpu brings"]),
    ],
)
def test_what_is_missing_is_named_with_what_is_here(host, name, kind, words):
    [reason] = judge(name, host)
    assert reason.kind == kind
    assert name in reason.text
    assert all(word in reason.text for word in words)


def test_a_build_for_the_old_string_layout_is_told_from_one_that_lacks_a_function(host):
    """flash-attention 1644, 919: 'undefined symbol _ZN3c105Error...Ss' sends users guessing."""
    [reason] = judge("old_layout.so", host)
    assert reason.kind == "abi"
    assert "C++98 string layout" in reason.text
    assert "torch 2.13.0+cpu has the C++11 one" in reason.text
    assert "c10::Error::Error" in reason.text
    assert "_ZN" not in reason.text


def test_a_library_that_links_has_no_reason(host):
    assert judge("new_layout.so", host) == ()


def test_the_installed_torch_is_asked_without_being_imported():
    """Its libraries have the C++11 form of a constructor, and not the other."""
    host = read_host(detect())
    system = host.system
    if system.torch is None or not system.torch.cxx11_abi or system.cpu != "x86_64":
        pytest.skip("the libraries here are for x86_64 and a torch of the C++11 layout")
    assert {path.name for path in host.torch_libraries} >= {"libc10.so", "libtorch_cpu.so"}
    assert judge("new_layout.so", host) == ()
    assert [reason.kind for reason in judge("old_layout.so", host)] == ["abi"]
    assert [reason.kind for reason in judge("shim.so", host)] == ["torch-symbols"]


def test_a_pre_release_of_torch_that_lacks_a_function_is_no_release(host):
    """flash-attention 836: 2.5.0a0 of a vendor's container is not 2.5.0."""
    torch = TorchBuild("2.5.0a0+872d972e41.nv24.08", MajorMinor(2, 5), prerelease=True)
    [reason] = judge("shim.so", host._replace(system=replace(host.system, torch=torch)))
    assert "2.5.0a0+872d972e41.nv24.08" in reason.text


def test_another_c_library_and_another_machine_are_named(host):
    [reason] = judge("glibc.so", host._replace(system=replace(host.system, glibc=None)))
    assert "another C library" in reason.text
    [reason] = judge("shim.so", host._replace(system=replace(host.system, cpu="aarch64")))
    assert reason.kind == "machine"
    assert "x86_64, not for aarch64" in reason.text


def test_libstdcxx_is_compared_by_the_versions_that_it_defines(host):
    """The library that is found is read, not run."""
    assert judge("libstdcxx.so", host) == (), "where none was found nothing is held against it"
    found = host._replace(libstdcxx=LINKAGE / "libc10.so")
    [reason] = judge("libstdcxx.so", found)
    assert (reason.kind, "GLIBCXX_3.4.99" in reason.text) == ("libstdc++", True)


def test_what_cannot_be_mapped_is_a_reason_and_what_cannot_be_told_is_none(host, tmp_path):
    whole = (LINKAGE / "shim.so").read_bytes()
    (tmp_path / "empty.so").write_bytes(b"")
    (tmp_path / "cut.so").write_bytes(whole[:200])
    (tmp_path / "text.so").write_text("GROUP ( libx.so.1 )")
    names = ["cut.so", "empty.so", "text.so"]
    reasons = judge_libraries(tmp_path, names, host).reasons
    assert [(r.kind, r.text.split()[0]) for r in reasons] == [("damaged", n) for n in names]
    # The dynamic loader needs no section headers, and this reader does.
    bare = bytearray(whole)
    bare[40:48], bare[60:62] = bytes(8), bytes(2)
    (tmp_path / "bare.so").write_bytes(bare)
    assert judge_libraries(tmp_path, ["bare.so"], host).reasons == ()


def test_device_code_of_an_unknown_form_says_nothing(host, tmp_path):
    whole = (BINARY / "device.so").read_bytes()
    place = tmp_path / "device.so"
    place.write_bytes(whole.replace(b"\x50\xed\x55\xba", b"\x51\xed\x55\xba"))
    assert place.read_bytes() != whole
    verdict = judge_libraries(tmp_path, ["device.so"], host)
    assert (verdict.reasons, verdict.archs) == ((), ())


def test_a_library_that_a_kernel_may_load_itself_is_not_missed(host, tmp_path):
    name = b"libcudart.so.99"
    for other, kinds in ((b"libtvmffi.so.99", []), (b"libcublas.so.99", ["library"])):
        place = tmp_path / "x.so"
        place.write_bytes((LINKAGE / "cudart.so").read_bytes().replace(name, other))
        assert [r.kind for r in judge_libraries(tmp_path, ["x.so"], host).reasons] == kinds


def test_a_library_for_another_python_is_told_by_its_name(host, tmp_path):
    name = "x.cpython-35m-x86_64-linux-gnu.so"
    shutil.copy(LINKAGE / "new_layout.so", tmp_path / name)
    [reason] = judge_libraries(tmp_path, [name], host).reasons
    assert (reason.kind, name in reason.text) == ("python", True)


def test_an_executable_stack_is_a_reason_only_where_glibc_refuses_it(host):
    reasons = judge_libraries(BINARY, ["rpath.so"], host).reasons
    assert reasons == ()
    strict = replace(host.system, glibc=MajorMinor(2, 41))
    [reason] = judge_libraries(BINARY, ["rpath.so"], host._replace(system=strict)).reasons
    assert reason.kind == "executable-stack"


def test_device_code_is_read_from_the_fat_binary(host):
    verdict = judge_libraries(BINARY, ["device.so"], host)
    assert {"9.0a", "8.0+PTX", "12.0+PTX"} <= set(verdict.archs)


def test_what_is_undefined_is_looked_up_as_the_dynamic_loader_does():
    """Every symbol that another reader finds in a library is found, and no other."""
    for path in sorted(BINARY.glob("*.so")):
        symbols = read_elf(path).symbols
        defined = {symbol.name for symbol in symbols if symbol.defined}
        names = [*(symbol.name for symbol in symbols), "absent", ""]
        assert find_defined(path, names) == defined, path.name
    assert gnu_hash(b"printf") == 0x156B2BB8


def test_every_damaged_byte_of_a_library_is_an_answer_or_one_kind_of_error(tmp_path):
    whole = bytearray((LINKAGE / "libc10.so").read_bytes())
    said = []
    for position in range(0, len(whole), 7):
        damaged = bytes(whole[:position]) + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :]
        place = tmp_path / "x.so"
        place.write_bytes(damaged)
        try:
            find_defined(place, [NEW, OLD])
        except BinaryFormatError as err:
            said.append(str(err))
    assert said
    assert all(str(tmp_path) in message for message in said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (OLD, "c10::Error::Error"),
        ("_ZN3c104ImplD2Ev", "c10::Impl::~Impl"),
        ("_ZNK2at6Tensor8data_ptrIfEEPT_v", "at::Tensor::data_ptr"),
        ("_ZTVN5torch3jit4NodeE", "torch::jit::Node"),
        ("aoti_torch_zero", "aoti_torch_zero"),
        ("_Z", "_Z"),
        ("_ZN99", "_ZN99"),
    ],
)
def test_names_are_said_as_people_write_them(name, said):
    assert describe_symbol(name) == said


def test_the_old_layout_is_told_by_its_abbreviation_alone():
    assert is_old_layout("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs")
    assert not is_old_layout(NEW)
    assert not is_old_layout("_ZN3c1010ClassOfSsTEv"), "letters of a name mean nothing"
    assert is_torch_symbol(OLD)
    assert not is_torch_symbol("_ZSt20__throw_length_errorPKc")


def test_this_machine_is_read_and_named(host):
    """What torch defines is found among its libraries without importing it."""
    found = read_host(host.system)
    assert len(fingerprint(found)) == 16
    assert fingerprint(found) == fingerprint(read_host(host.system))
    assert fingerprint(found._replace(libstdcxx=None)) != fingerprint(found)
    assert ctypes.pythonapi is not None


def test_a_verdict_is_kept_and_belongs_to_one_digest(host, tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "read_host", lambda system: host)
    verdicts.forget()
    kept, digest = tmp_path / "kept", "d" * 64
    first = judge_variant(LINKAGE, ["shim.so"], digest, host.system, keep_in=[kept])
    assert first.reasons
    verdicts.forget()
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    again = judge_variant(nothing, ["shim.so"], digest, host.system, keep_in=[kept])
    assert again == first, "nothing was read but the verdict"
    verdicts.forget()
    [file] = kept.iterdir()
    file.write_text("{}")
    anew = judge_variant(LINKAGE, ["new_layout.so"], digest, host.system, keep_in=[kept])
    assert anew.reasons == (), "one that cannot be read counts as none"
    verdicts.forget()


def test_a_folder_that_cannot_be_written_is_passed_over(host, tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "read_host", lambda system: host)
    verdicts.forget()
    blocked = tmp_path / "file"
    blocked.write_text("")
    places = [blocked / "below", tmp_path / "state"]
    assert judge_variant(LINKAGE, ["shim.so"], "e" * 64, host.system, keep_in=places).reasons
    assert list((tmp_path / "state").iterdir())
    verdicts.forget()
