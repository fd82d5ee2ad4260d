"""What read_build says of projects: files, texts, and what editions leave out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.config.model import TorchNoarch
from kernel_builder.config.read import find_project, parse_build, read_build
from kernel_builder.errors import ConfigError, ConfigFault, ProjectError
from kernel_spec.backend import BackendKind
from kernel_spec.errors import KernelError
from kernel_spec.metadata import KernelDependency

GOOD = """\
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
depends = ["torch"]
src = ["csrc/one.cpp", "csrc/one.h"]
include = ["csrc"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for path in (
        "torch-ext/torch_binding.cpp",
        "torch-ext/my_kernel/__init__.py",
        "csrc/one.cpp",
        "csrc/one.h",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "build.toml").write_text(GOOD)
    return tmp_path


def faults_of(text: str) -> tuple[ConfigFault, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_build(text.encode())
    return caught.value.faults


def only(text: str) -> tuple[int, str, str, str | None]:
    [fault] = faults_of(text)
    return fault.line, fault.path, fault.kind, fault.suggestion


def edit(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def test_a_project_is_read_by_its_directory_or_its_file(project: Path) -> None:
    assert read_build(project) == read_build(project / "build.toml")
    assert find_project(project / "build.toml") == project


def test_no_project(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"no build\.toml here.*init") as caught:
        read_build(tmp_path)
    assert caught.value.exit_code == 2
    with pytest.raises(ProjectError, match="no such directory"):
        read_build(tmp_path / "nowhere")


def test_missing_files_are_reported_with_the_rest(project: Path) -> None:
    text = edit("csrc/one.cpp", "csrc/onee.cpp").replace('"MIT"', "3")
    (project / "build.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_build(project)
    kinds = [(fault.line, fault.path, fault.kind) for fault in caught.value.faults]
    assert kinds == [
        (5, "general.license", "wrong-type"),
        (14, "kernel.one.src[0]", "missing-file"),
    ]
    assert caught.value.lines[1] == (
        f'{project}/build.toml:14: kernel.one.src[0]: no file "csrc/onee.cpp" in the project; '
        'did you mean "csrc/one.cpp"?'
    )


def test_a_file_elsewhere_in_the_project_is_suggested(project: Path) -> None:
    (project / "build.toml").write_text(edit("csrc/one.h", "include/one.h"))
    with pytest.raises(ConfigError, match=r'did you mean "csrc/one\.h"'):
        read_build(project)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"csrc/one.h"', '"csrc"', "is a directory; list each file"),
        ('include = ["csrc"]', 'include = ["inc"]', 'no directory "inc"'),
        ('name = "my-kernel"', 'name = "other"', "torch-ext/other/__init__.py"),
    ],
)
def test_what_else_is_not_there(project: Path, old: str, new: str, message: str) -> None:
    (project / "build.toml").write_text(edit(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        read_build(project)
    assert [fault.kind for fault in caught.value.faults] == ["missing-file"]


def test_a_link_out_of_the_project_is_refused(project: Path, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "one.h"
    outside.write_text("")
    (project / "csrc/one.h").unlink()
    (project / "csrc/one.h").symlink_to(outside)
    with pytest.raises(ConfigError, match="link out of the project") as caught:
        read_build(project)
    assert [fault.kind for fault in caught.value.faults] == ["bad-path"]


def test_a_pipe_is_no_source(project: Path) -> None:
    (project / "csrc/one.h").unlink()
    os.mkfifo(project / "csrc/one.h")
    with pytest.raises(ConfigError, match="is no file but a pipe") as caught:
        read_build(project)
    assert [fault.suggestion for fault in caught.value.faults] == [None]


def test_a_link_to_itself_is_no_source(project: Path) -> None:
    (project / "csrc/one.h").unlink()
    (project / "csrc/one.h").symlink_to("one.h")
    with pytest.raises(ConfigError, match=r"csrc/one.h.*cannot be looked at: .*symbolic links"):
        read_build(project)


@pytest.mark.parametrize("old", ["csrc/one.cpp", 'name = "my-kernel"'])
def test_names_that_no_file_can_have_are_faults(project: Path, old: str) -> None:
    (project / "build.toml").write_text(
        edit(old, old.replace("one", "x" * 300).replace("my", "x" * 5000))
    )
    with pytest.raises(ConfigError, match="cannot be looked at: File name too long") as caught:
        read_build(project)
    assert [fault.kind for fault in caught.value.faults] == ["missing-file"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/one.cpp",
        "../one.cpp",
        "csrc/../../x.cpp",
        "csrc/*.cpp",
        "csrc\\\\one.cpp",
        "csrc/\\u0007.cpp",
        "",
    ],
)
def test_bad_paths(path: str) -> None:
    assert only(edit("csrc/one.cpp", path))[:3] == (14, "kernel.one.src[0]", "bad-path")


def test_a_path_that_comes_back_is_inside() -> None:
    assert parse_build(edit("csrc/one.cpp", "csrc/../csrc/one.cpp").encode())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"my-kernel"', '"My_Kernel"', (2, "general.name", "bad-name", "my-kernel")),
        ("version = 1", "version = -1", (3, "general.version", "bad-value", None)),
        ("version = 1", "version = true", (3, "general.version", "wrong-type", None)),
        ("edition = 5", "edition = 0", (4, "general.edition", "bad-edition", None)),
        ("edition = 5", 'edition = "5"', (4, "general.edition", "wrong-type", "5")),
        ('["cpu"]', "[]", (6, "general.backends", "bad-value", None)),
        ("[kernel.one]", "[kernels.one]", (11, "kernels", "unknown-key", "kernel")),
        ('["torch"]', '["torhc"]', (13, "kernel.one.depends[0]", "unknown-dependency", "torch")),
        ('backend = "cpu"', "", (11, "kernel.one.backend", "missing-key", None)),
        ('depends = ["torch"]', "", (11, "kernel.one.depends", "missing-key", None)),
        ('["torch"]', '["torch", "torch"]', (13, "kernel.one.depends[1]", "duplicate", None)),
        ("[kernel.one]", '[kernel."../one"]', (11, 'kernel."../one"', "bad-value", None)),
    ],
)
def test_one_fault(old: str, new: str, expected: tuple[int, str, str, str | None]) -> None:
    assert only(edit(old, new)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('cuda-flags = ["-O3"]', ("kernel.one.cuda-flags", "key-of-other-backend")),
        ('rocm-archs = ["gfx942"]', ("kernel.one.rocm-archs", "key-of-other-backend")),
        ('language = "cuda"', ("kernel.one.language", "unknown-key")),
    ],
)
def test_keys_of_other_components(line: str, expected: tuple[str, str]) -> None:
    assert only(GOOD + line)[1:3] == expected


def test_kernels_that_a_kernel_needs() -> None:
    entries = '{ repo-id = "acme/a", version = 2 }, { repo-id = "acme/b", revision = "main" }'
    build = parse_build(edit("version = 1", f"version = 1\nkernel-depends = [{entries}]").encode())
    assert build.general.depends.kernels == (
        KernelDependency(repo_id="acme/a", version=2),
        KernelDependency(repo_id="acme/b", revision="main"),
    )


@pytest.mark.parametrize(
    ("backend", "key"), [("cuda", "cuda-flags"), ("rocm", "hip-flags"), ("xpu", "sycl-flags")]
)
def test_flags_that_one_backend_alone_has(backend: str, key: str) -> None:
    text = GOOD.replace('"cpu"', f'"{backend}"')
    [without] = parse_build(text.encode()).components
    [component] = parse_build(f'{text}{key} = ["-one", "-two"]\n'.encode()).components
    assert (without.backend_flags, component.backend_flags) == ((), ("-one", "-two"))


@pytest.mark.parametrize("arch", ["banana", "90", "9.0b", "sm_90", "9.0+ptx"])
def test_bad_capabilities(arch: str) -> None:
    text = GOOD.replace("cpu", "cuda") + f'cuda-capabilities = ["8.0", "{arch}"]'
    assert only(text)[1:3] == ("kernel.one.cuda-capabilities[1]", "bad-arch")


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("https://host.example/a/b", "https://host.example/a/b"),
        ("git+ssh://host.example/a", "git+ssh://host.example/a"),
        ("ssh://me@host.example:22/a", "ssh://me@host.example:22/a"),
        ("https://host.example", "https://host.example"),
        ("me@host.example:a/b.git", "ssh://me@host.example/a/b.git"),
        ("me@host.example:/a/b.git", "ssh://me@host.example/a/b.git"),
        ("me@h\u00f6st.example:a/b.git", None),
        ("ftp://host.example/a", None),
        ("file:///srv/a", None),
        ("host.example/a", None),
    ],
)
def test_git_urls(url: str, meant: str | None) -> None:
    text = edit("version = 1", f'version = 1\nupstream = "{url}"')
    if meant is not None:
        assert parse_build(text.encode()).general.upstream == meant
    else:
        assert only(text)[1:3] == ("general.upstream", "bad-url")


def test_python_dependencies_belong_to_their_section() -> None:
    text = edit(
        "\n[torch]", 'python-depends = ["nki"]\n[general.neuron]\npython-depends = ["nki"]\n[torch]'
    )
    assert only(text)[1:3] == ("general.python-depends[0]", "unknown-python-dependency")


def test_components_under_noarch_would_be_ignored_so_they_are_refused() -> None:
    text = edit('[torch]\nsrc = ["torch-ext/torch_binding.cpp"]', "[torch-noarch]")
    assert only(text)[1:3] == ("kernel", "unknown-key")


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"[general\n", 1, "in column"),
        (b"a = 1\nb = [\n", 2, "end of document|Invalid|Unclosed"),
        (b"a = 1\na = 2\n", 2, "overwrite"),
        (b"a = 1\nb = '\xff'\n", 2, "byte 6 of the line is not UTF-8"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, 1, "nested too deeply"),
        (b"a = 1\nb = " + b"7" * 5000, 2, "too many digits"),
    ],
)
def test_what_is_not_toml(data: bytes, line: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_build(data)
    [fault] = caught.value.faults
    assert (fault.line, fault.path, fault.kind) == (line, "", "syntax")
    assert isinstance(caught.value, KernelError)


def test_a_byte_order_mark_is_no_fault() -> None:
    assert parse_build(b"\xef\xbb\xbf" + GOOD.encode()) == parse_build(GOOD.encode())


def test_an_old_file_may_say_licence_and_version() -> None:
    text = '[general]\nname = "ab"\nversion = 3\nlicense = "MIT"\n[torch]\nuniversal = true\n'
    build = parse_build(text.encode())
    assert (build.edition, build.general.version, build.warnings) == (1, 3, ())
    assert isinstance(build.framework, TorchNoarch)
    assert BackendKind.TPU not in build.general.backends


def test_rocm_of_the_first_guides() -> None:
    text = """
[general]
name = "gemm"
universal = false

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]
include = ["."]

[kernel.gemm]
backend = "rocm"
rocm-archs = ["gfx942"]
depends = ["torch"]
include = ["."]
src = ["gemm/gemm_kernel.hip", "gemm/gemm_kernel.h"]
"""
    build = parse_build(text.encode())
    assert build.general.backends == (BackendKind.ROCM,)
    assert build.components[0].archs == ("gfx942",)
    assert build.components[0].include == (".",)
    assert build.warnings == ("missing-license",)
