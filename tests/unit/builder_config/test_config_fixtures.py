"""Every golden ``build.toml``: the valid ones mean what is written beside them, the invalid ones
have exactly the faults that are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.config.model import Build, TorchFramework, TorchNoarch, TvmFfiFramework
from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError

GOLDEN = Path(__file__).parents[2] / "fixtures" / "buildtoml"
VALID = sorted((GOLDEN / "valid").glob("*.toml"))
INVALID = sorted((GOLDEN / "invalid").glob("*.toml"))


def compact(**values: Any) -> dict[str, Any]:
    """Leave out what is absent or empty, as the golden files do."""
    return {key: value for key, value in values.items() if value not in (None, (), [], {}, "")}


def bounds(value: Any) -> dict[str, Any]:
    return compact(minver=value.minver, maxver=value.maxver)


def framework(value: TorchFramework | TorchNoarch | TvmFfiFramework) -> dict[str, Any]:
    match value:
        case TorchFramework():
            return compact(
                kind="torch",
                src=list(value.src),
                include=list(value.include),
                pyext=list(value.pyext),
                cxx_flags=list(value.cxx_flags),
                stable_abi={str(kind): text for kind, text in value.stable_abi.items()},
                **bounds(value.torch),
            )
        case TorchNoarch():
            return compact(
                kind="torch-noarch",
                pyext=list(value.pyext),
                cuda_capabilities=list(value.cuda_capabilities),
                rocm_archs=list(value.rocm_archs),
            )
        case TvmFfiFramework():
            return compact(kind="tvm-ffi", src=list(value.src), include=list(value.include))


def normalised(build: Build) -> dict[str, Any]:
    general = build.general
    python = {"all": list(general.depends.python)}
    python |= {str(kind): list(value.python) for kind, value in general.backend_depends.items()}
    components = {
        component.name: {
            "depends": list(component.depends),
            **compact(
                backend=str(component.backend),
                src=list(component.src),
                include=list(component.include),
                archs=list(component.archs),
                backend_flags=list(component.backend_flags),
                cxx_flags=list(component.cxx_flags),
                cuda_minver=component.cuda_minver,
            ),
        }
        for component in build.components
    }
    return {
        "edition": build.edition,
        "general": compact(
            name=general.name,
            module=general.module,
            version=general.version,
            license=general.license,
            backends=[str(kind) for kind in general.backends],
            upstream=general.upstream,
            source=general.source,
            repo_id=None if general.repo_id is None else str(general.repo_id),
            branch=general.branch,
        ),
        "framework": framework(build.framework),
        "components": components,
        **compact(
            python_depends=compact(**python),
            cuda=bounds(general.cuda),
            warnings=list(build.warnings),
        ),
    }


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())["expected"]
    assert normalised(parse_build(path.read_bytes())) == expected


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())["faults"]
    with pytest.raises(ConfigError) as caught:
        parse_build(path.read_bytes())
    error = caught.value
    assert error.exit_code == 2
    found = {(fault.line, fault.path, fault.kind): fault for fault in error.faults}
    assert len(found) == len(error.faults), "one fault is reported twice"
    wanted = {(fault["line"], fault["path"], fault["kind"]): fault for fault in expected}
    must = {key for key, fault in wanted.items() if not fault.get("optional")}
    assert must <= set(found) <= set(wanted)
    for key, fault in wanted.items():
        if key in found and "suggestion" in fault:
            assert found[key].suggestion == fault["suggestion"]


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_each_fault_is_one_line(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_build(path.read_bytes(), "some/build.toml")
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.faults)
    for line, fault in zip(lines, caught.value.faults, strict=True):
        assert line.startswith(f"some/build.toml:{fault.line}: {fault.path}")
    kinds = json.loads((GOLDEN / "kinds.json").read_text())["kinds"]
    assert {fault.kind for fault in caught.value.faults} <= set(kinds)


def test_a_number_is_shown_as_the_file_spells_it() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_build((GOLDEN / "invalid" / "wrong-types.toml").read_bytes())
    [line] = [line for line in caught.value.lines if ": torch.minver: " in line]
    assert "2.10" in line
    assert 'did you mean "2.10"?' in line
