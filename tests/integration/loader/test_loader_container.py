"""An image that carries its kernels: the steps of examples/container/Dockerfile, each in the image's own root.

Bubblewrap makes that root: the image's /app, /opt and environment, the system's programs, and nothing else of
this machine. A step has no network, but for the one that downloads the kernels.

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
from lacking import give_up
from listings import get_listing

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
        self.workdir = "/"
        try:
            needs = peers.make_venv(*NEEDS)
        except peers.PeerUnavailableError as err:
            give_up(err)
        subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
        [site] = (root / "venv").glob("lib/python3*/site-packages")
        [installed] = needs.folder.glob("lib/python3*/site-packages")
        (site / "needs.pth").write_text(f"{installed}\n")
        self.mounts = [needs.folder, Path(sys.base_prefix)]
        self.args = {"KERNELS_HUB": hub}
        # What ENV sets: places in the image, which mean nothing outside.
        self.inside: dict[str, str] = {"HOME": "/root"}
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

    def run_inside(self, command: list[str], *, network: bool) -> str:
        """Run a command whose root is the image's."""
        words = ["bwrap", "--die-with-parent", "--unshare-pid", "--ro-bind", "/usr", "/usr"]
        for path in map(Path, ("/bin", "/sbin", "/lib", "/lib64")):
            if path.is_symlink():
                words += ["--symlink", str(path.readlink()), str(path)]
            elif path.exists():
                words += ["--ro-bind", str(path), str(path)]
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/root"]
        words += [] if network else ["--unshare-net"]
        for path in self.mounts:
            words += ["--ro-bind", str(path), str(path)]
        # A virtual environment knows its own place, so it keeps it.
        words += ["--bind", str(self.root / "venv"), str(self.root / "venv")]
        for name in ("app", "opt"):
            (self.root / name).mkdir(exist_ok=True)
            words += ["--bind", str(self.root / name), f"/{name}"]
        return self.run([*words, "--chdir", self.workdir, *command], **self.inside)

    def build(self, dockerfile: Path) -> list[str]:
        """Do every step; return the command of the image."""
        command: list[str] = []
        for word, rest in steps(dockerfile):
            match word:
                case "WORKDIR":
                    self.workdir, self.folder = rest, self.at(rest)
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
                    self.inside[name] = value
                case "RUN":
                    self.run_inside(
                        ["bash", "-euc", rest], network=rest.startswith("kernels download")
                    )
                case "CMD":
                    command = json.loads(rest)
                case "FROM" | "ARG":
                    pass
                case _:
                    raise AssertionError(f"{word}: no step that this test knows")
        self.args = {}
        return command


def test_the_guide_shows_lines_of_the_example():
    shown = get_listing("docs/guide/container.md", "RUN pip install").splitlines()
    places = [(EXAMPLE / "Dockerfile").read_text().splitlines().index(line) for line in shown]
    assert places == sorted(places)
    assert len(places) == 7
    build = get_listing("docs/guide/lock.md", "[build-system]")
    assert build in (EXAMPLE / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def bubblewrap():
    """Fail in CI, and skip elsewhere, where it is missing or may not be used."""
    try:
        probe = ["bwrap", "--ro-bind", "/", "/", "--unshare-net", "true"]
        done = subprocess.run(probe, check=False, capture_output=True, text=True)
        reason = done.stderr if done.returncode else ""
    except FileNotFoundError as err:
        reason = str(err)
    if reason:
        give_up(f"bubblewrap: {reason}")


@pytest.mark.usefixtures("bubblewrap")
def test_the_image_has_its_kernels_and_needs_no_network(wheel, tmp_path, serve, republish, machine):
    root = tmp_path / "hub"
    commit = republish(root, {"__init__.py": "def silu(x):\n    return x\n"}, repo=REPO)
    hub = serve(root, trusted=(REPO.owner,))
    context = tmp_path / "context"
    shutil.copytree(EXAMPLE, context, ignore=shutil.ignore_patterns("__pycache__"))
    (context / "wheels").mkdir()
    shutil.copy(wheel, context / "wheels")
    machine.hub = hub.url
    _, *arguments = get_listing("docs/guide/container.md", "kernels lock").split()
    machine.run(f"from kernels.cli import main; main([*{arguments}, {str(context)!r}])")
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
    out = image.run_inside(command, network=False).splitlines()
    assert out[0].startswith("/opt/kernels/")
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
