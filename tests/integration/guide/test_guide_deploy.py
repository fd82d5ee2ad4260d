"""The guides for those who load and deploy kernels, run as they are printed, with toys on a hub of their own.

Time budget: 60 s.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from listings import get_listing
from toy_variant import write_toy_metadata

from kernel_spec import directory, publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.metadata import FILE_NAME
from kernel_spec.names import RepoId

ROOT = Path(__file__).parents[3]
GUIDES = ROOT / "docs" / "guide"
OPS = """import torch

ops = torch.ops._toy_cpu_0123456789ab


def add_op_namespace_prefix(op_name: str) -> str:
    return f"_toy_cpu_0123456789ab::{op_name}"
"""


def write_toy(folder):
    variant = folder / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text("VALUE = 1\n")
    (variant / "_ops.py").write_text(OPS)
    write_toy_metadata(variant)
    return {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def origin(tmp_path):
    """A hub with version 1 of acme/toy, tagged 1.1.2."""
    hub = DirectoryHub(tmp_path / "origin")
    hub.root.mkdir()
    files = write_toy(tmp_path / "project")
    publishing.publish(
        hub, RepoId("acme", "toy"), files, branch="v1", parent=None, tags=("v1.1.2",)
    )
    return hub.root


def test_air_gapped(reader, read, origin, serve, tmp_path):
    """The hub is stopped before the other machine begins, whose cache is empty."""
    served = serve(origin)
    make = get_listing(
        "docs/guide/air-gapped.md", "kernels bundle create --target torch2.13-cpu-x86_64-linux acme"
    )
    by_lock = get_listing(
        "docs/guide/air-gapped.md",
        "kernels bundle create --target torch2.13-cpu-x86_64-linux --lock",
    )
    cache = get_listing("docs/guide/air-gapped.md", "kernels bundle install toy.bundle --trust")
    folder = get_listing("docs/guide/air-gapped.md", "kernels bundle install toy.bundle --hub")
    reader.environ["KERNELS_HUB"] = served.url
    (reader.folder / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/toy" = 1\n')
    assert "torch-cpu" in reader.type(make)
    reader.environ["KERNELS_HUB"] = f"file://{origin}"
    reader.type(f"kernels lock\n{by_lock}")
    served.stop()
    other = read(tmp_path / "other")
    other.replaced = {"/srv/kernels": str(tmp_path / "srv")}
    (other.folder / "toy.bundle").write_bytes((reader.folder / "toy.bundle").read_bytes())
    other.environ["KERNELS_HUB"] = served.url
    assert other.type(cache).splitlines()[-1] == "1"
    assert other.type(folder).splitlines()[-1] == "1"


def write_activation(place):
    """Publish the kernel that the guides load, without the machine code of ours."""
    files = write_toy(place)
    source = place / "build" / "torch-cpu" / "__init__.py"
    source.write_text("def silu_and_mul(out, x):\n    out.append(x)\n")
    document = json.loads((source.parent / FILE_NAME).read_text())
    document["digest"]["files"]["__init__.py"] = base64.b64encode(
        hashlib.sha256(source.read_bytes()).digest()
    ).decode()
    (source.parent / FILE_NAME).write_text(json.dumps(document))
    return files


@pytest.fixture
def toys(origin, tmp_path):
    """A hub that has the activation of the guides, and it under their other names, too."""
    hub = DirectoryHub(origin)
    files = write_activation(tmp_path / "activation")
    for name in ("kernels-community/activation", "org/name", "org/base"):
        publishing.publish(hub, RepoId(*name.split("/")), files, branch="v1", parent=None)
    for name, tags in (("acme/flash", ("v1.2.0", "v2.0.0")), ("acme/moe", ())):
        branch = "experiments" if name == "acme/moe" else "v1"
        publishing.publish(
            hub, RepoId(*name.split("/")), files, branch=branch, parent=None, tags=tags[:1]
        )
    return origin


def test_load(reader, toys):
    """Every command that the page names, and its list of hubs."""
    reader.environ["KERNELS_HUB"] = f"file://{toys}"
    page = (GUIDES / "load.md").read_text()
    named = {c for c in re.findall(r"`(kernels [a-z-]+[^`|]*)`", page) if "org/name" in c}
    assert len(named) >= 5
    for command in sorted(named - {"kernels verify-signature org/name 1"}):
        # The tag of the example, and the checks that the builder's own tests have.
        if command.split()[1] not in {"to-wheel", "check"}:
            reader.type(command)
    hubs = get_listing("docs/guide/load.md", "KERNELS_HUB=")
    reader.replaced = {"/srv/kernels": str(toys), "https://hub.corp": "http://127.0.0.1:9"}
    reader.type(f"export {hubs.strip()}")
    assert "Version 1" in reader.type("kernels versions org/name")


def test_lock(reader, toys):
    """The table of the project, the commands, and both ways to load by the lock."""
    reader.environ["KERNELS_HUB"] = f"file://{toys}"
    table = get_listing("docs/guide/lock.md", "[tool.kernels.dependencies]")
    (reader.folder / "pyproject.toml").write_text(table)
    commands = get_listing("docs/guide/lock.md", "kernels lock")
    said = reader.type(commands)
    for name in ("kernels-community/activation", "acme/flash", "acme/moe"):
        assert name in said
    assert "every byte is right" in said
    listing = get_listing(
        "docs/guide/lock.md", "from kernels import get_locked_kernel, load_kernel"
    )
    said = reader.run(listing, after="print(activation.silu_and_mul)")
    assert "function silu_and_mul" in said


def test_offline(reader, toys, serve):
    """The same call, with the hub gone: the command of the page, and the wider switches."""
    (reader.folder / "train.py").write_text(
        "import kernels\nprint(kernels.get_kernel('org/name', version=1).silu_and_mul)\n"
    )
    served = serve(toys, trusted=["org"])
    reader.environ["KERNELS_HUB"] = served.url
    reader.type("python train.py")
    served.stop()
    command = get_listing("docs/guide/offline.md", "HF_HUB_OFFLINE=1 python train.py")
    assert "function silu_and_mul" in reader.type(command)
    assert "function silu_and_mul" in reader.type("KERNELS_LOAD=cached-only python train.py")
    reader.type("! KERNELS_LOAD=never python train.py 2>said\ngrep -q ForbiddenError said")


def test_private_hub(reader, serve, tmp_path):
    """What `kernel-hub serve` prints is the URL in place of the guide's."""
    write_toy(reader.folder / "toy")
    start = get_listing("docs/guide/private-hub.md", "mkdir -p /srv/kernels")
    publish = get_listing("docs/guide/private-hub.md", "export HF_ENDPOINT=")
    load = get_listing("docs/guide/private-hub.md", "export KERNELS_HUB=")
    trust = get_listing("docs/guide/private-hub.md", "kernels trust add")
    reader.replaced = {"/srv/kernels": str(tmp_path / "srv")}
    lines = start.splitlines()
    [command] = [line for line in lines if line.startswith("kernel-hub serve ")]
    reader.type("\n".join(line for line in lines if line != command))
    _, _, root, *options = command.split()
    assert root == "/srv/kernels"
    options = [str(reader.folder / w) if w == "tokens.toml" else w for w in options]
    trusted = [options.pop(options.index("--trusted-owner") + 1)]
    options.remove("--trusted-owner")
    served = serve(tmp_path / "srv", trusted=trusted, options=options)
    reader.replaced["https://kernels.corp"] = served.url
    reader.replaced["https://huggingface.co"] = "http://127.0.0.1:9"
    reader.environ["HF_HUB_DISABLE_XET"] = "1"
    reader.type(publish)
    said = reader.type(load).splitlines()
    assert "It loads: torch-cpu" in said
    assert said[-1] == "1"
    assert served.url in reader.type(trust)


def test_no_variant_fits(reader, origin):
    """The doctor's words in the guide are those that it says."""
    write_toy(reader.folder / "toy")
    reader.environ["KERNELS_HUB"] = f"file://{origin}"
    script = get_listing("docs/guide/no-variant-fits.md", "kernels doctor      ")
    said = reader.type(script)
    assert said.count("It loads: torch-cpu") == 3
    assert "nothing to launch" in said
    assert '"advice": null' in said
    hub, files = DirectoryHub(origin), {}
    for branch, name in (
        ("v1", "torch212-cxx11-cpu-x86_64-linux"),
        ("v3", "torch-stable-abi29-cpu-x86_64-linux"),
    ):
        files = {
            path.replace("torch-cpu", name): place
            for path, place in _files(origin, "acme", "toy").items()
        }
        publishing.publish(hub, RepoId("acme", "worn"), files, branch=branch, parent=None)
    done = subprocess.run(
        ["kernels", "doctor", "acme/worn", "--version", "1"],
        cwd=reader.folder,
        env=reader.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    printed = get_listing("docs/guide/no-variant-fits.md", "$ kernels doctor acme/toy --version 1")
    said = done.stdout.replace("acme/worn", "acme/toy").splitlines()
    assert said[2:] == [line for line in printed.splitlines() if line in said[2:]]
    assert len(said) == 5


def _files(root, owner, name):
    hub, repo = DirectoryHub(root), RepoId(owner, name)
    commit = directory.read_refs(hub, repo).branches[0].commit
    listing = directory.read_listing(hub, repo, commit)
    return {f.path: directory.file_path(hub, repo, commit, f.path) for f in listing.files}


def test_wheels(reader, origin, tmp_path):
    """`pip` installs into an environment of its own."""
    script = get_listing("docs/guide/wheels.md", "kernels to-wheel acme/toy 1.1.2 --out wheels")
    reader.environ["KERNELS_HUB"] = f"file://{origin}"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    make, _, use = script.partition("\n")
    assert reader.type(make).strip() == "wheels/toy-1.1.2+cpu-py39-none-any.whl"
    reader.environ["PATH"] = f"{tmp_path / 'venv' / 'bin'}:{reader.environ['PATH']}"
    reader.environ.pop("PYTHONPATH")
    assert reader.type(use).splitlines()[-1] == "1"
