"""What a published variant is rebuilt for: its processor, its CUDA, and no other system than this."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.errors import RebuildError
from kernel_builder.rebuild import choose_target
from kernel_builder.settings import Settings, read_settings
from kernel_spec.version import MajorMinor

STABLE = "torch-stable-abi210"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    return read_settings({"PATH": "", "HOME": str(tmp_path)})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Lay out what tells the version of a toolkit."""
    for name, text in (
        ("bin/nvcc", ""),
        ("include/cuda_runtime_api.h", "#define CUDART_VERSION  12040\n"),
        ("lib64/libcudart.so.12", ""),
    ):
        (tmp_path / "cuda" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cuda" / name).write_text(text)
    return tmp_path / "cuda"


@pytest.mark.parametrize(
    ("name", "cpu", "versions"),
    [
        ("torch-cuda", None, ()),
        ("torch-universal", None, ()),
        (f"{STABLE}-cpu-x86_64-linux", "x86_64", ()),
        (f"{STABLE}-cpu-aarch64-linux", "aarch64", ()),
        (f"{STABLE}-cu132-x86_64-linux", "x86_64", (MajorMinor(13, 2),)),
        ("torch213-cxx11-cu130-aarch64-linux", "aarch64", (MajorMinor(13, 0),)),
    ],
)
def test_a_variant_says_what_it_is_built_for(
    settings: Settings, name: str, cpu: str | None, versions: tuple[MajorMinor, ...]
) -> None:
    assert choose_target(settings, name) == replace(settings, cpu=cpu, cuda_versions=versions)


def test_a_variant_for_another_torch_is_rebuilt_with_its_pinned_headers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_builder.environment.find_torch", lambda: None)
    found = choose_target(settings, "torch211-cxx11-cpu-aarch64-linux")
    assert (found.cpu, found.torch_versions) == ("aarch64", (MajorMinor(2, 11),))
    # No headers of it are pinned, so the plan says what there is.
    assert choose_target(settings, "torch28-cxx11-cpu-x86_64-linux").torch_versions == ()


def test_a_toolkit_of_the_user_serves_the_variants_of_its_version(
    settings: Settings, home: Path
) -> None:
    own = replace(settings, cuda_home=home)
    found = choose_target(own, f"{STABLE}-cu124-x86_64-linux")
    assert (found.cuda_home, found.cuda_versions) == (home, ())
    # What another version built is built by that one, where it is pinned.
    for cpu in ("x86_64", "aarch64"):
        found = choose_target(own, f"{STABLE}-cu130-{cpu}-linux")
        assert (found.cuda_home, found.cuda_versions) == (None, (MajorMinor(13, 0),))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "torch213-cpu-aarch64-darwin",
            r"is built on darwin, and this machine has linux: rebuild it on the other$",
        ),
        (
            f"{STABLE}-cu124-x86_64-linux",
            r"CUDA 12\.4, and pinned are 13\.0, .*; name an installed toolkit .*--cuda-home PATH$",
        ),
        (
            f"{STABLE}-cu124-aarch64-linux",
            r"CUDA 12\.4, and pinned .*; no other is used to build for aarch64 on x86_64$",
        ),
    ],
)
def test_what_cannot_be_rebuilt_here_says_why(settings: Settings, name: str, said: str) -> None:
    with pytest.raises(RebuildError, match=said):
        choose_target(settings, name)


def test_a_toolkit_of_another_version_is_named(settings: Settings, home: Path) -> None:
    own = replace(settings, cuda_home=home)
    with pytest.raises(RebuildError, match=rf"CUDA 12\.6, .*; {home} is CUDA 12\.4$"):
        choose_target(own, f"{STABLE}-cu126-x86_64-linux")
    with pytest.raises(RebuildError, match=r"CUDA 12\.4, .* aarch64 on x86_64$"):
        choose_target(own, f"{STABLE}-cu124-aarch64-linux")
