"""``check-abi``, ``check-builds`` and ``hash`` as a user calls them, on variants without a compiler."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from toy_variant import write_toy_metadata

from kernel_builder.check import abi
from kernel_builder.check.abi import Interfaces
from kernel_builder.check.abi import check_abi as find_faults
from kernel_builder.check.glibc import check_symbol_versions
from kernel_builder.check.macos import check_macos, read_mac_images
from kernel_builder.check.python_abi import check_python_abi
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.cli.check_abi import check_abi
from kernel_builder.cli.check_builds import check_builds
from kernel_builder.cli.hash import hash_variants
from kernel_builder.errors import ProjectError
from kernel_builder.policy import find_policy, list_policies, read_version_caps
from kernel_builder.proof import add_proof
from kernel_spec.backend import BackendKind
from kernel_spec.binary import ElfFacts, Symbol
from kernel_spec.digest import digest_tree
from kernel_spec.metadata import format_metadata, parse_metadata
from kernel_spec.version import MajorMinor

NAMES = ("torch-cpu", "torch-cuda")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in NAMES:
        directory = tmp_path / "build" / name
        directory.mkdir(parents=True)
        (directory / "__init__.py").write_text("x = 1\n")
        write_toy_metadata(directory, "kit", backend=BackendKind(name.removeprefix("torch-")))
    return tmp_path


def call(command: object, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments])  # type: ignore[arg-type]


def library(*symbols: tuple[str, str | None]) -> SharedLibrary:
    facts = ElfFacts(
        machine="x86_64",
        soname=None,
        needed=("libc.so.6",),
        rpath=(),
        symbols=tuple(
            Symbol(
                name=name,
                version=version,
                library="libc.so.6" if version else None,
                binding="global",
                defined=False,
            )
            for name, version in symbols
        ),
        version_needs=frozenset(("libc.so.6", version) for _, version in symbols if version),
        executable_stack=False,
    )
    return SharedLibrary(file="k.so", facts=facts)


def test_the_policy_that_is_asked_for_decides() -> None:
    new = library(("pthread_create", "GLIBC_2.34"))
    assert [
        (name, len(list(check_symbol_versions(new, find_policy(name, "x86_64")))))
        for name in ("manylinux_2_28", "manylinux_2_31", "manylinux_2_34")
    ] == [("manylinux_2_28", 1), ("manylinux_2_31", 1), ("manylinux_2_34", 0)]
    assert find_policy("manylinux_2_5", "aarch64") is None
    assert list_policies()[0] == "manylinux_2_5"
    assert find_policy("manylinux_2_28", "aarch64") == read_version_caps()


def test_the_python_that_is_asked_for_decides() -> None:
    new = library(("PyUnicode_AsUTF8AndSize", None))
    assert [len(list(check_python_abi(new, each))) for each in ((3, 9), (3, 10))] == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--manylinux", "manylinux_2_27x"], "expected one of manylinux_2_5"),
        (["-p", "3"], "expected two numbers such as 3.9"),
        (["--torch-stable-abi", "new"], "expected two numbers"),
    ],
)
def test_wrong_options_are_wrong_usage(project: Path, arguments: list[str], said: str) -> None:
    result = call(check_abi, project, *arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_a_library_that_cannot_be_read_is_not_fine(project: Path) -> None:
    (project / "build" / "torch-cpu" / "sub").mkdir()
    (project / "build" / "torch-cpu" / "sub" / "x.pyd").write_bytes(b"MZ")
    result = call(check_abi, project)
    assert result.exit_code == 1
    assert "torch-cpu: sub/x.pyd: unreadable" in result.output
    assert "torch-cuda: ok, no libraries" in result.output


@pytest.mark.parametrize(
    ("name", "bound"),
    [("k.abi3.so", True), ("k.torch213.so", False), ("other.torch213.so", True)],
)
def test_a_library_for_one_torch_may_ask_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: bool
) -> None:
    """One without a main library beside it is none, whatever it is called."""
    (tmp_path / "k.abi3.so").write_bytes(b"")
    (tmp_path / name).write_bytes(b"")
    full, stable = library(("_ZN2at4fullEv", None)), library()
    monkeypatch.setattr(
        abi, "read_elf", lambda place: (full if place.name == name else stable).facts
    )
    rules = Interfaces(manylinux="manylinux_2_28", python=(3, 9), torch=MajorMinor(2, 10))
    found = [(each.file, each.symbol) for each in find_faults(tmp_path, rules)]
    assert found == ([(name, "at::full()")] if bound else [])


def test_builds_that_are_whole_pass(project: Path) -> None:
    result = call(check_builds, project)
    assert (result.exit_code, result.output) == (0, "2 variants: ok\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda build: (build / "torch-cpu" / "metadata.json").unlink(), "has no metadata.json"),
        (lambda build: (build / "torch-cpu" / "metadata.json").write_text("{"), "cannot be read"),
        (lambda build: (build / "torch-cpu").rename(build / "torch99"), "torch99: "),
        (
            lambda build: _replace(build / "torch-cpu", '"version": 1', '"version": 2'),
            "torch-cuda is of kit version 1, torch-cpu is of kit version 2",
        ),
    ],
)
def test_builds_that_are_not_whole_are_named(
    project: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(project / "build")
    result = call(check_builds, project)
    assert result.exit_code == 1
    assert said in result.output


def _replace(variant: Path, old: str, new: str) -> None:
    place = variant / "metadata.json"
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))


def test_hash_writes_what_the_files_are(project: Path) -> None:
    variant = project / "build" / "torch-cpu"
    place = variant / "metadata.json"
    proved = add_proof(parse_metadata(place.read_bytes()), "cpu", {"torch": "2.13"}, {})
    place.write_bytes(format_metadata(proved))
    assert "torch-cpu: the digest was right" in call(hash_variants, project).output
    assert b"proof" in place.read_bytes()
    (variant / "__init__.py").write_text("x = 2\n")
    result = call(hash_variants, variant)
    assert (result.exit_code, result.output) == (0, "torch-cpu: digest written\n")
    written = parse_metadata(place.read_bytes())
    assert written.digest == digest_tree(variant)
    # What was proved, was proved of other files.
    assert "proof" not in json.loads(place.read_bytes()).get("kernels-ext", {})
    assert [path.name for path in variant.parent.iterdir() if path.name.startswith(".")] == []


def mac_library(*commands: bytes, order: str = "<", cpu: int = 0x0100000C) -> bytes:
    """Return a library for macOS of load commands alone."""
    size = sum(map(len, commands))
    return struct.pack(f"{order}8I", 0xFEEDFACF, cpu, 0, 6, len(commands), size, 0, 0) + b"".join(
        commands
    )


def build_version(major: int, minor: int, *, platform: int = 1, order: str = "<") -> bytes:
    return struct.pack(f"{order}6I", 0x32, 24, platform, major << 16 | minor << 8, 0, 0)


def test_the_oldest_macos_is_read_of_each_processor(tmp_path: Path) -> None:
    old = mac_library(struct.pack("<4I", 0x24, 16, 14 << 16 | 2 << 8, 0), cpu=0x01000007)
    new = mac_library(struct.pack("<2I", 0x19, 8), build_version(26, 0))
    parts = struct.pack(">2I", 0xCAFEBABE, 2)
    parts += struct.pack(">5I", 0x01000007, 3, 48, len(old), 0)
    parts += struct.pack(">5I", 0x0100000C, 0, 48 + len(old), len(new), 0)
    images = read_mac_images(parts + old + new, file="k.so")
    assert [(each.machine, each.minimum) for each in images] == [
        ("x86_64", (14, 2)),
        ("arm64", (26, 0)),
    ]
    place = tmp_path / "k.so"
    place.write_bytes(parts + old + new)
    (finding,) = check_macos("k.so", place, (15, 0))
    assert (finding.rule, finding.symbol) == ("macos-version", "arm64")
    assert "it runs on macOS 26.0 and later; expected 15.0 or older" in finding.message
    assert not list(check_macos("k.so", place, (26, 0)))


@pytest.mark.parametrize("data", [mac_library(), mac_library(build_version(17, 0, platform=2))])
def test_a_library_that_names_no_macos_is_a_finding(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "k.so").write_bytes(data)
    (finding,) = check_macos("k.so", tmp_path / "k.so", (15, 0))
    assert "does not say which macOS" in finding.message


def test_a_big_endian_header_is_read() -> None:
    data = mac_library(build_version(11, 3, order=">"), order=">", cpu=18)
    assert read_mac_images(data, file="k")[0].minimum == (11, 3)


def test_damaged_libraries_for_macos_are_findings(project: Path) -> None:
    whole = mac_library(build_version(15, 0))
    fat = struct.pack(">7I", 0xCAFEBABE, 1, 0, 0, 28, 1 << 30, 0)
    endless = mac_library(struct.pack("<2I", 0x32, 0))
    place = project / "build" / "torch-cpu" / "k.so"
    for data in (whole[:40], whole[:12], fat, endless, fat[:9]):
        place.write_bytes(data)
        result = call(check_abi, project)
        assert result.exit_code == 1
        assert "k.so: unreadable" in result.output, data
    place.write_bytes(whole)
    result = call(check_abi, project)
    assert result.exit_code == 0, result.output
    assert "1 library needs no more than macOS 15.0" in result.output
    assert call(check_abi, project, "--macos", "14.0").exit_code == 1


def test_a_directory_of_other_things_is_one_error(tmp_path: Path) -> None:
    for name in ("bin", "lib", "share"):
        (tmp_path / name).mkdir()
    result = call(check_builds, tmp_path)
    assert isinstance(result.exception, ProjectError)
    assert str(result.exception).startswith(f"{tmp_path}: no variant there")
    (tmp_path / "torch-cpu").mkdir()
    assert "torch-cpu: it has no metadata.json" in call(check_builds, tmp_path).output
