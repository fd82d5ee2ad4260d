"""Bundles: made for other machines, the same bytes each time, checked whole, loaded offline by the same call."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile

import pytest

import kernels
import kernels.load
from kernel_spec.backend import BackendKind
from kernel_spec.errors import FormatError, IntegrityError
from kernel_spec.metadata import KernelDependency
from kernels.bundle.archive import read_bundle
from kernels.bundle.target import parse_target
from kernels.cli import run
from kernels.errors import TrustError
from kernels.store import write_whole

CUDA = "torch212-cxx11-cu128-x86_64-linux"
STABLE = "torch-stable-abi29-cu130-x86_64-linux"
TARGET = "torch2.13-cu130-x86_64-linux"
INIT = "VALUE = {!r}\n"


@pytest.fixture
def bundle(tmp_path):
    return tmp_path / "out" / "kernels.bundle"


def variants(*names):
    return {name: {"__init__.py": INIT.format(name), "sub/data.bin": b"\0\1"} for name in names}


def make(bundle, *words):
    return run(["bundle", "create", *words, "-o", str(bundle)])


def elsewhere(monkeypatch, tmp_path, name="other", **environ):
    """Become another machine: an empty cache, an empty home, no network."""
    monkeypatch.setenv("HOME", str(tmp_path / name))
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / name / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    kernels.load.forget()


def test_the_same_call_loads_it_offline_on_another_machine(
    web, publisher, bundle, tmp_path, monkeypatch
):
    """kernels 172, 1: an air-gapped machine gives the same kernel by the same call."""
    publisher.publish(variants=variants("torch-cpu", "torch-cuda"), tags=("v1.2.0",))
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy@1") == 0
    web.fault = lambda path: ConnectionError("no network")
    elsewhere(monkeypatch, tmp_path)
    assert run(["bundle", "install", str(bundle), "--trust"]) == 0
    for call in ({}, {"version": 1}, {"version": "1.2.0"}, {"revision": "v1"}):
        assert kernels.get_kernel("acme/toy", **call).VALUE == "torch-cpu"
    commit = read_bundle(bundle).kernels[0].commit
    assert kernels.get_kernel("acme/toy", commit[:8]).VALUE == "torch-cpu"


def test_trusted_bytes_are_run_without_asking_whose_they_are(
    web, publisher, bundle, tmp_path, monkeypatch
):
    """A machine that no hub reaches, and nobody who told it so."""
    publisher.publish(variants=variants("torch-cpu"))
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy@1") == 0
    elsewhere(monkeypatch, tmp_path)
    assert run(["bundle", "install", str(bundle), "--trust"]) == 0
    assert run(["doctor", "acme/toy"]) == 0
    monkeypatch.delenv("HF_HUB_OFFLINE")
    web.fault = lambda path: ConnectionError("no network")
    assert kernels.get_kernel("acme/toy", version=1).VALUE == "torch-cpu"
    assert run(["doctor", "acme/toy"]) == 0


def test_installing_is_no_consent_to_run(web, publisher, bundle, tmp_path, monkeypatch):
    publisher.publish(variants=variants("torch-cpu"))
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy") == 0
    elsewhere(monkeypatch, tmp_path)
    assert run(["bundle", "install", str(bundle)]) == 0
    with pytest.raises(TrustError):
        kernels.get_kernel("acme/toy")
    assert kernels.get_kernel("acme/toy", trust_remote_code=True).VALUE == "torch-cpu"


def test_a_folder_is_a_hub_and_a_later_bundle_moves_it_on(
    publisher, bundle, tmp_path, monkeypatch, capsys
):
    publisher.publish(variants=variants("torch-cpu"))
    target = ("--target", "torch2.13-cpu-x86_64-linux")
    assert make(bundle, *target, "acme/toy") == 0
    folder = tmp_path / "srv"
    assert run(["bundle", "install", str(bundle), "--hub", str(folder)]) == 0
    assert f"KERNELS_HUB=file://{folder}" in capsys.readouterr().out
    publisher.publish(variants={"torch-cpu": {"__init__.py": INIT.format("newer")}})
    assert make(bundle, *target, "acme/toy") == 0
    elsewhere(monkeypatch, tmp_path, KERNELS_HUB=f"file://{folder}")
    assert kernels.get_kernel("acme/toy").VALUE == "torch-cpu"
    assert run(["bundle", "install", str(bundle), "--hub", str(folder)]) == 0
    assert kernels.get_kernel("acme/toy", version=1).VALUE == "newer"
    assert run(["bundle", "install", str(bundle), "--hub", str(folder)]) == 0, "again does no harm"


def test_unpacked_by_tar_it_is_a_hub(publisher, bundle, tmp_path, monkeypatch):
    publisher.publish(variants=variants("torch-cpu"))
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy") == 0
    with tarfile.open(bundle) as tar:
        tar.extractall(tmp_path / "srv", filter="data")
    elsewhere(monkeypatch, tmp_path, KERNELS_HUB=f"file://{tmp_path / 'srv'}")
    assert kernels.get_kernel("acme/toy", version=1).VALUE == "torch-cpu"


def test_two_commits_with_the_same_build_go_in_together(publisher, bundle, tmp_path, monkeypatch):
    old = publisher.publish(variants=variants("torch-cpu"), tags=("v1.0.0",))
    publisher.publish(variants=variants("torch-cpu"), extra={"README.md": "# Toy\n"})
    target = ("--target", "torch2.13-cpu-x86_64-linux")
    assert make(bundle, *target, "acme/toy@1", "acme/toy@1.0.0") == 0
    assert {k.commit == old for k in read_bundle(bundle).kernels} == {True, False}
    assert run(["bundle", "install", str(bundle), "--hub", str(tmp_path / "srv")]) == 0
    elsewhere(monkeypatch, tmp_path, KERNELS_HUB=f"file://{tmp_path / 'srv'}")
    assert kernels.get_kernel("acme/toy", version="1.0.0") is kernels.get_kernel("acme/toy")


def test_targets_are_chosen_for_without_their_torch_or_gpu(publisher, bundle, capsys):
    """bitsandbytes 1559: a login node has no GPU; what is chosen is for the other machine."""
    publisher.publish(variants=variants(CUDA, "torch-cpu"), branch="v1", backend=BackendKind.CUDA)
    publisher.publish(variants=variants(STABLE), branch="v3", backend=BackendKind.CUDA)
    assert make(bundle, "--target", "torch2.12-cu128-x86_64-linux", "acme/toy@v1") == 0
    assert list(read_bundle(bundle).kernels[0].variants) == [CUDA]
    assert make(bundle, "--target", TARGET, "acme/toy") == 0
    assert list(read_bundle(bundle).kernels[0].variants) == [STABLE]
    capsys.readouterr()
    assert make(bundle, "--target", TARGET, "--target", TARGET, "acme/toy@1") == 1
    said = capsys.readouterr().err
    assert "torch 2.13, cuda 13.0, x86_64 linux" in said
    assert "built for torch 2.12, the target has torch 2.13" in said
    assert "this system" not in said
    assert said.count(CUDA) == 1, "one fault is told once"


def test_devices_of_the_target_decide_where_they_are_said(publisher, bundle, capsys):
    publisher.publish(variants=variants(STABLE), archs=("9.0a",), backend=BackendKind.CUDA)
    assert make(bundle, "--target", TARGET, "--arch", "9.0", "acme/toy") == 0
    assert make(bundle, "--target", TARGET, "--arch", "12.0", "acme/toy") == 1
    assert "(12.0)" in capsys.readouterr().err
    assert make(bundle, "--target", TARGET, "acme/toy") == 0


def test_kernels_that_a_kernel_needs_come_along(web, publisher, bundle, tmp_path, monkeypatch):
    publisher.publish("acme/base", variants=variants("torch-cpu"))
    needs = (KernelDependency(repo_id="acme/base", version=1),)
    code = "import kernels\nBASE = kernels.get_kernel_dep('acme/base').VALUE\n"
    publisher.publish(variants={"torch-cpu": {"__init__.py": code}}, needs=needs)
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy") == 0
    elsewhere(monkeypatch, tmp_path)
    assert run(["bundle", "install", str(bundle), "--trust"]) == 0
    assert kernels.get_kernel("acme/toy").BASE == "torch-cpu"


def test_a_lock_says_what_goes_in_and_loads_it_there(
    publisher, bundle, tmp_path, monkeypatch, capsys
):
    commit = publisher.publish(variants=variants("torch-cpu", "torch-cuda"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/toy" = 1\n')
    assert run(["lock", str(project)]) == 0
    publisher.publish(variants=variants("torch-universal"))
    lock = project / "kernels.lock"
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "--lock", str(lock)) == 0
    [packed] = read_bundle(bundle).kernels
    assert (packed.commit, list(packed.variants), packed.branches) == (
        commit,
        ["torch-cpu"],
        ("v1",),
    )
    elsewhere(monkeypatch, tmp_path, KERNELS_HUB="https://hub.invalid")
    assert run(["bundle", "install", str(bundle)]) == 0
    assert kernels.load_kernel("acme/toy", lockfile=lock).VALUE == "torch-cpu", "a lock is consent"
    both = ["--target", "torch2.13-cpu-x86_64-linux", "--lock", str(lock), "acme/toy@1"]
    monkeypatch.setenv("KERNELS_HUB", publisher.url)
    assert make(bundle, *both) == 1
    assert "acme/toy: v1 would mean" in capsys.readouterr().err
    forged = lock.read_text().replace(packed.variants["torch-cpu"], "0" * 64)
    lock.write_text(forged)
    elsewhere(monkeypatch, tmp_path, "third", KERNELS_HUB=publisher.url)
    capsys.readouterr()
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "--lock", str(lock)) == 1
    assert "not what the lock names" in capsys.readouterr().err


def test_equal_kernels_give_equal_bytes(publisher, tmp_path, monkeypatch):
    publisher.publish(variants=variants("torch-cpu", "torch-cuda"), tags=("v1.0.0",))
    publisher.publish("acme/other", variants=variants("torch-cpu"))
    target = ("--target", "torch2.13-cpu-x86_64-linux")
    first, second = tmp_path / "a", tmp_path / "b"
    assert make(first, *target, "acme/toy", "acme/other") == 0
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache2"))
    os.umask(os.umask(0o077) or 0o022)
    assert make(second, *target, "acme/other", "acme/toy", "acme/toy@1") == 0
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        entries = tar.getmembers()
    assert {(e.mtime, e.uid, e.gid, e.uname, e.gname) for e in entries} == {(0, 0, 0, "", "")}


def test_a_list_says_what_is_inside(publisher, bundle, capsys):
    publisher.publish(variants=variants("torch-cpu"), tags=("v1.0.0",))
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert run(["bundle", "list", str(bundle), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == made
    [kernel] = made["kernels"]
    assert (kernel["repo_id"], kernel["branches"], kernel["tags"]) == (
        "acme/toy",
        ["v1"],
        ["v1.0.0"],
    )
    assert run(["bundle", "list", str(bundle)]) == 0
    assert "bytes in 1 kernel\n" in capsys.readouterr().out
    assert run(["bundle", "verify", str(bundle), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == {}


@pytest.fixture
def whole(publisher, bundle):
    """A bundle as name → bytes, to be written again with a change."""
    publisher.publish(variants=variants("torch-cpu"))
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy") == 0
    with tarfile.open(bundle) as tar:
        return {e.name: tar.extractfile(e).read() for e in tar.getmembers()}  # type: ignore[union-attr]


def write(bundle, members, extra=()):
    with tarfile.open(bundle, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for entry in extra:
            tar.addfile(entry)


def test_every_changed_file_is_found_and_nothing_is_installed(whole, bundle, tmp_path, capsys):
    """Each member in turn: a changed byte, cut off, left out."""
    for name, data in whole.items():
        changed = bytes([data[0] ^ 1]) + data[1:]
        cases = {"changed": {name: changed}, "cut": {name: data[:-1]}, "gone": {}}
        for case, new in cases.items():
            write(bundle, {k: v for k, v in whole.items() if k != name or new} | new)
            capsys.readouterr()
            assert run(["bundle", "install", str(bundle), "--hub", str(tmp_path / "srv")]) == 1, (
                name,
                case,
            )
            assert str(bundle) in capsys.readouterr().err
            assert not (tmp_path / "srv").exists()
    assert run(["bundle", "verify", str(bundle)]) == 1


def link(name, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def sized(name, size):
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        (tarfile.TarInfo("../escape"), "escape"),
        (tarfile.TarInfo("/etc/escape"), "absolute"),
        (tarfile.TarInfo("acme/toy/snapshots/a\\b"), "backslash"),
        (tarfile.TarInfo("BUNDLE.json"), "twice"),
        (tarfile.TarInfo("acme/toy/stray"), "no listing names it"),
        (link("acme/toy/refs/heads/v2", "/etc/passwd"), "link"),
    ],
)
def test_no_member_escapes_or_hides(whole, bundle, entry, word):
    write(bundle, whole, [entry])
    with pytest.raises(FormatError, match=word):
        read_bundle(bundle)


def test_a_size_that_lies_is_refused_before_it_is_read(whole, bundle):
    write(bundle, whole, [sized("acme/toy/huge", 1 << 40)])
    with pytest.raises(FormatError, match="more than the file holds"):
        read_bundle(bundle)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_lies_of_its_size_takes_no_memory(whole, bundle, kind):
    """What stands before a member is read whole: room is made for as much as it says it has."""
    entry = sized("acme/toy/named", 1 << 50)
    entry.type = kind
    bundle.write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(FormatError, match="not a bundle, or a damaged one: a header in it says"):
        read_bundle(bundle)


def test_what_is_compressed_is_refused_and_never_grows(whole, bundle):
    """A zip bomb needs somebody who decompresses it."""
    write(bundle, whole)
    bundle.write_bytes(gzip.compress(bundle.read_bytes()))
    with pytest.raises(FormatError, match="found gzip"):
        read_bundle(bundle)


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 2048, b"not a tar at all" * 100])
def test_what_is_no_bundle_is_one_message(bundle, data, capsys):
    bundle.parent.mkdir()
    bundle.write_bytes(data)
    assert run(["bundle", "list", str(bundle)]) == 1
    assert "not a bundle" in capsys.readouterr().err


CONTRADICTIONS = {
    "digest": (
        lambda kernel, _: kernel["variants"].update({"torch-cpu": "0" * 64}),
        "build/torch-cpu: its files are not those of its digest",
    ),
    "variant": (
        lambda kernel, _: kernel.update(variants={"torch-cuda": "0" * 64}),
        "build/torch-cpu/__init__.py: of no variant that the bundle names",
    ),
    "file": (
        lambda kernel, _: kernel["files"].pop(),
        "build/torch-cpu/sub/data.bin: of no variant that the bundle names",
    ),
    "size": (
        lambda kernel, _: kernel["files"][0].__setitem__(1, 7),
        "build/torch-cpu/__init__.py: not what the hub listed",
    ),
    "sha256": (
        lambda kernel, _: kernel["files"][0].__setitem__(3, "0" * 64),
        "build/torch-cpu/__init__.py: not what the hub listed",
    ),
    "repo": (lambda kernel, _: kernel.update(repo_id="acme/else"), "acme/else/trees/"),
    "path": (lambda kernel, _: kernel["files"][0].__setitem__(0, "../x"), "the part '..'"),
    "commit": (lambda kernel, _: kernel.update(commit="main"), "hex digits, found 'main'"),
    "form": (lambda _, manifest: manifest.update(format=2), "format"),
}


@pytest.mark.parametrize(("change", "words"), CONTRADICTIONS.values(), ids=list(CONTRADICTIONS))
def test_a_manifest_that_contradicts_its_files_is_refused(whole, bundle, capsys, change, words):
    manifest = json.loads(whole["bundle.json"])
    change(manifest["kernels"][0], manifest)
    write(bundle, whole | {"bundle.json": json.dumps(manifest, indent=1).encode() + b"\n"})
    assert run(["bundle", "list", str(bundle)]) == 1
    assert words in capsys.readouterr().err


def test_a_cache_that_knows_other_files_of_that_commit_refuses(web, whole, bundle, cache):
    assert make(bundle, "--target", "torch2.13-cpu-x86_64-linux", "acme/toy") == 0
    for tree in cache.glob("trees/*/acme/toy/*.json"):
        document = json.loads(tree.read_text())
        document["files"][0][2] = "0" * 40
        tree.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match="forged"):
        kernels_install(bundle)


def kernels_install(bundle):
    from kernels.bundle.unpack import install_into_cache
    from kernels.settings import read_settings

    return install_into_cache(read_bundle(bundle), read_settings(), trust=False)


def test_folders_take_a_bundle_as_folders(whole, bundle, capsys):
    """The settings name folders alone: the cache would never be asked."""
    assert run(["bundle", "install", str(bundle)]) == 1
    assert "--hub FOLDER" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["create", "--target", "torch-cpu", "acme/toy", "-o", "x"],
        ["create", "--target", "torch-stable-abi29-cu130-x86_64-linux", "acme/toy", "-o", "x"],
        ["create", "--target", TARGET, "-o", "x"],
        ["create", "--target", TARGET, "acme/toy@", "-o", "x"],
        ["create", "acme/toy", "-o", "x"],
        ["install", "nowhere"],
    ],
)
def test_wrong_usage_is_told_as_such(words, environment, monkeypatch):
    monkeypatch.chdir(environment)
    assert run(["bundle", *words]) == 2
    assert not (environment / "x").exists()


def test_targets_are_read_like_variants_with_or_without_a_dot():
    assert parse_target("torch2.13-cu130-x86_64-linux") == parse_target(
        "torch213-cu130-x86_64-linux"
    )
    assert parse_target("torch2.9-cxx98-cpu-aarch64-linux").torch.cxx11_abi is False  # type: ignore[union-attr]
    assert parse_target("tvm-ffi0.1-cpu-x86_64-linux").torch is None
    assert [d.arch for d in parse_target(TARGET, ["9.0", "10.0"]).devices] == ["9.0", "10.0"]


def test_a_kill_while_writing_leaves_the_earlier_bundle(publisher, bundle, monkeypatch):
    publisher.publish(variants=variants("torch-cpu"))
    target = ("--target", "torch2.13-cpu-x86_64-linux", "acme/toy")
    assert make(bundle, *target) == 0
    before = bundle.read_bytes()
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert make(bundle, *target) == 130
    monkeypatch.undo()
    assert bundle.read_bytes() == before
    assert list(bundle.parent.iterdir()) == [bundle]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device here that is always full")  # noqa: PTH110
def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    """What is written to an open file fails without a name."""
    full = (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "new"))
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_whole(tmp_path / "kernels.lock", b"x")
    assert caught.value.filename == str(tmp_path / "kernels.lock")
