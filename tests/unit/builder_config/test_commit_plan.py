"""What one commit does to a branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.commit_plan import (
    LocalFile,
    RemoteBranch,
    format_plan,
    plan_commit,
    read_local_file,
)
from kernel_spec.wire import TreeFile


def local(path: str, content: str = "same") -> LocalFile:
    return LocalFile(path=path, place=Path(path), size=len(content), sha256=content, oid=content)


def remote(path: str, content: str = "same", *, hashed: bool = True) -> TreeFile:
    sha256 = content if hashed else None
    return TreeFile(path=path, size=len(content), oid=content, sha256=sha256)


def branch(*files: TreeFile) -> RemoteBranch:
    return RemoteBranch(name="v1", commit="c" * 40, files=files)


def test_a_new_branch_takes_everything() -> None:
    plan = plan_commit(RemoteBranch(name="v1", commit=None), [local("README.md")])
    assert [file.path for file in plan.add] == ["README.md"]
    assert "v1 (new): 1 to add" in format_plan(plan)


@pytest.mark.parametrize("hashed", [True, False])
def test_equal_bytes_stay(hashed: bool) -> None:
    held = branch(remote("a", hashed=hashed), remote("b", "other", hashed=hashed))
    plan = plan_commit(held, [local("a"), local("b")])
    assert (plan.keep, [file.path for file in plan.change]) == (("a",), ["b"])
    assert not plan.is_empty
    assert plan_commit(held, [local("a")]).is_empty


def test_a_variant_is_replaced_as_a_whole() -> None:
    held = branch(remote("build/torch-cpu/old.py"), remote("build/torch-cpu/__init__.py"))
    plan = plan_commit(held, [local("build/torch-cpu/__init__.py")])
    assert plan.delete == ("build/torch-cpu/old.py",)


def test_variants_that_are_not_built_stay_unless_pruned() -> None:
    held = branch(remote("build/torch-cuda/a.py"), remote("build/torch-cuda/b.py"), remote("notes"))
    files = [local("build/torch-cpu/a.py")]
    plan = plan_commit(held, files)
    assert (plan.stale, plan.delete) == (("torch-cuda",), ())
    assert "torch-cuda is on the branch and not built here" in format_plan(plan)
    pruned = plan_commit(held, files, prune=True)
    assert pruned.delete == ("build/torch-cuda/a.py", "build/torch-cuda/b.py")
    assert pruned.keep == ("notes",)
    assert "not built here" not in format_plan(pruned)


def test_benchmarks_stay_unless_pruned_or_replaced() -> None:
    held = branch(
        remote("benchmarks/benchmark_old.py"),
        remote("benchmarks/benchmark.py", "published"),
        remote("benchmarks/data.json"),
    )
    files = [local("build/torch-cpu/a.py"), local("benchmarks/benchmark.py", "mine")]
    plan = plan_commit(held, files)
    assert (plan.delete, plan.change) == ((), ())
    assert plan.withheld == ("benchmarks/benchmark.py",)
    assert "benchmark.py is published with other bytes; it stays" in format_plan(plan)
    assert plan_commit(held, files, prune=True).delete == ("benchmarks/benchmark_old.py",)
    replaced = plan_commit(held, files, replace=True)
    assert [file.path for file in replaced.change] == ["benchmarks/benchmark.py"]


@pytest.mark.parametrize(
    "held",
    [
        branch(remote("build/torch-cpu/a.py", "other")),
        branch(remote("build/torch-cpu/a.py"), remote("build/torch-cpu/more.py")),
        branch(remote("build/torch-cpu/more.py")),
    ],
    ids=["changed", "less", "more"],
)
def test_a_published_variant_with_other_bytes_is_differing(held: RemoteBranch) -> None:
    assert plan_commit(held, [local("build/torch-cpu/a.py")]).differing == ("torch-cpu",)


def test_a_variant_that_is_the_same_or_new_is_not_differing() -> None:
    held = branch(remote("build/torch-cpu/a.py"), remote("build/torch-xpu/a.py"))
    files = [local("build/torch-cpu/a.py"), local("build/torch-cuda/a.py")]
    assert plan_commit(held, files, prune=True).differing == ()


def test_a_card_alone_deletes_nothing() -> None:
    held = branch(remote("build/torch-cpu/a.py"), remote("benchmarks/benchmark.py"))
    plan = plan_commit(held, [local("README.md")], prune=True)
    assert (plan.delete, plan.stale) == ((), ())


PATHS = st.sampled_from(
    ["README.md", "build/a/x", "build/a/y", "build/b/x", "benchmarks/benchmark.py", "other"]
)
TREES = st.dictionaries(PATHS, st.sampled_from(["one", "two"]))


@given(TREES, TREES, st.booleans(), st.booleans())
def test_the_branch_then_holds_the_files_and_a_repeat_does_nothing(
    here: dict[str, str], there: dict[str, str], prune: bool, replace: bool
) -> None:
    files = [local(path, content) for path, content in here.items()]
    held = branch(*(remote(*each) for each in there.items()))
    plan = plan_commit(held, files, prune=prune, replace=replace)
    assert not (replace and plan.withheld)
    after = {path: there[path] for path in plan.keep}
    after |= {file.path: file.sha256 for file in (*plan.add, *plan.change)}
    wanted = {path: text for path, text in here.items() if path not in plan.withheld}
    assert wanted.items() <= after.items()
    assert set(after) | set(plan.delete) == set(here) | set(there)
    held = branch(*(remote(*each) for each in after.items()))
    again = plan_commit(held, files, prune=prune, replace=replace)
    assert again.is_empty
    assert again.differing == ()


def test_a_file_is_hashed_as_git_and_as_lfs_hash_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hello\n")
    file = read_local_file("f", tmp_path / "f")
    assert file.oid == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert file.sha256.startswith("5891b5b522d5df08")
    assert file.size == 6


def test_sources_go_with_their_version_like_a_variant() -> None:
    held = branch(remote("src/build.toml"), remote("src/old.cpp"), remote("build/torch-cpu/a.py"))
    sent = [local("src/build.toml"), local("src/new.cpp"), local("build/torch-cpu/a.py")]
    plan = plan_commit(held, sent)
    assert (plan.delete, [file.path for file in plan.add]) == (("src/old.cpp",), ["src/new.cpp"])
    assert plan.differing == ("src",), "what is published stays unless that is asked for"
    without = plan_commit(held, [local("build/torch-cpu/a.py")])
    assert without.is_empty
    assert "src is on the branch and not sent; it stays" in format_plan(without)
    pruned = plan_commit(held, [local("build/torch-cpu/a.py")], prune=True)
    assert pruned.delete == ("src/build.toml", "src/old.cpp")


def test_a_new_version_does_not_begin_with_the_sources_of_an_old_one() -> None:
    start = RemoteBranch(
        name="v2",
        commit=None,
        files=(remote("src/build.toml"), remote("README.md")),
        start="c" * 40,
    )
    plan = plan_commit(start, [local("build/torch-cpu/a.py")])
    assert (plan.delete, plan.keep) == (("src/build.toml",), ("README.md",))
