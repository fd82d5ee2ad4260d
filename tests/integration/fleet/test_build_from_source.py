"""A variant that is missing is built from the repository's sources: once per host, by who is trusted."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import pytest

from kernel_spec.backend import BackendKind

LOAD = """
import kernels
from kernels.load import load_with_trace
trace = load_with_trace('acme/toy', build_from_source='missing')
import torch
out = trace.module.add_one(torch.tensor([3.0, 6.0]))
built = [phase.name for phase in trace.phases if phase.name == 'build']
print(trace.path.name, out.tolist(), *built)
"""
SCALE = """
import kernels, torch
print(kernels.get_kernel('acme/toy', build_from_source='missing').__name__)
"""
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture
def sources(root, publish, kits):
    """Publish a variant for CUDA alone, and the sources of an op for the CPU."""
    return publish(
        root, variant="torch-cuda", backend=BackendKind.CUDA, sources=kits / "add_stable"
    )


def test_without_the_argument_nothing_is_built(host, sources):
    said = host.run("import kernels; kernels.get_kernel('acme/toy')", fails=True)
    assert "NoVariantError" in said
    assert "runs on cuda, this system has cpu" in said


@needs_compiler
def test_two_processes_share_one_build_that_others_find_offline(host, web, sources):
    processes = [host.start(LOAD) for _ in range(2)]
    outs, errors = zip(*(process.communicate(timeout=300) for process in processes), strict=True)
    assert [process.returncode for process in processes] == [0, 0], errors
    first = outs[0].strip()
    assert outs[1].strip() == first
    assert first.endswith("[4.0, 7.0] build")
    assert "".join(errors).count("building one from the sources") == 1
    assert list((host.store / "tmp").iterdir()) == []
    assert list((host.home / ".cache" / "kernel-builder" / "work").iterdir()) == []
    asked = len(web.requests())
    # Neither a hub nor a compiler is needed again.
    assert host.run(LOAD, CXX="/nowhere") == first
    assert len(web.requests()) == asked
    web.stop()
    assert host.run(LOAD, CXX="/nowhere", HF_HUB_OFFLINE="1") == first


@needs_compiler
def test_a_killed_builder_leaves_nothing_that_another_would_use(host, sources):
    slow = host.home / "g++"
    slow.write_text("#!/bin/sh\nsleep 600\n")
    slow.chmod(0o755)
    process = host.start(LOAD, CXX=str(slow))
    until = time.monotonic() + 60
    while not list(host.store.glob("tmp/*-source/build.toml")) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (host.store / "variants").exists()
    assert "[4.0, 7.0]" in host.run(LOAD)
    assert list((host.store / "tmp").iterdir()) == []
    assert len(list((host.store / "variants").iterdir())) == 1


def test_sources_that_do_not_compile_say_which_line_and_leave_nothing(host, root, publish, kits):
    project = host.home / "broken"
    shutil.copytree(kits / "add_stable", project)
    (project / "csrc" / "add_cpu.cpp").write_text("this is no C++;\n")
    publish(root, variant="torch-cuda", backend=BackendKind.CUDA, sources=project)
    said = host.run(LOAD, fails=True)
    assert "SourceBuildError" in said
    assert "add_cpu.cpp" in said
    assert not (host.store / "variants").exists()
    assert list((host.store / "tmp").iterdir()) == []


def test_a_stranger_s_sources_are_not_even_fetched(host, serve, root, sources):
    hub = serve(root)
    host.hub = hub.url
    said = host.run(LOAD, fails=True)
    assert "TrustError" in said
    assert not [r for r in hub.requests() if "/src" in r.path]
    hub.stop()


def test_without_the_builder_one_error_names_the_extra(host, sources):
    hide = "import sys; sys.modules['kernel_builder'] = None\n"
    said = host.run(hide + LOAD, fails=True)
    assert "pip install 'kernels[builder]'" in said
    assert "runs on cuda, this system has cpu" in said


def test_a_repository_without_sources_says_so(host, root, publish):
    publish(root, variant="torch-cuda", backend=BackendKind.CUDA)
    assert "acme/toy carries no sources" in host.run(LOAD, fails=True)


def test_the_published_sources_are_those_that_were_uploaded(host, root, kits, tmp_path):
    """From a project without machine code to a variant that its author did not build."""
    project = tmp_path / "scale"
    shutil.copytree(kits / "scale_noarch", project)
    told = project / "build.toml"
    told.write_text(told.read_text().replace('["cpu"]', '["cpu", "cuda"]'))
    environ = {"HOME": str(host.home), "PATH": "/usr/bin:/bin"}
    main = "import sys; from kernel_builder.cli import main; sys.argv[0] = 'kernel-builder'; main()"

    def builder(*words):
        command = [sys.executable, "-c", main, *words]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    builder("build", str(project), "--backend", "cuda")
    where = ["--repo-id", "acme/toy", "--hub", host.hub, "--yes"]
    assert "+ src/build.toml" in builder("upload", str(project), "--with-sources", *where)
    assert "nothing to publish" in builder("upload", str(project), "--with-sources", *where)
    assert "Error" in host.run("import kernels; kernels.get_kernel('acme/toy')", fails=True)
    assert host.run(SCALE).startswith("kernels.copies.")
