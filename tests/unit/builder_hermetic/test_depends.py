"""Where the headers of dependencies come from, and how build.toml says so."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder import depends
from kernel_builder.config.model import HeaderSource
from kernel_builder.config.read import parse_build
from kernel_builder.depends import (
    check_local_sources,
    fetch_dependency,
    find_origins,
    list_sourceless,
    read_local_sources,
)
from kernel_builder.errors import ConfigError, ToolchainError
from kernel_builder.op_id import make_op_id
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import SourceSet
from kernel_spec.backend import BackendKind
from kernel_spec.errors import UsageError

SHA = "ab" * 32
TOML = f"""\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.one]
backend = "cpu"
depends = ["torch", "eigen"]
src = ["csrc/one.cpp"]

[sources.eigen]
url = "https://example.org/eigen-3.4.0.tar.gz"
sha256 = "{SHA}"
include = ["eigen-3.4.0"]
license = "MPL-2.0"
"""
EIGEN = HeaderSource(
    name="eigen",
    url="https://example.org/eigen-3.4.0.tar.gz",
    sha256=SHA,
    include=("eigen-3.4.0",),
    license="MPL-2.0",
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"HOME": str(tmp_path), "PATH": "/nowhere"})


def test_a_source_is_read() -> None:
    assert parse_build(TOML.encode()).sources == (EIGEN,)


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "suggestion"),
    [
        ("sha256 = ", "sha265 = ", 18, "sources.eigen.sha265", "sha256"),
        (SHA, "sha256:" + SHA.upper(), 18, "sources.eigen.sha256", f'"{SHA}"'),
        (SHA, "abc", 18, "sources.eigen.sha256", None),
        ("https://", "ftp://", 17, "sources.eigen.url", None),
        ('license = "MPL', 'licence = "MPL', 20, "sources.eigen.licence", "license"),
        ('["eigen-3.4.0"]', "[]", 19, "sources.eigen.include", None),
        ('["eigen-3.4.0"]', '["../up"]', 19, "sources.eigen.include[0]", None),
        ('["eigen-3.4.0"]', '"eigen"', 19, "sources.eigen.include", '["eigen"]'),
        ('"eigen"]\n', '"eigne"]\n', 13, "kernel.one.depends[1]", "eigen"),
        ("[sources.eigen]", "[source.eigen]", 16, "source", "sources"),
    ],
)
def test_faults_of_sources(
    old: str, new: str, line: int, path: str, suggestion: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_build(TOML.replace(old, new).encode())
    found = [(fault.line, fault.path, fault.suggestion) for fault in caught.value.faults]
    assert (line, path, suggestion) in found


def test_a_source_that_nothing_needs_is_a_fault() -> None:
    with pytest.raises(ConfigError, match="no component depends on it"):
        parse_build(TOML.replace(', "eigen"]', "]").encode())


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_build(TOML.replace("https://", "https://me:secret@").encode())
    assert "secret" not in str(caught.value)


def test_torch_cannot_be_replaced() -> None:
    text = TOML.replace("eigen]", "torch]").replace('"eigen"', '"torch"')
    with pytest.raises(ConfigError, match="comes with every build"):
        parse_build(text.encode())


def test_the_ops_are_others_with_other_headers() -> None:
    def op_id(text: str) -> str:
        build = parse_build(text.encode())
        none = SourceSet(listed=(), extension=())
        return make_op_id(build, none, BackendKind.CPU, build.components)

    assert op_id(TOML) != op_id(TOML.replace(SHA, "cd" * 32))
    assert op_id(TOML) != op_id(TOML.replace('["eigen-3.4.0"]', '["eigen-3.4.0/unsupported"]'))
    # The same archive from a mirror is the same archive.
    assert op_id(TOML) == op_id(TOML.replace("example.org", "mirror.example.org"))


def test_cutlass_comes_from_a_wheel(settings: Settings) -> None:
    (found,) = find_origins(["torch", "cutlass_3_8"], (), settings)
    assert (found.origin, found.version) == ("nvidia-cutlass", "3.8.0.0")
    assert found.license == "BSD-3-Clause"
    assert set(found.record) == {"license", "origin", "sha256", "version"}


def test_a_project_may_choose_its_own(settings: Settings) -> None:
    own = replace(EIGEN, name="cutlass_3_8")
    (found,) = find_origins(["cutlass_3_8"], (own,), settings)
    assert (found.origin, found.sha256) == (EIGEN.url, SHA)


def test_what_comes_from_nowhere_is_named_all_at_once(settings: Settings) -> None:
    with pytest.raises(ToolchainError) as caught:
        find_origins(["cutlass_4_0", "torch", "metal-cpp"], (), settings)
    text = str(caught.value)
    assert "cutlass_4_0 (release 4.0.0)" in text
    assert "[sources.cutlass_4_0]" in text
    assert "--source metal-cpp=DIRECTORY" in text


def test_a_checkout_on_the_command_line(settings: Settings, tmp_path: Path) -> None:
    checkout = tmp_path / "cutlass"
    checkout.mkdir()
    own = replace(settings, local_sources=read_local_sources([f"cutlass_4_0={checkout}"]))
    with pytest.raises(ToolchainError, match="no directory include, tools/util/include"):
        find_origins(["cutlass_4_0"], (), own)
    for name in ("include", "tools/util/include"):
        (checkout / name).mkdir(parents=True)
    (checkout / "include" / "a.h").write_text("1")
    (one,) = find_origins(["cutlass_4_0"], (), own)
    assert one.origin == "local"
    assert fetch_dependency(one, own).include_dirs[0] == checkout / "include"
    (checkout / "include" / "a.h").write_text("2")
    (two,) = find_origins(["cutlass_4_0"], (), own)
    # Other headers are built anew.
    assert one.sha256 != two.sha256


@pytest.mark.parametrize("text", ["eigen", "eigen=", "=/x"])
def test_what_is_no_local_source(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAME=PATH"):
        read_local_sources([text])


def test_a_local_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        read_local_sources([f"eigen={tmp_path}/x"])


def test_every_wrong_local_source_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_local_sources(["eigen", f"a={tmp_path}", f"a={tmp_path}", f"b={tmp_path}/x"])
    first, second, third = str(caught.value).splitlines()
    assert "expected NAME=PATH" in first
    assert "a is given twice" in second
    assert "no such file or directory" in third


PROJECT = """\
[general]
name = "abc"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "xpu"]
[torch]
[kernel.a]
backend = "cpu"
depends = ["torch", "cutlass_4_0", "cutlass_3_8"]
src = ["a.cpp"]
[kernel.b]
backend = "xpu"
depends = ["sycl_tla"]
src = ["b.cpp"]
"""


def test_a_local_source_that_no_component_depends_on(settings: Settings, tmp_path: Path) -> None:
    build = parse_build(PROJECT.encode())
    given = {"cutlass_4_0": tmp_path, "cutlas_3_8": tmp_path}
    with pytest.raises(UsageError) as caught:
        check_local_sources(build, replace(settings, local_sources=given))
    assert str(caught.value) == (
        "--source cutlas_3_8: no component depends on it; they depend on cutlass_3_8, cutlass_4_0, "
        'sycl_tla; did you mean "cutlass_3_8"?'
    )


def test_what_comes_from_nowhere_is_known_before_a_build(settings: Settings) -> None:
    build = parse_build(PROJECT.encode())
    (said,) = list_sourceless(build, [BackendKind.CPU], settings)
    assert said.startswith("cutlass_4_0 (release 4.0.0) is in no wheel")
    assert len(list_sourceless(build, BackendKind, settings)) == 2


def test_every_pinned_wheel_stands_for_the_release_of_its_name() -> None:
    from kernel_builder.known import read_known

    releases = read_known().native_depends
    for name, wheel in depends._read_pinned().items():
        assert wheel.version.startswith(f"{releases[name]}.")
