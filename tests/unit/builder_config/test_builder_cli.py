"""The commands as a person sees them: output, exit codes, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder import cli
from kernel_builder.cli import making
from kernel_builder.columns import format_columns
from kernel_builder.planned import Host
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

NOARCH = """\
[general]
name = "my-op"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[torch-noarch]
"""


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command line: ``call("plan", "DIR") -> (exit code, stdout, stderr)``."""

    def run(*arguments: str, command: str = "kernel-builder"):
        monkeypatch.setattr(sys, "argv", [command, *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main() if command == "kernel-builder" else cli.build2cmake()
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "torch-ext/my_op").mkdir(parents=True)
    (tmp_path / "torch-ext/my_op/__init__.py").write_text("")
    (tmp_path / "build.toml").write_text(NOARCH)
    return tmp_path


@pytest.fixture
def compiled(project: Path, monkeypatch) -> Path:
    """A project with C++, on a machine with a compiler."""
    text = NOARCH.replace("[torch-noarch]\n", '[torch]\nsrc = ["b.cpp"]\n')
    for backend, file in (("cpu", "a.cpp"), ("cuda", "a.cu")):
        text += f'[kernel.{backend}]\nbackend = "{backend}"\ndepends = []\nsrc = ["{file}"]\n'
        (project / file).write_text("")
    (project / "b.cpp").write_text("")
    (project / "build.toml").write_text(text)
    torch = TorchBuild("2.13.0", MajorMinor(2, 13))
    missing = {BackendKind.CUDA: "needs nvcc 13.0"}
    host = Host(cpu="x86_64", os="linux", torch=torch, missing=missing)
    monkeypatch.setattr(making, "detect_host", lambda settings: host)
    return project


def test_the_help_names_every_verb(call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    for verb in ("init", "plan", "list-variants", "check-config", "build", "check", "upload"):
        assert f"\n  {verb} " in out
    assert "...\n" not in out.partition("Commands:")[2], "every sentence is whole"


def test_the_version(call) -> None:
    from kernels._version import __version__

    assert call("--version")[:2] == (0, f"kernel-builder {__version__}\n")


def test_an_unknown_verb_or_option_is_wrong_usage(call) -> None:
    code, _, err = call("biuld")
    assert code == 2
    assert "did you mean build?" in err
    assert "expected init, plan" in call("xyzzy")[2]
    assert call("plan", "--nonsense")[0] == 2


def test_check_config_of_a_good_file(call, project: Path) -> None:
    for place in (project, project / "build.toml"):
        code, out, err = call("check-config", str(place))
        assert (code, err) == (0, "")
        assert out == f"{project}/build.toml: ok (edition 5; cpu, cuda)\n"


def test_check_config_is_one_line_a_fault_on_stdout(call, project: Path) -> None:
    (project / "build.toml").write_text(NOARCH.replace('"MIT"', "3").replace("cuda", "cdua" * 60))
    code, out, err = call("check-config", str(project))
    assert (code, err) == (2, "")
    lines = out.splitlines()
    assert [line.split(":")[1] for line in lines] == ["5", "6"]
    assert all(line.startswith(f"{project}/build.toml:") for line in lines)


def test_an_old_file_without_a_licence_gets_a_warning(call, project: Path) -> None:
    (project / "build.toml").write_text('[general]\nname = "my-op"\nbackends = ["cuda"]\n')
    code, out, err = call("check-config", str(project))
    assert code == 0
    assert "ok (edition 3; cuda)" in out
    assert "warning: missing license" in err


def test_build2cmake_validate(call, project: Path) -> None:
    assert call("validate", str(project / "build.toml"), command="build2cmake")[0] == 0
    (project / "build.toml").write_text("nonsense")
    code, out, _ = call("validate", str(project / "build.toml"), command="build2cmake")
    assert code == 2
    assert out.startswith(f"{project}/build.toml:1: not TOML")


def test_no_project_is_wrong_usage(call, tmp_path: Path) -> None:
    for verb in ("plan", "list-variants", "check-config", "build", "upload"):
        code, out, err = call(verb, str(tmp_path / "nowhere"))
        assert (code, out) == (2, ""), verb
        assert err.startswith("error: ")
        assert "nowhere: no such directory" in err


def test_faults_reach_every_verb_without_a_prefix(call, project: Path) -> None:
    (project / "build.toml").write_text(NOARCH.replace('"MIT"', "3"))
    for verb in ("plan", "list-variants", "build", "upload"):
        code, out, err = call(verb, str(project))
        assert (code, out) == (2, ""), verb
        assert err.startswith(f"{project}/build.toml:5: general.license: ")


def test_plan_off_a_terminal_is_plain_columns(call, compiled: Path) -> None:
    code, out, err = call("plan", str(compiled))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    name = "torch-stable-abi210-cpu-x86_64-linux"
    assert lines[0].split() == ["variant", "file", "for", "component", "archs"]
    assert lines[1].split() == [name, "b.cpp", "cpu", "(binding)", "-"]
    assert lines[2].split() == [name, "a.cpp", "cpu", "cpu", "-"]
    assert lines[3].startswith(f"{name}: 2 to compile, torch stable ABI 2.10")
    assert lines[4] == "cuda: not built here: needs nvcc 13.0"
    assert out.isascii()


def test_plan_as_json(call, compiled: Path) -> None:
    code, out, _ = call("plan", str(compiled), "--json")
    made = json.loads(out)
    assert code == 0
    assert [unit["source"] for unit in made["variants"][0]["units"]] == ["b.cpp", "a.cpp"]
    assert made["variants"][0]["stable_abi"] == "2.10"
    assert made["skipped"] == {"cuda": "needs nvcc 13.0"}


def test_list_variants(call, compiled: Path) -> None:
    code, out, err = call("list-variants", str(compiled))
    assert (code, out) == (0, "torch-stable-abi210-cpu-x86_64-linux\n")
    assert err == "note: cuda: not built here: needs nvcc 13.0\n"


def test_selections_on_the_command_line(call, project: Path) -> None:
    assert call("list-variants", str(project), "--backend", "cuda")[1] == "torch-cuda\n"
    code, _, err = call("list-variants", str(project), "--backend", "cdua")
    assert code == 2
    assert 'did you mean "cuda"?' in err
    code, _, err = call("list-variants", str(project), "--variant", "torch-rocm")
    assert code == 2
    assert "torch-cpu, torch-cuda" in err


def test_a_defect_of_ours_is_one_line_unless_debug(call, project: Path, monkeypatch) -> None:
    def fail(settings):
        raise RuntimeError("this cannot be")

    monkeypatch.setattr(making, "detect_host", fail)
    code, _, err = call("plan", str(project))
    assert code == 1
    assert err == "error: RuntimeError: this cannot be (--debug shows where)\n"
    code, _, err = call("plan", str(project), "--debug")
    assert (code, "Traceback" in err) == (1, True)
    assert err.endswith("error: RuntimeError: this cannot be (--debug shows where)\n")


def test_importing_the_commands_loads_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys; import kernel_builder.cli, kernel_builder.cli.plan, kernel_builder.cli.making;"
        "print([name for name in ('torch', 'rich', 'jinja2', 'huggingface_hub', 'pydantic')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_narrow_terminal_cuts_no_name(call, compiled: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, _ = call("plan", str(compiled))
    assert code == 0
    assert "\u2502" in out, "drawn as on a terminal"
    assert "\u2026" not in out


def test_a_closed_output_is_no_defect(project: Path) -> None:
    code = "import sys; sys.stdout = None; sys.argv[1:] = ['plan', sys.argv[1]]\n"
    code += "from kernel_builder.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(project)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_columns_do_not_end_in_blanks() -> None:
    rows = [("a", "bb", "1"), ("ccc", "d", "")]
    assert format_columns(rows) == "a    bb  1\nccc  d"
    assert format_columns(rows, right={0, 1}) == "  a  bb  1\nccc   d"


@pytest.mark.parametrize(
    ("error", "names_cache"),
    [
        (OSError(28, "No space left on device"), True),
        (OSError(30, "Read-only file system", "{cache}/objects"), True),
        (OSError(13, "Permission denied", "/srv/project/build"), False),
    ],
)
def test_what_the_system_refuses_is_said_with_the_place(
    call, monkeypatch, tmp_path, error: OSError, names_cache: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    cache = tmp_path / "kernel-builder"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if error.filename:
        error.filename = error.filename.format(cache=cache)
    monkeypatch.setattr(cli.LazyGroup, "invoke", refuse)
    code, _, err = call("plan", ".")
    assert code == 1
    assert error.strerror in err
    assert (error.filename or "") in err
    assert (f"the builder's cache is {cache}, and XDG_CACHE_HOME" in err) is names_cache
    assert "Errno" not in err
