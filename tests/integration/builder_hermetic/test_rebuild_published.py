"""A published kernel is built anew and compared; what was changed, or comes from elsewhere, is found."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lacking import give_up

from kernel_builder.cli.rebuild import rebuild
from kernel_builder.errors import RebuildError
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.rebuild import Verdict, format_verdicts, verify_rebuild
from kernel_builder.remote import open_remote
from kernel_builder.remote_directory import DirectoryRemote
from kernel_builder.settings import Settings
from kernel_builder.upload import UploadOptions, upload
from kernel_spec.backend import BackendKind
from kernel_spec.directory import DirectoryHub
from kernel_spec.errors import UsageError
from kernel_spec.names import RepoId, parse_repo_id
from kernels.hub_address import HubAddress

NAME = "torch-stable-abi210-cpu-x86_64-linux"
REPO: RepoId = parse_repo_id("o/add-stable")
URL = "https://git.example.org/o/add-stable"


def git(place: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def published(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, DirectoryRemote]:
    """A project in a repository with another one, and what was published of it."""
    root = tmp_path_factory.mktemp("repository")
    project = root / "kernels" / "add"
    kits = Path(__file__).parents[2] / "kits"
    shutil.copytree(kits / "add_stable", project)
    shutil.copytree(kits / "scale_noarch", root / "kernels" / "scale")
    table = project / "build.toml"
    table.write_text(
        table.read_text().replace(
            'license = "Apache-2.0"', f'license = "Apache-2.0"\nsource = "{URL}"'
        )
    )
    (root / ".gitignore").write_text("build/\n")
    git(root, "init", "-q", ".")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    selection = Selection(backends=frozenset({BackendKind.CPU}))
    report = build_project(project, settings=settings, selection=selection)
    assert report.exit_code == 0, report.variants[0].error
    remote = DirectoryRemote(DirectoryHub(tmp_path_factory.mktemp("hub")))
    upload(project, remote, settings=settings, options=UploadOptions(repo_id=str(REPO)))
    return project, remote


@pytest.fixture
def hub(published: tuple[Path, DirectoryRemote], tmp_path: Path) -> DirectoryRemote:
    """A hub of this test's own, to be changed."""
    return DirectoryRemote(
        DirectoryHub(Path(shutil.copytree(published[1].hub.root, tmp_path / "hub")))
    )


def only(verdicts: tuple[Verdict, ...]) -> Verdict:
    (verdict,) = verdicts
    return verdict


def change_library(data: bytes) -> bytes:
    """Change one byte of the machine code."""
    from io import BytesIO

    from elftools.elf.elffile import ELFFile

    at = ELFFile(BytesIO(data)).get_section_by_name(".text")["sh_offset"] + 7
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_the_same_bytes_from_a_checkout(
    published: tuple[Path, DirectoryRemote], settings: Settings
) -> None:
    project, remote = published
    verdict = only(verify_rebuild(REPO, remote, settings=settings, project=project))
    assert verdict.is_same, format_verdicts((verdict,))
    assert "the same 4 files, byte for byte" in format_verdicts((verdict,))
    # The checkout is looked at, never built in.
    assert git(project, "status", "--porcelain") == ""


def test_the_same_bytes_from_the_commit_that_it_names(
    published: tuple[Path, DirectoryRemote],
    settings: Settings,
    tmp_path: Path,
) -> None:
    project, remote = published
    root = project.parents[1]
    commit = git(root, "rev-parse", "HEAD")
    (project / "csrc" / "add_cpu.cpp").open("a").write("// later\n")
    git(root, "commit", "-qam", "two")
    try:
        # The address that the kernel names leads to this repository here.
        (tmp_path / ".gitconfig").write_text(f'[url "{root}"]\n  insteadOf = "{URL}"\n')
        home = {**settings.variables, "HOME": str(tmp_path)}
        own = replace(settings, variables=home)
        verdict = only(verify_rebuild(REPO, remote, settings=own, revision="v1"))
        assert verdict.is_same, format_verdicts((verdict,))
        assert verdict.origin == f"{URL} at {commit[:12]}"
        metadata = json.loads(
            remote.read_file(REPO, _commit(remote), f"build/{NAME}/metadata.json")
        )
        assert metadata["provenance"]["kernel"] == {"commit": commit, "dirty": False}
        # What has changed since gives another kernel, and nothing is compiled to say so.
        other = only(verify_rebuild(REPO, remote, settings=settings, project=project))
        assert isinstance(other.error, RebuildError)
        assert "was built from other sources" in str(other.error)
    finally:
        git(root, "reset", "-q", "--hard", commit)


def test_a_variant_for_another_processor(
    published: tuple[Path, DirectoryRemote],
    hub: DirectoryRemote,
    settings: Settings,
    tmp_path: Path,
    other_cpu: str,
) -> None:
    project = Path(shutil.copytree(published[0], tmp_path / "add"))
    build_project(project, settings=replace(settings, cpu=other_cpu))
    upload(project, hub, settings=settings, options=UploadOptions(repo_id=str(REPO)))
    verdicts = verify_rebuild(REPO, hub, settings=settings, project=published[0])
    assert [each.variant for each in verdicts] == sorted([NAME, NAME.replace("x86_64", other_cpu)])
    assert all(each.is_same for each in verdicts), format_verdicts(verdicts)


def _commit(remote: DirectoryRemote) -> str:
    return remote.read_refs(REPO)[0]["v1"]


def test_a_kernel_on_an_http_hub(
    published: tuple[Path, DirectoryRemote], settings: Settings, serve: Callable[..., Any]
) -> None:
    project, remote = published
    hub = serve(remote.hub.root)
    far = open_remote(
        HubAddress(hub.url), token_hub="https://hub.example.org", cache=settings.cache
    )
    verdict = only(verify_rebuild(REPO, far, settings=settings, project=project))
    assert verdict.is_same, format_verdicts((verdict,))


def test_bytes_that_were_changed_where_they_lie(
    published: tuple[Path, DirectoryRemote], hub: DirectoryRemote, settings: Settings
) -> None:
    (library,) = hub.hub.root.rglob("*.so")
    library.write_bytes(change_library(library.read_bytes()))
    with pytest.raises(RebuildError, match=r"abi3\.so: its bytes are not those of the listing"):
        verify_rebuild(REPO, hub, settings=settings, project=published[0])


def test_other_bytes_that_were_published_properly(
    published: tuple[Path, DirectoryRemote],
    hub: DirectoryRemote,
    settings: Settings,
    tmp_path: Path,
) -> None:
    """Every hash fits: only building it again shows that the sources give another library."""
    project = Path(shutil.copytree(published[0], tmp_path / "add"))
    (library,) = project.glob("build/*/*.so")
    changed = change_library(library.read_bytes())
    library.write_bytes(changed)
    place = library.parent / "metadata.json"
    metadata = json.loads(place.read_text())
    metadata["digest"]["files"][library.name] = b64encode(hashlib.sha256(changed).digest()).decode()
    place.write_text(json.dumps(metadata, indent=2, sort_keys=True) + "\n")
    upload(project, hub, settings=settings, options=UploadOptions(repo_id=str(REPO), replace=True))
    arguments = [
        "--verify", f"{REPO}@v1", "--hub", hub.url, "--project", str(published[0]),
    ]  # fmt: skip
    environ = {"XDG_CACHE_HOME": str(settings.cache.parent)}
    done = CliRunner().invoke(rebuild, arguments, env=environ)
    assert done.exit_code == 1
    lines = [line.strip() for line in done.output.splitlines()]
    assert f"{NAME}: 2 of 4 files differ" in done.output
    assert any(line.startswith("section .text:") and "at byte 7" in line for line in lines)
    assert any(line.startswith(f"digest.files.{library.name}:") for line in lines)


@pytest.mark.parametrize(
    ("revision", "variants", "said"),
    [
        ("v9", frozenset[str](), "no revision v9; it has main, v1"),
        ("v1", frozenset({"torch-cpu"}), f"no variant torch-cpu; it has {NAME}"),
    ],
)
def test_what_is_not_there(
    published: tuple[Path, DirectoryRemote],
    settings: Settings,
    revision: str,
    variants: frozenset[str],
    said: str,
) -> None:
    with pytest.raises(UsageError) as caught:
        verify_rebuild(REPO, published[1], settings=settings, revision=revision, variants=variants)
    assert said.replace("main, ", "") in str(caught.value).replace("main, ", "")


def test_a_repository_that_is_not_there(
    published: tuple[Path, DirectoryRemote], settings: Settings
) -> None:
    with pytest.raises(UsageError, match="name its hub: --hub URL"):
        verify_rebuild(parse_repo_id("o/other"), published[1], settings=settings)


AS_ANOTHER = ["unshare", "--user", "--map-user=4711", "--map-group=4711"]


@pytest.mark.parametrize("kit_name", ["add_stable", "scale_noarch"])
def test_two_people_with_their_own_habits(tmp_path: Path, kit_name: str) -> None:
    """Another user, umask, time zone, locale and home, in a sandbox and without: the same bytes."""
    probe = subprocess.run([*AS_ANOTHER, "id", "-u"], capture_output=True, text=True, check=False)
    if probe.stdout.strip() != "4711":
        give_up(f"becoming another user does not work here: {probe.stderr.strip()}")
    trees = []
    for number, (other, mode) in enumerate([(False, "require"), (True, "off"), (True, "require")]):
        place = tmp_path / f"home{number}" / "project"
        shutil.copytree(Path(__file__).parents[2] / "kits" / kit_name, place)
        code = (
            "import os, sys; from pathlib import Path\n"
            f"os.umask({0o077 if other else 0o022})\n"
            "from kernel_builder.pipeline import build_project\n"
            "report = build_project(Path(sys.argv[1]), jobs=1)\n"
            "sys.exit(str(report.variants[0].error) if report.exit_code else 0)\n"
        )
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "HOME": str(place.parent),
            "USER": "other" if other else "one",
            "LC_ALL": "de_DE.UTF-8" if other else "C",
            "TZ": "Asia/Seoul" if other else "UTC",
            "KERNEL_BUILDER_SANDBOX": mode,
        }
        command = [*(AS_ANOTHER if other else []), sys.executable, "-c", code, str(place)]
        done = subprocess.run(
            command, env=environ, cwd=place, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        trees.append(
            {
                path.relative_to(place).as_posix(): (path.stat().st_mode, path.read_bytes())
                for path in place.glob("build/*/*")
            }
        )
    assert trees[0] == trees[1] == trees[2]
    assert len(trees[0]) >= 3
