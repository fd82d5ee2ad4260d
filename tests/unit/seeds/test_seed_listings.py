"""The listings of the seeds are as printed, but for what their patch says, and the patch says little."""

from __future__ import annotations

import ast
import builtins
import difflib
import hashlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SEEDS = ROOT / "examples" / "seeds"
PRINTED = SEEDS / "as_printed"
NAMES = sorted(path.name for path in PRINTED.glob("*.py"))
LOST_BRACES = 4


def edits(name: str) -> list[tuple[str, list[str], list[str]]]:
    """Return what differs: the kind of edit, lines of the print, lines of what runs."""
    printed = (PRINTED / name).read_text().splitlines()
    runs = (SEEDS / name).read_text().splitlines()
    blocks = difflib.SequenceMatcher(None, printed, runs, autojunk=False).get_opcodes()
    return [(kind, printed[a:b], runs[c:d]) for kind, a, b, c, d in blocks if kind != "equal"]


def test_there_are_all_listings() -> None:
    assert NAMES == [
        "activation_validation_example.py",
        "flash_attn.py",
        "gemm.py",
        "one_liner.py",
        "rmsnorm_baseline.py",
        "rmsnorm_benchmark.py",
        "rmsnorm_kernel.py",
    ]
    assert sorted(path.name for path in SEEDS.glob("*.py")) == NAMES


def test_the_print_is_what_was_recorded() -> None:
    recorded = (PRINTED / "SHA256SUMS").read_text()
    found = "".join(
        f"{hashlib.sha256((PRINTED / name).read_bytes()).hexdigest()}  {name}\n" for name in NAMES
    )
    assert found == recorded


def test_the_print_is_in_the_seeds() -> None:
    seeds = sorted((ROOT.parent / "shared" / "seeds").glob("*.txt"))
    if not seeds:
        pytest.skip("the seeds are not beside this checkout; their listings' hashes are checked")
    whole = "\n".join(path.read_text() for path in seeds)
    for name in NAMES:
        assert (PRINTED / name).read_text() in whole, name


def test_the_patch_is_the_whole_difference() -> None:
    lines: list[str] = []
    for name in NAMES:
        printed = (PRINTED / name).read_text().splitlines(keepends=True)
        runs = (SEEDS / name).read_text().splitlines(keepends=True)
        lines += difflib.unified_diff(printed, runs, f"as_printed/{name}", name)
    assert (SEEDS / "seeds.patch").read_text() == "".join(lines)


@pytest.mark.parametrize("name", NAMES)
def test_the_patch_adds_a_header_that_uv_reads(name: str) -> None:
    (kind, _, header), *_ = edits(name)
    assert kind == "insert"
    assert (SEEDS / name).read_text().startswith("\n".join(header))
    assert (header[0], header[-1]) == ("# /// script", "# ///")
    read = tomllib.loads("\n".join(re.sub("^# ?", "", line) for line in header[1:-1]))
    assert set(read) == {"requires-python", "dependencies", "tool"}
    assert [re.match(r"[a-z]+", need)[0] for need in read["dependencies"]] == [
        "kernels",
        "torch",
        "numpy",
    ]
    assert list(read["tool"]["uv"]) == ["sources"]
    place = SEEDS / read["tool"]["uv"]["sources"]["kernels"]["path"]
    project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    assert project["name"] == "kernels"
    assert project["requires-python"] == read["requires-python"]


@pytest.mark.parametrize("name", NAMES)
def test_the_patch_changes_nothing_else(name: str) -> None:
    _, *others = edits(name)
    match name:
        case "rmsnorm_benchmark.py":
            before = [line for _, old, _ in others for line in old]
            after = [line for _, _, new in others for line in new]
            assert len(before) == len(after) == LOST_BRACES
            for old, new in zip(before, after, strict=True):
                assert 'f"' in old
                assert new != old
                assert re.sub(r"[{}]", "", new) == old
        case "gemm.py":
            [(kind, _, prelude)] = others
            assert kind == "insert"
            assert assigned("\n".join(prelude)) >= missing((PRINTED / name).read_text()) != set()
            # The prelude makes tensors, and does nothing that the listing shows.
            tree = ast.parse("\n".join(prelude))
            assert all(isinstance(node, ast.Assign) for node in tree.body)
            assert "gemm" not in names_read(tree)
        case _:
            assert others == []


def assigned(code: str) -> set[str]:
    """Return the names that code binds."""
    nodes = ast.walk(ast.parse(code))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def names_read(tree: ast.AST) -> set[str]:
    """Return the names that code reads."""
    nodes = ast.walk(tree)
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def missing(code: str) -> set[str]:
    """Return the names that code reads and nothing binds."""
    tree = ast.parse(code)
    aliases = {alias.name for node in ast.walk(tree) for alias in getattr(node, "names", [])}
    return names_read(tree) - assigned(code) - aliases - set(dir(builtins))


def test_every_listing_that_prints_has_its_output_stated() -> None:
    outputs = tomllib.loads((SEEDS / "outputs.toml").read_text())
    prints = {name for name in NAMES if "print(" in (PRINTED / name).read_text()}
    assert {name for name in outputs if "/" not in name} == prints
    for patterns in outputs.values():
        assert all(re.compile(pattern, re.MULTILINE) for pattern in patterns)
