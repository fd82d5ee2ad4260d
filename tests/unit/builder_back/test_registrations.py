"""What is read of preprocessed C++, in the forms that authors write."""

import pytest

from kernel_builder.registrations import (
    WRAPPERS,
    Registration,
    mentions_library,
    parse_registrations,
)


def read(body: str, head: str = "_k_1, , m") -> list[tuple[str, str | None, bool, str | None]]:
    found = parse_registrations(
        f"int x;\nKERNEL_BUILDER_OPS({head}) {{\n{body}\n}}\nint y;", source="b.cpp"
    )
    assert not found.unread
    return [(call.name, call.schema, call.defines, call.key) for call in found.calls]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('m.def("f(Tensor x) -> Tensor");', ("f", "f(Tensor x) -> Tensor", True, None)),
        ('m.def("f(Tensor x) " "-> Tensor");', ("f", "f(Tensor x) -> Tensor", True, None)),
        ('m.def(R"x(f(str s=")") -> ())x");', ("f", 'f(str s=")") -> ()', True, None)),
        (r'm.def("f(str s=\"a\") -> ()");', ("f", 'f(str s="a") -> ()', True, None)),
        ('m.def("f.out(Tensor x) -> ()");', ("f.out", "f.out(Tensor x) -> ()", True, None)),
        ('m.def("f", &f);', ("f", None, True, "CompositeImplicitAutograd")),
        (
            'm.def("f(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});',
            ("f", "f(Tensor x) -> Tensor", True, None),
        ),
        (
            'm.def("f(Tensor x) -> Tensor", torch::dispatch(c10::DispatchKey::CPU, &f));',
            ("f", "f(Tensor x) -> Tensor", True, "CPU"),
        ),
        (
            'm.def(torch::schema("f(Tensor x) -> Tensor", c10::AliasAnalysisKind::X));',
            ("f", "f(Tensor x) -> Tensor", True, None),
        ),
        ('m.impl("f", torch::kCUDA, &f);', ("f", None, False, "CUDA")),
        ('m.impl("f", c10::DeviceType::XPU, TORCH_FN(f));', ("f", None, False, "XPU")),
        ('m.impl("f", torch::dispatch(kMeta, TORCH_FN(f)));', ("f", None, False, "Meta")),
        ('m.impl("f", &ns::f<int, kCPU>);', ("f", None, False, "CompositeImplicitAutograd")),
        ('m.impl("_k_1::f", &f);', ("f", None, False, "CompositeImplicitAutograd")),
    ],
)
def test_one_call(call: str, expected: tuple[str, str | None, bool, str | None]) -> None:
    assert read(call) == [expected]


def test_a_block_for_a_key_gives_it() -> None:
    body = 'm.impl("f", TORCH_BOX((&g<A, B>)));\nm.impl("h", c10::kCPU, &h);'
    assert read(body, "_k_1, CUDA, m") == [("f", None, False, "CUDA"), ("h", None, False, "CPU")]


def test_chains_lambdas_and_loops_are_read() -> None:
    body = """
      m.def("f(Tensor x) -> Tensor").def("g(Tensor x) -> Tensor", [](at::Tensor x) {
        auto s = "m.def(nothing)"; if (x.defined()) { return x; } return x; });
      for (int i = 0; i < 1; ++i) { m.impl("f", &f); }
    """
    assert [name for name, *_ in read(body)] == ["f", "g", "f"]


def test_methods_of_a_script_class_are_no_ops() -> None:
    assert read('m.class_<Q>("Q").def(torch::init<>()).def("get", &Q::get); m.def("f", &f);') == [
        ("f", None, True, "CompositeImplicitAutograd")
    ]


def test_an_op_that_is_computed_is_named_and_not_guessed() -> None:
    text = 'KERNEL_BUILDER_OPS(n, , m) { m.def(name + "(Tensor x) -> ()"); m.impl(which ? "a" : "b", &f); }'
    found = parse_registrations(text, source="b.cpp")
    assert not found.calls
    assert len(found.unread) == 2
    assert found.unread[0].startswith('b.cpp: def(name + "(Tensor x)')


def test_each_block_has_its_own_namespace() -> None:
    text = 'KERNEL_BUILDER_OPS(a, , m) { m.def("f()", &f); } KERNEL_BUILDER_OPS(aten, CPU, l) { l.impl("g", &g); }'
    found = parse_registrations(text, source="b.cpp").calls
    assert [(each.namespace, each.name) for each in found] == [("a", "f"), ("aten", "g")]
    assert found[1] == Registration(source="b.cpp", namespace="aten", name="g", key="CPU")


def test_text_that_never_ends_is_read_to_its_end() -> None:
    assert parse_registrations('KERNEL_BUILDER_OPS(a, , m) { m.def("f() -> ()"', source="b").calls


def test_torchs_macros_become_one_word() -> None:
    assert set(WRAPPERS) == {"torch/library.h", "torch/csrc/stable/library.h"}
    for place, text in WRAPPERS.items():
        assert f"#include_next <{place}>" in text
        assert text.count("#undef") == 3
    assert mentions_library(b"STABLE_TORCH_LIBRARY_IMPL_EXPAND(X, CPU, m) {}")
    assert not mentions_library(b"int main() {}")
