"""Locks: what is written, what is fetched, and what is loaded by them."""

from __future__ import annotations

import hashlib
import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

import kernels
from kernel_spec import directory
from kernel_spec.errors import IntegrityError, LockError
from kernel_spec.lock import git_lfs_concat, parse_lock
from kernel_spec.metadata import KernelDependency
from kernel_spec.names import RepoId
from kernels.cli import run
from kernels.errors import NotCachedError, NotLockedError, NoVariantError, TrustError
from kernels.load import forget

TWO = {"torch-cpu": {"__init__.py": "VALUE = 2\n"}}


@pytest.fixture
def call(capsys):
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project: write its dependencies with ``project('"acme/toy" = 1')``."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(*lines: str) -> Path:
        text = "\n".join(["[tool.kernels.dependencies]", *lines, ""])
        (folder / "pyproject.toml").write_text(text)
        return folder

    return write


@pytest.fixture
def locked(publisher, project, call):
    """A project that uses acme/toy version 1, locked; a later commit was published since."""
    publisher.publish("acme/toy")
    folder = project('"acme/toy" = 1')
    assert call("lock")[0] == 0
    publisher.publish("acme/toy", variants=TWO)
    return folder


def entries(folder):
    return parse_lock((folder / "kernels.lock").read_bytes()).kernels


def test_every_form_of_a_request_is_locked_and_kept_until_upgraded(publisher, project, call):
    one = publisher.publish("acme/toy", branch="v1", tags=("v1.0.0",))
    folder = project('"acme/toy" = 1')
    code, out, err = call("lock")
    assert (code, err) == (0, "")
    assert out == f"added acme/toy version 1 (commit {one[:12]})\n"
    [entry] = entries(folder)
    path = kernels.install_kernel("acme/toy")
    assert entry.variants == {"torch-cpu": path.parent.name}
    written = (folder / "kernels.lock").read_bytes()
    two = publisher.publish("acme/toy", branch="v1", variants=TWO, tags=("v1.1.0",))
    assert call("lock", ".")[1] == f"kept acme/toy version 1 (commit {one[:12]})\n"
    assert (folder / "kernels.lock").read_bytes() == written
    assert call("lock", ".", "--upgrade")[1] == (
        f"updated acme/toy version 1 (commit {two[:12]}), was {one[:12]}\n"
    )
    project('"acme/toy" = ">=1.0.0,<1.1"')
    document = json.loads(call("lock", "--json")[1])
    assert [(e["change"], e["commit"]) for e in document["kernels"]] == [
        ("added", one),
        ("removed", two),
    ]
    project('"acme/toy" = { revision = "v1.1.0" }')
    assert call("lock")[0] == 0
    assert [(e.revision, e.commit) for e in entries(folder)] == [("v1.1.0", two)]


def test_a_project_with_faults_names_all_of_them(publisher, project, call):
    folder = project(
        '"toy" = 1',
        '"acme/a" = true',
        '"acme/b" = "^1"',
        '"acme/c" = -1',
        '"acme/d" = { revision = "x", version = 1 }',
        '"acme/e" = { version = ">=1" }',
    )
    code, out, err = call("lock")
    assert (code, out) == (1, "")
    assert str(Path("pyproject.toml")) in err
    assert all(f'"{name}"' in err for name in ("toy", "acme/a", "acme/b", "acme/c", "acme/d"))
    assert "acme/e" not in err
    assert not (folder / "kernels.lock").exists()
    (folder / "pyproject.toml").write_text("[project]\n")
    assert "no table [tool.kernels.dependencies]" in call("lock")[2]
    (folder / "pyproject.toml").write_text("[")
    assert call("lock")[0] == 1
    (folder / "pyproject.toml").unlink()
    code, _, err = call("lock")
    assert code == 1
    assert "pyproject.toml cannot be read" in err
    assert "[tool.kernels.dependencies]" in err, "who has none is told what to write"
    assert call("lock", "nowhere")[0] == 2


def test_a_failed_lock_leaves_the_one_there_was(locked, project, publisher, call):
    before = (locked / "kernels.lock").read_bytes()
    project('"acme/toy" = 1', '"acme/none" = 1')
    code, _, err = call("lock")
    assert code == 1
    assert "acme/none" in err
    assert (locked / "kernels.lock").read_bytes() == before


def test_a_locked_commit_that_is_gone_says_how_to_move_on(locked, publisher, call, cache):
    [entry] = entries(locked)
    (publisher.hub.root / "acme/toy/trees" / f"{entry.commit}.json").unlink()
    shutil.rmtree(cache)
    code, _, err = call("lock")
    assert code == 1
    assert "kernels lock --upgrade" in err
    assert call("lock", "--upgrade")[0] == 0


def test_a_moved_kernel_is_to_be_named_anew(publisher, project, call):
    publisher.publish("bob/new")
    text = 'kind = "redirect"\ndestination = "bob/new"\n'
    publisher.publish("acme/old", branch="main", variants={}, extra={"kernel-status.toml": text})
    project('"acme/old" = 1')
    code, _, err = call("lock")
    assert code == 1
    assert "has moved to bob/new: name that in pyproject.toml" in err


def test_a_kernel_without_a_variant_that_is_known_here_is_not_locked(publisher, project, call):
    publisher.publish("acme/toy", variants={"torch-quantum": {"__init__.py": ""}})
    folder = project('"acme/toy" = 1')
    code, _, err = call("lock")
    assert code == 1
    assert "acme/toy version 1 has no build variants that this client knows" in err
    assert not (folder / "kernels.lock").exists()


def test_what_a_kernel_needs_is_locked_with_it_for_every_variant(publisher, project, call):
    publisher.publish("bob/base")
    publisher.publish(
        "acme/top",
        variants={
            "torch-cpu": {"__init__.py": "import kernels\nB = kernels.get_kernel_dep('bob/base')"}
        },
        needs=(KernelDependency(repo_id="bob/base", version=1),),
    )
    folder = project('"acme/top" = 1')
    call("lock")
    assert [entry.repo_id for entry in entries(folder)] == ["acme/top", "bob/base"]
    publisher.publish("bob/base", variants=TWO)
    assert call("download")[0] == 0
    assert kernels.load_kernel("acme/top", folder / "kernels.lock").B.VALUE == 1


def test_download_brings_what_load_kernel_needs_and_nothing_else_does(locked, call, publisher):
    lock = locked / "kernels.lock"
    with pytest.raises(NotCachedError, match="kernels download"):
        kernels.load_kernel("acme/toy", lock)
    code, out, err = call("download", ".")
    assert (code, err) == (0, "")
    assert out.startswith("acme/toy torch-cpu (commit ")
    assert out.endswith("): downloaded\n")
    assert call("download")[1].endswith("): already here\n")
    [entry] = json.loads(call("download", "--json")[1])["kernels"]
    assert entry["digest"] == entries(locked)[0].variants["torch-cpu"]
    shutil.rmtree(publisher.hub.root)
    assert kernels.load_kernel("acme/toy", lockfile=lock).VALUE == 1
    assert kernels.get_locked_kernel("acme/toy", lock).VALUE == 1
    assert kernels.get_locked_kernel("acme/toy", lockfile=str(lock)).VALUE == 1


def test_all_variants_are_fetched_for_other_machines(publisher, project, call, cache):
    publisher.publish(
        "acme/toy",
        variants={"torch-cpu": {"__init__.py": "VALUE = 1"}, "torch-cuda": {"__init__.py": ""}},
    )
    project('"acme/toy" = 1')
    call("lock")
    code, out, _ = call("download", "--all-variants")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == ["torch-cpu", "torch-cuda"]
    assert len(list((cache / "variants").iterdir())) == 2


def test_download_goes_on_after_a_failure_and_exits_with_1(publisher, project, call):
    publisher.publish("acme/cuda", variants={"torch-cuda": {"__init__.py": ""}})
    publisher.publish("acme/toy")
    project('"acme/cuda" = 1', '"acme/toy" = 1')
    assert call("lock")[0] == 0
    code, out, err = call("download")
    assert code == 1
    assert "acme/toy torch-cpu" in out
    assert "torch-cuda: runs on cuda" in err
    assert "1 of 2 are not here" in err
    code, _, err = call("download", "..")
    assert code == 1
    assert "Write it with: kernels lock" in err


def test_get_locked_kernel_downloads_the_locked_commit(locked):
    assert kernels.get_kernel("acme/toy").VALUE == 2
    assert kernels.get_locked_kernel("acme/toy", locked / "kernels.lock").VALUE == 1
    assert kernels.get_loaded_kernels()[-1].repo_info.revision == entries(locked)[0].commit


def test_local_files_only_downloads_nothing(locked):
    with pytest.raises(NotCachedError):
        kernels.get_locked_kernel("acme/toy", locked / "kernels.lock", local_files_only=True)


def test_other_bytes_than_the_locked_ones_are_refused(locked, publisher):
    lock = locked / "kernels.lock"
    document = json.loads(lock.read_bytes())
    document["kernels"][0]["variants"]["torch-cpu"] = "0" * 64
    lock.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match="not what the lock names") as error:
        kernels.get_locked_kernel("acme/toy", lock)
    assert "0" * 64 in str(error.value)
    document["kernels"][0]["variants"] = {"torch-cuda": "0" * 64}
    lock.write_text(json.dumps(document))
    with pytest.raises(NoVariantError):
        kernels.get_locked_kernel("acme/toy", lock)


def test_a_damaged_copy_is_refused_offline_and_fetched_again_online(locked, call):
    lock = locked / "kernels.lock"
    call("download")
    [place] = [
        Path(entry["path"]) for entry in json.loads(call("download", "--json")[1])["kernels"]
    ]
    (place / "__init__.py").write_text("VALUE = 666\n")
    with pytest.raises(IntegrityError, match="kernels download"):
        kernels.load_kernel("acme/toy", lock)
    code, _, _ = call("verify", ".")
    assert code == 1
    assert call("download")[0] == 0
    assert kernels.load_kernel("acme/toy", lock).VALUE == 1
    assert call("verify", ".")[0] == 0


def test_what_is_not_locked_names_what_is(locked):
    lock = locked / "kernels.lock"
    with pytest.raises(NotLockedError, match="no entry for acme/other") as error:
        kernels.load_kernel("acme/other", lock)
    assert isinstance(error.value, ValueError)
    with pytest.raises(NotLockedError, match="cannot be read"):
        kernels.load_kernel("acme/toy", locked / "none.lock")
    lock.write_text("[1]")
    with pytest.raises(LockError, match=str(lock)):
        kernels.load_kernel("acme/toy", lock)


def test_a_job_is_pinned_by_an_environment_variable(locked, monkeypatch, call):
    assert kernels.get_kernel("acme/toy").VALUE == 2
    monkeypatch.setenv("KERNELS_LOCK", str(locked / "kernels.lock"))
    commit = entries(locked)[0].commit
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert kernels.get_kernel("acme/toy") is kernels.get_kernel("acme/toy", version=1)
    assert kernels.get_kernel("acme/toy", revision=commit[:9]).VALUE == 1
    with pytest.raises(NotLockedError):
        kernels.get_kernel("acme/toy", revision=commit[:6])
    assert kernels.load_kernel("acme/toy").VALUE == 1
    assert kernels.has_kernel("acme/toy")
    for arguments in ({"version": 2}, {"version": ">=1"}, {"revision": "main"}):
        with pytest.raises(NotLockedError, match="acme/toy version 1"):
            kernels.get_kernel("acme/toy", **arguments)
    with pytest.raises(NotLockedError, match="acme/other"):
        kernels.get_kernel("acme/other")
    assert not kernels.has_kernel("acme/other")


def test_a_local_kernel_stands_in_for_a_locked_one(locked, monkeypatch, make_variant, tmp_path):
    path = make_variant(tmp_path / "own" / "torch-cpu", {"__init__.py": "VALUE = 7\n"})
    monkeypatch.setenv("LOCAL_KERNELS", f"acme/toy={path}")
    assert kernels.load_kernel("acme/toy", locked / "kernels.lock").VALUE == 7


class TestTheLockOfTheCaller:
    CODE = "import kernels\nfound = kernels.get_locked_kernel('acme/toy')\n"

    def test_is_in_its_project(self, locked, monkeypatch, tmp_path):
        script = locked / "src" / "app" / "script.py"
        script.parent.mkdir(parents=True)
        script.write_text(self.CODE)
        monkeypatch.chdir(tmp_path)
        assert runpy.run_path(str(script))["found"].VALUE == 1

    def test_is_beside_a_script_without_a_project(self, locked, tmp_path):
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        shutil.copy(locked / "kernels.lock", folder)
        (folder / "script.py").write_text(self.CODE)
        assert runpy.run_path(str(folder / "script.py"))["found"].VALUE == 1

    def test_is_that_of_the_current_folder_for_a_prompt(self, locked):
        namespace = {"__name__": "__main__", "__spec__": None}
        exec(self.CODE, namespace)
        assert namespace["found"].VALUE == 1

    def test_is_in_the_metadata_of_its_distribution(self, locked, tmp_path, monkeypatch):
        site = tmp_path / "venv/lib/site-packages"
        (site / "tgi").mkdir(parents=True)
        (site / "tgi" / "__init__.py").write_text(self.CODE)
        info = site / "text_generation-1.0.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("tgi/__init__.py,,\n")
        other = site / "other-1.0.dist-info"
        other.mkdir()
        (other / "kernels.lock").write_text("not this one")
        shutil.copy(locked / "kernels.lock", info)
        # A project around the environment is not the package's.
        (tmp_path / "pyproject.toml").write_text("")
        monkeypatch.syspath_prepend(site)
        import importlib

        try:
            assert importlib.import_module("tgi").found.VALUE == 1
        finally:
            sys.modules.pop("tgi", None)

    def test_is_missed_with_every_place_that_was_looked_at(self, publisher, tmp_path):
        (tmp_path / "script.py").write_text(self.CODE)
        with pytest.raises(NotLockedError) as error:
            runpy.run_path(str(tmp_path / "script.py"))
        assert str(tmp_path / "kernels.lock") in str(error.value)
        assert "build-system.requires" in str(error.value)

    def test_goes_into_the_metadata_by_setuptools(self, locked, monkeypatch):
        from kernels.egg_info import write_lock

        written = {}

        class Command:
            def write_file(self, what, filename, data):
                written[filename] = data

        write_lock(Command(), "kernels.lock", "x.egg-info/kernels.lock")
        assert written == {"x.egg-info/kernels.lock": (locked / "kernels.lock").read_text()}
        # An sdist carries it in its own metadata only.
        (locked / "src/x.egg-info").mkdir(parents=True)
        (locked / "kernels.lock").rename(locked / "src/x.egg-info/kernels.lock")
        written.clear()
        write_lock(Command(), "kernels.lock", "y/x.egg-info/kernels.lock")
        assert len(written) == 1
        (locked / "src/x.egg-info/kernels.lock").write_text("[1]")
        with pytest.raises(LockError):
            write_lock(Command(), "kernels.lock", "y/x.egg-info/kernels.lock")
        (locked / "empty").mkdir()
        monkeypatch.chdir(locked / "empty")
        written.clear()
        write_lock(Command(), "kernels.lock", "y/kernels.lock")
        assert written == {}


class TestOverHttp:
    @pytest.fixture
    def stranger(self, web, publisher, project):
        publisher.publish(
            "bob/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 5\n", "a.bin": b"1"}}
        )
        return project('"bob/toy" = 1')

    def test_digests_cost_one_file_a_variant(self, web, publisher, project, call):
        publisher.publish(
            "acme/toy",
            variants={
                name: {"__init__.py": "VALUE = 1\n", "a.py": "", "b.bin": b"1"}
                for name in ("torch-cpu", "torch-cuda")
            },
        )
        folder = project('"acme/toy" = 1')
        assert call("lock")[0] == 0
        fetched = [line for line in web.requests if "/resolve/" in line]
        assert len(fetched) == 2
        assert all(line.endswith("metadata.json") for line in fetched)
        assert (
            entries(folder)[0].variants["torch-cpu"]
            == kernels.install_kernel("acme/toy").parent.name
        )

    def test_without_a_digest_in_the_metadata_the_files_are_hashed(
        self, web, publisher, project, call
    ):
        publisher.publish("acme/toy", digest=False)
        folder = project('"acme/toy" = 1')
        assert call("lock")[0] == 0
        assert (
            entries(folder)[0].variants["torch-cpu"]
            == kernels.install_kernel("acme/toy").parent.name
        )

    def test_a_lock_of_digests_is_consent(self, stranger, web, call, monkeypatch):
        code, _, err = call("lock")
        assert code == 1
        assert "kernels trust add bob" in err
        assert call("lock", "--trust-remote-code")[0] == 0
        with pytest.raises(TrustError):
            kernels.get_kernel("bob/toy")
        assert kernels.get_locked_kernel("bob/toy", stranger / "kernels.lock").VALUE == 5
        assert kernels.load_kernel("bob/toy", stranger / "kernels.lock").VALUE == 5

    @pytest.mark.parametrize("form", ["new", "old"])
    def test_a_published_form_is_written_and_read_and_is_no_consent(
        self, stranger, web, call, form
    ):
        lock = stranger / "kernels.lock"
        assert call("lock", "--form", form, "--trust-remote-code")[0] == 0
        assert parse_lock(lock.read_bytes()).form == form
        code, _, err = call("download")
        assert code == 0
        assert "will be refused when it is loaded" in err
        with pytest.raises(TrustError):
            kernels.load_kernel("bob/toy", lock)
        with pytest.raises(TrustError):
            kernels.get_locked_kernel("bob/toy", lock)
        assert kernels.get_locked_kernel("bob/toy", lock, trust_remote_code=True).VALUE == 5
        assert call("lock", "--form", form, "--trust-remote-code")[0] == 0

    def test_a_trusted_publisher_loads_offline_by_a_published_form(
        self, web, publisher, project, call, monkeypatch
    ):
        publisher.publish("acme/toy")
        folder = project('"acme/toy" = 1')
        for form in ("new", "old"):
            assert call("lock", "--form", form)[0] == 0
            shutil.rmtree(Path(kernels.settings.read_settings().cache))
            assert call("download")[2] == ""
            with monkeypatch.context() as offline:
                offline.setenv("HF_HUB_OFFLINE", "1")
                forget()
                asked = len(web.requests)
                assert kernels.load_kernel("acme/toy", folder / "kernels.lock").VALUE == 1
                assert len(web.requests) == asked

    def test_the_old_forms_hash_is_compared(self, web, publisher, project, call):
        publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "", "a.bin": b"\0"}})
        folder = project('"acme/toy" = 1')
        assert call("lock", "--form", "old")[0] == 0
        lock = folder / "kernels.lock"
        document = json.loads(lock.read_bytes())
        document[0]["variants"]["torch-cpu"]["hash"] = f"sha256-{'0' * 64}"
        lock.write_text(json.dumps(document))
        with pytest.raises(IntegrityError, match="lock again"):
            kernels.get_locked_kernel("acme/toy", lock)

    def test_the_old_forms_hash_is_of_what_git_keeps(self, web, publisher, project, call):
        """Of a pointer's file the sha256, of any other the id of its blob, as published clients write."""
        files = {"__init__.py": "VALUE = 1\n", "a.bin": b"\0", "__pycache__/a.pyc": b"1"}
        publisher.publish("acme/toy", variants={"torch-cpu": files})
        folder = project('"acme/toy" = 1')
        assert call("lock", "--form", "old")[0] == 0
        (entry,) = json.loads((folder / "kernels.lock").read_bytes())
        (variant,) = publisher.hub.root.glob("acme/toy/snapshots/*/build/torch-cpu")
        kept = {}
        for path in filter(Path.is_file, variant.rglob("*")):
            data = path.read_bytes()
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data).digest()
            large = path.suffix in (".bin", ".pyc")
            name = path.relative_to(variant).as_posix()
            kept[name] = hashlib.sha256(data).digest() if large else blob
        written = git_lfs_concat(kept)
        assert entry["variants"]["torch-cpu"]["hash"] == written
        # Clients up to 0.12.3 counted bytecode, and their locks are as good.
        earlier = git_lfs_concat(kept, leave_out_bytecode=False)
        assert earlier != written
        entry["variants"]["torch-cpu"]["hash"] = earlier
        (folder / "kernels.lock").write_text(json.dumps([entry]))
        assert kernels.get_locked_kernel("acme/toy", folder / "kernels.lock").VALUE == 1

    @pytest.mark.parametrize("form", ["new", "old"])
    def test_a_published_form_downloads_nothing_where_it_may_not(
        self, web, publisher, project, call, form
    ):
        publisher.publish("acme/toy")
        folder = project('"acme/toy" = 1')
        assert call("lock", "--form", form)[0] == 0
        asked = len(web.requests)
        with pytest.raises(NotCachedError, match="torch-cpu"):
            kernels.get_locked_kernel("acme/toy", folder / "kernels.lock", local_files_only=True)
        fetched = [line for line in web.requests[asked:] if "/resolve/" in line]
        assert all(line.endswith("metadata.json") for line in fetched)

    def test_a_new_lock_is_of_what_the_hub_has_now(self, web, publisher, project, call):
        publisher.publish("acme/toy")
        folder = project('"acme/toy" = 1')
        assert kernels.get_kernel("acme/toy").VALUE == 1
        later = publisher.publish("acme/toy", variants=TWO)
        assert kernels.get_kernel("acme/toy").VALUE == 1, "within the time of a record"
        assert call("lock")[0] == 0
        assert [entry.commit for entry in entries(folder)] == [later]

    def test_whether_a_publisher_is_trusted_is_asked_for_each_lock(
        self, web, publisher, project, call
    ):
        publisher.publish("acme/toy")
        folder = project('"acme/toy" = 1')
        assert kernels.has_kernel("acme/toy")
        assert kernels.get_kernel("acme/toy").VALUE == 1
        web.trusted.discard("acme")
        assert kernels.get_kernel("acme/toy").VALUE == 1, "within the time of a record"
        code, _, err = call("lock")
        assert code == 1
        assert "kernels trust add acme" in err
        assert not (folder / "kernels.lock").exists()

    def test_a_variant_without_metadata_is_left_out_and_told(
        self, web, publisher, project, call, warnings_of
    ):
        publisher.publish("acme/toy", extra={"build/torch-cuda/__init__.py": "VALUE = 1\n"})
        folder = project('"acme/toy" = 1')
        assert call("lock")[0] == 0
        assert [*entries(folder)[0].variants] == ["torch-cpu"]
        [warning] = [line for line in warnings_of() if "torch-cuda" in line]
        assert warning.endswith("is not locked: it has no metadata.json")

    def test_a_range_has_no_place_in_a_published_form(self, web, publisher, project, call):
        publisher.publish("acme/toy", tags=("v1.0.0",))
        project('"acme/toy" = ">=1"')
        code, _, err = call("lock", "--form", "new")
        assert code == 1
        assert "acme/toy: this form holds a version or a revision" in err


def test_verify_tells_of_repositories_paths_and_locks(publisher, call, make_variant, tmp_path):
    publisher.publish("acme/toy")
    code, _, err = call("verify", "acme/toy")
    assert code == 1
    assert "no variant of acme/toy is on this machine: " in err
    assert "install_kernel" in err
    path = kernels.install_kernel("acme/toy")
    assert call("verify", "acme/toy", "--version", "1") == (
        0,
        "acme/toy torch-cpu: every byte is right\n",
        "",
    )
    (path / "__init__.py").write_text("")
    code, out, _ = call("verify", "acme/toy", "--json")
    assert code == 1
    assert json.loads(out)[0]["faults"] == ["__init__.py: hash-mismatch"]
    own = make_variant(tmp_path / "own/build/torch-cpu")
    assert call("verify", tmp_path / "own")[:2] == (0, "torch-cpu: every byte is right\n")
    (own / "new.py").write_text("")
    code, out, _ = call("verify", own)
    assert code == 1
    assert "new.py" in out


def test_update_brings_used_branches_up_to_date(publisher, call):
    publisher.publish("acme/toy", branch="v1")
    publisher.publish("acme/toy", branch="v2", variants=TWO)
    publisher.publish("acme/unused")
    assert call("update")[2].startswith("note: no kernel of the cache")
    kernels.install_kernel("acme/toy", version=1)
    new = publisher.publish(
        "acme/toy", branch="v1", variants={"torch-cpu": {"__init__.py": "VALUE = 3"}}
    )
    document = json.loads(call("update", "--json")[1])
    assert [(e["repo_id"], e["branch"], e["after"]) for e in document] == [("acme/toy", "v1", new)]
    code, out, err = call("update", "acme/toy")
    assert (code, out, err) == (0, f"acme/toy v1: up to date at {new[:12]}\n", "")
    code, _, err = call("update", "acme/none")
    assert code == 1
    assert "acme/none" in err
    shutil.rmtree(directory.repository_path(publisher.hub, RepoId("acme", "toy")))
    assert call("update")[0] == 1
