"""What keeps C++ sources from torch's stable ABI: the line, the name and its replacement."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.check.stable_source import check_stable_source, check_texts
from kernel_builder.cli.lint_abi import lint_abi
from kernel_builder.policy import read_replacements

KITS = Path(__file__).parents[2] / "kits"
COMMUNITY = Path(__file__).parents[3] / "kernels-community"


def lint(text: str) -> list[tuple[str, str | None]]:
    return [(each.file, each.symbol) for each in check_stable_source(text, "a.cu")]


@pytest.mark.parametrize(
    ("text", "symbol", "fix"),
    [
        ("#include <torch/extension.h>", "torch/extension.h", "torch/csrc/stable/tensor.h"),
        ('#include "autograd_node.h"', "autograd_node.h", "per-torch = true"),
        ("  #  include <ATen/native/cuda/Loops.cuh>", "ATen/native/cuda/Loops.cuh", "own code"),
        ("#include <c10/util/Half.h>", "c10/util/Half.h", "torch/headeronly/util"),
        ("at::Tensor f();", "at::Tensor", "torch::stable::Tensor"),
        ("::c10::Half h;", "c10::Half", "torch::headeronly"),
        ("auto s = c10::cuda::getCurrentCUDAStream();", "c10::cuda::getCurrentCUDAStream", "aoti"),
        ("torch::softmax(x, 1);", "torch::softmax", "torch_call_dispatcher"),
        ("at::parallel_for(0, n, 1, f);", "at::parallel_for", "torch 2.10 and later"),
        ("using namespace torch;", "torch", "name what is used"),
        ("TORCH_CHECK(ok);", "TORCH_CHECK", "STD_TORCH_CHECK"),
        ("AT_DISPATCH_ALL_TYPES(t, n, f);", "AT_DISPATCH_ALL_TYPES", "THO_DISPATCH_V2"),
        ("x.data_ptr<float>();", "data_ptr<", ".mutable_data_ptr<T>()"),
        ("x->template item<int>();", "item<", "argument of the op"),
        ("PYBIND11_MODULE(a, m) {}", "PYBIND11_MODULE", "REGISTER_EXTENSION"),
        ("m.def(py::arg);", "py::arg", "arguments that ops have"),
    ],
)
def test_what_blocks_is_named_with_what_replaces_it(text: str, symbol: str, fix: str) -> None:
    (finding,) = check_stable_source(f"\n\n{text}\n", "csrc/a.cu")
    assert (finding.file, finding.symbol) == ("csrc/a.cu:3", symbol)
    assert fix in finding.fix


@pytest.mark.parametrize(
    "text",
    [
        "// at::Tensor",
        "/* at::Tensor\n TORCH_CHECK( */",
        'const char* s = "at::Tensor \\" TORCH_CHECK(";',
        'auto s = R"x(at::Tensor ")x";',
        "torch::stable::Tensor f(torch::headeronly::ScalarType t);",
        "using namespace torch::stable;",
        "#include <torch/csrc/stable/library.h>\n#include <torch/headeronly/util/Half.h>",
        "#include <torch/csrc/inductor/aoti_torch/c/shim.h>\n#include <cuda_runtime.h>",
        "#include <vector>\nfat::Tensor that::at; data::at::x;",
        "STD_TORCH_CHECK(x.numel() > 0); y.mutable_data_ptr<float>();",
        "map.at(0); char c = '\"';",
    ],
)
def test_what_is_stable_or_no_code_passes(text: str) -> None:
    assert lint(text) == []


def test_lines_are_counted_across_comments_and_texts() -> None:
    text = '/* a\nb */ "x\\\n"; R"(\n)"\n at::Tensor x; // c\nat::kCUDA;'
    assert lint(text) == [("a.cu:5", "at::Tensor"), ("a.cu:6", "at::kCUDA")]


def test_what_no_compiler_sees_passes_and_other_conditions_count() -> None:
    dead = "/*\n#include <torch/all.h>\n*/\n#if 0\nat::Tensor a;\n#else\nat::Half b;\n#endif\n"
    assert lint(dead) == [("a.cu:7", "at::Half")]
    assert lint("#ifdef OLD\nat::Tensor a;\n#endif\n") == [("a.cu:2", "at::Tensor")]


def test_a_real_kernel_in_the_full_interface() -> None:
    result = CliRunner().invoke(lint_abi, [str(KITS / "norm_full")])
    assert result.exit_code == 1
    places = [
        line.partition(": torch ")[0].split(": it ")[0] for line in result.output.splitlines()
    ]
    assert places == [
        "csrc/norm.cu:1: ATen/ATen.h",
        "csrc/norm.cu:2: ATen/cuda/CUDAContext.h",
        "csrc/norm.cu:3: ATen/Dispatch.h",
        "csrc/norm.cu:4: c10/cuda/CUDAGuard.h",
        "csrc/norm.cu:8: at",
        *["csrc/norm.cu:30: at::Tensor"] * 3,
        "csrc/norm.cu:31: TORCH_CHECK",
        "csrc/norm.cu:32: at::cuda::OptionalCUDAGuard",
        "csrc/norm.cu:32: at::device_of",
        "csrc/norm.cu:34: torch::empty",
        "csrc/norm.cu:34: options(",
        "csrc/norm.cu:36: AT_DISPATCH_FLOATING_TYPES_AND2",
        "csrc/norm.cu:36: at::kHalf",
        "csrc/norm.cu:36: at::kBFloat16",
        "csrc/norm.cu:37: at::cuda::getCurrentCUDAStream",
        *["csrc/norm.cu:38: data_ptr<"] * 2,
        "csrc/norm.cu:39: data_ptr<",
        "csrc/norm.cu:41: C10_CUDA_KERNEL_LAUNCH_CHECK",
        "torch-ext/torch_binding.cpp:1: torch/library.h",
        *["torch-ext/torch_binding.cpp:6: at::Tensor"] * 3,
        "torch-ext/torch_binding.cpp:8: TORCH_LIBRARY_EXPAND",
        "torch-ext/torch_binding.cpp:10: torch::kCUDA",
        "18 lines block the stable ABI; docs/guide/checks.md says how to go on",
    ]


@pytest.mark.parametrize("name", ["activation", "gemm", "img2gray"])
def test_kernels_that_are_stable_have_nothing(name: str) -> None:
    result = CliRunner().invoke(lint_abi, [str(COMMUNITY / name)])
    assert result.exit_code == 0, result.output
    assert "blocks the stable ABI: builds are for it, from torch 2.10 on" in result.output


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ('ops.def("f(Tensor x, str mode) -> Tensor");', ["f(mode)"]),
        (
            'm.def("f(str a="\n "\'b\', *, str? c=None, str[] d, int s) -> str", &f);',
            ["f(a, c, d)"],
        ),
        ('ops . def ( R"(f(str mode) -> ())" );', ["f(mode)"]),
        ('ops.def("f(Tensor string, int str) -> str");', []),
        ("ops.def(\"f(Tensor x, str a='(str b, str c)') -> ()\");", ["f(a)"]),
        ('// ops.def("f(str mode) -> ()");', []),
        ('ops.impl("f", &f); ops.def("f"); m.def("f", &f, "f(str mode)");', []),
    ],
)
def test_texts_that_ops_take_are_warned_of(text: str, symbols: list[str]) -> None:
    found = list(check_texts(f"\n{text}\n", "a.cpp"))
    assert [each.symbol for each in found] == symbols
    for each in found:
        assert each.file == "a.cpp:2"
        assert "never frees" in each.message
        assert "take an int" in each.fix


def test_a_warning_blocks_nothing(tmp_path: Path) -> None:
    shutil.copytree(KITS / "add_stable", tmp_path / "kit")
    binding = tmp_path / "kit" / "torch-ext" / "torch_binding.cpp"
    text = binding.read_text()
    binding.write_text(f'{text}\n// more\nvoid g(int m) {{ x.def("g(str mode) -> ()"); }}\n')
    result = CliRunner().invoke(lint_abi, [str(tmp_path / "kit")])
    line = text.count("\n") + 3
    assert result.exit_code == 0
    assert f"torch_binding.cpp:{line}: warning: g(mode): a str argument is copied" in result.output
    assert "blocks the stable ABI: builds are for it" in result.output
    result = CliRunner().invoke(lint_abi, [str(tmp_path / "kit"), "--json"])
    assert [each["rule"] for each in json.loads(result.output)] == ["stable-text"]


def test_the_data_is_whole() -> None:
    entries = read_replacements()
    assert {each.kind for each in entries} == {"header", "macro", "name", "method"}
    assert all(each.write and each.match for each in entries)
    # Nothing but what torch 2.10 to 2.13 have is recommended.
    assert all(each.since is None or 9 <= each.since.minor <= 13 for each in entries)
