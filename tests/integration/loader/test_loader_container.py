"""An image that carries its kernels: the steps of examples/container/Dockerfile, run one by one.

The consumer is shaped like text-generation-inference: its lock is in the metadata of its installed
package, its kernels are downloaded while the image is built, and it loads them without a network.

Time budget: 60 s, once the environment with the dependencies is there.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import peers
import pytest

from kernel_spec.names import RepoId

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "container"
NEEDS = ("huggingface_hub==2.4.0", "packaging", "filelock", "click", "pyelftools", "wheel")
REPO = RepoId("kernels-community", "activation")


def steps(dockerfile: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile."""
    text = dockerfile.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this project, built from a copy of its sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", out, copy], check=True)
    [path] = out.glob("kernels-*.whl")
    return path


class Image:
    """A root directory and an environment, as the steps of a Dockerfile change them."""

    def __init__(self, root: Path, context: Path, hub: str) -> None:
        self.root, self.context, self.folder = root, context, root
        try:
            needs = peers.make_venv(*NEEDS)
        except peers.PeerUnavailableError as err:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(str(err))
        subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
        [site] = (root / "venv").glob("lib/python3*/site-packages")
        [installed] = needs.folder.glob("lib/python3*/site-packages")
        (site / "needs.pth").write_text(f"{installed}\n")
        self.args = {"KERNELS_HUB": hub}
        self.environ = {
            "PATH": f"{root / 'venv' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(root),
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_PROXY": "*",
        }

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/") if path.startswith("/") else self.folder / path

    def run(self, command: list[str], **environ: str) -> str:
        done = subprocess.run(
            command,
            check=False,
            cwd=self.folder,
            env=self.environ | self.args | environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def build(self, dockerfile: Path) -> list[str]:
        """Do every step; return the command of the image."""
        command: list[str] = []
        for word, rest in steps(dockerfile):
            match word:
                case "WORKDIR":
                    self.folder = self.at(rest)
                    self.folder.mkdir(parents=True)
                case "COPY":
                    *sources, target = rest.split()
                    for source in map(self.context.joinpath, sources):
                        if source.is_dir():
                            shutil.copytree(source, self.at(target), dirs_exist_ok=True)
                        else:
                            shutil.copy(source, self.at(target))
                case "ENV":
                    name, _, value = rest.partition("=")
                    self.environ[name] = str(self.at(value)) if value.startswith("/") else value
                case "RUN":
                    self.run(["bash", "-euc", rest])
                case "CMD":
                    command = json.loads(rest)
                case "FROM" | "ARG":
                    pass
                case _:
                    raise AssertionError(f"{word}: no step that this test knows")
        self.args = {}
        return command


def without_network() -> list[str]:
    """Return what to put before a command so that it has no network, where that is allowed."""
    prefix = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        return []
    done = subprocess.run([*prefix, "true"], check=False, capture_output=True)
    return prefix if done.returncode == 0 else []


def test_the_image_has_its_kernels_and_needs_no_network(wheel, tmp_path, serve, republish, machine):
    root = tmp_path / "hub"
    commit = republish(root, {"__init__.py": "def silu(x):\n    return x\n"}, repo=REPO)
    hub = serve(root, trusted=(REPO.owner,))
    context = tmp_path / "context"
    shutil.copytree(EXAMPLE, context, ignore=shutil.ignore_patterns("__pycache__"))
    (context / "wheels").mkdir()
    shutil.copy(wheel, context / "wheels")
    machine.hub = hub.url
    machine.run(f"from kernels.cli import main; main(['lock', {str(context)!r}])")
    # What is published after the lock does not reach the image.
    republish(root, {"__init__.py": "def other(x):\n    return x\n"}, repo=REPO)

    place = tmp_path / "image"
    place.mkdir()
    image = Image(place, context, hub.url)
    command = image.build(context / "Dockerfile")

    [lock] = place.glob("venv/lib/python3*/site-packages/server-1.0.dist-info/kernels.lock")
    assert json.loads(lock.read_bytes())["kernels"][0]["commit"] == commit
    assert list((place / "app").iterdir()) == []
    asked = len(hub.requests())
    hub.stop()
    words = without_network() + command
    out = image.run(words).splitlines()
    assert out[0].startswith(str(place / "opt" / "kernels"))
    assert out[1] == "silu"
    assert len(hub.requests()) == asked


def test_the_same_lock_is_carried_by_an_sdist(wheel, tmp_path, root, republish, machine):
    republish(root, repo=REPO)
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    machine.run(f"from kernels.cli import main; main(['lock', {str(project)!r}])")
    place = tmp_path / "image"
    place.mkdir()
    image = Image(place, project, machine.hub)
    image.run([*shlex.split("pip install --no-deps"), str(wheel)])
    image.folder = project
    build = "import setuptools.build_meta as b; import sys; print(getattr(b, sys.argv[1])('out'))"
    (project / "out").mkdir()
    sdist = image.run(["python", "-c", build, "build_sdist"]).splitlines()[-1]
    image.folder = tmp_path
    image.run(["tar", "-xf", str(project / "out" / sdist)])
    image.folder = tmp_path / sdist.removesuffix(".tar.gz")
    (image.folder / "out").mkdir()
    built = image.run(["python", "-c", build, "build_wheel"]).splitlines()[-1]
    image.run(["python", "-m", "zipfile", "-e", f"out/{built}", "out"])
    carried = image.folder / "out" / "server-1.0.dist-info" / "kernels.lock"
    assert carried.read_bytes() == (project / "kernels.lock").read_bytes()
