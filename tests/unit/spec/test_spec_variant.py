import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.backend import (
    UNVERSIONED,
    VERSIONED_PREFIXES,
    Backend,
    BackendKind,
    format_backend,
    parse_backend,
)
from kernel_spec.errors import FormatError, VariantNameError
from kernel_spec.framework import Framework, Torch, TorchStableAbi, TvmFfi
from kernel_spec.variant import (
    OPERATING_SYSTEMS,
    ArchVariant,
    NoarchVariant,
    Variant,
    format_variant,
    parse_variant,
)
from kernel_spec.version import MajorMinor, parse_major_minor

GOLDEN = json.loads((Path(__file__).parents[2] / "fixtures" / "variants.json").read_text())


def framework_of(fields: dict[str, object]) -> Framework:
    version = parse_major_minor(str(fields["version"]))
    match fields["kind"]:
        case "torch":
            return Torch(version, fields["cxx11"])
        case "torch-stable-abi":
            return TorchStableAbi(version)
        case "tvm-ffi":
            return TvmFfi(version)
        case kind:
            raise AssertionError(kind)


def backend_of(fields: dict[str, object]) -> Backend:
    version = fields["version"]
    return Backend(
        BackendKind(str(fields["kind"])),
        None if version is None else parse_major_minor(str(version)),
    )


def variant_of(case: dict[str, object]) -> Variant:
    if case.get("form") == "noarch":
        return NoarchVariant(BackendKind(case["backend"]["kind"]))
    return ArchVariant(
        framework_of(case["framework"]), backend_of(case["backend"]), case["cpu"], case["os"]
    )


@pytest.mark.parametrize("case", GOLDEN["valid"], ids=lambda case: case["name"])
def test_valid_name_means_its_fields_and_formats_back(case):
    variant = parse_variant(case["name"])
    assert variant == variant_of(case)
    assert format_variant(variant) == str(variant) == case["canonical"]


@pytest.mark.parametrize("case", GOLDEN["invalid"], ids=lambda case: case["name"])
def test_invalid_name_is_refused_with_its_kind(case):
    with pytest.raises(VariantNameError) as err:
        parse_variant(case["name"])
    assert err.value.kind == case["fault"]
    assert err.value.exit_code == 1
    assert isinstance(err.value, FormatError)
    assert isinstance(err.value, ValueError)


@pytest.mark.parametrize("case", GOLDEN["format"], ids=lambda case: case["title"])
def test_fields_make_the_name_or_none(case):
    variant = variant_of(case)
    if case["outcome"] == "name":
        assert format_variant(variant) == case["name"]
    else:
        with pytest.raises(VariantNameError):
            format_variant(variant)


def test_universal_is_a_noarch_variant_of_every_backend():
    assert parse_variant("torch-universal") == NoarchVariant(None)
    assert format_variant(NoarchVariant(None)) == "torch-universal"


@pytest.mark.parametrize(
    ("token", "version"),
    [
        ("rocm100", MajorMinor(10, 0)),
        ("rocm110", MajorMinor(11, 0)),
        ("cu92", MajorMinor(9, 2)),
        ("xpu20260", MajorMinor(2026, 0)),
    ],
)
def test_digits_with_one_sensible_reading_are_accepted(token, version):
    backend = parse_backend(token)
    assert backend.version == version
    assert format_backend(backend) == token


@pytest.mark.parametrize(
    "name",
    [
        "torch2013-cpu-x86_64-linux",  # would format back as torch213
        "torch-stable-abi211-cxx11-cpu-x86_64-linux",
        "torch213-cu013-x86_64-linux",
        "torch213-cpu12-x86_64-linux",
        "torch213-cpu-x86_64\n-linux",
        "torch213-cpu-x86_64-linux\n",
        "torch٢13-cpu-x86_64-linux",
        "torch-CUDA",
        "torch-cpu-x86_64-linux",
    ],
)
def test_near_misses_are_refused(name):
    with pytest.raises(VariantNameError):
        parse_variant(name)


@pytest.mark.parametrize(
    "variant",
    [
        ArchVariant(Torch(MajorMinor(10, 0)), Backend(BackendKind.CPU), "x86_64", "linux"),
        ArchVariant(Torch(MajorMinor(2, 1)), Backend(BackendKind.CUDA), "x86_64", "linux"),
        ArchVariant(
            Torch(MajorMinor(2, 1)), Backend(BackendKind.CPU, MajorMinor(1, 0)), "x86_64", "linux"
        ),
        ArchVariant(Torch(MajorMinor(2, 1)), Backend(BackendKind.CPU), "x86-64", "linux"),
        ArchVariant(Torch(MajorMinor(2, 1)), Backend(BackendKind.CPU), "x86_64", "plan9"),
        ArchVariant(
            Torch(MajorMinor(2, 1)),
            Backend(BackendKind.ROCM, MajorMinor(71, 0)),
            "x86_64",
            "linux",
        ),
    ],
)
def test_values_without_a_name_are_refused(variant):
    with pytest.raises(VariantNameError):
        format_variant(variant)


versions = st.builds(MajorMinor, st.integers(0, 12), st.integers(0, 40))
frameworks = st.one_of(
    st.builds(Torch, versions, st.sampled_from([None, True, False])),
    st.builds(TorchStableAbi, versions),
    st.builds(TvmFfi, versions),
)
backends = st.one_of(
    st.builds(Backend, st.sampled_from(sorted(UNVERSIONED))),
    st.builds(
        Backend,
        st.sampled_from(sorted(VERSIONED_PREFIXES.values())),
        st.builds(MajorMinor, st.integers(0, 2100), st.integers(0, 12)),
    ),
)
arch_variants = st.builds(
    ArchVariant,
    frameworks,
    backends,
    st.sampled_from(["x86_64", "aarch64", "riscv64"]),
    st.sampled_from(OPERATING_SYSTEMS),
)
noarch_variants = st.builds(NoarchVariant, st.one_of(st.none(), st.sampled_from(BackendKind)))


@given(st.one_of(arch_variants, noarch_variants))
def test_a_variant_that_has_a_name_reads_back_equal(variant):
    try:
        name = format_variant(variant)
    except VariantNameError:
        # Only versions can be without a name here.
        framework = variant.framework.version
        backend = variant.backend.version
        assert framework.major > 9 or (
            backend is not None and (backend.minor > 9 or backend.major < 1 or backend.major > 10)
        )
    else:
        assert parse_variant(name) == variant


tokens = st.sampled_from(
    [
        "torch",
        "torch2",
        "torch213",
        "cxx11",
        "cxx98",
        "stable",
        "abi211",
        "tvm",
        "ffi01",
        "cpu",
        "cu130",
        "cu1310",
        "rocm",
        "rocm72",
        "x86_64",
        "linux",
        "Linux",
        "universal",
        "cuda",
    ]
)


NAMES = [
    "torch213-cxx11-cu130-x86_64-linux",
    "torch29-cpu-aarch64-linux",
    "torch29-rocm63-x86_64-linux",
    "torch-stable-abi210-cu130-x86_64-linux",
    "torch-stable-abi210-metal-aarch64-darwin",
    "tvm-ffi01-cpu-x86_64-windows",
    "torch-cuda",
    "torch-universal",
]


@st.composite
def nearly_names(draw: st.DrawFn) -> str:
    """The name of a variant, as it is or with a part changed, doubled or left out."""
    parts = draw(st.sampled_from(NAMES)).split("-")
    at = draw(st.integers(0, len(parts) - 1))
    there = draw(st.sampled_from([[parts[at]], [parts[at]] * 2, []]) | tokens.map(lambda t: [t]))
    return "-".join([*parts[:at], *there, *parts[at + 1 :]])


@given(st.one_of(st.text(), st.lists(tokens, max_size=7).map("-".join), nearly_names()))
def test_any_text_is_refused_or_formats_back_to_itself(name):
    try:
        variant = parse_variant(name)
    except VariantNameError:
        return
    assert format_variant(variant) == name


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.13.0+cpu", MajorMinor(2, 13)),
        ("13.0", MajorMinor(13, 0)),
        ("2.14.0a0", MajorMinor(2, 14)),
    ],
)
def test_first_two_numbers_of_a_version(text, version):
    assert parse_major_minor(text) == version


@pytest.mark.parametrize("text", ["", "2", "v2.1", "2.x"])
def test_a_text_without_two_numbers_is_no_version(text):
    with pytest.raises(ValueError, match=r"expected a version"):
        parse_major_minor(text)
