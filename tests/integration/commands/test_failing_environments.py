"""Every verb where the network is down, and where its folders cannot be written.

Budget: 90 s.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing

import pytest

from kernel_builder.cli import BUILD2CMAKE
from kernel_builder.cli import VERBS as BUILDER
from kernels.cli import VERBS as LOADER

TOML = """\
[general]
name = "toy"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]
[general.hub]
repo-id = "acme/toy"
[torch-noarch]
"""
DEPENDENCIES = (
    '[project]\nname = "user"\nversion = "1"\n[tool.kernels.dependencies]\n"acme/toy" = 1\n'
)
MAINS = {
    "kernels": "from kernels.cli import main",
    "kernel-builder": "from kernel_builder.cli import main",
    "build2cmake": "from kernel_builder.cli import build2cmake as main",
    "kernel-hub": "from kernel_hub.cli import main",
}
TARGET = "torch2.13-cpu-x86_64-linux"
# {project}: a project whose build/ is a file; {user}: one that needs a kernel; {none}: below a file.
WORDS = (
    "kernels benchmark acme/toy",
    f"kernels bundle create acme/toy --target {TARGET} --output {{none}}/b.tar",
    "kernels bundle install {none}",
    "kernels bundle list {none}",
    "kernels bundle verify {none}",
    "kernels cache list",
    "kernels cache verify",
    "kernels cache prune --yes",
    "kernels check acme/toy",
    "kernels doctor acme/toy",
    "kernels download {user}",
    "kernels info acme/toy",
    "kernels lock {user}",
    "kernels to-wheel acme/toy 1.0.0",
    "kernels trust add acme",
    "kernels trust list",
    "kernels trust remove acme",
    "kernels update acme/toy",
    "kernels upload {project}",
    "kernels verify acme/toy",
    "kernels verify-signature acme/toy 1",
    "kernels versions acme/toy",
    "kernel-builder init {none} --name me/fresh",
    "kernel-builder plan {project}",
    "kernel-builder list-variants {project}",
    "kernel-builder check-config {project}",
    "kernel-builder update-build {project}",
    "kernel-builder build {project}",
    "kernel-builder fetch {project}",
    "kernel-builder lock {none}",
    "kernel-builder update torch",
    "kernel-builder rebuild acme/toy",
    "kernel-builder check {project}",
    "kernel-builder check-abi {project}",
    "kernel-builder check-builds {project}",
    "kernel-builder lint-abi {none}",
    "kernel-builder hash {project}",
    "kernel-builder create-pyproject {project} {none}",
    "kernel-builder clean-pyproject {project} {none}",
    "kernel-builder devshell {project}",
    "kernel-builder testshell {project}",
    "kernel-builder upload {project}",
    "kernel-builder build-and-copy {project}",
    "kernel-builder build-and-upload {project}",
    "kernel-builder fill-card {project} {none}",
    "kernel-builder completions bash",
    "build2cmake validate {none}",
    "build2cmake update-build {none}",
    "build2cmake generate-torch {project}/build.toml {none}",
    "build2cmake clean {project}/build.toml {none}",
    "kernel-hub add-token {none} ci --owner acme",
    "kernel-hub serve {project} --port {port}",
)
# They ask nothing of the network or of a folder, or find nothing to do there.
HARMLESS = {
    ("kernels", "cache", "list"),
    ("kernels", "cache", "verify"),
    ("kernels", "cache", "prune"),
    ("kernels", "trust", "add"),
    ("kernels", "trust", "list"),
    ("kernels", "trust", "remove"),
    ("kernel-builder", "plan"),
    ("kernel-builder", "list-variants"),
    ("kernel-builder", "check-config"),
    ("kernel-builder", "update-build"),
    ("kernel-builder", "fetch"),
    ("kernel-builder", "clean-pyproject"),
    ("kernel-builder", "completions"),
    ("build2cmake", "clean"),
}
# Their result is a report of what is wrong, and goes where results go.
REPORTS = {
    ("kernels", "doctor"),
    ("kernel-builder", "build"),
    ("kernel-builder", "build-and-copy"),
    ("kernel-builder", "build-and-upload"),
    ("kernel-builder", "check-builds"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    project, user = root / "project", root / "user"
    (project / "torch-ext/toy").mkdir(parents=True)
    (project / "torch-ext/toy/__init__.py").write_text("")
    (project / "build.toml").write_text(TOML)
    (project / "CARD.md").write_text("# Toy\n")
    (project / "build").write_text("a file where a folder would be")
    user.mkdir()
    (user / "pyproject.toml").write_text(DEPENDENCIES)
    (root / "file").write_text("")
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield {
            "project": project,
            "user": user,
            "none": root / "file" / "below",
            "port": taken.getsockname()[1],
        }


@pytest.fixture(params=["no network", "nothing can be written"])
def environ(request, tmp_path, places):
    """Nobody listens at the hub; or the home of caches, settings and tokens is below a file, too."""
    home = tmp_path if request.param == "no network" else places["none"]
    dead = "http://127.0.0.1:1"
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "KERNELS_HUB": dead,
        "HF_ENDPOINT": dead,
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "NO_PROXY": "*",
    }


def command(line, places):
    name, *words = line.format(**places).split()
    return [sys.executable, "-c", f"{MAINS[name]}; main()", *words]


@pytest.mark.parametrize("line", WORDS)
def test_it_fails_with_one_message_and_no_traceback(line, environ, places, tmp_path):
    done = subprocess.run(
        command(line, places),
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    verb = next(v for v in (*HARMLESS, *REPORTS, tuple(line.split()[:2])) if fits(line, v))
    if verb in HARMLESS and done.returncode == 0:
        return
    assert done.returncode in (1, 2), said
    if verb in REPORTS:
        assert said
        return
    assert done.stdout == ""
    # Before it there may be a line of what was begun.
    assert any(line.startswith("error: ") for line in done.stderr.splitlines()), said
    assert "Error: " not in done.stderr, "the message is ours, not the name of a class"


def fits(line, verb):
    return tuple(line.split()[: len(verb)]) == verb


def test_every_verb_is_among_them():
    shown = {tuple(line.split()[:2]) for line in WORDS}
    expected = {("kernels", verb) for verb in LOADER}
    expected |= {("kernel-builder", verb) for verb in BUILDER}
    expected |= {("build2cmake", verb) for verb in BUILD2CMAKE}
    expected |= {("kernel-hub", "serve"), ("kernel-hub", "add-token")}
    assert shown == expected


def test_what_is_interrupted_says_so_and_ends_with_130(tmp_path):
    """A hub that accepts and never answers: whoever waits for it presses Ctrl-C."""
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        process = subprocess.Popen(
            command("kernels versions acme/toy", {}),
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "KERNELS_HUB": f"http://127.0.0.1:{silent.getsockname()[1]}",
                "NO_PROXY": "*",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()
        with connection:
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "error: interrupted"
