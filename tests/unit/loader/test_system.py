"""What this machine offers, and how a variant's own metadata is held against it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

import kernels
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.metadata import Metadata
from kernel_spec.system import Device, System, TorchBuild
from kernel_spec.version import MajorMinor
from kernels.errors import ClientTooOldError, DeviceError
from kernels.fit import judge_client, judge_devices
from kernels.system import describe, detect, read_version_text
from kernels.user_agent import format_user_agent

SYSTEM = System(
    torch=TorchBuild("2.13.0+cu130", MajorMinor(2, 13)),
    backend=Backend(BackendKind.CUDA, MajorMinor(13, 0)),
    cpu="x86_64",
    os="linux",
    python=MajorMinor(3, 12),
    glibc=MajorMinor(2, 36),
)


def metadata(**changes) -> Metadata:
    return Metadata(
        **{"name": "toy", "id": "_toy", "version": 1, "license": "", "backend": BackendKind.CUDA}
        | changes
    )


def test_this_machine():
    system = detect()
    assert system.python == MajorMinor(*sys.version_info[:2])
    assert system.os in {"linux", "darwin", "windows"}
    assert system.cpu not in {"arm64", "AMD64"}
    assert str(system.backend) in describe(system)


def test_torch_is_read_as_text_and_says_what_torch_says():
    code = (
        "import sys\n"
        "from kernels.system import detect\n"
        "text = detect()\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert detect() == text, (detect(), text)\n"
    )
    source = Path(kernels.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(source)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
            ("2.9.1+cu128", "12.8", None, None),
        ),
        (
            "__version__ = '2.9.0'\ncuda = None\nhip = \"7.2.4\"\nxpu = None\n",
            ("2.9.0", None, "7.2.4", None),
        ),
        (
            "__version__ = '2.9.0'\ncuda = None\nxpu: Optional[str] = '20250300'\n",
            ("2.9.0", None, None, "20250300"),
        ),
    ],
)
def test_versions_of_torch_as_text(tmp_path, text, expected):
    (tmp_path / "version.py").write_text(text)
    assert tuple(read_version_text(tmp_path / "version.py").values()) == expected


@pytest.mark.parametrize("text", ["", "__version__ = get()\n", "__version__ = '2.9.0'\n"])
def test_a_text_of_another_form_is_not_guessed_at(tmp_path, text):
    (tmp_path / "version.py").write_text(text)
    assert read_version_text(tmp_path / "version.py") is None
    assert read_version_text(tmp_path / "nowhere.py") is None


def test_a_torch_that_another_thread_is_importing_is_read_as_text(tmp_path, monkeypatch):
    """The first kernels of two threads: one of them runs ``import torch`` while the other looks."""
    (tmp_path / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\nhip = None\n")
    half = ModuleType("torch")
    half.__spec__ = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    half.__spec__._initializing = True
    monkeypatch.setitem(sys.modules, "torch", half)
    assert detect().torch == TorchBuild("2.13.0", MajorMinor(2, 13))


def test_no_torch_is_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr("kernels.system.find_spec", lambda name: None)
    system = detect()
    assert system.torch is None
    assert system.backend == Backend(BackendKind.CPU)
    assert "no torch" in describe(system)


def test_every_visible_device_counts():
    from dataclasses import replace

    system = replace(SYSTEM, devices=(Device("9.0", "H200", 0), Device("8.6", "A10", 1)))
    assert judge_devices(metadata(archs=("8.0", "9.0a")), system) is None
    reason = judge_devices(metadata(archs=("9.0a",)), system)
    assert reason.kind == "arch"
    assert "A10 1 (8.6)" in reason.text
    assert "H200" not in reason.text
    assert judge_devices(metadata(archs=("9.0a",)), SYSTEM) is None


@pytest.mark.parametrize(
    ("minver", "fits"),
    [(None, True), ((0, 14, 0), True), ((0, 18, 2), True), ((0, 18, 3), False), ((1, 0, 0), False)],
)
def test_the_client_that_is_needed(minver, fits):
    assert (judge_client(metadata(minver=minver)) is None) is fits


@pytest.fixture
def on_gpu(monkeypatch):
    from dataclasses import replace

    for module in ("choose", "local", "load"):
        monkeypatch.setattr(f"kernels.{module}.detect", lambda: SYSTEM, raising=False)
    monkeypatch.setattr(
        "kernels.fit.detect_devices",
        lambda system: replace(system, devices=(Device("10.0", "B200", 0),)),
    )


def test_a_variant_without_code_for_a_device_is_refused_before_import(publisher, on_gpu, cache):
    publisher.publish(
        "acme/toy",
        variants={"torch-cuda": {"__init__.py": "VALUE = 1\n"}},
        backend=BackendKind.CUDA,
        archs=("8.0", "9.0a"),
    )
    with pytest.raises(
        DeviceError, match=r"torch-cuda: built for 8\.0, 9\.0a, not for B200 0 \(10\.0\)"
    ):
        kernels.get_kernel("acme/toy")
    assert not (cache / "variants").exists()
    assert not kernels.has_kernel("acme/toy")
    assert kernels.has_kernel("acme/toy", check_arch=False)
    assert kernels.get_kernel("acme/toy", check_arch=False).VALUE == 1


def test_devices_and_a_later_client_are_told_together(make_variant, tmp_path, on_gpu):
    make_variant(tmp_path / "build/torch-cuda", backend=BackendKind.CUDA, archs=("9.0a",))
    make_variant(tmp_path / "build/torch-universal", minver=(99, 1, 0))
    with pytest.raises(DeviceError) as caught:
        kernels.get_local_kernel(tmp_path)
    lines = str(caught.value).splitlines()
    assert any("torch-cuda: built for 9.0a" in line for line in lines)
    assert any("torch-universal: " in line and "99.1.0" in line for line in lines)


def test_code_for_the_device_does_not_make_up_for_a_later_client(make_variant, tmp_path, on_gpu):
    make_variant(
        tmp_path / "build/torch-cuda", backend=BackendKind.CUDA, archs=("10.0",), minver=(99, 1, 0)
    )
    with pytest.raises(ClientTooOldError, match=r"99\.1\.0"):
        kernels.get_local_kernel(tmp_path)


def test_the_next_variant_is_tried(make_variant, tmp_path, on_gpu):
    make_variant(tmp_path / "build/torch-cuda", backend=BackendKind.CUDA, archs=("9.0a",))
    make_variant(tmp_path / "build/torch-universal", {"__init__.py": "VALUE = 2\n"})
    assert kernels.get_local_kernel(tmp_path).VALUE == 2


@pytest.mark.parametrize("caller", [None, "", "x/1", "a b\n\tc/1 ", {"k": "v ü"}, {"": ""}])
def test_the_header_is_always_legal(caller):
    for telemetry in (True, False):
        text = format_user_agent(caller, SYSTEM, telemetry=telemetry)
        assert text == text.strip()
        assert text.isascii()
        assert text.isprintable()
        assert f"kernels/{kernels.__version__}" in text


def test_the_header_names_torch_and_libc():
    text = format_user_agent({"app": "1"}, SYSTEM, telemetry=True)
    assert text.startswith("app/1; kernels/")
    for part in ("torch/2.13.0+cu130", "glibc/2.36", "backend/cuda", "platform/x86_64-linux"):
        assert part in text
