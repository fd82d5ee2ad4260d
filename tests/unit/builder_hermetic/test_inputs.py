from pathlib import Path

import pytest

from kernel_builder.inputs import (
    SystemHeaders,
    find_foreign,
    identify_cuda_headers,
    walk_cuda_headers,
)

SYSTEM = SystemHeaders(
    own=("/usr/include/c++/12", "/usr/lib/gcc/x86_64-linux-gnu/12/include"),
    shared=("/usr/include/x86_64-linux-gnu", "/usr/include"),
)


@pytest.mark.parametrize(
    "path",
    [
        "csrc/add.h",
        "../gen/registration.h",
        "/site/torch/include/ATen/ATen.h",
        "/usr/include/c++/12/vector",
        "/usr/lib/gcc/x86_64-linux-gnu/12/include/immintrin.h",
        "/usr/include/stdio.h",
        "/usr/include/x86_64-linux-gnu/bits/types.h",
        "/usr/include/linux/futex.h",
        "/usr/include/x86_64-linux-gnu/../x86_64-linux-gnu/sys/types.h",
    ],
)
def test_inputs(path: str) -> None:
    stage = Path("/w/src")
    roots = [stage, Path("/w/gen"), Path("/site/torch/include")]
    assert find_foreign([path], stage=stage, roots=roots, system=SYSTEM) == ()


@pytest.mark.parametrize(
    "path",
    [
        "/usr/include/zlib.h",
        "/usr/include/eigen3/Eigen/Core",
        "/usr/include/x86_64-linux-gnu/cblas.h",
        "/usr/local/include/stdio.h",
        "/site/torch/version.py",
        "../../elsewhere/x.h",
        "../obj/000-x.o",
        "/w/src-other/x.h",
        # glibc has no directory of this name, so the file of it says nothing.
        "/usr/include/stdio.h/x.h",
    ],
)
def test_no_inputs(path: str) -> None:
    stage = Path("/w/src")
    roots = [stage, Path("/w/gen"), Path("/site/torch/include")]
    assert find_foreign([path], stage=stage, roots=roots, system=SYSTEM) == (path,)


def test_a_root_may_be_spelt_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = find_foreign(
        [str(tmp_path / "real" / "a.h"), str(tmp_path / "link" / "a.h")],
        stage=tmp_path,
        roots=[tmp_path / "link"],
        system=SYSTEM,
    )
    assert found == ()


@pytest.mark.parametrize(
    "name", ["cuda_fp16.hpp", "crt/host_config.h", "cub/cub.cuh", "cublas_v2.h"]
)
def test_headers_of_a_toolkit_among_all_others_are_inputs_where_it_is_built_with(name: str) -> None:
    stage = Path("/w/src")
    paths = [f"/usr/include/{name}", "/usr/include/stdio.h"]
    assert find_foreign(paths, stage=stage, roots=[stage], system=SYSTEM, cuda=True) == ()
    assert find_foreign(paths, stage=stage, roots=[stage], system=SYSTEM) == (paths[0],)
    others = ["/usr/include/zlib.h", "/usr/include/curl/curl.h", "/usr/include/npth.h"]
    found = find_foreign(others, stage=stage, roots=[stage], system=SYSTEM, cuda=True)
    assert found == tuple(others)


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """Lay out headers of a toolkit, one in a package that a link leads to, and one of another package."""
    root = tmp_path / "include"
    for name in ("cuda_runtime.h", "crt/host_config.h", "zlib.h", "eigen3/Core"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    cub = tmp_path / "elsewhere" / "cub"
    cub.mkdir(parents=True)
    (cub / "cub.cuh").write_text("cub")
    (root / "cub").symlink_to(cub)
    (cub / "itself").symlink_to(cub)
    (root / "crt" / "dangling.h").symlink_to("nowhere.h")
    return root


def test_the_headers_of_a_toolkit_wherever_links_lead(include: Path) -> None:
    found = [Path(each) for each in walk_cuda_headers(include, shared=False)]
    names = ["crt/host_config.h", "cub/cub.cuh", "cuda_runtime.h", "eigen3/Core", "zlib.h"]
    assert [path.relative_to(include).as_posix() for path in found] == names
    found = [Path(each) for each in walk_cuda_headers(include, shared=True)]
    names = ["crt/host_config.h", "cub/cub.cuh", "cuda_runtime.h"]
    assert [path.relative_to(include).as_posix() for path in found] == names


def test_a_toolkit_changes_with_each_of_its_headers(include: Path) -> None:
    before = identify_cuda_headers(include, shared=True)
    (include / "zlib.h").write_text("another one")
    assert identify_cuda_headers(include, shared=True) == before
    assert identify_cuda_headers(include, shared=False) != before
    for name in ("cub/cub.cuh", "crt/new.h", "crt/host_config.h"):
        (include / name).write_text("a longer text than before")
        after = identify_cuda_headers(include, shared=True)
        assert after != before
        before = after
    (include / "crt" / "new.h").unlink()
    assert identify_cuda_headers(include, shared=True) != before
