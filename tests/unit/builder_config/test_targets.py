"""Which components a CUDA toolkit compiles, and for what."""

from dataclasses import replace

import pytest

from kernel_builder.config.model import (
    Build,
    Component,
    General,
    TorchFramework,
    VersionBounds,
)
from kernel_builder.errors import ArchError
from kernel_builder.known import read_known
from kernel_builder.targets import CudaChoice, choose_cuda
from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor

CUDA_13 = MajorMinor(13, 0)
CPU = Component(name="c", backend=BackendKind.CPU, depends=(), src=("c.cpp",))
ANY = Component(name="any", backend=BackendKind.CUDA, depends=(), src=("a.cu",))
HOPPER = replace(ANY, name="hopper", src=("h.cu",), archs=("9.0a",))
BUILD = Build(
    edition=5,
    general=General(name="k", version=1, license=None, backends=(BackendKind.CUDA,)),
    framework=TorchFramework(),
    components=(ANY, HOPPER, CPU),
)


def choose(
    *components: Component,
    build: Build = BUILD,
    toolkit: MajorMinor = CUDA_13,
    asked: tuple[str, ...] = (),
) -> CudaChoice:
    found = choose_cuda(build, components, toolkit, asked=asked)
    assert isinstance(found, CudaChoice), found
    return found


def archs(choice: CudaChoice) -> dict[str, tuple[str, ...]]:
    return {each.name: each.archs for each in choice.components}


def test_each_component_has_its_own_list() -> None:
    found = choose(ANY, HOPPER, CPU)
    assert archs(found) == {
        "any": read_known().list_cuda_archs(CUDA_13),
        "hopper": ("9.0a",),
        "c": (),
    }
    assert not found.notes


def test_what_is_asked_for_takes_the_place_of_the_list() -> None:
    found = choose(ANY, HOPPER, asked=("9.0",))
    assert archs(found) == {"any": ("9.0",), "hopper": ("9.0a",)}
    # Natural order, each once, and capabilities that the default list leaves out.
    assert archs(choose(ANY, asked=("10.3a", "8.0+PTX", "10.3a"))) == {"any": ("8.0+PTX", "10.3a")}


def test_a_component_that_serves_nothing_of_it_keeps_its_own() -> None:
    found = choose(ANY, HOPPER, asked=("8.0",))
    assert archs(found) == {"any": ("8.0",), "hopper": ("9.0a",)}
    assert found.notes == (
        "[kernel.hopper]: none of its cuda-capabilities serves 8.0, so all of them are compiled",
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [("90", "is no capability"), ("6.0", r"CUDA 13\.0 does not compile for 6\.0")],
)
def test_what_cannot_be_compiled_is_refused(asked: str, message: str) -> None:
    with pytest.raises(ArchError, match=message):
        choose(ANY, asked=("9.0", asked))


def test_all_faults_of_what_is_asked_for_come_at_once() -> None:
    with pytest.raises(ArchError) as caught:
        choose(ANY, asked=("x", "5.0"))
    assert len(str(caught.value).splitlines()) == 2


def test_a_component_for_newer_toolkits_is_left_out_and_named() -> None:
    newer = replace(HOPPER, cuda_minver="13.2")
    found = choose(ANY, newer, CPU)
    assert list(archs(found)) == ["any", "c"]
    assert found.notes == (
        "[kernel.hopper] is left out: its cuda-minver is 13.2, and this is cuda 13.0",
    )
    assert list(archs(choose(ANY, newer, toolkit=MajorMinor(13, 2)))) == ["any", "hopper"]
    # Compared by major and minor alone.
    assert list(archs(choose(replace(ANY, cuda_minver="13.0.88")))) == ["any"]
    refusal = choose_cuda(BUILD, (newer, CPU), CUDA_13)
    assert refusal == "needs CUDA 13.2 or newer (cuda-minver of every component), found 13.0"


@pytest.mark.parametrize(
    ("bounds", "fits"),
    [
        (VersionBounds(minver="12.8"), True),
        (VersionBounds(maxver="13.0"), True),
        (VersionBounds(minver="13.1"), False),
        (VersionBounds(maxver="12.9"), False),
    ],
)
def test_the_bounds_of_the_project_hold(bounds: VersionBounds, *, fits: bool) -> None:
    build = replace(BUILD, general=replace(BUILD.general, cuda=bounds))
    assert isinstance(choose_cuda(build, (ANY,), CUDA_13), CudaChoice) is fits


def test_nothing_left_names_what_was_dropped() -> None:
    with pytest.raises(
        ArchError, match=r"\[kernel\.hopper\]: cuda 13\.0 compiles none .*\n  10\.3a"
    ):
        choose(replace(HOPPER, archs=("10.3a",)))


@pytest.mark.parametrize(
    ("toolkit", "arch", "said"),
    [
        (
            CUDA_13,
            "9.0f",
            r"for 9\.0f; expected some of 7\.5 .*, with a from 9\.0 on and f from 10\.0 on$",
        ),
        (CUDA_13, "8.0a", r"does not compile for 8\.0a"),
        (MajorMinor(12, 8), "10.0f", r"does not compile for 10\.0f; .*, with a from 9\.0 on$"),
        (CUDA_13, "sm_90a", r'"sm_90a" is no capability; did you mean "9\.0a"\?'),
        (CUDA_13, "100", r'"100" is no capability; did you mean "10\.0"\?'),
        (CUDA_13, "hopper", r'"hopper" is no capability; write it like 9\.0, 9\.0a'),
    ],
)
def test_what_no_toolkit_has_is_refused_before_the_compiler_is(
    toolkit: MajorMinor, arch: str, said: str
) -> None:
    with pytest.raises(ArchError, match=said):
        choose(ANY, toolkit=toolkit, asked=(arch,))


def test_a_kind_of_code_that_a_toolkit_lacks_leaves_the_others() -> None:
    family = replace(ANY, archs=("9.0", "10.0f", "10.0"))
    assert archs(choose(family)) == {"any": ("9.0", "10.0f")}
    older = choose(family, toolkit=MajorMinor(12, 8))
    assert archs(older) == {"any": ("9.0", "10.0")}
    assert older.notes == (
        "[kernel.any]: 10.0f is not compiled: the toolkit has no code of that kind for it",
    )
    with pytest.raises(ArchError, match="compiles none of its cuda-capabilities"):
        choose(replace(ANY, archs=("8.0a",)))
