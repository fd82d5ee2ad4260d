"""What publishing over HTTP adds: tokens, large files, cut lines, and clients that load it.

Budget: 90 s.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from lacking import give_up

BIG = 12 * 2**20


@pytest.fixture
def environ(writable):
    return {"HF_ENDPOINT": writable.hub.url, "HF_TOKEN": writable.token}


@pytest.fixture
def publish(command, environ):
    def run(checkout, *options, **more):
        return command(
            "kernel_builder.cli", "upload", checkout.place, *options, **{**environ, **more}
        )

    return run


def test_the_published_client_and_ours_load_what_was_uploaded(
    publish, writable, checkout, reference, tmp_path
):
    done = publish(checkout("a"), "--tag", "v1.0.0")
    assert done.returncode == 0, done.stderr
    code = """
from kernels import get_kernel
result = [get_kernel("acme/toy", version=1).double(21), get_kernel("acme/toy", revision="v1.0.0").double(2)]
"""
    assert reference.python(writable.hub, writable.home, code) == [42, 4]
    ours = subprocess.run(
        [
            sys.executable,
            "-c",
            "from kernels import get_kernel; print(get_kernel('acme/toy').double(21))",
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "KERNELS_HUB": writable.hub.url,
            "NO_PROXY": "*",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ours.stdout.strip() == "42", ours.stderr


def test_the_loaders_command_publishes_by_the_builder(command, environ, writable, checkout):
    kernel = checkout("a")
    words = ["upload", kernel.place, "--repo_id", "acme/other", "--tag", "v1.0.0"]
    done = command("kernels.cli", *words, **environ)
    if "the builder publishes kernels" in done.stderr.lower():
        give_up("the checkout's metadata is old: make setup")
    assert done.returncode == 0, done.stderr
    assert "published acme/other v1 at" in done.stdout
    assert command("kernels.cli", "upload", "--help").returncode == 0
    assert command("kernels.cli", "upload", kernel.place, "--nonsense", **environ).returncode == 2


def test_large_files_go_without_xet_and_without_a_switch(publish, writable, checkout):
    """The client has hf-xet and would use it; a hub without it must not need an environment variable."""
    kernel = checkout("a")
    kernel.write("torch-ext/toy/__init__.py", f'TABLE = """{"x" * BIG}"""\n')
    kernel.build()
    done = publish(kernel)
    assert done.returncode == 0, done.stderr
    [path] = [path for path, data in writable.whole()["v1"].items() if len(data) > BIG]
    assert path == "build/torch-cpu/__init__.py"
    assert any(request.method == "PUT" for request in writable.hub.requests())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"HF_TOKEN": "khub_wrong"}, "the hub does not know the token that was sent (401)"),
        ({"HF_TOKEN": ""}, "the hub asks who you are (401)"),
        ({"HF_ENDPOINT": "https://elsewhere.example"}, "no token was sent"),
    ],
)
def test_a_token_that_is_not_good_changes_nothing(publish, writable, checkout, given, said):
    done = publish(checkout("a"), "--hub", writable.hub.url, **given)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (writable.root / "acme").exists()
    assert writable.token not in done.stderr + writable.hub.log.read_text()


def test_what_the_hub_refuses_is_said(publish, writable, checkout):
    kernel = checkout("a")
    private = publish(kernel, "--private")
    assert (private.returncode, "no private repositories" in private.stderr) == (1, True)
    stranger = publish(kernel, "--repo-id", "stranger/toy")
    assert (
        stranger.returncode,
        "may not write there (403: The token ci may not" in stranger.stderr,
    ) == (1, True)
    assert not list(writable.root.iterdir())
    assert publish(kernel).returncode == 0
    tagged = publish(kernel, "--create-pr", "--tag", "v1.0.0")
    assert tagged.returncode == 2


def test_who_may_only_propose_asks_and_the_owner_takes_it_over(
    publish, writable, checkout, reference
):
    kernel = checkout("a")
    assert publish(kernel).returncode == 0
    before = writable.whole()
    words = [sys.executable, "-m", "kernel_hub", "add-token", str(writable.tokens), "guest"]
    words += ["--owner", "acme", "--propose"]
    made = subprocess.run(words, check=True, capture_output=True, text=True)
    guest = {"HF_TOKEN": made.stdout.strip()}
    kernel.write("benchmarks/benchmark_more.py", "")
    refused = publish(kernel, **guest)
    assert (refused.returncode, "with --create-pr" in refused.stderr) == (1, True), refused.stderr
    asked = publish(kernel, "--create-pr", **guest)
    assert asked.returncode == 0, asked.stderr
    url = f"{writable.hub.url}/kernels/acme/toy/discussions/1"
    assert asked.stdout.splitlines()[-1] == f"asked for v1: {url}"
    assert writable.whole() == before
    code = 'from huggingface_hub import HfApi; result = HfApi().merge_pull_request("acme/toy", 1)'
    reference.python(writable.hub, writable.home, code, environ={"HF_TOKEN": writable.token})
    assert "benchmarks/benchmark_more.py" in writable.whole()["v1"]


def test_no_hub_is_meant_unless_it_is_named(command, checkout):
    done = command("kernel_builder.cli", "upload", checkout("a").place)
    assert done.returncode == 2
    assert "No hub is configured" in done.stderr


def test_a_folder_has_no_pull_requests(command, checkout, tmp_path):
    url = (tmp_path / "hub").as_uri()
    done = command("kernel_builder.cli", "upload", checkout("a").place, "--hub", url, "--create-pr")
    assert (done.returncode, "means nothing for a folder" in done.stderr) == (2, True)
    assert not (tmp_path / "hub").exists()


def wait_for(find):
    deadline = time.monotonic() + 30
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


@pytest.mark.parametrize("victim", ["client", "hub"])
def test_an_upload_that_is_killed_leaves_no_version_and_the_same_command_goes_on(
    publish, writable, checkout, environ, victim
):
    kernel = checkout("a")
    assert publish(kernel).returncode == 0
    before = writable.whole()
    kernel.configure(version=2)
    kernel.write("torch-ext/toy/__init__.py", f'TABLE = """{"x" * 5 * BIG}"""\n')
    kernel.build()
    kept = {"PATH": os.environ["PATH"], "HOME": str(writable.home), "NO_PROXY": "*"}
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from kernel_builder.cli import main; main()",
            "upload",
            kernel.place,
        ],
        env=kept | environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: list(writable.root.glob("acme/toy/.uploads/*.part")))
    if victim == "hub":
        writable.hub.process.send_signal(signal.SIGKILL)
    process.kill()
    process.wait()
    found = writable.whole()
    left = [name for name in found if name.startswith("uploading-v2-")]
    assert {name: files for name, files in found.items() if name not in left} == before
    if victim == "hub":
        writable.hub = writable.start()
    done = publish(kernel, "--json", HF_ENDPOINT=writable.hub.url)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "uploaded"
    assert len(writable.whole()["v2"]["build/torch-cpu/__init__.py"]) > 5 * BIG


def test_what_is_built_is_published_at_once_and_nothing_of_it_where_one_fails(
    command, environ, writable, checkout
):
    kernel = checkout("a")
    kernel.write("torch-ext/toy/__init__.py", "raise ImportError('not this one')\n")
    failed = command("kernel_builder.cli", "build-and-upload", kernel.place, **environ)
    assert (failed.returncode, "not this one" in failed.stdout + failed.stderr) == (1, True)
    assert not (writable.root / "acme").exists()
    kernel.write("torch-ext/toy/__init__.py", "VERSION = 1\n")
    done = command("kernel_builder.cli", "build-and-upload", kernel.place, **environ)
    assert done.returncode == 0, done.stderr
    assert writable.whole()["v1"]["build/torch-cpu/__init__.py"] == b"VERSION = 1\n"
