"""The parts of a ``build.toml`` that the guides show are read, and what they print of faults is what is printed."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from listings import ROOT, find_unsaid, get_listing, parse_session

from kernel_builder.cli.check_config import check_config
from kernel_builder.cli.lint_abi import lint_abi
from kernel_builder.config.read import parse_build

HEAD = """[general]
name = "gemm"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

"""
PARTS = {
    "hopper": get_listing("docs/guide/build-for-cuda.md", "[kernel.hopper]"),
    "cutlass": get_listing("docs/guide/depends.md", "[kernel.gemm_cuda]"),
    "sources": get_listing("docs/guide/depends.md", "[sources.cutlass_4_0]"),
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_a_build_toml_are_read(part):
    text = PARTS[part].replace('sha256 = "…"', f'sha256 = "{"0" * 64}"')
    kernel = PARTS["cutlass"].replace("cutlass_3_8", "cutlass_4_0") if part == "sources" else ""
    build = parse_build((HEAD + kernel + text).encode())
    assert [component.name for component in build.components] == [
        "hopper" if part == "hopper" else "gemm_cuda"
    ]


FAULTY = """[general]
name = "fresh"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]


[torhc]
src = ["torch-ext/torch_binding.cpp"]

[kernel.a]
backend = "cuda"
depends = ["torch"]
src = ["csrc/a.cu"]
cuda-capabilities = ["11.8"]
"""


def test_faults_are_printed_as_the_page_shows(tmp_path, monkeypatch):
    (tmp_path / "build.toml").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    page = get_listing("docs/guide/build-toml.md", "$ kernel-builder check-config")
    [(command, printed)] = parse_session(page)
    assert command == "kernel-builder check-config"
    assert find_unsaid(printed, CliRunner().invoke(check_config, []).output) == []


def test_the_linter_says_what_the_page_shows():
    done = CliRunner().invoke(lint_abi, [str(ROOT / "tests/kits/norm_full")])
    assert find_unsaid(get_listing("docs/guide/checks.md", "csrc/norm.cu:31"), done.output) == []
