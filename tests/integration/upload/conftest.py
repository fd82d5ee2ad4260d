"""Projects that are built without a compiler, and the commands that publish them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.config.read import read_build
from kernel_builder.package import write_variant
from kernel_builder.plan import plan
from kernel_builder.planned import Host
from kernel_builder.sources import read_sources
from kernel_spec.provenance import Provenance

TOML = """\
[general]
name = "toy"
version = {version}
edition = 5
license = "Apache-2.0"
backends = [{backends}]
[general.hub]
repo-id = "acme/toy"
[torch-noarch]
"""


class Checkout:
    """A checkout of one kernel's sources, on one of its authors' machines."""

    def __init__(
        self, place: Path, *, backends: tuple[str, ...] = ("cpu",), version: int = 1
    ) -> None:
        self.place = place
        (place / "torch-ext/toy").mkdir(parents=True, exist_ok=True)
        (place / "benchmarks").mkdir(exist_ok=True)
        self.write("CARD.md", "{{ repo_id }} v{{ version }}: {{ variants }}\n")
        self.write("benchmarks/benchmark.py", "# one\n")
        self.write("torch-ext/toy/__init__.py", "def double(x):\n    return x * 2\n")
        self.configure(backends=backends, version=version)

    def write(self, path: str, text: str) -> None:
        (self.place / path).write_text(text)

    def configure(self, *, backends: tuple[str, ...] = ("cpu",), version: int = 1) -> None:
        listed = ", ".join(f'"{each}"' for each in backends)
        self.write("build.toml", TOML.format(backends=listed, version=version))

    def build(self) -> None:
        shutil.rmtree(self.place / "build", ignore_errors=True)
        build = read_build(self.place)
        host = Host(cpu="x86_64", os="linux", torch=None)
        for each in plan(build, read_sources(self.place, build), host=host).variants:
            write_variant(
                self.place,
                each,
                None,
                provenance=Provenance(builder_version="1"),
                target=self.place / "build" / str(each.variant),
            )


@pytest.fixture
def checkout(tmp_path):
    def make(name: str, **options) -> Checkout:
        made = Checkout(tmp_path / name, **options)
        made.build()
        return made

    return make


@pytest.fixture
def command(tmp_path):
    """Run a command of ours: ``command(module, *words, **environ) -> CompletedProcess``."""

    def run(module: str, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {key: os.environ[key] for key in ("PATH", "TMPDIR") if key in os.environ}
        home = {
            "HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "*",
        }
        return subprocess.run(
            [sys.executable, "-c", f"from {module} import main; main()", *map(str, words)],
            env=kept | home | environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture(params=["directory", "http"])
def hub(request, writable, command):
    """Publish to the same hub by its folder and over HTTP: ``hub(checkout, *options) -> dict``."""

    def publish(checkout: Checkout, *options: str, code: int = 0) -> dict:
        environ = {}
        url = writable.root.as_uri()
        if request.param == "http":
            url = writable.hub.url
            environ = {"HF_ENDPOINT": url, "HF_TOKEN": writable.token}
        words = ["upload", checkout.place, "--hub", url, "--json", *options]
        done = command("kernel_builder.cli", *words, **environ)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout) if code == 0 else {"error": done.stderr}

    return publish
