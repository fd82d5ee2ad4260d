"""What build.toml says of itself that cannot be so (faults), or is hardly meant (warnings)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.cli.check_config import check_config
from kernel_builder.config.edit import migrate
from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError

GENERAL = """\
[general]
name = "abc"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]
"""
TORCH = '[torch]\nsrc = ["b.cpp"]\n'
KERNEL = '[kernel.a]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["a.cu"]\n'


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_build(text.encode())
    return str(caught.value).splitlines()


def doubts(text: str) -> list[tuple[int, str, str]]:
    return [(each.line, each.path, each.message) for each in parse_build(text.encode()).doubts]


@pytest.mark.parametrize("text", ["11.8", "12.6", "13.0", "12.8+PTX"])
def test_a_cuda_version_is_no_capability(text: str) -> None:
    [line] = faults(f'{GENERAL}{TORCH}{KERNEL}cuda-capabilities = ["8.0", "{text}"]\n')
    assert line.startswith("build.toml:13: kernel.a.cuda-capabilities[1]: ")
    assert f'"{text}" is a CUDA version, not a capability' in line
    assert "cuda-minver" in line


@pytest.mark.parametrize("text", ["11.0", "12.0", "12.1", "10.3a", "9.0+PTX"])
def test_a_number_that_is_both_is_let_through(text: str) -> None:
    assert doubts(f'{GENERAL}{TORCH}{KERNEL}cuda-capabilities = ["{text}"]\n') == []


def test_published_projects_of_older_editions_are_read_all_the_same() -> None:
    text = f'{GENERAL}{TORCH}{KERNEL}cuda-capabilities = ["11.8"]\n'
    old = text.replace("edition = 5\n", "")
    [(line, path, message)] = doubts(old)
    assert (line, path) == (12, "kernel.a.cuda-capabilities[0]")
    assert "not a capability" in message
    with pytest.raises(ConfigError, match="not a capability"):
        migrate(old.encode())


def test_noarch_capabilities_are_judged_too() -> None:
    [line] = faults(f'{GENERAL}[torch-noarch]\ncuda_capabilities = ["11.8"]\n')
    assert line == (
        "build.toml:8: torch-noarch.cuda_capabilities[0]: "
        '"11.8" is a CUDA version, not a capability'
    )


def test_what_a_file_declares_may_be_depended_on() -> None:
    kernel = KERNEL.replace('["torch"]', '["torch", "more"]')
    [line] = faults(f"{GENERAL}{TORCH}{kernel}")
    assert 'kernel.a.depends[1]: no native dependency "more"' in line
    more = f'[sources.more]\nurl = "https://h/m.zip"\nsha256 = "{"a" * 64}"\n'
    more += 'include = ["include"]\nlicense = "LICENSE"\n'
    [component] = parse_build(f"{GENERAL}{TORCH}{kernel}{more}".encode()).components
    assert component.depends == ("torch", "more")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('backend = "cuda"\nlanguage = "cuda"', "kernel.a.language: backend says it already"),
        ('language = "fortran"', 'kernel.a.language: no language "fortran"'),
        ("language = 7", "kernel.a.language: found a whole number, 7"),
    ],
)
def test_the_language_of_an_older_file(line: str, fault: str) -> None:
    older = '[general]\nname = "abc"\nedition = 2\n'
    kernel = KERNEL.replace('backend = "cuda"', line)
    [found] = faults(f"{older}{TORCH}{kernel}")
    assert fault in found


def test_a_lowest_version_may_be_the_highest() -> None:
    bounds = '[torch]\nsrc = ["a.cpp"]\nminver = "2.10"\nmaxver = "{}"\n'
    assert parse_build(f"{GENERAL}{bounds.format('2.10')}{KERNEL}".encode()).components
    [line] = faults(f"{GENERAL}{bounds.format('2.9')}{KERNEL}")
    assert '"2.9" is below minver = "2.10"' in line


@pytest.mark.parametrize(
    ("typo", "meant"), [("torhc", "torch"), ("torch-noach", "torch-noarch"), ("tvmffi", "tvm-ffi")]
)
def test_a_misspelt_framework_is_one_fault(typo: str, meant: str) -> None:
    assert faults(f"{GENERAL}[{typo}]\n") == [
        f'build.toml:7: {typo}: no such key in build.toml; did you mean "{meant}"?'
    ]


def test_a_misspelt_general_is_one_fault() -> None:
    lines = faults(GENERAL.replace("[general]", "[genral]") + TORCH)
    assert lines == ['build.toml:1: genral: no such key in build.toml; did you mean "general"?']


def test_bounds_that_leave_nothing() -> None:
    text = GENERAL + '[general.cuda]\nmaxver = "12.9"\n' + TORCH
    text += 'maxver = "2.10"\nstable-abi = "2.11"\n' + KERNEL + 'cuda-minver = "13.0"\n'
    assert [line.split(": ")[1] for line in faults(text)] == [
        "torch.stable-abi",
        "kernel.a.cuda-minver",
    ]


def test_bounds_are_compared_by_major_and_minor() -> None:
    text = GENERAL + '[general.cuda]\nmaxver = "13"\n' + TORCH + KERNEL
    assert parse_build(f'{text}cuda-minver = "13.0.88"\n'.encode()).components


def test_a_stable_abi_for_a_backend_that_is_not_there() -> None:
    [line] = faults(f'{GENERAL}{TORCH}stable-abi = {{ cuda = "2.10", rocm = "2.11" }}\n{KERNEL}')
    assert line.startswith('build.toml:9: torch.stable-abi.rocm: "rocm" is not in general.backends')


def test_version_zero_is_told() -> None:
    [(line, path, message)] = doubts(GENERAL.replace("version = 1", "version = 0") + TORCH)
    assert (line, path) == (3, "general.version")
    assert "where it is asked for by number, or where a repository has no other" in message


def test_a_backend_without_a_component_is_told() -> None:
    text = GENERAL.replace('["cuda"]', '["cuda", "xpu"]') + TORCH + KERNEL
    [(line, _, message)] = doubts(text)
    assert line == 6
    assert '"xpu"; its variant holds Python alone' in message
    assert doubts(GENERAL.replace('["cuda"]', '["cuda", "xpu"]') + TORCH) == []


def test_a_file_in_two_components_of_one_library() -> None:
    second = KERNEL.replace("kernel.a", "kernel.b").replace('"a.cu"', '"c.cu", "a.cu", "a.h"')
    both = GENERAL + TORCH + KERNEL.replace('"a.cu"', '"a.cu", "a.h"') + second
    assert doubts(both) == [], "the same flags: one file, compiled once"
    [(line, path, message)] = doubts(both + 'cuda-flags = ["-DB"]\n')
    assert (line, path) == (16, "kernel.b.src[1]")
    assert message.startswith('"a.cu" stands in [kernel.a] too')


def test_one_source_for_two_gpus_is_as_it_should_be() -> None:
    text = GENERAL.replace('["cuda"]', '["cuda", "rocm"]') + TORCH + KERNEL
    text += KERNEL.replace("kernel.a", "kernel.b").replace('"cuda"', '"rocm"')
    assert doubts(text) == []


def test_a_missing_file_that_stands_twice_is_missing_once(tmp_path: Path) -> None:
    (tmp_path / "torch-ext/abc").mkdir(parents=True)
    (tmp_path / "torch-ext/abc/__init__.py").touch()
    (tmp_path / "b.cpp").touch()
    text = GENERAL + TORCH + KERNEL.replace('"a.cu"', '"a.cu", "a.cu"')
    (tmp_path / "build.toml").write_text(text)
    done = CliRunner().invoke(check_config, [str(tmp_path)])
    assert done.exit_code == 2
    assert [line.split(": ")[1] for line in done.output.splitlines()] == [
        "kernel.a.src[0]",
        "kernel.a.src[1]",
    ]


def test_check_config_shows_warnings_and_succeeds(tmp_path: Path) -> None:
    (tmp_path / "torch-ext/abc").mkdir(parents=True)
    (tmp_path / "torch-ext/abc/__init__.py").touch()
    (tmp_path / "b.cpp").touch()
    (tmp_path / "build.toml").write_text(GENERAL.replace("version = 1", "version = 0") + TORCH)
    done = CliRunner().invoke(check_config, [str(tmp_path)])
    assert done.exit_code == 0
    assert f"{tmp_path}/build.toml:3: general.version: warning: 0 is for trials" in done.output
    assert done.output.endswith("ok (edition 5; cuda)\n")


@pytest.mark.parametrize("other", ["./b.cpp", ".//b.cpp", "x/../b.cpp"])
def test_one_file_by_two_spellings_is_told(other: str) -> None:
    torch = f'[torch]\nsrc = ["b.cpp", "{other}"]\n'
    [line] = faults(GENERAL + torch + KERNEL)
    assert line == f'build.toml:8: torch.src[1]: "{other}" is the same file as "b.cpp"; keep one'


def test_a_path_is_read_in_its_plainest_spelling() -> None:
    kernel = KERNEL.replace('"a.cu"', '"./csrc//a.cu"') + 'include = ["./csrc/", "."]\n'
    [component] = parse_build((GENERAL + TORCH + kernel).encode()).components
    assert (component.src, component.include) == (("csrc/a.cu",), ("csrc", "."))


def test_a_file_of_two_components_is_the_same_by_any_spelling() -> None:
    second = KERNEL.replace("kernel.a", "kernel.b").replace("a.cu", "./a.cu")
    [(line, path, _)] = doubts(f'{GENERAL}{TORCH}{KERNEL}{second}cuda-flags = ["-O1"]\n')
    assert (line, path) == (16, "kernel.b.src[0]")


def test_a_component_of_no_file_is_a_fault_and_was_none_in_older_editions() -> None:
    empty = KERNEL.replace('["a.cu"]', "[]")
    [line] = faults(GENERAL + TORCH + empty)
    assert line.startswith("build.toml:12: kernel.a.src: found an empty list")
    [(line_number, _, _)] = doubts(GENERAL.replace("edition = 5\n", "") + TORCH + empty)
    assert line_number == 11


def test_suggestions_and_places_that_fit_the_key() -> None:
    text = GENERAL + TORCH + KERNEL + 'cuda-capabilities = ["sm90a", "9.0+ptx"]\n'
    text += '[general.tpu]\npython-depends = ["jax"]\n'
    text += f'[sources.more]\nurl = "https://h/m.zip"\nsha256 = "{"a" * 64}"\n'
    text += 'include = ["../m"]\nlicense = "MIT"\n'
    found = faults(text.replace('["torch"]', '["torch", "more"]'))
    assert found[0].endswith('did you mean "9.0a"?')
    assert found[1].endswith('did you mean "9.0+PTX"?')
    assert '"jax" is known here; expected a package with its versions' in found[2]
    assert 'found "../m"; expected a directory of the archive' in found[3]
