from pathlib import Path

import pytest

from kernel_builder.check.variant import find_variants
from kernel_builder.errors import ProjectError


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "metadata.json").write_text("{}")


def test_a_project_its_build_directory_and_one_variant(tmp_path: Path) -> None:
    build = tmp_path / "build"
    make(build, "torch-cuda", "torch-cpu")
    (build / "notes").mkdir()
    both = (build / "torch-cpu", build / "torch-cuda")
    assert find_variants(tmp_path) == both
    assert find_variants(build) == both
    assert find_variants(build / "torch-cpu") == (build / "torch-cpu",)


def test_nothing_built_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"no variant there.*kernel-builder build"):
        find_variants(tmp_path)
