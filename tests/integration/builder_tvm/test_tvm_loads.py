"""A kernel of TVM FFI is loaded and computes: with numpy alone, with torch, by old and published clients."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

Python = Callable[..., str]
VARIANT = "tvm-ffi01-cpu-x86_64-linux"

_NUMPY = """
import sys
import numpy as np
from pathlib import Path
from kernels import get_kernel, get_local_kernel
place = Path(sys.argv[1])
kernel = get_local_kernel(place) if place.is_dir() else get_kernel(sys.argv[1], version=1)
x = np.arange(4, dtype=np.float32)
print(kernel.add_one(x, np.empty_like(x)).tolist(), "torch" in sys.modules)
for wrong, kind in ((x.astype(np.float64), TypeError), (x[:3].copy(), ValueError)):
    try:
        kernel.add_one(x, wrong)
    except kind as err:
        print(f"{kind.__name__}: {err}")
"""
_NUMPY_SAYS = """\
[1.0, 2.0, 3.0, 4.0] False
TypeError: expected float32 for x and out
ValueError: expected contiguous tensors of one length, found 4 and 3 elements"""


@pytest.fixture(scope="module")
def hub(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory hub that the kernel is published to, with the commands that its users have."""
    root = tmp_path_factory.mktemp("hub")
    words = ["upload", built, "--yes", "--allow-dirty"]
    words += ["--hub", f"file://{root}", "--repo-id", "acme/tvm-add"]
    program = Path(sys.executable).with_name("kernel-builder")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def test_numpy_without_torch(built: Path, numpy_alone: Python) -> None:
    assert numpy_alone(_NUMPY, built) == _NUMPY_SAYS


def test_the_first_release_of_the_same_minor_version(built: Path, first_release: Python) -> None:
    assert first_release(_NUMPY, built) == _NUMPY_SAYS


def test_get_kernel_from_a_hub(hub: Path, numpy_alone: Python, tmp_path: Path) -> None:
    variables = {"KERNELS_HUB": f"file://{hub}", "KERNELS_CACHE": str(tmp_path), "HOME": "/nowhere"}
    assert numpy_alone(_NUMPY, "acme/tvm-add", **variables) == _NUMPY_SAYS


def test_torch_tensors_are_taken_where_they_lie(built: Path, with_torch: Python) -> None:
    code = """
import sys, torch
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[1]))
x, out = torch.arange(4.0), torch.zeros(4)
where = out.data_ptr()
assert kernel.add_one(x, out) is out and out.data_ptr() == where
print(out.tolist())
try:
    kernel.add_one(torch.ones(4, 2).T, torch.ones(8))
except ValueError as err:
    print(err)
"""
    assert with_torch(code, built) == (
        "[1.0, 2.0, 3.0, 4.0]\nexpected contiguous tensors of one length, found 8 and 8 elements"
    )


def test_two_copies_and_many_threads_do_not_meet(
    built: Path, numpy_alone: Python, tmp_path: Path
) -> None:
    other = tmp_path / VARIANT
    shutil.copytree(built / "build" / VARIANT, other)
    code = """
import sys
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from kernels import get_local_kernel
def use(place):
    kernel = get_local_kernel(Path(place))
    x = np.ones(1000, dtype=np.float32)
    return kernel, float(kernel.add_one(x, np.empty_like(x)).sum())
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(use, sys.argv[1:] * 8))
assert {total for _, total in found} == {2000.0}
print(len({kernel.__name__ for kernel, _ in found}))
"""
    assert numpy_alone(code, built / "build" / VARIANT, other) == "2"


@pytest.mark.parametrize(
    ("prelude", "words"),
    [
        ("", "built for tvm-ffi 0.1, this system has no apache-tvm-ffi"),
        (
            "import types; m = types.ModuleType('tvm_ffi'); m.__version__ = '0.2.3'; "
            "sys.modules['tvm_ffi'] = m",
            "built for tvm-ffi 0.1, this system has tvm-ffi 0.2",
        ),
    ],
)
def test_no_or_another_tvm_ffi_is_the_reason(built: Path, prelude: str, words: str) -> None:
    code = f"""
import sys
from pathlib import Path
{prelude}
from kernels import get_kernel_variants, get_local_kernel
try:
    get_local_kernel(Path({str(built)!r}))
except Exception as err:
    print(type(err).__name__, err)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("NoVariantError"), done.stderr
    assert words in done.stdout


def test_versions_and_doctor_say_so(hub: Path, tmp_path: Path) -> None:
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KERNELS_HUB": f"file://{hub}",
        "KERNELS_CACHE": str(tmp_path / "cache"),
    }
    kernels = Path(sys.executable).with_name("kernels")

    def run(*words: str) -> str:
        done = subprocess.run(
            [kernels, *words], env=environ, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert "built for tvm-ffi 0.1, this system has no apache-tvm-ffi" in run(
        "versions", "acme/tvm-add"
    )
    assert "pip install 'apache-tvm-ffi==0.1.*'" in run("doctor", "acme/tvm-add")


def test_the_published_client_loads_it(built: Path, published: Path, tmp_path: Path) -> None:
    code = """
import importlib.metadata, sys, torch
from pathlib import Path
from kernels import get_local_kernel
assert importlib.metadata.version("kernels") == "0.17.2"
kernel = get_local_kernel(Path(sys.argv[1]))
print(kernel.add_one(torch.arange(3.0), torch.empty(3)).tolist())
"""
    done = subprocess.run(
        [published / "bin" / "python", "-c", code, str(built / "build")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.0, 2.0, 3.0]"


def test_a_wheel_asks_for_the_right_package(hub: Path, numpy_alone: Python, tmp_path: Path) -> None:
    kernels = Path(sys.executable).with_name("kernels")
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KERNELS_HUB": f"file://{hub}",
        "KERNELS_CACHE": str(tmp_path / "cache"),
    }
    out = tmp_path / "wheels"
    done = subprocess.run(
        [kernels, "to-wheel", "acme/tvm-add", "1", "--out", out, "--json"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("METADATA")]
        metadata = archive.read(name).decode()
        archive.extractall(tmp_path / "installed")
    assert "Requires-Dist: apache-tvm-ffi==0.1.*" in metadata
    assert "Requires-Dist: torch" not in metadata
    code = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import tvm_add
x = np.ones(2, dtype=np.float32)
print(tvm_add.add_one(x, np.empty_like(x)).tolist())
"""
    assert numpy_alone(code, tmp_path / "installed") == "[2.0, 2.0]"
