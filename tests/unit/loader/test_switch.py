"""``KERNELS_LOAD``: never, only what is cached, or allow; and what a killed install leaves behind."""

from __future__ import annotations

import pytest
from filelock import FileLock

import kernels
from kernels.cli import run
from kernels.errors import ForbiddenError, NotCachedError, NoVariantError, SettingsError


def test_never_loads_no_kernel_of_a_hub(publisher, monkeypatch, make_variant, tmp_path):
    publisher.publish("acme/toy")
    kernels.get_kernel("acme/toy")
    monkeypatch.setenv("KERNELS_LOAD", "never")
    for call in (kernels.get_kernel, kernels.install_kernel, kernels.get_kernel_variants):
        with pytest.raises(ForbiddenError, match="KERNELS_LOAD=never") as error:
            call("acme/toy")
    assert isinstance(error.value, FileNotFoundError), "what libraries take as 'no kernel here'"
    assert not kernels.has_kernel("acme/toy")
    path = make_variant(tmp_path / "own" / "torch-cpu")
    assert kernels.get_local_kernel(path).VALUE == 1
    monkeypatch.setenv("LOCAL_KERNELS", f"acme/toy={path}")
    assert kernels.get_kernel("acme/toy").__file__ == str(path / "__init__.py")


def test_cached_only_asks_no_hub(web, publisher, monkeypatch):
    publisher.publish("acme/toy")
    publisher.publish("acme/other")
    kernels.install_kernel("acme/toy")
    asked = len(web.requests)
    monkeypatch.setenv("KERNELS_LOAD", "cached-only")
    monkeypatch.setenv("KERNELS_REF_TTL", "0")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    with pytest.raises(NotCachedError, match="KERNELS_LOAD=cached-only forbids"):
        kernels.get_kernel("acme/other")
    assert not kernels.has_kernel("acme/other")
    monkeypatch.setenv("KERNELS_LOAD", "allow")
    with pytest.raises(NotCachedError, match="local_files_only=True forbids"):
        kernels.install_kernel("acme/other", local_files_only=True)
    assert len(web.requests) == asked
    assert kernels.has_kernel("acme/other")


def test_another_word_is_refused(monkeypatch):
    monkeypatch.setenv("KERNELS_LOAD", "sometimes")
    with pytest.raises(SettingsError, match="allow, cached-only, never"):
        kernels.get_kernel("acme/toy")
    assert run(["cache", "list"]) == 2


def test_a_forced_backend_is_told_from_the_systems_own(publisher):
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": ""}})
    with pytest.raises(NoVariantError) as error:
        kernels.get_kernel("acme/toy", backend="rocm")
    assert "runs on cpu, backend='rocm' was asked for (this system has " in str(error.value)


def test_what_killed_installs_left_is_swept_but_not_what_is_in_use(publisher, cache):
    tmp, locks = cache / "tmp", cache / "locks"
    for name in ("a" * 32, "b" * 32):
        (tmp / f"{name}-xyz" / "torch-cpu").mkdir(parents=True)
    locks.mkdir()
    publisher.publish("acme/toy")
    with FileLock(locks / f"{'b' * 32}.lock"):
        kernels.install_kernel("acme/toy")
        assert [path.name for path in tmp.iterdir()] == [f"{'b' * 32}-xyz"]
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 2\n"}})
    kernels.install_kernel("acme/toy")
    assert list(tmp.iterdir()) == []
