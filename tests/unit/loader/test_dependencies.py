"""Kernels that need kernels or Python packages."""

from __future__ import annotations

import threading

import pytest

import kernels
from kernel_spec.metadata import KernelDependency
from kernels.errors import DependencyError, KernelImportError, NoVariantError

USES = "from kernels import get_kernel_dep\nbase = get_kernel_dep({!r})\n\n\ndef late(name):\n    return get_kernel_dep(name)\n"


def needs(repo_id, **selector):
    return (KernelDependency(repo_id=repo_id, **selector or {"version": 1}),)


def user_of(repo_id):
    return {"torch-cpu": {"__init__.py": USES.format(repo_id)}}


@pytest.fixture
def base(publisher):
    publisher.publish("bob/base", branch="v1")
    publisher.publish("bob/base", branch="v2", variants={"torch-cpu": {"__init__.py": "VALUE=2"}})
    return publisher


def test_what_a_kernel_needs_is_loaded_before_it(base):
    base.publish("acme/top", variants=user_of("bob/base"), needs=needs("bob/base"))
    top = kernels.get_kernel("acme/top")
    assert top.base.VALUE == 1
    assert top.base is kernels.get_kernel("bob/base", version=1)
    assert top.late("bob/base") is top.base, "after its import, too"
    loaded = [kernel.repo_info.repo_id for kernel in kernels.get_loaded_kernels()[-2:]]
    assert loaded == ["bob/base", "acme/top"]


def test_a_revision_names_a_dependency_too(base):
    # The version that no request without one would get.
    revision = needs("bob/base", revision="v1")
    base.publish("acme/top", variants=user_of("bob/base"), needs=revision)
    assert kernels.get_kernel("acme/top").base.VALUE == 1
    assert kernels.get_kernel("bob/base").VALUE == 2


def test_one_that_several_need_is_loaded_once(base, monkeypatch):
    located = []
    import kernels.resolve

    locate = kernels.resolve.locate
    monkeypatch.setattr(
        "kernels.resolve.locate",
        lambda ref, *a, **k: located.append(str(ref)) or locate(ref, *a, **k),
    )
    base.publish("acme/left", variants=user_of("bob/base"), needs=needs("bob/base"))
    base.publish("acme/right", variants=user_of("bob/base"), needs=needs("bob/base"))
    both = needs("acme/left") + needs("acme/right")
    base.publish("acme/top", variants=user_of("acme/left"), needs=both)
    top = kernels.get_kernel("acme/top")
    assert top.base.base is top.late("acme/right").base
    assert sorted(located) == [
        "acme/left version 1",
        "acme/right version 1",
        "acme/top",
        "bob/base version 1",
    ]


def test_a_kernel_at_a_path_needs_kernels_of_a_hub(base, make_variant, tmp_path):
    path = make_variant(
        tmp_path / "torch-cpu", {"__init__.py": USES.format("bob/base")}, needs=needs("bob/base")
    )
    assert kernels.get_local_kernel(path).base.VALUE == 1


def test_install_brings_what_is_needed_and_runs_nothing(base, monkeypatch):
    base.publish("acme/top", variants=user_of("bob/base"), needs=needs("bob/base"))
    assert kernels.install_kernel("acme/top").name == "torch-cpu"
    monkeypatch.setenv("KERNELS_LOAD", "cached-only")
    assert kernels.get_kernel("acme/top").base.VALUE == 1


def test_kernels_that_need_each_other_are_refused_by_name(publisher):
    for one, other in (("acme/one", "acme/two"), ("acme/two", "acme/one")):
        publisher.publish(one, needs=needs(other))
    with pytest.raises(DependencyError, match="acme/one version 1 -> acme/two version 1") as error:
        kernels.get_kernel("acme/one", version=1)
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, RuntimeError)


def test_what_is_needed_must_be_there_and_fit(publisher):
    publisher.publish("acme/top", needs=needs("bob/none"))
    with pytest.raises(LookupError, match="bob/none"):
        kernels.get_kernel("acme/top")
    assert not kernels.has_kernel("acme/top")
    publisher.publish("bob/none", variants={"torch-cuda": {"a.py": ""}})
    with pytest.raises(NoVariantError, match="bob/none version 1"):
        kernels.get_kernel("acme/top")
    assert not kernels.has_kernel("acme/top")


def test_the_owner_of_what_is_needed_must_be_trusted(web, base):
    base.publish("acme/top", variants=user_of("bob/base"), needs=needs("bob/base"))
    with pytest.raises(ValueError, match="bob/base was not loaded"):
        kernels.get_kernel("acme/top")
    assert kernels.get_kernel("acme/top", trust_remote_code=["bob/base"]).base.VALUE == 1


def test_only_the_code_of_a_kernel_asks_for_its_dependencies(base):
    with pytest.raises(RuntimeError, match="use get_kernel"):
        kernels.get_kernel_dep("bob/base")
    base.publish("acme/top", variants=user_of("bob/base"), needs=needs("bob/base"))
    top = kernels.get_kernel("acme/top")
    with pytest.raises(RuntimeError, match=r"metadata names bob/base.*kernel-depends"):
        top.late("bob/other")
    with pytest.raises(RuntimeError, match="names no kernel at all"):
        exec("get_kernel_dep('x/y')", {**vars(top.base), "get_kernel_dep": kernels.get_kernel_dep})


def test_a_missing_python_package_is_named_before_anything_runs(publisher, monkeypatch):
    publisher.publish(
        "acme/toy",
        variants={"torch-cpu": {"__init__.py": "raise SystemExit\n"}},
        packages=("einops", "tvm-ffi", "onednn", "no-such-dist"),
    )
    monkeypatch.setattr("kernels.python_depends.find_spec", lambda name: None)
    with pytest.raises(
        KernelImportError, match="pip install einops apache-tvm-ffi no-such-dist"
    ) as error:
        kernels.get_kernel("acme/toy")
    assert "onednn" not in str(error.value)


def test_a_package_that_is_there_is_no_obstacle(publisher):
    publisher.publish("acme/toy", packages=("packaging", "onednn"))
    assert kernels.get_kernel("acme/toy").VALUE == 1


def circle(other):
    """A kernel that loads another one while a second thread loads that one."""
    return {
        "torch-cpu": {
            "__init__.py": "import sys, kernels\n"
            "sys.kernels_barrier()\n"
            f"other = kernels.get_kernel({other!r})\n"
            "VALUE = 1\n"
        }
    }


def test_two_kernels_that_load_each_other_from_two_threads_do_not_wait_for_ever(
    publisher, monkeypatch
):
    import sys

    publisher.publish("acme/one", variants=circle("acme/two"))
    publisher.publish("acme/two", variants=circle("acme/one"))
    barrier = threading.Barrier(2, timeout=20)
    monkeypatch.setattr(sys, "kernels_barrier", barrier.wait, raising=False)
    found = {}

    def load(name):
        found[name] = kernels.get_kernel(name)

    threads = [
        threading.Thread(target=load, args=(name,), daemon=True)
        for name in ("acme/one", "acme/two")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    one, two = found["acme/one"], found["acme/two"]
    assert one.other is two
    assert two.other is one
    assert (one.VALUE, two.VALUE) == (1, 1)


def test_a_kernel_that_loads_itself_through_another_gets_its_unfinished_module(publisher):
    source = "import kernels\nother = kernels.get_kernel({!r})\nVALUE = 1\n"
    publisher.publish(
        "acme/one", variants={"torch-cpu": {"__init__.py": source.format("acme/two")}}
    )
    publisher.publish(
        "acme/two", variants={"torch-cpu": {"__init__.py": source.format("acme/one")}}
    )
    one = kernels.get_kernel("acme/one")
    assert one.other.other is one
