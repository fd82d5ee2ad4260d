"""A variant whose libraries would not link, or have no code for a device, is passed over before it is loaded."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kernels
import kernels.load
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.system import Device, System, TorchBuild
from kernel_spec.version import MajorMinor
from kernels.errors import DeviceError, NoVariantError
from kernels.linkage import verdicts
from kernels.linkage.host import Host

FIXTURES = Path(__file__).parents[2] / "fixtures"
STABLE = "torch-stable-abi210-{}-x86_64-linux"
WHO = "WHO = {!r}\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are Linux's")


@pytest.fixture
def system(monkeypatch):
    """Stand for a machine: ``system(backend=..., devices=...)``, whose torch is the fixtures' libc10."""

    def stand_in(backend=Backend(BackendKind.CPU), devices=(), version="2.13.0"):  # noqa: B008
        torch = TorchBuild(version, MajorMinor(2, 13))
        found = System(
            torch=torch,
            backend=backend,
            cpu="x86_64",
            os="linux",
            python=MajorMinor(*sys.version_info[:2]),
            glibc=MajorMinor(2, 36),
        )
        host = Host(system=found, torch_libraries=(FIXTURES / "linkage" / "libc10.so",))
        for module in ("choose", "fit", "local", "locked", "load", "system"):
            monkeypatch.setattr(f"kernels.{module}.detect", lambda: found, raising=False)
        monkeypatch.setattr("kernels.fit.detect_devices", lambda s: replace(s, devices=devices))
        monkeypatch.setattr(verdicts, "read_host", lambda system: host._replace(system=system))
        verdicts.forget()

    yield stand_in
    verdicts.forget()


def files(who, library):
    folder = "binary" if library == "device.so" else "linkage"
    data = (FIXTURES / folder / library).read_bytes()
    return {"__init__.py": WHO.format(who), f"_{who}.abi3.so": data}


def test_the_next_best_is_taken_and_the_verdict_outlives_the_process(system, publisher, cache):
    system()
    best, plain = STABLE.format("cpu"), "torch-cpu"
    variants = {best: files("best", "shim.so"), plain: {"__init__.py": WHO.format("plain")}}
    publisher.publish(variants=variants)
    assert kernels.get_kernel("acme/toy").WHO == "plain"
    [verdict] = cache.glob("variants/*/links-*.json")
    verdicts.forget()
    kernels.load.forget()
    assert kernels.get_kernel("acme/toy").WHO == "plain"
    assert kernels.install_kernel("acme/toy", version=1).name == plain
    assert verdict.is_file()


def test_where_nothing_links_the_error_names_each_library_and_the_doctor(system, publisher):
    system()
    publisher.publish(variants={STABLE.format("cpu"): files("only", "old_layout.so")})
    with pytest.raises(NoVariantError) as caught:
        kernels.get_kernel("acme/toy")
    assert "c10::Error::Error" in str(caught.value)
    assert "kernels doctor acme/toy" in str(caught.value)
    assert not kernels.has_kernel("acme/toy")


def test_a_path_is_judged_like_a_hub(system, make_variant, tmp_path):
    system()
    build = tmp_path / "project" / "build"
    make_variant(build / STABLE.format("cpu"), files("best", "cudart.so"))
    make_variant(build / "torch-universal", {"__init__.py": WHO.format("plain")})
    assert kernels.get_local_kernel(build.parent).WHO == "plain"


def test_a_list_of_architectures_that_lies_is_found_out(system, publisher):
    """nanochat 820, bitsandbytes 1930: the import goes well and the first launch ends the process."""
    variants = {STABLE.format("cu130"): files("cuda", "device.so")}
    publisher.publish(variants=variants, archs=("7.5+PTX",), backend=BackendKind.CUDA)
    # The bytes: machine code for 9.0a and 10.3f, PTX for 8.0, 10.0f and 12.0.
    old = Device("7.5", "Turing", 1)
    system(Backend(BackendKind.CUDA, MajorMinor(13, 0)), (Device("9.0", "Hopper", 0), old))
    with pytest.raises(DeviceError) as caught:
        kernels.get_kernel("acme/toy")
    assert "its libraries hold code for" in str(caught.value)
    assert "Turing 1 (7.5)" in str(caught.value)
    assert "Hopper" not in str(caught.value)


def test_every_visible_device_is_looked_at_and_code_for_it_is_enough(system, publisher):
    variants = {STABLE.format("cu130"): files("cuda", "device.so")}
    publisher.publish(variants=variants, archs=("9.0a",), backend=BackendKind.CUDA)
    devices = (Device("9.0", "Hopper", 0), Device("12.1", "Spark", 1))
    system(Backend(BackendKind.CUDA, MajorMinor(13, 0)), devices)
    with pytest.raises(DeviceError, match=r"Spark 1 \(12\.1\)"):
        # What it says of itself is asked before anything is downloaded.
        kernels.get_kernel("acme/toy")
    publisher.publish(variants=variants, backend=BackendKind.CUDA)
    assert kernels.get_kernel("acme/toy").WHO == "cuda"


def test_an_unwritable_cache_keeps_the_verdict_in_the_state_directory(
    system, publisher, cache, environment, monkeypatch
):
    system()
    publisher.publish(variants={STABLE.format("cpu"): files("best", "new_layout.so")})
    path = kernels.install_kernel("acme/toy", version=1)
    for verdict in path.parent.glob("links-*.json"):
        verdict.unlink()
    verdicts.forget()
    write = verdicts.write_whole

    def refuse(target, data):
        if target.is_relative_to(cache):
            raise PermissionError(13, "Permission denied", str(target))
        write(target, data)

    monkeypatch.setattr(verdicts, "write_whole", refuse)
    kernels.install_kernel("acme/toy", version=1)
    assert list((environment / "home").rglob("links-*.json"))
