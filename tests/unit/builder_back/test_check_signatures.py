"""C++ functions against the schemas of their ops, from the names that symbols have."""

import pytest

from kernel_builder.check.registered import RegisteredOp
from kernel_builder.check.signatures import (
    BOXED,
    Boxed,
    Schema,
    check_signatures,
    list_unread,
    parse_signature,
)
from kernel_builder.registrations import Registration, Registrations

ALLOCATOR = "std::allocator<long> "
STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"


def readable(function: str) -> str:
    """Return the readable name of a boxed function, as the demangler of GCC writes it."""
    return (
        f"torch::stable::detail::boxer<{function}, &(kit::f({function.partition('(')[2]})>"
        "::boxed_fn(unsigned long*, unsigned long, unsigned long)"
    )


@pytest.mark.parametrize(
    ("function", "arguments", "returns"),
    [
        ("void (torch::stable::Tensor&, torch::stable::Tensor const&)", ["Tensor", "Tensor"], []),
        ("void ()", [], []),
        ("long (double, bool)", ["double", "bool"], ["int64_t"]),
        (
            f"std::tuple<torch::stable::Tensor, std::vector<long, {ALLOCATOR}> > ({STRING})",
            ["std::string"],
            ["Tensor", "std::vector<int64_t>"],
        ),
        (
            "void (std::optional<torch::stable::Tensor> const&, std::basic_string_view<char, "
            "std::char_traits<char> >, c10::HeaderOnlyArrayRef<long>, c10::ScalarType)",
            [
                "std::optional<Tensor>",
                "std::string_view",
                "c10::HeaderOnlyArrayRef<int64_t>",
                "ScalarType",
            ],
            [],
        ),
        (
            "void (std::vector<std::optional<torch::stable::Tensor>, "
            "std::allocator<std::optional<torch::stable::Tensor> > >, (anonymous namespace)::Mode)",
            ["std::vector<std::optional<Tensor>>", "(anonymous namespace)::Mode"],
            [],
        ),
    ],
)
def test_a_signature_is_read_from_a_name(
    function: str, arguments: list[str], returns: list[str]
) -> None:
    expected = f"({', '.join(arguments)}) -> ({', '.join(returns)})"
    assert str(parse_signature(readable(function))) == expected


def test_other_functions_have_no_signature() -> None:
    assert parse_signature("") is None
    assert parse_signature("kit::clamp_boxed(unsigned long*, unsigned long, unsigned long)") is None


def test_only_the_function_itself_counts_not_what_was_split_off() -> None:
    name = "_ZN5torch6stable6detail5boxerIFvRNS0_6TensorEEXadL_Z1fS4_EEE8boxed_fnEPmmm"
    assert BOXED.fullmatch(name)
    assert not BOXED.fullmatch(f"{name}.cold")
    assert not BOXED.fullmatch("_ZN3kit8boxed_fnEPmmm")


def find(function: str, schema: Schema) -> tuple[list[str], list[str]]:
    """Return what is found of a function, and what is not known of it."""
    boxed = [(Boxed(key="CPU", name="f", symbol="_Z"), readable(function))]
    sources = Registrations(
        calls=(
            Registration(source="b.cpp", namespace="k", name="f", schema="f(...)", defines=True),
            Registration(source="c.cpp", namespace="k", name="f", key="CPU"),
        )
    )
    ops = {"f": RegisteredOp(schema="f($0)", keys=frozenset({"CPU"}))}
    found = list(check_signatures("k.so", boxed, ops, {"f": schema}, sources))
    assert all(
        (each.rule, each.symbol, each.file) == ("op-signature", "f", "c.cpp") for each in found
    )
    assert all("the schema says f(...), and" in each.message for each in found)
    return [each.message for each in found], list_unread(boxed, {"f": schema})


@pytest.mark.parametrize(
    ("kind", "cxx"),
    [
        ("Tensor", "torch::stable::Tensor const&"),
        ("Optional[Tensor]", "std::optional<torch::stable::Tensor>"),
        ("List[int]", "c10::HeaderOnlyArrayRef<long>"),
        ("List[Optional[Tensor]]", "std::vector<std::optional<torch::stable::Tensor>, A>"),
        ("int", "long"),
        ("int", "unsigned long"),
        ("float", "double"),
        ("str", STRING),
        ("Optional[ScalarType]", "std::optional<c10::ScalarType>"),
        ("Device", "torch::stable::Device"),
    ],
)
def test_what_agrees_is_not_mentioned(kind: str, cxx: str) -> None:
    cxx = cxx.replace(", A>", ", std::allocator<std::optional<torch::stable::Tensor> > >")
    assert find(f"void ({cxx})", Schema(arguments=(kind,), returns=())) == ([], [])


@pytest.mark.parametrize(
    ("kind", "cxx", "said"),
    [
        (
            "float",
            "float",
            "is float in the schema, float in C++ (a float of a schema is a double)",
        ),
        ("int", "int", "is int in the schema, int in C++ (an int of a schema is an int64_t)"),
        ("int", "double", "is int in the schema, double in C++"),
        ("int", "std::optional<long>", "is int in the schema, std::optional<int64_t> in C++"),
        ("Optional[int]", "long", "is int? in the schema, int64_t in C++"),
        ("List[int]", "std::vector<double, std::allocator<double> >", "is int[] in the schema"),
        ("List[int]", "std::list<long, std::allocator<long> >", "is int[] in the schema"),
        ("ScalarType", "long", "is ScalarType in the schema, int64_t in C++"),
        ("str", "char const*", "is str in the schema, char* in C++"),
    ],
)
def test_a_wrong_kind_is_named(kind: str, cxx: str, said: str) -> None:
    (message,), unread = find(f"void ({cxx})", Schema(arguments=(kind,), returns=()))
    assert f"argument 1 {said}" in message
    assert unread == []


def test_what_cannot_be_read_is_listed_and_not_judged() -> None:
    boxed = [(Boxed(key="CPU", name="f", symbol="_Z"), "torch::stable::detail::boxer<?>")]
    ops = {"f": RegisteredOp(schema="f($0)", keys=frozenset({"CPU"}))}
    schemas = {"f": Schema(arguments=("Tensor",), returns=())}
    assert list(check_signatures("k.so", boxed, ops, schemas, Registrations(calls=()))) == []
    assert len(list_unread(boxed, schemas)) == 1
    known = [(boxed[0][0], readable("void (double)"))]
    assert list(check_signatures("k.so", known, ops, {}, Registrations(calls=()))) == []


def test_a_wrong_number_is_named() -> None:
    schema = Schema(arguments=("Tensor",), returns=("Tensor", "int"))
    (message,), _ = find("torch::stable::Tensor ()", schema)
    assert "1 argument in the schema, 0 in C++; 2 results in the schema, 1 in C++" in message


@pytest.mark.parametrize(
    ("kind", "cxx"), [("number", "double"), ("int", "kit::Mode"), ("Optional[number]", "kit::Mode")]
)
def test_what_nothing_is_known_of_is_told_and_no_fault(kind: str, cxx: str) -> None:
    assert find(f"void ({cxx})", Schema(arguments=(kind,), returns=())) == ([], ["f"])
