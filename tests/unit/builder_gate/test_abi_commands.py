"""``check-abi``, ``check-builds`` and ``hash`` as a user calls them, on variants without a compiler."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernel_builder.check.glibc import check_symbol_versions
from kernel_builder.check.python_abi import check_python_abi
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.cli.check_abi import check_abi
from kernel_builder.cli.check_builds import check_builds
from kernel_builder.cli.hash import hash_variants
from kernel_builder.policy import find_policy, list_policies, read_version_caps
from kernel_builder.proof import add_proof
from kernel_spec.backend import BackendKind
from kernel_spec.binary import ElfFacts, Symbol
from kernel_spec.digest import digest_tree
from kernel_spec.metadata import Metadata, format_metadata, parse_metadata

NAMES = ("torch-cpu", "torch-cuda")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in NAMES:
        directory = tmp_path / "build" / name
        directory.mkdir(parents=True)
        (directory / "__init__.py").write_text("x = 1\n")
        metadata = Metadata(
            name="kit",
            id="_k",
            version=1,
            license="MIT",
            backend=BackendKind(name.removeprefix("torch-")),
            digest=digest_tree(directory),
        )
        (directory / "metadata.json").write_bytes(format_metadata(metadata))
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
