"""Ops as torch has them against ops as the sources say."""

from dataclasses import replace

from kernel_builder.check.finding import Finding
from kernel_builder.check.registered import (
    Registered,
    RegisteredOp,
    check_complete,
    check_sources,
)
from kernel_builder.registrations import Registration, Registrations

ID = "_k_1"
SCHEMA = "f(Tensor! out, Tensor x) -> ()"
AS_TORCH = "f(Tensor(a0!) out, Tensor x) -> ()"
DEF = Registration(source="b.cpp", namespace=ID, name="f", schema=SCHEMA, defines=True)
IMPL = Registration(source="b.cpp", namespace=ID, name="f", key="CPU")
OP = RegisteredOp(schema=AS_TORCH, keys=frozenset({"CPU"}))
REGISTERED = Registered(ops={"f": OP}, parsed={SCHEMA: AS_TORCH})


def against(*calls: Registration, registered: Registered = REGISTERED) -> list[Finding]:
    return list(check_sources("k.so", ID, Registrations(calls=calls), registered))


def rules(findings: list[Finding]) -> list[tuple[str, str | None]]:
    return [(each.rule, each.symbol) for each in findings]


def test_what_agrees_passes() -> None:
    assert not against(DEF, IMPL)
    assert not list(check_complete("k.so", REGISTERED, backend="CPU", carried=["CPU"]))


def test_what_the_library_does_not_register_is_found() -> None:
    other = replace(DEF, name="g", schema="g(Tensor x) -> ()")
    assert rules(against(DEF, IMPL, other)) == [("op-not-registered", "g")]
    cuda = replace(IMPL, key="CUDA")
    (finding,) = against(DEF, IMPL, cuda)
    assert finding.rule == "op-not-registered"
    assert "code for CUDA" in finding.message


def test_what_no_source_says_is_found() -> None:
    assert rules(against(registered=REGISTERED)) == [("op-not-in-sources", "f")]
    assert rules(against(DEF)) == [("op-not-in-sources", "f")]
    several = Registered(ops={"g": OP, "f": OP})
    assert [symbol for _, symbol in rules(against(registered=several))] == ["f", "g"]


def test_another_schema_is_found() -> None:
    other = replace(REGISTERED, parsed={SCHEMA: "f(Tensor out, Tensor x) -> ()"})
    (finding,) = against(DEF, IMPL, registered=other)
    assert finding.rule == "op-schema"
    assert SCHEMA in finding.message
    assert AS_TORCH in finding.message
    assert rules(against(DEF, IMPL, registered=replace(REGISTERED, parsed={}))) == [
        ("op-schema", "f")
    ]


def test_a_schema_that_torch_infers_is_not_compared() -> None:
    assert not against(replace(DEF, schema=None, key="CPU"))


def test_foreign_namespaces_and_computed_names_are_found() -> None:
    foreign = replace(IMPL, namespace="aten", name="relu")
    assert rules(against(DEF, IMPL, foreign)) == [("op-namespace", "aten::relu")]
    # An op of ours has the name, and is not taken for that one.
    other = replace(IMPL, namespace="another", key="CUDA")
    assert rules(against(DEF, IMPL, other)) == [("op-namespace", "another::f")]
    unread = Registrations(calls=(DEF, IMPL), unread=("b.cpp: def(name)",))
    (finding,) = check_sources("k.so", ID, unread, REGISTERED)
    assert (finding.rule, finding.file, finding.symbol) == ("op-unread", "b.cpp", "def(name)")


def complete(
    *keys: str, schema: str = AS_TORCH, backend: str = "CUDA", carried: tuple[str, ...] = ()
) -> list[Finding]:
    found = Registered(ops={"f": RegisteredOp(schema=schema, keys=frozenset(keys))})
    return list(check_complete("k.so", found, backend=backend, carried=carried))


def test_an_op_needs_code_for_the_backend_of_its_variant() -> None:
    assert not complete("CUDA", "CPU")
    assert not complete("CompositeExplicitAutograd")
    (finding,) = complete("CPU")
    assert "this variant is for CUDA" in finding.message
    assert 'EXTENSION_NAME, CUDA, ops) { ops.impl("f"' in finding.fix
    (finding,) = complete()
    assert "no backend has code" in finding.message


def test_an_op_without_tensors_needs_code_for_all() -> None:
    (finding,) = complete("CUDA", schema="f(int x) -> Tensor")
    assert "torch cannot call it" in finding.message
    assert not complete("CompositeExplicitAutograd", schema="f(int x) -> Tensor")
    assert not complete("BackendSelect", schema="f(Device d) -> Tensor")


def test_code_without_schema_and_carried_code_without_op_are_found() -> None:
    found = Registered(ops={}, dangling=frozenset({"g"}))
    assert rules(list(check_complete("k.so", found, backend="CPU"))) == [("op-without-schema", "g")]
    assert rules(complete("CUDA", carried=("CPU", "CUDA"))) == [("op-without-code", "CPU")]


def test_a_misspelt_op_is_one_fault_that_names_the_op_that_was_meant() -> None:
    typo = replace(IMPL, name="silu_and_mul_", source="cpu.cpp")
    bare = RegisteredOp(schema=AS_TORCH, keys=frozenset())
    registered = Registered(
        ops={"silu_and_mul": bare}, dangling=frozenset({"silu_and_mul_"}), parsed={}
    )
    calls = Registrations(calls=(typo,))
    (finding,) = check_complete("k.so", registered, backend="CPU", carried=["CPU"], sources=calls)
    assert (finding.rule, finding.symbol, finding.file) == ("op-name", "silu_and_mul_", "cpu.cpp")
    assert finding.fix == 'did you mean ops.impl("silu_and_mul", ...)?'


def test_a_name_that_resembles_none_stays_two_faults() -> None:
    typo = replace(IMPL, name="rotate")
    bare = RegisteredOp(schema=AS_TORCH, keys=frozenset())
    registered = Registered(ops={"f": bare}, dangling=frozenset({"rotate"}))
    found = check_complete("k.so", registered, backend="CPU", sources=Registrations(calls=(typo,)))
    assert rules(list(found)) == [("op-without-schema", "rotate"), ("op-without-code", "f")]


def test_an_op_that_has_the_code_was_not_meant() -> None:
    typo = replace(IMPL, name="scale_")
    full = RegisteredOp(schema=AS_TORCH, keys=frozenset({"CPU"}))
    registered = Registered(ops={"scale": full}, dangling=frozenset({"scale_"}))
    found = check_complete("k.so", registered, backend="CPU", sources=Registrations(calls=(typo,)))
    assert rules(list(found)) == [("op-without-schema", "scale_")]
