"""The card as fill-card writes it, its licence, and what shells are told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.cli.fill_card import fill_card
from kernel_builder.errors import ProjectError, UploadError
from kernel_builder.scaffold import plan_project, write_project
from kernel_spec.errors import FormatError

PROGRAM = "from kernel_builder.cli import main; main()"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(plan_project(name="me/my-op", backends=[], licence="MIT"), tmp_path / "p")
    return tmp_path / "p"


def test_the_card_of_a_new_project(project: Path) -> None:
    done = CliRunner().invoke(fill_card, [str(project)])
    assert done.exit_code == 0, done.output
    assert "license: mit\n" in done.output
    assert 'get_kernel("me/my-op", version=1, backend="cpu")' in done.output
    assert "- `add_one`" in done.output
    assert "{{" not in done.output


def test_the_card_goes_to_a_file_whole(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "README.md"
    done = CliRunner().invoke(fill_card, [str(project), str(out), "--repo-id", "you/other"])
    assert done.output == f"{out}\n"
    assert "# you/other\n" in out.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "p"]


@pytest.mark.parametrize(
    ("licence", "fine"),
    [
        ("{{ license }}", True),
        ("mit", True),
        ("'MIT' # ours", True),
        ("other", True),
        ("apache-2.0", False),
        ("mit-0", False),
    ],
)
def test_card_and_metadata_state_one_licence(project: Path, licence: str, fine: bool) -> None:
    card = project / "CARD.md"
    card.write_text(card.read_text().replace("license: {{ license }}", f"license: {licence}"))
    done = CliRunner().invoke(fill_card, [str(project)])
    if fine:
        assert done.exit_code == 0, done.exception
    else:
        assert isinstance(done.exception, UploadError)
        assert f'"license: {licence}", build.toml says "MIT"' in str(done.exception)


def test_a_licence_in_the_text_is_not_the_front_matter(project: Path) -> None:
    (project / "CARD.md").write_text("# me\n\n---\nlicense: gpl\n---\n")
    assert CliRunner().invoke(fill_card, [str(project)]).exit_code == 0


def test_without_a_card_or_a_place_there_is_nothing_to_fill_in(project: Path) -> None:
    build = project / "build.toml"
    build.write_text(build.read_text().replace('[general.hub]\nrepo-id = "me/my-op"\n', ""))
    asked = CliRunner().invoke(fill_card, [str(project)])
    assert isinstance(asked.exception, ProjectError)
    assert "--repo-id OWNER/NAME" in str(asked.exception)
    bad = CliRunner().invoke(fill_card, [str(project), "--repo-id", "nobody"])
    assert isinstance(bad.exception, FormatError)
    (project / "CARD.md").unlink()
    missing = CliRunner().invoke(fill_card, [str(project), "--repo-id", "a/b"])
    assert "no CARD.md here" in str(missing.exception)


def program(*arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_whom_to_ask(shell: str) -> None:
    script = program("completions", shell)
    assert f"_KERNEL_BUILDER_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kernel-builder up", ["update-build", "update", "upload"]),
        ("kernel-builder update-build --d", ["--dry-run"]),
        ("kernel-builder completions ", ["bash", "zsh", "fish"]),
    ],
)
def test_what_is_offered(words: str, expected: list[str]) -> None:
    offered = program(
        _KERNEL_BUILDER_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
    )
    assert [line.partition(",")[2] for line in offered.splitlines()] == expected, json.dumps(
        offered
    )
