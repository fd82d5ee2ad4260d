"""The check of per-torch libraries' sources as a build meets it: which are read, what is refused and what is told."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_builder import per_torch_check
from kernel_builder.errors import CheckError
from kernel_builder.per_torch_check import check_parts, judge_parts, name_part
from kernel_builder.planned import VariantBuild
from kernel_builder.registrations import Registration, Registrations
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.variant import parse_variant
from kernel_spec.version import MajorMinor, parse_major_minor

RELEASES = (MajorMinor(2, 11), MajorMinor(2, 12))
MAIN = Registrations(
    calls=(
        Registration(
            source="b.cpp",
            namespace="_k",
            name="norm",
            schema="norm(Tensor x) -> Tensor",
            defines=True,
        ),
        Registration(source="b.cpp", namespace="_k", name="norm", key="CUDA"),
    )
)
NODE = Registration(source="node.cpp", namespace="_k", name="norm", key="AutogradCUDA")
WRONG = replace(NODE, name="nrom")


def build_for(cpu: str) -> VariantBuild:
    made = VariantBuild(
        variant=parse_variant(f"torch-stable-abi210-cpu-{cpu}-linux"),
        backend=BackendKind.CPU,
        op_id="_k",
        module="k",
        package=("__init__.py",),
        name="k",
        version=1,
        license="MIT",
    )
    parts = tuple(
        replace(made, torch=TorchBuild(f"{release}.0", release), is_part=True)
        for release in RELEASES
    )
    return replace(made, per_torch=parts)


@pytest.fixture
def check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[tuple[str, ...], list[Path]]]:
    """Check a variant whose main library and libraries register what a test says; return what was read, too."""

    def check(
        *found: Registration,
        text: str = "",
        installed: str = "2.13",
        cpu: str = "x86_64",
        parts: bool = True,
    ) -> tuple[tuple[str, ...], list[Path]]:
        build = build_for(cpu)
        read = [tmp_path / "src"]
        for part in build.per_torch:
            stage = tmp_path / name_part(part) / "src"
            stage.mkdir(parents=True)
            (stage / "node.cpp").write_text(text)
        answers = iter(found)
        asked: list[Path] = []

        def read_registrations(_: Any, __: Any, *, stage: Path, settings: Any) -> Registrations:
            del settings
            asked.append(stage)
            return MAIN if stage == read[0] else Registrations(calls=(next(answers),))

        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(per_torch_check, "read_registrations", read_registrations)
        torch = SimpleNamespace(build=TorchBuild(f"{installed}.0", parse_major_minor(installed)))
        environment = cast("Any", SimpleNamespace(torch=torch))
        job = cast(
            "Any",
            SimpleNamespace(
                build=build if parts else replace(build, per_torch=()), name="v", settings=None
            ),
        )
        return check_parts(job, environment, [environment] * len(RELEASES), tmp_path), asked

    return check


def test_the_same_sources_are_read_once(check: Any, tmp_path: Path) -> None:
    _, asked = check(NODE)
    assert asked == [tmp_path / "src", tmp_path / "torch-2.11" / "src"]


def test_sources_with_conditions_are_judged_for_each_torch(check: Any) -> None:
    with pytest.raises(CheckError) as caught:
        check(NODE, WRONG, text="#if TORCH_VERSION_MINOR > 11\n")
    [finding] = caught.value.findings
    assert finding.symbol == "nrom"
    assert "it has norm" in finding.fix


def test_a_fault_of_all_of_them_is_told_once(check: Any) -> None:
    with pytest.raises(CheckError, match=r"v: 1 check\(s\) failed"):
        check(WRONG, WRONG, text="#if 1\n")


def test_what_was_not_loaded_is_told(check: Any) -> None:
    [text], _ = check(NODE)
    assert text.startswith("its libraries for torch 2.11, 2.12 have all their symbols there")
    assert text.endswith("since another torch is installed")


def test_the_library_of_the_installed_torch_was_loaded(check: Any) -> None:
    [text], _ = check(NODE, installed="2.12")
    assert text.startswith("its libraries for torch 2.11 have all")


def test_a_library_of_another_processor_was_not(check: Any) -> None:
    [text], _ = check(NODE, installed="2.12", cpu="aarch64")
    assert text.startswith("its libraries for torch 2.11, 2.12 have all")
    assert text.endswith("since they are for another processor")


def test_a_variant_without_them_is_told_nothing(check: Any) -> None:
    assert check(parts=False) == ((), [])


def test_code_without_a_key_is_no_second_code(check: Any) -> None:
    """What the main library defines has no key either, and is no code."""
    assert not list(judge_parts("_k", MAIN, Registrations(calls=(replace(NODE, key=None),))))
