"""An object that was compiled under a draft of its id is, with the id in it, the one of the id itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder import compile_objects
from kernel_builder.drafts import draft_of, find_doubt, put_op_id
from kernel_builder.pipeline import build_project
from kernel_builder.report import VariantReport, format_report
from kernel_builder.settings import Settings, read_settings

Kit = Callable[[str], Path]

# What a compiler may make of a name in a text (@), beside the entry that every library of ours has.
SOURCES = {
    "pointer": 'const char* f() { return "@"; }',
    "names": "static int @(int x) { static int n; return n += x; } int f(int x) { return @(x) + @(1); }",
    "own_name": "const char* @() { return __func__; } const char* p_@() { return __PRETTY_FUNCTION__; }",
    "lambda": "#include <typeinfo>\ntemplate <class F> const char* t(F) { return typeid(F).name(); }\n"
    "const char* @() { return t([](int x) { return x; }); }",
    "type": "template <int N> struct @ { int f(int n); };\n"
    "template <int N> int @<N>::f(int n) { return n + N; } template struct @<3>;",
    "end_of_name": 'extern "C" { int v; int b; int ab; }',
    "string": '#include <string>\nstd::string f() { return "@"; }',
    "static_string": '#include <string>\nstatic std::string s("@"); const char* f() { return s.c_str(); }',
    "copy": '#include <cstring>\nvoid f(char* to) { std::memcpy(to, "@", sizeof("@")); }',
    "array": 'void g(char*); void f() { char a[] = "@"; g(a); }',
    "compare": '#include <cstring>\nbool f(const char* x) { return !std::memcmp(x, "@", sizeof("@")); }',
    "view": '#include <string_view>\nbool f(std::string_view x) { return x == "@"; }',
}
DOUBTED = {"end_of_name", "string", "static_string", "copy", "array", "compare", "view"}


def compile_text(text: str, flags: list[str], place: Path) -> bytes:
    """Compile a text; return the object without what no library takes over from it."""
    (place / "a.cpp").write_text(text)
    common = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-frandom-seed=a.cpp"]
    command = ["g++", *flags, *common, "-c", "a.cpp", "-o", "a.o"]
    subprocess.run(command, cwd=place, check=True)
    return (place / "a.o").read_bytes()


def strip(content: bytes, place: Path) -> bytes:
    """Leave out what no library takes over, and write the table of names anew."""
    (place / "s.o").write_bytes(content)
    subprocess.run(["strip", "--strip-debug", "s.o"], cwd=place, check=True)
    return (place / "s.o").read_bytes()


@pytest.mark.parametrize("flags", [["-O3"], ["-O0", "-g"]], ids=" ".join)
@pytest.mark.parametrize("name", SOURCES)
def test_what_is_not_doubted_is_right(name: str, flags: list[str], tmp_path: Path) -> None:
    text = SOURCES[name] + '\nextern "C" void PyInit_@() {}\n'
    doubts = []
    # How a text is taken apart depends on its length.
    for module in ("_k_cpu_", "_a_kernel_cuda_"):
        op_id = f"{module}0123456789ab"
        draft = draft_of(op_id)
        drafted, wanted = (
            compile_text(text.replace("@", each), flags, tmp_path) for each in (draft, op_id)
        )
        doubts.append(find_doubt(drafted, draft))
        if doubts[-1] is None:
            assert strip(put_op_id(drafted, op_id), tmp_path) == strip(wanted, tmp_path)
    if "-O3" in flags:
        assert all(doubts) == any(doubts) == (name in DOUBTED)


def build(project: Path, settings: Settings, *, force: bool = False) -> VariantReport:
    report = build_project(project, settings=settings, force=force)
    assert report.exit_code == 0, format_report(report)
    (variant,) = report.variants
    return variant


def read_files(variant: VariantReport) -> dict[str, bytes]:
    assert variant.path is not None
    return {path.name: path.read_bytes() for path in variant.path.iterdir() if path.is_file()}


def change(source: Path) -> None:
    """Change a file as no other test does, which would have left an object."""
    source.write_text(f"{source.read_text()}// {source}\n")


def make_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_objects, "takes_draft", lambda *_: False)


@pytest.mark.parametrize("flags", [[], ["-g", "-ffunction-sections"]], ids=str)
def test_the_library_is_that_of_compiling_with_the_id(
    kit: Kit, settings: Settings, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    project = kit("add_stable")
    add_flags(project, flags)
    build(project, settings)
    change(project / "csrc/add_cpu.cpp")
    again = build(project, settings)
    assert (again.compiled, again.reused) == (1, 1)
    make_directly(monkeypatch)
    direct = build(project, settings, force=True)
    assert (direct.compiled, direct.reused) == (1, 1)
    assert read_files(direct) == read_files(again)


def test_with_full_headers_the_second_change_compiles_no_binding(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Others build this kit, too, and what they compiled would be found.
    settings = read_settings({**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")})
    project = kit("throw_full")
    package = project / "torch-ext/throw_full/__init__.py"
    compiled = []
    for _ in range(3):
        made = build(project, settings)
        compiled.append(made.compiled)
        before = read_files(made)
        package.write_text(package.read_text() + "# changed\n")
    # The binding has one block, whose name g++ takes apart: two objects tell where the pieces are.
    assert compiled == [2, 1, 0]
    package.write_text(package.read_text().removesuffix("# changed\n"))
    make_directly(monkeypatch)
    direct = build(project, settings, force=True)
    assert (direct.compiled, direct.reused) == (1, 1)
    assert read_files(direct) == before


def add_flags(project: Path, flags: list[str]) -> None:
    config = project / "build.toml"
    assert "[torch]\n" in config.read_text()
    config.write_text(config.read_text().replace("[torch]\n", f"[torch]\ncxx-flags = {flags}\n"))


def test_a_header_may_register_ops(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    binding = project / "torch-ext/torch_binding.cpp"
    header = project / "torch-ext/register.h"
    header.write_text(f"{binding.read_text()}// {header}\n")
    binding.write_text('#include "register.h"\n')
    config = project / "build.toml"
    config.write_text(
        config.read_text().replace(
            '"torch-ext/torch_binding.cpp"', '"torch-ext/torch_binding.cpp", "torch-ext/register.h"'
        )
    )
    # Every file might include it, and only one does.
    assert build(project, settings).compiled == 2
    change(project / "csrc/add_cpu.cpp")
    again = build(project, settings)
    assert [each.source for each in again.files if not each.reused] == ["csrc/add_cpu.cpp"]


def test_what_cannot_be_proved_is_compiled_with_the_id_and_told(
    kit: Kit, settings: Settings
) -> None:
    project = kit("add_stable")
    add_flags(project, ["-flto", "-ffat-lto-objects"])
    first = build(project, settings)
    change(project / "csrc/add_cpu.cpp")
    again = build(project, settings)
    assert first.compiled == again.compiled == 2
    (note,) = [note for note in again.notes if "torch_binding" in note]
    assert note.startswith("torch-ext/torch_binding.cpp is compiled with every change of a file: ")
    assert ".gnu.lto_" in note


# The compiler computes with the id, which nobody could see in the object.
HASH = """
namespace {
constexpr unsigned hash(const char* text) { return *text ? *text + 31 * hash(text + 1) : 0; }
#define QUOTE_(A) #A
#define QUOTE(A) QUOTE_(A)
[[gnu::used]] unsigned hash_of_id() {
  constexpr unsigned found = hash(QUOTE(TORCH_EXTENSION_NAME));
  return found;
}
}  // namespace
"""


@pytest.mark.parametrize("included", [False, True], ids=["binding", "what it includes"])
def test_an_id_that_is_computed_with_is_the_right_one(
    kit: Kit, settings: Settings, monkeypatch: pytest.MonkeyPatch, included: bool
) -> None:
    project = kit("add_stable")
    other = project / "csrc/hash.cpp"
    other.write_text(HASH if included else "")
    config = project / "build.toml"
    config.write_text(
        config.read_text().replace('"csrc/add_cpu.cpp"', '"csrc/add_cpu.cpp", "csrc/hash.cpp"')
    )
    with (project / "torch-ext/torch_binding.cpp").open("a") as binding:
        binding.write('#include "csrc/hash.cpp"\n' if included else HASH)
    build(project, settings)
    change(project / "csrc/add_cpu.cpp")
    again = build(project, settings)
    names = sorted(each.source for each in again.files if not each.reused)
    expected = ["csrc/add_cpu.cpp", "torch-ext/torch_binding.cpp"]
    assert names == (sorted([*expected, "csrc/hash.cpp"]) if included else expected)
    assert any("its name" in note for note in again.notes) is included
    make_directly(monkeypatch)
    assert read_files(build(project, settings, force=True)) == read_files(again)
