import pytest

from kernel_builder.check.ops import check_source

OP_ID = "_k_cpu_0123456789ab"


def _symbols(source: str) -> list[str | None]:
    return [finding.symbol for finding in check_source(source.encode(), file="m.py", op_id=OP_ID)]


@pytest.mark.parametrize(
    "source",
    [
        '@torch.library.custom_op("k::f", mutates_args=())\ndef f(x): ...',
        '@custom_op("f", mutates_args=())\ndef f(x): ...',
        '@torch.library.custom_op(name="k::f", mutates_args=())\ndef f(x): ...',
        'from torch.library import custom_op as op\n@op("k::f", mutates_args=())\ndef f(x): ...',
        'NAME = "k::f"\n@torch.library.triton_op(NAME, mutates_args=())\ndef f(x): ...',
        '@torch.library.register_fake("k::f")\ndef f(x): ...',
        'torch.library.register_kernel("k::f", "cpu", f)',
        'torch.library.register_autograd("k::f", backward)',
        'torch.library.define("k::f", "(Tensor x) -> Tensor")',
        'torch.library.impl("k::f", "cpu")(f)',
        'lib = torch.library.Library("k", "DEF")',
        'lib = Library("k" + "x", "FRAGMENT")',
        'torch.library.register_fake(f"k::{name}")(f)',
        'def make():\n    class A:\n        @torch.library.custom_op("k::f", mutates_args=())\n'
        "        def f(x): ...",
        'if True:\n    try:\n        torch.library.Library("aten", "IMPL")\n    finally: pass',
    ],
)
def test_a_name_outside_the_namespace_is_found(source: str) -> None:
    assert len(_symbols(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(x): ...',
        "@torch.library.register_fake(ops.f.default)\ndef f(x): ...",
        f'@torch.library.custom_op("{OP_ID}::f", mutates_args=())\ndef f(x): ...',
        '@f.register_kernel("cpu")\ndef f(x): ...',
        "lib = torch.library.Library(ops.name, 'IMPL')\nlib.define('f(Tensor x) -> Tensor')",
        'lib.impl("f", f, "CPU")',
        'print("k::f")',
    ],
)
def test_a_name_in_the_namespace_is_not(source: str) -> None:
    assert _symbols(source) == []


def test_the_finding_names_the_line_and_the_fix() -> None:
    source = '\n\n@torch.library.custom_op("k::relu", mutates_args=())\ndef f(x): ...'
    (finding,) = check_source(source.encode(), file="a/m.py", op_id=OP_ID)
    assert finding.file == "a/m.py:3"
    assert finding.symbol == "k::relu"
    assert "add_op_namespace_prefix('relu')" in finding.fix


@pytest.mark.parametrize("source", [b"def f(:", b"x = '\xff'", b"\0"])
def test_a_file_that_cannot_be_parsed_is_a_finding(source: bytes) -> None:
    (finding,) = check_source(source, file="m.py", op_id=OP_ID)
    assert finding.rule == "python-syntax"
