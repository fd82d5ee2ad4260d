"""The modules of kernels in other processes, and beside installed modules of the same name."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernel_spec.metadata import KernelDependency
from kernels.errors import CacheError


def in_another_process(data, **environ):
    """Unpickle a function in a process that has not even imported kernels, and call it."""
    import os

    code = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))(21))"
    source = str(Path(kernels.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code, data.hex()],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source, **environ},
    )


def test_a_pickled_function_works_in_another_process(publisher):
    publisher.publish("acme/toy")
    toy = kernels.get_kernel("acme/toy")
    done = in_another_process(pickle.dumps(toy.double))
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_with_what_its_kernel_needs(publisher):
    publisher.publish("bob/base")
    source = "from kernels import get_kernel_dep\n\ndef f(x):\n    return get_kernel_dep('bob/base').double(x)\n"
    publisher.publish(
        "acme/top",
        variants={"torch-cpu": {"__init__.py": source}},
        needs=(KernelDependency(repo_id="bob/base", version=1),),
    )
    done = in_another_process(pickle.dumps(kernels.get_kernel("acme/top").f))
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_of_a_kernel_at_a_path_only_where_the_settings_name_it(make_variant, tmp_path):
    path = make_variant(tmp_path / "torch-cpu")
    data = pickle.dumps(kernels.get_local_kernel(path).double)
    done = in_another_process(data)
    assert done.returncode == 1
    assert "Load the kernel in this process first" in done.stderr
    done = in_another_process(data, LOCAL_KERNELS=f"acme/toy={path}")
    assert done.stdout == "42\n", done.stderr


def test_a_changed_copy_is_not_found_again(publisher):
    publisher.publish("acme/toy")
    toy = kernels.get_kernel("acme/toy")
    data = pickle.dumps(toy.double)
    Path(toy.__file__).write_text("def double(x):\n    return 'evil'\n")
    done = in_another_process(data)
    assert done.returncode == 1
    assert "evil" not in done.stdout
    assert f"{toy.__file__}: hash-mismatch" in done.stderr


@pytest.mark.parametrize("refused", ["variants", "variants/*/manifest.json"])
@pytest.mark.usefixtures("ordinary_user")
def test_what_cannot_be_looked_into_is_named(publisher, cache, refused):
    publisher.publish("acme/toy")
    kernels.get_kernel("acme/toy")
    (place,) = cache.glob(refused)
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        with pytest.raises((ImportError, CacheError)) as caught:
            importlib.import_module("kernels.copies.other_0123456789ab")
    finally:
        place.chmod(mode)
    assert str(place) in str(caught.value)
    assert "Permission denied" in str(caught.value)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An installed package ``toy`` that is not the kernel of that name."""
    folder = tmp_path / "site" / "toy"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("WHO = 'installed'\n")
    monkeypatch.syspath_prepend(folder.parent)
    yield
    for name in ("toy", "toy.cfg"):
        sys.modules.pop(name, None)


def test_an_installed_module_keeps_its_name_inside_a_kernel_of_that_name(
    site, make_variant, tmp_path
):
    files = {
        "__init__.py": "import toy\nfrom toy import WHO\nfrom .sub import own, below\n",
        "sub.py": "import toy\n\ndef own():\n    return toy.WHO\n\n"
        "def below():\n    from toy.cfg import X\n    from toy import cfg\n    return X, cfg.X\n",
        "cfg.py": "X = 1\n",
    }
    toy = kernels.get_local_kernel(make_variant(tmp_path / "torch-cpu", files))
    assert (toy.toy.WHO, toy.WHO, toy.own()) == ("installed",) * 3
    assert toy.below() == (1, 1), "what the copy has below that name is its own"


def test_a_standard_module_keeps_its_name(make_variant, tmp_path):
    import random

    files = {"__init__.py": "import random\nfrom random import random as r\n"}
    module = kernels.get_local_kernel(make_variant(tmp_path / "torch-cpu", files, name="random"))
    assert module.random is random
    assert 0 <= module.r() < 1


def test_a_folder_of_that_name_is_no_installed_module(make_variant, tmp_path, monkeypatch):
    (tmp_path / "here" / "toy").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "here")
    files = {"__init__.py": "", "sub.py": "import toy\nX = toy.__name__\n"}
    toy = kernels.get_local_kernel(make_variant(tmp_path / "torch-cpu", files))
    import importlib

    assert toy.__name__ == importlib.import_module(f"{toy.__name__}.sub").X
