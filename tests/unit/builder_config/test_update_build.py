"""update-build: every old form becomes edition 5, means the same, and nothing is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.cli.update_build import update_build
from kernel_builder.config.edit import migrate
from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError, ProjectError

GOLDEN = Path(__file__).parents[2] / "fixtures" / "buildtoml"
VALID = sorted((GOLDEN / "valid").glob("*.toml"))
INVALID = sorted((GOLDEN / "invalid").glob("*.toml"))

HIPIFY = """\
# who we are
[general] # general
name = "abc" # the name
cuda-minver = "12.0"
cuda-maxver = "13.0" # not 13
python-depends = ["einops", "nvidia-cutlass-dsl"]

[torch] # the binding
src = ["a.cpp"]

# both GPUs
[kernel.k]
language = "cuda-hipify" # of one source
depends = ["torch"]
src = [
  "a.cu", # first
]
cuda-flags = ["-lineinfo"]
rocm-archs = ["gfx90a"]

[kernel.m]
# it says no language
depends = []
src = ["b.cu"]
"""


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_golden_files(path: Path) -> None:
    data = path.read_bytes()
    old = parse_build(data)
    text = migrate(data, licence="MIT")
    new = parse_build(text.encode())
    assert new.edition == 5
    assert new.warnings == ()
    assert new.framework == old.framework
    assert new.general.backends == old.general.backends
    assert new.general.cuda == old.general.cuda
    assert {each.name: each for each in new.components} == {
        each.name: each for each in old.components
    }
    assert migrate(text.encode(), licence="Apache-2.0") == text, "a second time changes nothing"
    kept = [line for line in data.decode().splitlines() if "#" in line]
    assert set(kept) <= set(text.splitlines())


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_a_faulty_file_is_left_as_it_is(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "build.toml"
    file.write_bytes(path.read_bytes())
    with pytest.raises(ConfigError) as expected:
        parse_build(path.read_bytes(), str(file))
    done = CliRunner().invoke(update_build, [str(tmp_path), "--yes", "--license", "MIT"])
    assert str(done.exception) == str(expected.value)
    assert file.read_bytes() == path.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["build.toml"]


def test_comments_order_and_version_texts_stay() -> None:
    assert (
        migrate(HIPIFY.encode(), licence="MIT")
        == """\
# who we are
[general] # general
name = "abc" # the name
python-depends = ["einops"]
backends = ["cuda", "rocm"]
version = 1
license = "MIT"
edition = 5

[general.cuda]
minver = "12.0"
maxver = "13.0" # not 13
python-depends = ["nvidia-cutlass-dsl"]

[torch] # the binding
src = ["a.cpp"]

# both GPUs
[kernel.k]
backend = "cuda" # of one source
depends = ["torch"]
src = [
  "a.cu", # first
]
cuda-flags = ["-lineinfo"]

[kernel.m]
backend = "cuda"
# it says no language
depends = []
src = ["b.cu"]

[kernel.k_rocm]
backend = "rocm"
depends = ["torch"]
src = ["a.cu"]
rocm-archs = ["gfx90a"]
"""
    )


def test_line_ends_and_a_byte_order_mark_stay() -> None:
    plain = migrate(HIPIFY.encode(), licence="MIT")
    windows = migrate(HIPIFY.replace("\n", "\r\n").encode(), licence="MIT")
    assert windows == plain.replace("\n", "\r\n")
    assert migrate(f"\ufeff{HIPIFY}".encode(), licence="MIT") == f"\ufeff{plain}"


def test_edition_4_changes_one_line_only() -> None:
    data = (GOLDEN / "valid" / "edition-4-classic.toml").read_bytes()
    before, after = data.decode().splitlines(), migrate(data).splitlines()
    assert [line for line in after if line != "edition = 5"] == before
    assert 'maxver = "13.0"' in after


def test_a_stated_old_edition_is_replaced_where_it_stands() -> None:
    text = '[general]\nedition = 3 # old\nname = "abc"\nbackends = ["cpu"]\n'
    after = migrate(text.encode(), licence="MIT")
    assert after.splitlines()[1] == "edition = 5 # old"
    assert after.endswith('license = "MIT"\n\n[torch-noarch]\n')


@pytest.mark.parametrize(
    "text",
    [
        'general = {name="abc", universal=true}\ntorch = {pyext=["json"], src=["a.cpp"]}\n',
        'general.name="abc"\ntorch.universal=true\ntorch.pyext=["json"]\n',
        'general.name="abc"\ngeneral.backends=["cuda"]\n',
        'general={name="abc"}\ntorch={}\nkernel={k={language="cuda-hipify",depends=[],src=["a"]}}\n',
        '[general]\nname="abc"\n[kernel.k]\ndepends=[]\nsrc=["a"]\n[torch]\n[kernel."j"]\n'
        "language='cuda-hipify'\ndepends=[]\nsrc=[\"a\"]\n",
    ],
)
def test_other_ways_to_write_a_table(text: str) -> None:
    old = parse_build(text.encode())
    after = migrate(text.encode(), licence="MIT")
    new = parse_build(after.encode())
    assert new.framework == old.framework
    assert sorted(new.components, key=str) == sorted(old.components, key=str)
    assert migrate(after.encode()) == after


def test_what_cannot_be_rewritten_in_place_is_said() -> None:
    text = (
        'general = {name="abc"}\ntorch.src=["x.cpp"]\nkernel.k.language="cuda-hipify"\n'
        'kernel.k.depends=[]\nkernel.k.src=["a.cu"]\n'
    )
    with pytest.raises(ProjectError, match=r"write them as tables with headers"):
        migrate(text.encode(), licence="MIT")


def project(tmp_path: Path) -> Path:
    (tmp_path / "build.toml").write_text(HIPIFY)
    (tmp_path / "build.toml").chmod(0o640)
    return tmp_path


def test_no_licence_is_invented(tmp_path: Path) -> None:
    done = CliRunner().invoke(update_build, [str(project(tmp_path)), "-y"])
    assert isinstance(done.exception, ConfigError)
    assert "build.toml:2: general.license: is missing" in str(done.exception)
    assert "--license Apache-2.0" in str(done.exception)
    assert (tmp_path / "build.toml").read_text() == HIPIFY


@pytest.mark.parametrize("place", ["", "build.toml"])
def test_a_directory_or_its_file(tmp_path: Path, place: str) -> None:
    done = CliRunner().invoke(
        update_build, [str(project(tmp_path) / place), "--yes", "--license", "MIT"]
    )
    assert done.exit_code == 0, done.output
    assert '-language = "cuda-hipify" # of one source' in done.output.splitlines()
    assert '+backend = "cuda" # of one source' in done.output.splitlines()
    file = tmp_path / "build.toml"
    assert file.read_text() == migrate(HIPIFY.encode(), licence="MIT")
    assert file.stat().st_mode & 0o777 == 0o640
    again = CliRunner().invoke(update_build, [str(tmp_path), "--yes"])
    assert again.output == f"{file}: edition 5 already\n"
    assert [each.name for each in tmp_path.iterdir()] == ["build.toml"]


@pytest.mark.parametrize(("options", "code"), [(["--dry-run"], 0), ([], 2)])
def test_nothing_is_written_unless_it_is_wanted(tmp_path: Path, options, code) -> None:
    """Without a terminal nobody can be asked."""
    done = CliRunner().invoke(
        update_build, [str(project(tmp_path)), "--license", "MIT", *options], input="y\n"
    )
    assert done.exit_code == code
    assert "+edition = 5" in done.output
    assert (tmp_path / "build.toml").read_text() == HIPIFY


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text(HIPIFY)
    (tmp_path / "build.toml").symlink_to("real.toml")
    done = CliRunner().invoke(update_build, [str(tmp_path), "--yes", "--license", "MIT"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "build.toml").is_symlink()
    assert "edition = 5" in real.read_text()


OLD_NAME = """# mine
[general]
name = "layer_norm"  # as it was
universal = false

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.ln]
src = ["csrc/a.cu"]
depends = ["torch"]
"""


def test_a_name_with_underscores_is_set_right_where_the_module_stays() -> None:
    text = migrate(OLD_NAME.encode(), licence="MIT")
    assert 'name = "layer-norm"  # as it was\n' in text
    assert parse_build(text.encode()).general.module == "layer_norm"
    new = 'name = "layer_norm"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n'
    current = f"[general]\n{new}[torch-noarch]\n"
    assert migrate(current.encode()) == current.replace("layer_norm", "layer-norm")
    dotted = current.replace("[general]\n", "").replace("name =", "general.name =", 1)
    dotted = "\n".join(
        f"general.{line}"
        if line.startswith(("version", "edition", "license", "backends"))
        else line
        for line in dotted.splitlines()
    )
    assert 'general.name = "layer-norm"' in migrate(dotted.encode())


@pytest.mark.parametrize("name", ["Layer_Norm", "_norm", "layer norm"])
def test_a_name_whose_module_would_change_is_a_fault_and_so_is_all_else(name: str) -> None:
    text = OLD_NAME.replace("layer_norm", name).replace("[torch]", "[torhc]")
    with pytest.raises(ConfigError) as caught:
        migrate(text.encode())
    paths = [fault.path for fault in caught.value.faults]
    assert {"general.name", "general.license", "torhc"} <= set(paths)
    assert [fault.line for fault in caught.value.faults] == sorted(
        fault.line for fault in caught.value.faults
    )
    with pytest.raises(ConfigError) as caught:
        migrate(text.encode(), licence="MIT")
    assert "general.license" not in {fault.path for fault in caught.value.faults}


def test_what_the_current_edition_refuses_is_named_by_its_line_in_the_old_file() -> None:
    text = OLD_NAME.replace('src = ["csrc', 'cuda-capabilities = ["8.0", "11.8"]\nsrc = ["csrc')
    with pytest.raises(ConfigError) as caught:
        migrate(text.encode())
    found = [(fault.line, fault.path) for fault in caught.value.faults]
    assert found == [(2, "general.license"), (10, "kernel.ln.cuda-capabilities[1]")]
    with pytest.raises(ConfigError) as caught:
        migrate(text.encode(), licence="MIT")
    assert [fault.line for fault in caught.value.faults] == [10]


def test_new_keys_stand_with_the_others_and_not_below_the_comment_of_the_next_table() -> None:
    text = """\
[general]
name = "abc" # its name
backends = [
  "cpu", # one
] # all

# where it goes
[general.hub]
repo-id = "a/abc"

# --- python ---
[torch-noarch]
"""
    after = migrate(text.encode(), licence="MIT")
    added = '] # all\nversion = 1\nlicense = "MIT"\nedition = 5\n\n# where it goes\n[general.hub]\n'
    assert after == text.replace("] # all\n\n# where it goes\n[general.hub]\n", added)


def test_new_keys_of_the_last_table_before_a_comment() -> None:
    text = '[general]\nname = "abc"\nuniversal = true\n\n# the rest\n[torch]\n'
    after = migrate(text.encode(), licence="MIT")
    assert after.startswith('[general]\nname = "abc"\nbackends = [')
    assert after.endswith("\nedition = 5\n\n# the rest\n[torch-noarch]\n")


def test_a_component_without_files_is_named_in_the_old_file() -> None:
    text = (
        '[general]\nname = "abc"\nversion = 1\nlicense = "MIT"\nbackends = ["cuda"]\n'
        + '[torch]\n[kernel.a]\nbackend = "cuda"\ndepends = []\nsrc = []\n'
    )
    with pytest.raises(ConfigError, match=r"kernel\.a\.src: found an empty list"):
        migrate(text.encode())
