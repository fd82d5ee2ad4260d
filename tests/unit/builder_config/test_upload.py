"""Publishing to a directory hub, from built variants to what the hub then holds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

from kernel_builder.card import read_interface, render_card
from kernel_builder.commit_plan import RemoteBranch, plan_commit, read_local_file
from kernel_builder.config.read import read_build
from kernel_builder.errors import ProjectError, UploadError
from kernel_builder.package import write_variant
from kernel_builder.plan import plan
from kernel_builder.planned import Host
from kernel_builder.remote import choose_hub, read_hub
from kernel_builder.remote_directory import DirectoryRemote, open_directory_remote
from kernel_builder.settings import read_settings
from kernel_builder.sources import read_sources
from kernel_builder.upload import Status, Uploaded, UploadOptions, upload
from kernel_builder.upload_plan import describe_plan, format_upload
from kernel_spec import directory, publishing
from kernel_spec.errors import ConflictError, UsageError
from kernel_spec.names import parse_repo_id
from kernel_spec.provenance import Provenance
from kernel_spec.wire import TreeFile
from kernels.errors import SettingsError

REPO = parse_repo_id("me/my-op")
SETTINGS = read_settings({**os.environ, "XDG_CACHE_HOME": "/nonexistent"})
TOML = """\
[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]
[general.hub]
repo-id = "me/my-op"
[torch-noarch]
"""


def build_variants(project: Path) -> None:
    shutil.rmtree(project / "build", ignore_errors=True)
    build = read_build(project)
    host = Host(cpu="x86_64", os="linux", torch=None)
    for each in plan(build, read_sources(project, build), host=host).variants:
        write_variant(
            project,
            each,
            None,
            provenance=Provenance(builder_version="1"),
            target=project / "build" / str(each.variant),
        )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "torch-ext/my_op").mkdir(parents=True)
    (root / "torch-ext/my_op/__init__.py").write_text('__all__ = ["f", "layers"]\ndef f(): ...\n')
    (root / "torch-ext/my_op/layers.py").write_text("class Big: ...\nclass _Hidden: ...\n")
    (root / "benchmarks").mkdir()
    (root / "benchmarks/benchmark.py").write_text("")
    (root / "CARD.md").write_text("{{ repo_id }} v{{ version }}: {{ functions }} {{ layers }}\n")
    (root / "build.toml").write_text(TOML)
    build_variants(root)
    return root


@pytest.fixture
def remote(tmp_path: Path) -> DirectoryRemote:
    return open_directory_remote((tmp_path / "hub").as_uri())


def publish(
    project: Path, remote: DirectoryRemote, *, confirm=lambda _: True, **options
) -> Uploaded:
    wanted = UploadOptions(**options)
    return upload(project, remote, settings=SETTINGS, options=wanted, confirm=confirm)


def paths(remote: DirectoryRemote, branch: str = "v1") -> list[str]:
    commit = remote.read_refs(REPO)[0][branch]
    return [file.path for file in directory.read_listing(remote.hub, REPO, commit).files]


def test_the_branch_of_the_version_gets_everything_and_main_the_card(project, remote) -> None:
    done = publish(project, remote)
    assert done.changed
    assert remote.read_refs(REPO)[0]["v1"] == done.commit
    assert paths(remote, "main") == ["README.md"]
    assert paths(remote) == [
        "README.md",
        "benchmarks/benchmark.py",
        *(
            f"build/torch-{backend}/{name}"
            for backend in ("cpu", "cuda")
            for name in ("__init__.py", "_ops.py", "layers.py", "metadata.json")
        ),
    ]
    readme = directory.file_path(remote.hub, REPO, done.commit, "README.md")
    assert readme.read_text() == "me/my-op v1: ['f'] ['Big']\n"


def test_the_same_again_makes_no_commit(project, remote) -> None:
    first = publish(project, remote)
    before = remote.read_refs(REPO)
    again = publish(project, remote)
    assert (again.changed, again.commit) == (False, first.commit)
    assert remote.read_refs(REPO) == before


def test_bytecode_is_left_behind(project, remote) -> None:
    first = publish(project, remote)
    cache = project / "build/torch-cpu/__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"")
    with pytest.raises(UploadError, match="bytecode"):
        publish(project, remote)
    assert remote.read_refs(REPO)[0]["v1"] == first.commit


def test_a_changed_file_of_a_variant_stops_everything(project, remote) -> None:
    (project / "build/torch-cuda/layers.py").write_text("import evil\n")
    with pytest.raises(UploadError, match=r"(?s)torch-cuda.*layers\.py.*kernel-builder build"):
        publish(project, remote)
    assert not (remote.hub.root / "me").exists()


def test_nothing_is_built(project, remote) -> None:
    shutil.rmtree(project / "build")
    with pytest.raises(UploadError, match="nothing is built; run: kernel-builder build"):
        publish(project, remote)


def test_a_variant_of_another_version_is_refused(project, remote) -> None:
    (project / "build.toml").write_text(TOML.replace("version = 1", "version = 2"))
    with pytest.raises(UploadError, match=r"built as version 1; build\.toml says 2"):
        publish(project, remote)


def test_variants_of_other_sources_are_refused_also_when_they_are_published(
    project, remote
) -> None:
    publish(project, remote)
    before = paths(remote)
    (project / "torch-ext/my_op/layers.py").write_text("class Bigger: ...\n")
    with pytest.raises(
        UploadError, match=r"(?s)torch-cpu was built from other.*kernel-builder build"
    ):
        publish(project, remote)
    assert paths(remote) == before


def test_a_benchmark_that_leads_out_of_the_project_is_refused(project, remote, tmp_path) -> None:
    (tmp_path / "secret.py").write_text("token = 1\n")
    (project / "benchmarks/benchmark_mine.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(UploadError, match="link out of the project"):
        publish(project, remote)


def test_stale_variants_stay_until_pruned(project, remote) -> None:
    publish(project, remote)
    (project / "build.toml").write_text(TOML.replace('"cpu", "cuda"', '"cpu"'))
    build_variants(project)
    done = publish(project, remote)
    assert done.plan.branch.stale == ("torch-cuda",)
    assert "build/torch-cuda/layers.py" in paths(remote)
    publish(project, remote, prune=True)
    assert "build/torch-cuda/layers.py" not in paths(remote)
    assert "build/torch-cpu/layers.py" in paths(remote)


def test_one_variant_of_those_built_is_published_alone(project, remote) -> None:
    stale = project / "build/torch-cuda/metadata.json"
    stale.write_text(stale.read_text().replace("my_op_cuda", "my_op_older"))
    publish(project, remote, variants=("torch-cpu",))
    assert {path.split("/")[1] for path in paths(remote) if path.startswith("build/")} == {
        "torch-cpu"
    }
    with pytest.raises(UsageError, match=r"torch-xpu is not built; found torch-cpu, torch-cuda"):
        publish(project, remote, variants=("torch-xpu",))
    with pytest.raises(UsageError, match="--variant and --prune"):
        publish(project, remote, variants=("torch-cpu",), prune=True)


def test_declining_writes_nothing(project, remote) -> None:
    seen = []

    def decline(shown) -> bool:
        seen.append(format_upload(shown))
        return False

    done = publish(project, remote, confirm=decline)
    assert (done.changed, done.commit) == (False, None)
    assert not (remote.hub.root / "me").exists()
    assert "+ build/torch-cpu/metadata.json" in seen[0]
    assert seen[0].startswith(f"me/my-op -> {remote.url}\nv1 (new)")


def test_tags_are_set_once_and_do_not_move(project, remote) -> None:
    commit = publish(project, remote, tag="v1.0.0").commit
    assert remote.read_refs(REPO)[1] == {"v1.0.0": commit}
    assert not publish(project, remote, tag="v1.0.0").changed
    assert publish(project, remote, tag="v1.0.1").commit == commit
    (project / "benchmarks/benchmark_more.py").write_text("# more\n")
    with pytest.raises(ConflictError, match="tags do not move"):
        publish(project, remote, tag="v1.0.0")
    with pytest.raises(UsageError, match=r"expected vX\.Y\.Z"):
        publish(project, remote, tag="1.0")
    with pytest.raises(UsageError, match="a pull request has no tag"):
        publish(project, remote, tag="v1.0.2", pull_request=True)


def test_what_is_published_on_main_is_one_commit_with_its_card(project, remote) -> None:
    done = publish(project, remote, branch="main")
    assert done.plan.main is None
    branches = remote.read_refs(REPO)[0]
    assert branches == {"main": done.commit}
    assert {"README.md", "build/torch-cpu/metadata.json"} <= {*paths(remote, "main")}


def test_an_older_version_leaves_the_card_on_main(project, remote) -> None:
    (project / "build.toml").write_text(TOML.replace("version = 1", "version = 2"))
    build_variants(project)
    publish(project, remote)
    main = remote.read_refs(REPO)[0]["main"]
    (project / "build.toml").write_text(TOML)
    build_variants(project)
    assert publish(project, remote).plan.main is None
    branches = remote.read_refs(REPO)[0]
    assert branches["main"] == main
    assert set(branches) == {"main", "v1", "v2"}


def test_a_branch_that_moved_meanwhile_is_a_conflict(project, remote) -> None:
    publish(project, remote)
    (project / "benchmarks/benchmark_mine.py").write_text("# mine\n")

    def somebody_else(shown) -> bool:
        held: RemoteBranch = shown.branch.branch
        files = {
            file.path: directory.file_path(remote.hub, REPO, held.commit, file.path)
            for file in held.files
        }
        files["benchmarks/benchmark2.py"] = project / "CARD.md"
        publishing.publish(remote.hub, REPO, files, branch="v1", parent=held.commit)
        return True

    with pytest.raises(ConflictError):
        publish(project, remote, confirm=somebody_else)
    assert "benchmarks/benchmark2.py" in paths(remote)


def test_where_to(project, remote) -> None:
    other = publish(project, remote, repo_id="you/copy")
    assert str(other.plan.repo) == "you/copy"
    with pytest.raises(UsageError, match="--repo-id nonsense"):
        publish(project, remote, repo_id="nonsense")
    (project / "build.toml").write_text(TOML.replace('[general.hub]\nrepo-id = "me/my-op"\n', ""))
    with pytest.raises(UsageError, match=r"OWNER/my-op"):
        publish(project, remote)


def test_a_branch_of_ones_own(project, remote) -> None:
    (project / "build.toml").write_text(TOML.replace('"me/my-op"', '"me/my-op"\nbranch = "next"'))
    publish(project, remote)
    assert set(remote.read_refs(REPO)[0]) == {"main", "next"}


def test_no_version_is_published_as_another_one(project, remote) -> None:
    with pytest.raises(UsageError, match=r"branch v5: .*this is version 1; set version"):
        publish(project, remote, branch="v5")
    assert not remote.read_refs(REPO)[0]
    publish(project, remote, branch="v1-next")


def test_other_bytes_of_the_metadata_alone_are_called_that(project, remote) -> None:
    publish(project, remote)
    for place in (project / "build").glob("*/metadata.json"):
        place.write_text(place.read_text() + "\n")
    with pytest.raises(ConflictError) as caught:
        publish(project, remote)
    assert "torch-cpu (metadata.json); torch-cuda (metadata.json)" in str(caught.value)
    assert "The code is the same" in str(caught.value)


def test_a_variant_of_other_bytes_is_refused_until_it_is_to_be_replaced(project, remote) -> None:
    publish(project, remote)
    before = paths(remote), remote.read_refs(REPO)
    (project / "torch-ext/my_op/layers.py").write_text("class Bigger: ...\n")
    build_variants(project)
    with pytest.raises(
        ConflictError,
        match=r"torch-cpu \(_ops.py, layers.py, metadata.json\); torch-cuda .*raise the version .*--replace",
    ):
        publish(project, remote)
    assert (paths(remote), remote.read_refs(REPO)) == before
    done = publish(project, remote, replace=True)
    layers = directory.file_path(remote.hub, REPO, done.commit, "build/torch-cpu/layers.py")
    assert layers.read_text() == "class Bigger: ...\n"


def test_benchmarks_with_other_bytes_stay_until_they_are_to_be_replaced(project, remote) -> None:
    publish(project, remote)
    (project / "benchmarks/benchmark.py").write_text("# other\n")
    done = publish(project, remote)
    assert (done.status, done.plan.branch.withheld) == ("no_changes", ("benchmarks/benchmark.py",))
    assert "benchmark.py is published with other bytes; it stays" in format_upload(done.plan)
    assert publish(project, remote, replace=True).changed
    (project / "benchmarks/benchmark.py").unlink()
    assert not publish(project, remote).changed
    assert publish(project, remote, prune=True).plan.branch.delete == ("benchmarks/benchmark.py",)


def test_an_edited_card_stays_until_it_is_to_be_replaced(project, remote) -> None:
    first = publish(project, remote)
    (project / "CARD.md").write_text("new text\n")
    done = publish(project, remote)
    assert done.status == "no_changes"
    assert "README.md of v1 did not come from this CARD.md; it stays" in format_upload(done.plan)
    assert remote.read_refs(REPO)[0]["v1"] == first.commit
    again = publish(project, remote, replace=True)
    for branch in ("v1", "main"):
        commit = remote.read_refs(REPO)[0][branch]
        place = directory.file_path(remote.hub, REPO, commit, "README.md")
        assert place.read_text() == "new text\n"
    assert again.changed


def test_the_card_names_the_variants_of_all_machines(project, remote) -> None:
    (project / "CARD.md").write_text("{{ variants | join(' ') }}\n")
    (project / "build.toml").write_text(TOML.replace('"cpu", "cuda"', '"cpu"'))
    build_variants(project)
    publish(project, remote)
    (project / "build.toml").write_text(TOML.replace('"cpu", "cuda"', '"cuda"'))
    build_variants(project)
    done = publish(project, remote)
    place = directory.file_path(remote.hub, REPO, done.commit, "README.md")
    assert place.read_text() == "torch-cpu torch-cuda\n"
    pruned = publish(project, remote, prune=True)
    place = directory.file_path(remote.hub, REPO, pruned.commit, "README.md")
    assert place.read_text() == "torch-cuda\n"


class CardlessRemote(DirectoryRemote):
    """A hub where ``main`` cannot be written."""

    def write_commit(self, repo, plan, options):
        if plan.branch.name == "main":
            raise UploadError("the disk is full")
        return super().write_commit(repo, plan, options)


def test_a_card_that_cannot_be_written_is_told_and_comes_with_the_next(project, remote) -> None:
    with pytest.raises(
        UploadError,
        match=r"my-op v1 is at [0-9a-f]{40}\. Its card on main is not: the disk is full",
    ):
        publish(project, CardlessRemote(remote.hub))
    assert set(remote.read_refs(REPO)[0]) == {"v1"}
    done = publish(project, remote)
    assert (done.status, done.plan.branch.is_empty) == ("uploaded", True)
    assert paths(remote, "main") == ["README.md"]


class HttpLike(DirectoryRemote):
    """A hub at which an upload was cut off that left one branch."""

    removed: ClassVar[list[str]] = []

    def find_left_over(self, repo, branches):
        return tuple(name for name in branches if name == "uploading-v1-dead")

    def remove_left_over(self, repo, branches):
        self.removed.extend(branches)


def test_what_cut_uploads_left_is_shown_and_deleted_also_where_nothing_is_published(
    project, remote
) -> None:
    for branch in ("uploading-v1-live", "uploading-v1-dead", "v1"):
        publish(project, remote, branch=branch)
    hub = HttpLike(remote.hub)
    declined = publish(project, hub, confirm=lambda _: False)
    assert (declined.status, hub.removed) == (Status.NOT_CONFIRMED, [])
    done = publish(project, hub)
    assert (done.status, hub.removed) == (Status.NO_CHANGES, ["uploading-v1-dead"])
    shown = format_upload(done.plan)
    assert "delete the branch uploading-v1-dead, left by an upload that was cut off" in shown
    assert "note: the branch uploading-v1-live is of an upload that is under way" in shown
    assert describe_plan(done.plan)["left_over"] == ["uploading-v1-dead"]


def test_variants_without_a_project_are_published_as_they_are(project, remote, tmp_path) -> None:
    shutil.copytree(project / "build", tmp_path / "loose/build")
    with pytest.raises(UsageError, match=r"no build\.toml.*--repo-id"):
        publish(tmp_path / "loose", remote)
    done = publish(tmp_path / "loose", remote, repo_id=str(REPO))
    assert "there is no CARD.md" in format_upload(done.plan)
    assert {path.split("/")[0] for path in paths(remote)} == {"build"}
    (tmp_path / "loose/CARD.md").write_text("as it is {{ here }}\n")
    publish(tmp_path / "loose", remote, repo_id=str(REPO))
    assert paths(remote, "main") == ["README.md"]
    with pytest.raises(ProjectError, match="neither a project"):
        publish(tmp_path / "project/torch-ext", remote, repo_id=str(REPO))


def test_variants_of_two_versions_are_not_published_together(project, remote, tmp_path) -> None:
    shutil.copytree(project / "build/torch-cpu", tmp_path / "loose/build/torch-cpu")
    (project / "build.toml").write_text(TOML.replace("version = 1", "version = 2"))
    build_variants(project)
    shutil.copytree(project / "build/torch-cuda", tmp_path / "loose/build/torch-cuda")
    with pytest.raises(UploadError, match="my-op version 1, my-op version 2"):
        publish(tmp_path / "loose", remote, repo_id=str(REPO))


def test_a_new_branch_keeps_of_main_what_is_no_kernel(tmp_path) -> None:
    """Over HTTP a branch begins with the files of main, which on older hubs held a kernel too."""
    (tmp_path / "f").write_text("x")
    held = tuple(
        TreeFile(path=path, size=1, oid="0" * 40)
        for path in ("build/old/x.so", "benchmarks/benchmark_old.py", ".gitattributes", "README.md")
    )
    fork = RemoteBranch(name="v1", commit=None, files=held, start="1" * 40)
    made = plan_commit(fork, [read_local_file("build/new/x.py", tmp_path / "f")])
    assert made.delete == ("benchmarks/benchmark_old.py", "build/old/x.so")
    assert made.keep == (".gitattributes", "README.md")
    assert (made.stale, made.differing) == ((), ())


def test_a_plan_is_told_to_programs(project, remote) -> None:
    told = describe_plan(publish(project, remote, tag="v1.0.0").plan)
    assert (told["repo_id"], told["branch"], told["tags"]) == ("me/my-op", "v1", ["v1.0.0"])
    branch, main = told["commits"]
    assert (branch["branch"], branch["parent"], main["branch"]) == ("v1", None, "main")
    assert {file["path"] for file in branch["add"]} == set(paths(remote))
    assert all(file["size"] >= 0 for file in branch["add"])


class FarRemote(DirectoryRemote):
    """A directory hub that says it is far away."""

    @property
    def is_directory(self) -> bool:
        return False


def test_only_http_hubs_refuse_what_differs_from_the_last_commit(project, remote) -> None:
    far = FarRemote(remote.hub)
    assert publish(project, far).changed, "outside git nothing is dirty"

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=me", "-c", "user.email=me@host.example")
        subprocess.run(["git", *who, *arguments], cwd=project, check=True, capture_output=True)

    git("init")
    (project / ".gitignore").write_text("build/\n")
    git("add", ".")
    git("commit", "-m", "all")
    (project / "benchmarks/benchmark_a.py").write_text("# more\n")
    with pytest.raises(UploadError, match=r"benchmarks/benchmark_a\.py.*--allow-dirty"):
        publish(project, far)
    assert publish(project, remote).changed
    (project / "benchmarks/benchmark_b.py").write_text("# even more\n")
    assert publish(project, far, allow_dirty=True).changed
    git("add", ".")
    git("commit", "-m", "more")
    assert not publish(project, far).changed


@pytest.mark.parametrize(
    ("hubs", "chosen"),
    [
        (None, "https://public"),
        ("file:///a https://b", "file:///a"),
        ("me,you=https://b file:///a", "https://b"),
        ("they=https://b file:///a", "file:///a"),
        ("they=https://b", "https://public"),
    ],
)
def test_the_hub_of_an_owner(hubs: str | None, chosen: str) -> None:
    found = choose_hub(None, owner="me", hubs=hubs, default="https://public")
    assert found.url == chosen
    stated = choose_hub("https://u:p@stated", owner="me", hubs=hubs, default=None)
    assert (stated.url, stated.credentials) == ("https://stated", "u:p")


@pytest.mark.parametrize("hubs", [None, "", "they=https://b"])
def test_the_public_hub_is_never_meant_unless_it_is_named(hubs: str | None) -> None:
    with pytest.raises(UsageError, match=r"(?s)--hub file:///.*--hub https://huggingface\.co"):
        choose_hub(None, owner="me", hubs=hubs, default=None)


@pytest.mark.parametrize(
    "url", ["/srv/hub", "srv", "file://host/srv", "ftp://host/x", "https://", ""]
)
def test_what_is_no_hub(url: str) -> None:
    with pytest.raises(UsageError):
        read_hub(url, origin="--hub")


def test_a_hub_of_the_settings_that_is_none_names_the_variable() -> None:
    with pytest.raises(SettingsError, match=r"^KERNELS_HUB: 'hub\.corp' is not a hub"):
        choose_hub(None, owner="me", hubs="hub.corp", default=None)
    with pytest.raises(UsageError, match=r"^HF_ENDPOINT hub\.corp: expected"):
        choose_hub(None, owner="me", hubs=None, default="hub.corp")


def test_a_card_that_cannot_be_filled_in_names_its_line(project) -> None:
    build = read_build(project)
    (project / "CARD.md").write_text("a\n{% for x %}\n")
    with pytest.raises(UploadError, match=r"CARD\.md:2: "):
        render_card(project, build, REPO)
    (project / "CARD.md").write_text("{{ nonsense }}")
    with pytest.raises(UploadError, match="nonsense"):
        render_card(project, build, REPO)
    (project / "CARD.md").write_text("{{ ''.__class__.__mro__ }}")
    with pytest.raises(UploadError, match="unsafe"):
        render_card(project, build, REPO)
    (project / "CARD.md").unlink()
    assert render_card(project, build, REPO) is None


def test_the_card_lists_what_the_text_of_the_module_says(project) -> None:
    build = read_build(project)
    module = project / "torch-ext/my_op/__init__.py"
    module.write_text('raise SystemExit\n__all__: list[str] = ["a", "b"]\n')
    interface = read_interface(project, build)
    assert (interface.functions, interface.layers) == (("a", "b"), ())
    module.write_text("not python (")
    assert read_interface(project, build).functions == ()


def test_who_forgot_to_build_is_told_so(project, remote, monkeypatch, capsys) -> None:
    from kernel_builder import cli

    publish(project, remote)
    (project / "torch-ext/my_op/layers.py").write_text("class Big: ...  # changed\n")
    monkeypatch.setattr("sys.argv", ["kernel-builder", "upload", str(project), "--hub", remote.url])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    err = capsys.readouterr().err
    assert stopped.value.code == 1
    assert "torch-cpu was built from other sources than those here now" in err
    assert "run: kernel-builder build" in err
