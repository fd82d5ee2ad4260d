"""The commands that publish: what they write, where to, and how they end."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from kernel_builder.cli.build_and_upload import build_and_upload
from kernel_builder.cli.upload import upload
from kernels.cli import run as run_kernels
from kernels.cli.upload import find_upload


@pytest.fixture
def loose(tmp_path, monkeypatch):
    """Return a directory of one built variant without a project, and the words that publish it."""
    from kernel_builder.config.read import read_build
    from kernel_builder.package import write_variant
    from kernel_builder.plan import plan
    from kernel_builder.planned import Host
    from kernel_builder.sources import read_sources
    from kernel_spec.provenance import Provenance

    for name in ("KERNELS_HUB", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    project = tmp_path / "toy"
    (project / "torch-ext/toy").mkdir(parents=True)
    (project / "torch-ext/toy/__init__.py").write_text("")
    (project / "build.toml").write_text(
        '[general]\nname = "toy"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n'
        "[torch-noarch]\n"
    )
    build = read_build(project)
    host = Host(cpu="x86_64", os="linux", torch=None)
    for each in plan(build, read_sources(project, build), host=host).variants:
        target = project / "build" / str(each.variant)
        write_variant(
            project, each, None, provenance=Provenance(builder_version="1"), target=target
        )
    return project


@pytest.fixture
def invoke(loose, tmp_path):
    def run(*options):
        words = [str(loose), "--repo-id", "me/toy", "--hub", (tmp_path / "hub").as_uri(), *options]
        return CliRunner().invoke(upload, words)

    return run


def test_the_plan_is_shown_before_it_is_done(invoke) -> None:
    done = invoke()
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith("me/toy -> file://")
    assert "v1 (new):" in lines[1]
    assert "to add, 0 to change, 0 to delete, 0 unchanged" in lines[1]
    assert any(line.startswith("  + build/torch-cpu/metadata.json") for line in lines)
    assert lines[-1].startswith("published me/toy v1 at ")
    assert invoke().output.splitlines()[-1].startswith("nothing to publish: me/toy v1")


def test_a_dry_run_does_nothing(invoke, tmp_path) -> None:
    done = invoke("--dry-run", "--output-json", str(tmp_path / "plan.json"))
    assert done.output.endswith("nothing was published (--dry-run)\n")
    assert not (tmp_path / "hub").exists()
    assert json.loads((tmp_path / "plan.json").read_text())["status"] == "planned"


def test_quiet_is_quiet_and_json_is_json_alone(invoke) -> None:
    assert invoke("-q").output == ""
    told = json.loads(invoke("--json").output)
    assert told["status"] == "no_changes"
    assert told["url"].endswith("/hub/me/toy")
    assert told["pull_requests"] == []


def test_a_result_that_cannot_be_written_is_an_error(invoke, tmp_path) -> None:
    done = invoke("--output-json", str(tmp_path / "none/done.json"))
    assert "cannot be written" in str(done.exception)


def test_build_toml_may_be_named_itself(loose, tmp_path) -> None:
    words = [str(loose / "build.toml"), "--repo-id", "me/toy", "--hub", (tmp_path / "h").as_uri()]
    assert CliRunner().invoke(upload, words).exit_code == 0


def test_both_commands_have_the_options_of_each() -> None:
    flags = {flag for param in build_and_upload.params for flag in param.opts}
    assert {"--jobs", "--force", "--repo-id", "--repo_id", "--replace", "--dry-run"} <= flags
    assert CliRunner().invoke(build_and_upload, ["--help"]).exit_code == 0


def test_the_loader_without_the_builder_names_the_extra(monkeypatch, capsys) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    assert run_kernels(["upload", "x", "--repo-id", "me/toy"]) == 1
    assert "pip install 'kernels[builder]'" in capsys.readouterr().err


def test_the_loader_passes_everything_on_to_the_builder(monkeypatch, capsys) -> None:
    seen = []

    @click.command()
    @click.argument("words", nargs=-1)
    @click.option("--repo_id")
    def stand_in(words, repo_id) -> None:
        """Publish."""
        seen.append((words, repo_id))

    class Entry:
        @staticmethod
        def load():
            return stand_in

    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [Entry])
    assert find_upload() is stand_in
    assert run_kernels(["upload", "dir", "--repo_id", "me/toy"]) == 0
    assert seen == [(("dir",), "me/toy")]
    assert run_kernels(["upload", "--help"]) == 0
    assert "kernels upload" in capsys.readouterr().out
    assert run_kernels(["upload", "--nonsense"]) == 2
