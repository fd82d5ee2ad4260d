"""A variant's libraries for one torch each: used where they can be, never in the way of the kernel."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

import kernels
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.per_torch import format_per_torch
from kernel_spec.system import System, TorchBuild, parse_torch_build
from kernel_spec.version import MajorMinor
from kernels import importer
from kernels.cli import run
from kernels.errors import OpConflictError
from kernels.linkage import verdicts
from kernels.linkage.host import Host
from kernels.linkage.judge import judge_libraries
from kernels.linkage.per_torch import find_for_torch, find_per_torch

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD, BAD, LATER_GLIBC, UNIQUE = (
    (FIXTURES / path).read_bytes()
    for path in ("linkage/new_layout.so", "linkage/shim.so", "linkage/glibc.so", "binary/unique.so")
)
STABLE = "torch-stable-abi210-cpu-x86_64-linux"
OP_ID = "_toy_cpu_0123456789ab"
ELF_ALONE = pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are Linux's")


def part(minor):
    return format_per_torch(OP_ID, MajorMinor(2, minor))


def on_torch(version):
    major, minor = map(int, version.split(".")[:2])
    torch = TorchBuild(version, MajorMinor(major, minor), prerelease="a" in version)
    return System(
        torch=torch,
        backend=Backend(BackendKind.CPU),
        cpu="x86_64",
        os="linux",
        python=MajorMinor(*sys.version_info[:2]),
        glibc=MajorMinor(2, 36),
    )


@pytest.fixture
def with_torch(monkeypatch):
    """Be on a machine with that torch, whose only library is a stand-in."""

    def be(version):
        system = on_torch(version)
        for module in ("choose", "doctor", "fit", "importer", "local"):
            monkeypatch.setattr(f"kernels.{module}.detect", lambda: system, raising=False)
        host = Host(system=system, torch_libraries=(FIXTURES / "linkage" / "libc10.so",))
        monkeypatch.setattr(verdicts, "read_host", lambda s: host._replace(system=s))
        verdicts.forget()

    yield be
    verdicts.forget()


def test_they_are_those_beside_a_main_library_of_their_id():
    names = [f"{OP_ID}.abi3.so", part(11), part(9), "below/x.torch211.so", "y.torch211.so"]
    releases = {part(11): MajorMinor(2, 11), part(9): MajorMinor(2, 9)}
    assert find_per_torch([*names, "__init__.py"]) == releases
    assert find_per_torch(f"toy/{name}" for name in names[:2]) == {
        f"toy/{part(11)}": MajorMinor(2, 11)
    }


@pytest.mark.parametrize(
    ("torch", "found"),
    [
        (parse_torch_build("2.11.0+cu130"), part(11)),
        (parse_torch_build("2.11.0.post1"), part(11)),
        (parse_torch_build("2.12.1"), None),
        (parse_torch_build("2.11.0a0+git"), None),
        (parse_torch_build("2.11.0rc1"), None),
        (parse_torch_build("2.11.0.dev20260101+cpu"), None),
        (None, None),
    ],
)
def test_the_one_for_exactly_the_release_of_torch_is_taken(torch, found):
    assert find_for_torch([f"{OP_ID}.abi3.so", part(9), part(11)], torch) == found


@ELF_ALONE
@pytest.mark.parametrize(
    ("libraries", "faults"),
    [
        ({part(12): BAD, part(9): b"no library"}, []),
        ({part(11): GOOD}, []),
        ({part(11): BAD}, ["torch-symbols"]),
        ({part(11): LATER_GLIBC}, ["glibc"]),
    ],
)
def test_none_of_them_speaks_against_the_variant(tmp_path, libraries, faults):
    host = Host(system=on_torch("2.11.0"), torch_libraries=(FIXTURES / "linkage" / "libc10.so",))
    files = {f"{OP_ID}.abi3.so": GOOD, **libraries}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    verdict = judge_libraries(tmp_path, files, host)
    assert verdict.reasons == ()
    assert [reason.kind for reason in verdict.per_torch] == faults
    # The main one is judged as ever, whatever lies beside it.
    (tmp_path / f"{OP_ID}.abi3.so").write_bytes(BAD)
    [reason] = judge_libraries(tmp_path, files, host).reasons
    assert reason.kind == "torch-symbols"


@ELF_ALONE
@pytest.mark.parametrize(("version", "kinds"), [("2.11.0", ["damaged"]), ("2.12.0", [])])
def test_half_a_library_is_refused_where_it_would_be_mapped(tmp_path, version, kinds):
    """The dynamic loader raises nothing there: the process ends by SIGBUS."""
    for name, data in ((f"{OP_ID}.abi3.so", GOOD), (part(11), GOOD[:200])):
        (tmp_path / name).write_bytes(data)
    verdict = judge_libraries(
        tmp_path, [f"{OP_ID}.abi3.so", part(11)], Host(system=on_torch(version))
    )
    assert [reason.kind for reason in verdict.reasons] == kinds


@ELF_ALONE
@pytest.mark.parametrize(("version", "shares"), [("2.11.0", True), ("2.12.0", False)])
def test_only_the_one_that_is_loaded_shares_variables_with_other_kernels(tmp_path, version, shares):
    host = Host(system=on_torch(version))
    for name, data in ((f"{OP_ID}.abi3.so", GOOD), (part(11), UNIQUE)):
        (tmp_path / name).write_bytes(data)
    shared = judge_libraries(tmp_path, [f"{OP_ID}.abi3.so", part(11)], host).shared
    assert {symbol.library for symbol in shared} == ({part(11)} if shares else set())


@ELF_ALONE
@pytest.mark.parametrize(
    ("version", "used", "words"),
    [
        ("2.11.0", part(11), f"per-torch library: {part(11)}\n"),
        (
            "2.10.0",
            None,
            "none for this torch, it has those for 2.11, 2.12 (the kernel works without",
        ),
        ("2.12.0", part(12), "cannot be loaded here, "),
    ],
)
def test_the_doctor_says_which_is_used_and_that_the_kernel_works_without(  # noqa: PLR0917
    with_torch, publisher, capsys, version, used, words
):
    with_torch(version)
    files = {"__init__.py": "", f"{OP_ID}.abi3.so": GOOD, part(11): GOOD, part(12): BAD}
    publisher.publish(variants={STABLE: files})
    for _ in range(2):  # from the bytes, and from what was kept of them
        verdicts.forget()
        assert run(["doctor", "acme/toy"]) == 0
        said = capsys.readouterr().out
        assert words in said
        assert f"It loads: {STABLE}" in said
    assert ("aoti_torch_of_tomorrow" in said) is (version == "2.12.0")
    assert run(["doctor", "acme/toy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["per_torch"]
    assert (found["releases"], found["library"]) == (["2.11", "2.12"], used)
    assert [kind for kind, _ in found["faults"]] == (
        ["torch-symbols"] if version == "2.12.0" else []
    )


def test_the_doctor_says_nothing_of_them_where_there_are_none(publisher, capsys):
    publisher.publish()
    assert run(["doctor", "acme/toy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["per_torch"] is None
    assert run(["doctor", "acme/toy"]) == 0
    assert "per-torch" not in capsys.readouterr().out


# What the ops file of a kernel does, without torch: it opens its library once for all copies of the kernel.
OPS = """
from pathlib import Path
from . import _queue as _library

def load_per_torch():
    here = Path(__file__).with_name("_queue.torch211.so")
    return vars(_library).setdefault("_opened", here if here.is_file() else None)
"""


@pytest.fixture
def load(make_variant, tmp_path, monkeypatch):
    """Load a kernel of the op id ``_queue``, with libraries beside its main one, from a place of its own."""
    folder = Path(sysconfig.get_config_var("DESTSHARED") or "")
    main = next(iter(sorted(folder.glob("_queue.*.so"))), None)
    if main is None:
        pytest.skip("this Python has no _queue as a shared library")

    def load(place, **libraries):
        files = {"__init__.py": "from ._ops import load_per_torch\n", "_ops.py": OPS}
        files |= {"_queue.so": main.read_bytes()}
        files |= {f"_queue.{release}.so": data for release, data in libraries.items()}
        path = make_variant(tmp_path / place / "torch-cpu", files, op_id="_queue")
        return kernels.get_local_kernel(path)

    # The register of a process that has loaded nothing.
    monkeypatch.setattr(importer, "_libraries", {})
    return load


def test_copies_share_it_and_other_bytes_for_this_torch_are_refused(load, with_torch, tmp_path):
    with_torch("2.11.0")
    one = load("1", torch211=GOOD, torch212=GOOD)
    assert one.load_per_torch() == tmp_path / "1" / "torch-cpu" / "_queue.torch211.so"
    two = load("2", torch211=GOOD, torch212=BAD)
    assert two is not one
    assert two.load_per_torch() == one.load_per_torch()
    assert load("3").load_per_torch() == one.load_per_torch(), "its ops have them, too"
    before = set(sys.modules)
    with pytest.raises(OpConflictError) as error:
        load("4", torch211=BAD)
    assert [path.parent.parent.name for path in error.value.paths] == ["1", "4"]
    assert error.value.op_id == "_queue"
    assert set(sys.modules) == before


def test_what_is_for_another_torch_may_differ_between_copies(load, with_torch):
    with_torch("2.13.0")
    assert load("1", torch211=GOOD) is not load("2", torch211=BAD)
