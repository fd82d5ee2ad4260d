"""Headers that come from elsewhere: fetched by hash once, then built with, without a network."""

import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from lacking import give_up

from kernel_builder.depends import fetch_dependency, find_origins
from kernel_builder.errors import ArchiveError, LockError, ToolchainError
from kernel_builder.locking import lock_project, update_lock
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import Outcome, Report
from kernel_builder.settings import SandboxMode, Settings, read_settings
from kernel_builder.toolchain.cuda import get_cuda
from kernel_spec.backend import BackendKind

Kit = Callable[[str], Path]
CPU = Selection(backends=frozenset({BackendKind.CPU}))
CUDA = Selection(backends=frozenset({BackendKind.CUDA}))


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str, HTTPServer]]:
    """A folder that is served, its address, and the server."""
    root = tmp_path / "www"
    root.mkdir()
    server = HTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield root, f"http://127.0.0.1:{server.server_address[1]}", server
    server.shutdown()
    server.server_close()


def archive(place: Path, value: str) -> str:
    """Write an archive of one header, and return its hash."""
    text = f"#pragma once\nconstexpr float kMore = {value};\n".encode()
    with tarfile.open(place, "w:gz") as file:
        info = tarfile.TarInfo("more-1.0/include/more/more.h")
        info.size = len(text)
        file.addfile(info, io.BytesIO(text))
    return hashlib.sha256(place.read_bytes()).hexdigest()


def declare(project: Path, url: str, sha256: str) -> None:
    """Make a kit depend on the header, which its CPU file then needs."""
    table = project / "build.toml"
    text = table.read_text().replace(
        '"torch"]\nsrc = ["csrc/add.h", "csrc/add_cpu',
        '"torch", "more"]\nsrc = ["csrc/add.h", "csrc/add_cpu',
    )
    assert '"more"]' in text
    text += f'\n[sources.more]\nurl = "{url}/more.tgz"\nsha256 = "{sha256}"\n'
    table.write_text(text + 'include = ["more-1.0/include"]\nlicense = "MIT"\n')
    source = project / "csrc" / "add_cpu.cpp"
    source.write_text("#include <more/more.h>\nstatic_assert(kMore > 0.5f);\n" + source.read_text())


def build(project: Path, settings: Settings, selection: Selection = CPU) -> Report:
    return build_project(project, settings=settings, selection=selection, jobs=2)


def test_an_archive_is_fetched_once_and_kept(
    kit: Kit, settings: Settings, served: tuple[Path, str, HTTPServer], tmp_path: Path
) -> None:
    root, url, server = served
    project = kit("add_stable")
    declare(project, url, archive(root / "more.tgz", "1.0f"))
    one = build(project, settings)
    assert one.exit_code == 0, one.variants[0].error
    assert any(
        "[sources] of build.toml is read by this builder alone" in each for each in one.notes
    )
    (place,) = project.glob("build/*/metadata.json")
    depends = json.loads(place.read_text())["kernels-ext"]["depends"]
    assert depends["more"]["license"] == "MIT"
    assert depends["more"]["origin"] == f"{url}/more.tgz"
    server.shutdown()
    server.server_close()
    # Without a network: what is kept is enough, and what is not is named.
    two = build_project(project, settings=settings, selection=CPU, force=True)
    assert two.exit_code == 0, two.variants[0].error
    empty = build(project, replace(settings, cache=tmp_path / "cache"))
    assert isinstance(empty.variants[0].error, ArchiveError)
    assert f"more: {url}/more.tgz cannot be fetched" in str(empty.variants[0].error)
    assert "--source more=FILE" in str(empty.variants[0].error)
    given = {"more": root / "more.tgz"}
    three = build(project, replace(settings, cache=tmp_path / "cache", local_sources=given))
    assert three.exit_code == 0, three.variants[0].error


def test_an_archive_that_changed_where_it_lies(
    kit: Kit, settings: Settings, served: tuple[Path, str, HTTPServer]
) -> None:
    root, url, _ = served
    project = kit("add_stable")
    sha256 = archive(root / "more.tgz", "2.0f")
    declare(project, url, sha256)
    found = archive(root / "more.tgz", "3.0f")
    error = build(project, settings).variants[0].error
    assert isinstance(error, ArchiveError)
    assert f"found sha256 {found}, expected {sha256}" in str(error)
    assert not list(project.glob("build/*"))


def test_another_archive_is_a_drift_until_the_lock_has_it(
    kit: Kit, settings: Settings, served: tuple[Path, str, HTTPServer]
) -> None:
    root, url, _ = served
    project = kit("add_stable")
    old = archive(root / "more.tgz", "4.0f")
    declare(project, url, old)
    with pytest.raises(LockError, match=r"--locked, and there is no kernel-builder\.lock"):
        build_project(project, settings=settings, selection=CPU, locked=True)
    first = lock_project(project, settings)
    text = first.path.read_bytes()
    assert lock_project(project, settings).written is False
    new = archive(root / "more.tgz", "5.0f")
    table = project / "build.toml"
    table.write_text(table.read_text().replace(old, new))
    with pytest.raises(LockError, match=r"kernel-builder update more$") as caught:
        build(project, settings)
    assert f"sha256: locked {old}, found {new}" in str(caught.value)
    (change,) = update_lock(project, ["more"], settings).changes
    assert change.name == "more"
    assert first.path.read_bytes() != text
    done = build_project(project, settings=settings, selection=CPU, locked=True)
    assert done.exit_code == 0, done.variants[0].error
    assert build(project, settings).variants[0].outcome is Outcome.UP_TO_DATE


def test_a_kernel_that_includes_cutlass(kit: Kit, settings: Settings) -> None:
    """The kit refuses to compile with another release than the one that it depends on."""
    shared = replace(settings, cache=_shared_cache())
    try:
        get_cuda(shared)
        (origin,) = find_origins(["cutlass_3_8"], (), shared)
        fetch_dependency(origin, shared)
    except ToolchainError as err:
        give_up(err)
    project = kit("add_cutlass")
    report = build(project, shared, CUDA)
    assert report.exit_code == 0, report.variants[0].error
    (place,) = project.glob("build/*/metadata.json")
    depends = json.loads(place.read_text())["kernels-ext"]["depends"]
    assert depends == {
        "cutlass_3_8": {
            "license": "BSD-3-Clause",
            "origin": "nvidia-cutlass",
            "sha256": origin.sha256,
            "version": "3.8.0.0",
        }
    }
    # In another place, without a sandbox and with nothing kept: the same bytes.
    cache = project.parent / "another-cache"
    cache.mkdir()
    for name in ("toolchains", "sources"):
        (cache / name).symlink_to(shared.cache / name)
    other = Path(shutil.copytree(project, project.parent / "a" / "b", ignore=_without_build))
    plain = replace(shared, cache=cache, sandbox=SandboxMode.OFF)
    again = build(other, plain, CUDA)
    assert again.variants[0].compiled == 3, again.variants[0].error
    assert _files(other) == _files(project)


def _without_build(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "build"]


def _files(project: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in project.glob("build/*/*")}


def _shared_cache() -> Path:
    """The user's cache: a CUDA toolkit is not fetched for every run."""
    return read_settings(os.environ).cache
