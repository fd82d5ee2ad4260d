"""What a sandbox shows, and which one is chosen; really separating is an integration test."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder import sandbox as module
from kernel_builder.errors import ToolchainError
from kernel_builder.process import Finished
from kernel_builder.sandbox import (
    Mechanism,
    Sandbox,
    View,
    bubblewrap_arguments,
    choose_sandbox,
    find_installation,
    unshare_script,
)
from kernel_builder.settings import SandboxMode, Settings, read_settings
from kernel_spec.errors import UsageError


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)})


def install(settings: Settings, name: str, text: str) -> None:
    place = Path(settings.search_path) / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)


def pairs(view: View) -> list[tuple[str, str, str]]:
    words = bubblewrap_arguments(view, Path("/"))
    return [
        (word, words[at + 1], words[at + 2])
        for at, word in enumerate(words)
        if word in ("--bind", "--ro-bind")
    ]


def test_inputs_are_read_only_and_the_work_folder_is_not(tmp_path: Path) -> None:
    kept, work = tmp_path / "kept", tmp_path / "kept" / "work"
    work.mkdir(parents=True)
    shown = pairs(View(readable=(kept,), writable=(work,)))
    own = [each for each in shown if each[2].startswith(str(tmp_path))]
    # The outer one first, else it would hide the inner one.
    assert own == [("--ro-bind", str(kept), str(kept)), ("--bind", str(work), str(work))]


def test_the_network_and_home_are_not_there() -> None:
    words = bubblewrap_arguments(View(), Path("/"))
    assert "--unshare-net" in words
    assert not any(word == str(Path.home()) for word in words)
    assert ("/etc/passwd" in words, "/etc/hostname" in words) == (False, False)


def test_what_lies_in_the_system_or_under_another_is_mounted_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    shown = pairs(View(readable=(tmp_path / "a", tmp_path / "a" / "b", Path("/usr/include"))))
    assert [each[2] for each in shown if "a" in Path(each[2]).parts] == [str(tmp_path / "a")]
    assert "/usr/include" not in [each[2] for each in shown]


def test_a_link_stays_one(tmp_path: Path) -> None:
    """What gcc is called through tells it where its parts are."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "g++").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "g++").symlink_to("real/g++")
    view = View(readable=(tmp_path / "g++", tmp_path / "link" / "g++"))
    words = bubblewrap_arguments(view, Path("/"))
    at = words.index(str(tmp_path / "g++"))
    assert words[at - 2 : at] == ("--symlink", str(tmp_path / "real" / "g++"))
    shown = {each[2]: each[1] for each in pairs(view)}
    assert set(shown.values()) >= {str(tmp_path / "real" / "g++")}
    # Under a directory that is a link, the file has both names.
    assert str(tmp_path / "link" / "g++") in shown


def test_awkward_names_are_quoted_in_the_script(tmp_path: Path) -> None:
    work = tmp_path / "it's; touch x"
    work.mkdir()
    script = unshare_script(View(writable=(work,)), tmp_path)
    assert """it'"'"'s; touch x'""" in script


def test_off_is_said(settings: Settings) -> None:
    chosen = choose_sandbox(replace(settings, sandbox=SandboxMode.OFF))
    assert chosen.mechanism is None
    assert "not hermetic" in chosen.note


def test_nothing_installed_is_said_or_refused(settings: Settings) -> None:
    chosen = choose_sandbox(settings)
    assert chosen.mechanism is None
    assert "neither bwrap nor unshare is installed" in chosen.note
    with pytest.raises(ToolchainError, match=r"--sandbox require: .*install bubblewrap"):
        choose_sandbox(replace(settings, sandbox=SandboxMode.REQUIRE))


def test_what_is_installed_and_forbidden_is_passed_over(settings: Settings) -> None:
    install(settings, "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    install(settings, "unshare", "echo 'unshare: Operation not permitted' >&2; exit 1")
    chosen = choose_sandbox(settings)
    assert chosen.mechanism is None
    assert "No permissions to create new namespace" in chosen.note
    assert "Operation not permitted" in chosen.note


def test_what_does_not_separate_is_not_believed(settings: Settings) -> None:
    """A program of the right name that just runs the command leaves the cache visible."""
    install(settings, "bwrap", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    chosen = choose_sandbox(settings)
    assert chosen.mechanism is None
    assert "the machine's files are still there" in chosen.note


def test_a_signal_inside_is_a_signal_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Finished(command=("x",), code=139, output="")
    monkeypatch.setattr(module, "run", lambda *_, **__: done)
    box = Sandbox(mechanism=Mechanism.BUBBLEWRAP, start=("bwrap",))
    found = module.run_confined(
        ["x"], sandbox=box, view=View(), cwd=Path("/"), variables={}, check=False
    )
    assert found.code == -11


def test_a_compiler_is_seen_with_its_parts(tmp_path: Path) -> None:
    program = tmp_path / "gcc-13" / "bin" / "g++"
    (tmp_path / "gcc-13" / "lib" / "gcc").mkdir(parents=True)
    alone = tmp_path / "bin" / "my-g++"
    assert find_installation([program])[0] == tmp_path / "gcc-13"
    # Else a wrapper in ~/bin would bring the whole home directory along.
    assert set(find_installation([alone])) == {alone}


def test_the_variable_says_which() -> None:
    assert read_settings({"KERNEL_BUILDER_SANDBOX": "require"}).sandbox is SandboxMode.REQUIRE
    with pytest.raises(UsageError, match="KERNEL_BUILDER_SANDBOX=on: expected one of auto"):
        read_settings({"KERNEL_BUILDER_SANDBOX": "on"})
