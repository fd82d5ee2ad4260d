"""What the command line says of what to build: backends, variants, toolkits, capabilities."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.cli.choice import Choice, apply_choice, read_archs
from kernel_builder.cli.list_variants import list_variants
from kernel_builder.cli.plan import plan
from kernel_builder.errors import ArchError, SelectionError, ToolchainError
from kernel_builder.settings import read_settings
from kernel_builder.toolchain import driver
from kernel_spec.errors import UsageError
from kernel_spec.version import MajorMinor

KIT = Path(__file__).parents[2] / "kits" / "two_cuda"


def names(*arguments: str) -> list[str]:
    done = CliRunner().invoke(list_variants, [str(KIT), *arguments], catch_exceptions=False)
    return done.stdout.split()


@pytest.fixture(autouse=True)
def _any_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


def test_each_toolkit_gives_a_variant() -> None:
    pytest.importorskip("torch")
    one = "torch-stable-abi210-cu130-x86_64-linux"
    assert names() == [one]
    assert names("--cuda", "13.2") == [one.replace("130", "132")]
    assert names("--cuda", "13.2", "--cuda", "13.0") == [one, one.replace("130", "132")]
    assert names("--all") == [one, one.replace("130", "132"), one.replace("130", "133")]


def test_a_variant_by_name_chooses_its_toolkit() -> None:
    pytest.importorskip("torch")
    name = "torch-stable-abi210-cu132-x86_64-linux"
    assert names("--variant", name) == [name]
    with pytest.raises(SelectionError, match="--matrix"):
        names("--variant", name, "--cuda", "13.0")
    settings = read_settings({"HOME": "/nowhere"})
    choice = Choice(variants=("torch-stable-abi210-cpu-aarch64-linux", "no-variant"))
    found, selection = apply_choice(settings, choice)
    assert selection.variants == frozenset(choice.variants)
    assert (found.cpu, found.cuda_versions) == ("aarch64", ())


def test_each_torch_gives_a_variant_of_the_full_interface() -> None:
    full = KIT.parent / "add_cuda_full"

    def list_full(*arguments: str) -> list[str]:
        done = CliRunner().invoke(list_variants, [str(full), *arguments], catch_exceptions=False)
        return done.stdout.split()

    one = "torch211-cxx11-cu130-x86_64-linux"
    assert list_full("--torch", "2.11") == [one]
    assert list_full("--torch", "2.11.0", "--torch", "2.11", "--cuda", "13.2") == [
        one.replace("130", "132")
    ]
    assert list_full("--variant", one) == [one]
    with pytest.raises(SelectionError, match=r"--torch 2\.8: its headers are not pinned"):
        list_full("--torch", "2.8")
    both = [one.replace("211", "212"), one]
    for several in ("2.11,2.12", "2.12 2.11", "2.11; 2.12"):
        assert sorted(list_full("--torch", several)) == sorted(both)
    for odd in ("new", "2.11rc1", "2.11-2.13", "2.11+cu130", "2", "2.1\N{FULLWIDTH DIGIT ONE}"):
        with pytest.raises(UsageError, match=r"--torch: expected a version such as 2\.11, found"):
            list_full("--torch", odd)
    with pytest.raises(UsageError, match=r"--cuda: expected a version such as 13\.0, found '13'"):
        list_full("--cuda", "13")
    with pytest.raises(UsageError, match="--torch: nothing is named"):
        list_full("--torch", ",")
    with pytest.raises(SelectionError, match="stable ABI"):
        names("--torch", "2.11")


def test_unknown_toolkits_and_capabilities_are_refused() -> None:
    pytest.importorskip("torch")
    with pytest.raises(SelectionError, match="pinned"):
        names("--cuda", "12.6")
    with pytest.raises(ArchError, match="--arch"):
        names("--arch", "1.0")


def test_capabilities_are_planned_and_what_is_dropped_is_said() -> None:
    pytest.importorskip("torch")
    done = CliRunner().invoke(plan, [str(KIT), "--arch", "8.0"], catch_exceptions=False)
    rows = {line.split()[1]: line.split()[4:] for line in done.stdout.splitlines() if ".cu" in line}
    assert rows["csrc/old/old_step.cu"] == ["8.0"]
    assert rows["csrc/new/new_step.cu"] == ["9.0a", "10.0+PTX"]
    assert "none of its cuda-capabilities serves 8.0" in done.stdout
    assert "[kernel.newest] is left out" in done.stdout


def test_options_that_exclude_each_other() -> None:
    settings = read_settings({"HOME": "/nowhere"})
    for choice in (
        Choice(cuda_home=Path("/cuda"), cuda_versions=("13.0",)),
        Choice(cuda_home=Path("/cuda"), every=True),
        Choice(cuda_versions=("13.0",), every=True),
    ):
        with pytest.raises(UsageError, match="exclude each other"):
            apply_choice(settings, choice)
    with pytest.raises(UsageError, match="--cuda: expected a version"):
        apply_choice(settings, Choice(cuda_versions=("new",)))
    found, _ = apply_choice(settings, Choice(cuda_versions=("13.2", "13.2.1")))
    assert found.cuda_versions == (MajorMinor(13, 2),)


def test_native_asks_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "read_device_archs", lambda: ("8.0", "9.0"))
    assert read_archs(["native", "9.0 ", "10.0a,12.0; 12.1"]) == (
        "8.0",
        "9.0",
        "10.0a",
        "12.0",
        "12.1",
    )

    for nothing in ("", " ;"):
        with pytest.raises(UsageError, match="nothing is named"):
            read_archs(["9.0", nothing])

    def fail() -> tuple[str, ...]:
        raise ToolchainError("no driver")

    monkeypatch.setattr(driver, "read_device_archs", fail)
    with pytest.raises(ToolchainError):
        read_archs(["native"])
