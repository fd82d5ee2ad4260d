"""Small inputs of public reports that no other file of tests has; `tests/user_pain.toml` lists all of them."""

from __future__ import annotations

import ctypes
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import kernels
import kernels.load
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.compat import choose
from kernel_spec.version import MajorMinor
from kernels import system as system_module
from kernels.errors import RepoNotFoundError, TrustError
from kernels.system import detect, read_version_text

ROOT = Path(__file__).parents[3]
PACKAGES = {"click", "filelock", "huggingface-hub", "packaging", "pyelftools"}


def test_a_name_that_is_a_models_is_told_from_one_that_is_nothing(web):
    """kernels 632 and 757: kernels that were published as models are 404 as kernels."""
    web.fault = lambda path: (
        (200, {}, b'{"id": "acme/old"}') if path == "/api/models/acme/old" else None
    )
    with pytest.raises(RepoNotFoundError, match="has a model of that name"):
        kernels.get_kernel("acme/old")
    with pytest.raises(RepoNotFoundError) as caught:
        kernels.get_kernel("acme/none")
    assert "model" not in str(caught.value)


def test_a_torch_of_amds_own_repository_is_the_torch_that_it_says(tmp_path, monkeypatch):
    """kernel-builder 246: its local version has five parts, and its HIP a build number."""
    place = tmp_path / "torch"
    place.mkdir()
    (place / "__init__.py").write_text("")
    (place / "version.py").write_text(
        "__version__ = '2.9.1+rocm7.1.1.lw.git351ff442'\n"
        "cuda: Optional[str] = None\nhip: Optional[str] = '7.1.52802-26aae437f6'\n"
    )
    assert read_version_text(place / "version.py")["hip"] == "7.1.52802-26aae437f6"
    monkeypatch.delitem(system_module.sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = replace(detect(), free_threaded=False)
    assert found.torch.release == MajorMinor(2, 9)
    assert not found.torch.prerelease
    assert found.backend == Backend(BackendKind.ROCM, MajorMinor(7, 1))
    name = f"torch29-cxx11-rocm71-{found.cpu}-{found.os}"
    assert choose(found, [name, name.replace("71", "70")]).name == name


def test_a_runtime_library_without_a_driver_is_no_gpu(monkeypatch):
    """bitsandbytes 1559: a login node has the CUDA runtime on its path and no GPU."""

    def load(name, *_args, **_kwargs):
        if name == "libcuda.so.1":
            raise OSError("no driver")
        return ctypes.pythonapi

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(system_module, "_detect_torch", lambda: (None, Backend(BackendKind.CPU)))
    monkeypatch.setattr(system_module, "_detect_tvm_ffi", lambda: MajorMinor(0, 1))
    assert detect().backend == Backend(BackendKind.CPU)


def test_the_cache_holds_no_links(publisher, cache):
    """huggingface_hub 4915: asking whether links can be made fails on Windows with threads."""
    publisher.publish("acme/toy")
    kernels.get_kernel("acme/toy")
    paths = [Path(folder) / name for folder, dirs, files in os.walk(cache) for name in dirs + files]
    assert paths
    assert not [path for path in paths if path.is_symlink()]


def test_records_that_say_the_same_are_not_written_again(web, publisher, cache, monkeypatch):
    """llm-compressor 2984: refs were truncated and written at every call, and readers saw them empty."""
    publisher.publish("acme/toy")
    monkeypatch.setenv("KERNELS_REF_TTL", "600")
    kernels.get_kernel("acme/toy")
    before = {path: path.stat().st_mtime_ns for path in (cache / "refs").rglob("*.json")}
    for _ in range(3):
        kernels.load.forget()
        kernels.get_kernel("acme/toy")
    assert {path: path.stat().st_mtime_ns for path in (cache / "refs").rglob("*.json")} == before


def test_a_name_from_a_data_file_runs_nothing(web, publisher, tmp_path):
    """CVE-2026-4372: a model's config.json named a repository, and it was imported."""
    marker = tmp_path / "ran"
    publisher.publish(
        "stranger/attention",
        variants={"torch-cpu": {"__init__.py": f"open({str(marker)!r}, 'w')\n"}},
    )
    config = {"attn_implementation": "stranger/attention"}
    with pytest.raises(TrustError, match="stranger"):
        kernels.get_kernel(config["attn_implementation"], version=1)
    assert not marker.exists()
    fetched = [request for request in web.requests if "/resolve/" in request]
    assert all(request.endswith("/metadata.json") for request in fetched)


def test_the_loader_asks_for_few_packages_and_for_no_version_of_torch():
    """xformers 752, trl 5513: installing a loader replaced the user's torch, or moved other packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {Requirement(text).name: Requirement(text) for text in project["dependencies"]}
    assert {name.replace("_", "-") for name in wanted} == PACKAGES
    for requirement in wanted.values():
        assert not [each for each in requirement.specifier if each.operator in {"==", "~=", "==="}]
