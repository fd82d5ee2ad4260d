"""Wheels of kernels that were really compiled: pip takes them, they compute, auditwheel agrees.

Time budget: 90 s, once the environments of the peers are there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import peers
import pytest
from lacking import give_up

from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId

ROOT = Path(__file__).parents[3]
KITS = ROOT / "tests" / "kits"
BUILD = "import sys; from kernel_builder.cli import main; sys.exit(main())"
USE = """
import torch, add_stable, scale_noarch
x = torch.randn(5)
torch.testing.assert_close(add_stable.add_one(x), x + 1)
print(scale_noarch.__file__, *sorted(n for n in sys.modules if n.startswith("kernels")))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels of a compiled kernel and of one without machine code."""
    tmp = tmp_path_factory.mktemp("wheels")
    hub = DirectoryHub(tmp / "hub")
    hub.root.mkdir()
    environ = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "KERNELS_HUB": f"file://{hub.root}",
        "KERNELS_CACHE": str(tmp / "cache"),
    }
    for kit, backend in (("add_stable", "cpu"), ("scale_noarch", "")):
        project = tmp / kit
        shutil.copytree(KITS / kit, project)
        words = ["build", str(project), *(["--backend", backend] if backend else [])]
        done = subprocess.run(
            [sys.executable, "-c", BUILD, *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        files = [path for path in (project / "build").rglob("*") if path.is_file()]
        name = kit.replace("_", "-")
        paths = {path.relative_to(project).as_posix(): path for path in files}
        publishing.publish(
            hub, RepoId("acme", name), paths, branch="main", parent=None, tags=["v1.1.2"]
        )
        command = [sys.executable, "-m", "kernels", "to-wheel", f"acme/{name}", "1.1.2"]
        subprocess.run([*command, "--out", tmp / "out"], env=environ, check=True)
    return sorted((tmp / "out").iterdir())


def peer(make, *requirements):
    try:
        return make(*requirements)
    except peers.PeerUnavailableError as err:
        give_up(err)


def test_two_sit_side_by_side_in_a_clean_environment_and_compute(wheels, tmp_path):
    """The environment has torch and what torch requires, and nothing of this project."""
    base = peer(peers.make_torch_venv, "setuptools>=77,<82")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [site] = (tmp_path / "venv").glob("lib/python3*/site-packages")
    [torch] = base.folder.glob("lib/python3*/site-packages")
    (site / "torch.pth").write_text(f"{torch}\n")
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check"]
    installed = [path for path in wheels if "+cuda" not in path.name and "+rocm" not in path.name]
    one_each = {path.name.partition("-")[0]: path for path in installed}
    assert sorted(one_each) == ["add_stable", "scale_noarch"]
    # With what they require: torch is there, so nothing else is asked for.
    subprocess.run([*pip, *one_each.values()], check=True)
    code = f"import sys{USE}"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(site / "scale_noarch" / "__init__.py")], "kernels not needed"


def test_auditwheel_finds_no_later_glibc_than_the_tag_says(wheels):
    audit = peer(peers.make_venv, "auditwheel")
    [wheel] = [path for path in wheels if path.name.startswith("add_stable")]
    assert wheel.name == ("add_stable-1.1.2+torchstable210cpu-cp39-abi3-manylinux_2_28_x86_64.whl")
    done = subprocess.run(
        [audit.folder / "bin" / "python", "-m", "auditwheel", "show", wheel],
        capture_output=True,
        text=True,
        check=True,
    )
    # libtorch comes from torch, so auditwheel calls the wheel itself linux_x86_64.
    [glibc] = re.findall(r'platform tag to\s+"manylinux_2_(\d+)_x86_64"', done.stdout)
    assert int(glibc) <= 28
