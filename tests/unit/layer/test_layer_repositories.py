"""Kernels as mappings name them: on a hub, on disk, in a lock; layers and functions."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
import torch
from torch import nn

import kernels
from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernels import (
    FuncRepository,
    LayerRepository,
    LocalFuncRepository,
    LocalLayerRepository,
    LockedFuncRepository,
    LockedLayerRepository,
)
from kernels.errors import LayerNotFoundError
from kernels.layer.repository import Repository


@pytest.fixture
def commit(tmp_path, toy, monkeypatch):
    """Publish ``toy`` as ``acme/toy`` on a directory hub; return the commit."""
    root = tmp_path / "hub"
    root.mkdir()
    monkeypatch.setenv("KERNELS_HUB", f"file://{root}")
    files = {path.relative_to(toy).as_posix(): path for path in toy.rglob("*") if path.is_file()}
    return publishing.publish(
        DirectoryHub(root), RepoId("acme", "toy"), files, branch="v1", parent=None
    )


def test_a_layer_of_a_hub(commit):
    for place in ({"version": 1}, {"revision": "v1"}, {"revision": commit}, {}):
        layer = LayerRepository("acme/toy", layer_name="Double", **place).load()
        assert issubclass(layer, nn.Module)
        assert layer.__name__ == "Double"
        # Readers look for more classes beside it.
        assert sys.modules[layer.__module__].Double is layer


def test_nothing_is_asked_before_a_layer_is(monkeypatch):
    monkeypatch.setenv("KERNELS_HUB", "http://127.0.0.1:1")
    LayerRepository("acme/toy", layer_name="Double", version=1)


def test_consumers_give_both_version_and_revision_and_leave_one_none():
    one = LayerRepository(repo_id="acme/toy", layer_name="Double", version=1, revision=None)
    other = LayerRepository(
        repo_id="acme/toy", layer_name="Double", revision="main", version=None,
        trust_remote_code=["acme/toy"], user_agent={"framework": "x"},
    )  # fmt: skip
    assert (str(one), str(other)) == ("acme/toy@v1:Double", "acme/toy@main:Double")
    assert one == LayerRepository("acme/toy", layer_name="Double", version=1, user_agent="y")
    assert len({one, other, LayerRepository("acme/toy", layer_name="Double", version=1)}) == 2
    assert one != FuncRepository("acme/toy", func_name="Double", version=1)


def test_wrong_repositories_are_refused_where_they_are_written():
    with pytest.raises(ValueError, match="give a version or a revision, not both"):
        LayerRepository("acme/toy", layer_name="Double", version=1, revision="main")
    with pytest.raises(ValueError, match="not-an-id"):
        LayerRepository("not-an-id", layer_name="Double")
    with pytest.raises(ValueError, match="expected the path of a kernel"):
        LocalLayerRepository(3, layer_name="Double")
    with pytest.raises(TypeError):
        LayerRepository("acme/toy", "Double")


def test_a_layer_on_disk_by_text_or_path(toy):
    text = LocalLayerRepository(str(toy), layer_name="Double")
    path = LocalLayerRepository(repo_path=toy / "build", layer_name="Double")
    assert text.load().__name__ == path.load().__name__ == "Double"
    assert text == LocalLayerRepository(toy, layer_name="Double")
    # As clients before 0.13 wanted it.
    assert text == LocalLayerRepository(toy, package_name="toy", layer_name="Double")
    assert LocalFuncRepository(toy, package_name="toy", func_name="twice").load()
    assert isinstance(text, Repository)


def test_a_function_as_a_layer(toy, commit):
    x = torch.randn(3)
    for repository in (
        LocalFuncRepository(toy, func_name="twice"),
        FuncRepository("acme/toy", func_name="twice", version=1),
        LocalLayerRepository(toy, layer_name="twice"),
    ):
        layer = repository.load()
        assert repository.load() is layer
        torch.testing.assert_close(layer()(x), 2 * x)


def test_a_function_says_itself_what_it_can_do(write_kernel):
    init = (
        "def f(x):\n    return x\nf.can_torch_compile = True\nf.has_backward = False\n\n"
        "class ops:\n    @staticmethod\n    def g(x):\n        return x\n"
    )
    project = write_kernel("", name="able", init=init)
    layer = LocalFuncRepository(project, func_name="f").load()
    assert (layer.can_torch_compile, layer.has_backward) == (True, False)
    assert not hasattr(LocalFuncRepository(project, func_name="ops.g").load(), "has_backward")


def test_names_that_are_not_there(toy, write_kernel):
    with pytest.raises(LayerNotFoundError, match="did you mean 'twice'") as caught:
        LocalFuncRepository(toy, func_name="twise").load()
    assert isinstance(caught.value, LookupError)
    with pytest.raises(LayerNotFoundError, match=r"'CALLS' of .* is no layer but list"):
        LocalLayerRepository(toy, layer_name="CALLS").load()
    bare = write_kernel("", name="bare", init="VALUE = 1\n")
    with pytest.raises(LayerNotFoundError, match="It has no layers at all"):
        LocalLayerRepository(bare, layer_name="Double").load()
    with pytest.raises(LayerNotFoundError, match="It has no functions at all"):
        LocalFuncRepository(bare, func_name="f").load()


def test_the_report_names_a_kernel_as_the_mapping_does(commit):
    class Plain(nn.Module):
        def forward(self, x):
            return x

    kernels.replace_kernel_forward_from_hub(Plain, "Double")
    found = []
    for place in ({"version": 1}, {"revision": "v1"}, {"version": 1}):
        repository = LayerRepository("acme/toy", layer_name="Double", **place)
        with kernels.use_kernel_mapping({"Double": {"cpu": repository}}):
            model = kernels.kernelize(
                nn.Sequential(Plain()), mode=kernels.Mode.INFERENCE, device="cpu"
            )
        [layer] = kernels.report(model).layers
        found.append(layer.kernel)
        assert layer.commit == commit
    assert found == ["acme/toy@v1:Double"] * 3
    with kernels.use_kernel_mapping({
        "Double": {"cpu": LayerRepository("acme/toy", layer_name="Double", revision=commit)}
    }):  # fmt: skip
        kernels.kernelize(model, mode=kernels.Mode.INFERENCE, device="cpu")
    assert kernels.report(model).layers[0].kernel == f"acme/toy@{commit}:Double"


# Locks -----------------------------------------------------------------------------------------


@pytest.fixture
def lockfile(tmp_path, commit):
    path = tmp_path / "project" / "kernels.lock"
    path.parent.mkdir()
    entry = {"dependency": {"repo-id": "acme/toy", "version": 1}, "lock": {"commit": commit}}
    path.write_text(json.dumps([entry]))
    return path


def test_a_locked_layer(lockfile):
    repository = LockedLayerRepository("acme/toy", lockfile=lockfile, layer_name="Double")
    assert repository.load().__name__ == "Double"
    assert repository == LockedLayerRepository(
        "acme/toy", lockfile=str(lockfile), layer_name="Double"
    )
    function = LockedFuncRepository("acme/toy", lockfile=lockfile, func_name="twice").load()
    assert function()(3) == 6


def test_the_lock_of_the_code_that_writes_the_repository(lockfile, tmp_path, monkeypatch):
    (lockfile.parent / "pyproject.toml").write_text("[project]\nname = 'p'\n")
    module = lockfile.parent / "uses_kernels.py"
    module.write_text(
        "from kernels import LockedLayerRepository\n"
        "def make():\n    return LockedLayerRepository('acme/toy', layer_name='Double')\n"
    )
    monkeypatch.syspath_prepend(str(lockfile.parent))
    import uses_kernels

    assert uses_kernels.make().load().__name__ == "Double"
    assert uses_kernels.make().lockfile == lockfile


def test_a_kernel_that_no_lock_names_is_refused_at_once(lockfile, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="acme/other is not locked"):
        LockedLayerRepository("acme/other", lockfile=lockfile, layer_name="Double")
    with pytest.raises(ValueError, match="cannot be read"):
        LockedLayerRepository("acme/toy", lockfile=tmp_path / "none", layer_name="Double")
    monkeypatch.setenv("KERNELS_LOCK", str(lockfile))
    assert LockedLayerRepository("acme/toy", layer_name="Double").load().__name__ == "Double"


# The package -----------------------------------------------------------------------------------


def test_a_kernel_that_is_gone_falls_back_by_wish(toy):
    class Plain(nn.Module):
        def forward(self, x):
            return x

    kernels.replace_kernel_forward_from_hub(Plain, "Double")
    mapping = {"Double": {"cpu": LocalLayerRepository(toy, layer_name="Double")}}
    shutil.rmtree(toy)
    with kernels.use_kernel_mapping(mapping), pytest.raises(FileNotFoundError):
        kernels.kernelize(nn.Sequential(Plain()), mode=kernels.Mode.INFERENCE, device="cpu")


def test_every_name_for_layers_of_the_published_client_is_there():
    names = [
        "CUDAProperties",
        "Device",
        "KernelizeFallback",
        "ROCMProperties",
        "FuncRepository",
        "LayerRepository",
        "LocalFuncRepository",
        "LocalLayerRepository",
        "LockedFuncRepository",
        "LockedLayerRepository",
        "Mode",
        "kernelize",
        "register_kernel_mapping",
        "replace_kernel_forward_from_hub",
        "use_kernel_forward_from_hub",
        "use_kernel_func_from_hub",
        "use_kernel_mapping",
        "use_kernelized_func",
    ]
    assert [name for name in names if not hasattr(kernels, name)] == []
    assert set(names) <= set(kernels.__all__)
    # Consumers import this module by its path.
    from kernels.layer.mode import Mode

    assert Mode is kernels.Mode


def test_names_that_the_package_lacks_are_told_as_python_does():
    with pytest.raises(AttributeError, match="module 'kernels' has no attribute 'kernelise'"):
        kernels.kernelise  # noqa: B018
    assert set(kernels.__all__) <= set(dir(kernels))
