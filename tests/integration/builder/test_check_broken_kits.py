"""Each rule on a real library that breaks it; a stripped library breaks it just as well."""

import errno
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from kernel_builder.check.variant import check_variant
from kernel_builder.settings import Settings
from kernel_spec.backend import BackendKind
from kernel_spec.digest import digest_tree
from kernel_spec.metadata import Metadata, format_metadata

BROKEN = Path(__file__).parents[2] / "kits" / "broken"
STABLE = "torch-stable-abi210-cpu-x86_64-linux"


def compile_library(target: Path, source: str, *flags: str, strip: bool) -> None:
    command = ["g++" if source.endswith("cpp") else "gcc", "-shared", "-fPIC", "-O1", "-w"]
    subprocess.run([*command, str(BROKEN / source), "-o", str(target), *flags], check=True)
    if strip:
        subprocess.run(["strip", str(target)], check=True)


def write_metadata(directory: Path, **changes: object) -> None:
    fields = {"name": "kit", "id": "_k", "version": 1, "license": "MIT", "backend": BackendKind.CPU}
    fields |= {"digest": digest_tree(directory), **changes}
    metadata = Metadata(**fields)  # type: ignore[arg-type]
    (directory / "metadata.json").write_bytes(format_metadata(metadata))


def make_variant(
    root: Path, source: str, *flags: str, strip: bool = False, name: str = STABLE
) -> Path:
    directory = root / name
    directory.mkdir()
    (directory / "__init__.py").write_text("from ._ops import ops\n")
    (directory / "_ops.py").write_text("from . import _k\n\nops = None\n")
    compile_library(directory / "_k.abi3.so", source, *flags, strip=strip)
    write_metadata(directory)
    return directory


def rules(directory: Path, settings: Settings) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for finding in check_variant(directory, settings=settings):
        found.setdefault(finding.rule, []).append(finding.symbol)
    return found


@pytest.mark.parametrize("strip", [False, True], ids=["plain", "stripped"])
def test_a_clean_library_has_no_finding(tmp_path: Path, settings: Settings, strip: bool) -> None:
    assert check_variant(make_variant(tmp_path, "clean.c", strip=strip), settings=settings) == ()


@pytest.mark.parametrize("strip", [False, True], ids=["plain", "stripped"])
@pytest.mark.parametrize(
    ("source", "flags", "expected"),
    [
        (
            "glibc_too_new.c",
            ["-lm", "-Wl,--no-as-needed", "-lpthread"],
            {"symbol-version": ["pow@GLIBC_2.29", "pthread_create@GLIBC_2.34"]},
        ),
        ("openmp.cpp", ["-fopenmp"], {"needed-library": ["libgomp.so.1"]}),
        ("clean.c", ["-Wl,-rpath,/opt/torch/lib"], {"rpath": ["/opt/torch/lib"]}),
        ("clean.c", ["-Wl,-z,execstack"], {"executable-stack": [None]}),
        ("text_relocation.c", ["-Wl,-z,notext"], {"text-relocation": [None]}),
        ("clean.c", ["-Wl,--audit,/opt/spy.so"], {"needed-library": ["DT_AUDIT"]}),
        ("clean.c", ["-Wl,-f,other.so"], {"needed-library": ["DT_AUXILIARY"]}),
        ("unique.cpp", [], {"gnu-unique": ["Counter<int>::value"]}),
        (
            "python_not_stable.c",
            [],
            {"python-abi": ["PyUnicode_AsUTF8", "PyUnicode_AsUTF8AndSize"]},
        ),
        (
            "torch_cxx.cpp",
            [],
            {
                "needed-library": ["libtorch.so"],
                "torch-stable-abi": [
                    "at::Tensor make<int>(int)",
                    "at::Tensor::~Tensor()",
                    "c10::Error::Error()",
                    "c10::Error::~Error()",
                    "typeinfo for c10::Error",
                ],
            },
        ),
        (
            "shim_too_new.c",
            [],
            {"needed-library": ["libtorch.so"], "torch-stable-abi": ["torch_from_blob"]},
        ),
        ("undefined.c", [], {"undefined-symbol": ["nobody_has_this"]}),
        ("no_entry.c", [], {"layout": ["PyInit__k"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_library_that_breaks_one_rule(
    tmp_path: Path,
    settings: Settings,
    *,
    source: str,
    flags: list[str],
    expected: dict[str, list[str]],
    strip: bool,
) -> None:
    found = rules(make_variant(tmp_path, source, *flags, strip=strip), settings)
    for rule, symbols in expected.items():
        assert sorted(found.pop(rule), key=str) == symbols
    # Linked against the newest libraries, a library may break the rule of versions as well.
    found.pop("symbol-version", None)
    assert found == {}


def test_a_libstdcxx_that_is_too_new(tmp_path: Path, settings: Settings) -> None:
    found = rules(make_variant(tmp_path, "libstdcxx_too_new.cpp", "-O0", strip=True), settings)
    assert any("GLIBCXX_3.4.26" in str(symbol) for symbol in found["symbol-version"])


def test_the_full_interface_is_checked_against_the_installed_torch(
    tmp_path: Path, settings: Settings
) -> None:
    import torch

    major, minor = torch.__version__.split(".")[:2]
    name = f"torch{major}{minor}-cxx11-cpu-x86_64-linux"
    directory = make_variant(tmp_path, "torch_cxx.cpp", name=name)
    # torch has c10::Error's destructor and typeinfo; nobody has the other two.
    undefined = rules(directory, settings)["undefined-symbol"]
    assert "at::Tensor make<int>(int)" in undefined
    assert "typeinfo for c10::Error" not in undefined


def test_damaged_libraries_are_findings(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    library = directory / "_k.abi3.so"
    whole = library.read_bytes()
    for damaged in (b"", b"not an ELF file", whole[:700], whole[:64]):
        library.write_bytes(damaged)
        write_metadata(directory)
        assert list(rules(directory, settings)) == ["unreadable"]


def test_a_library_for_another_machine(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    library = directory / "_k.abi3.so"
    data = bytearray(library.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    library.write_bytes(data)
    write_metadata(directory)
    assert rules(directory, settings)["machine"] == ["aarch64"]


def test_files_that_are_missing_or_too_many(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    (directory / "_ops.py").unlink()
    shutil.copy(directory / "_k.abi3.so", directory / "libvendor.so")
    (directory / "link").symlink_to("__init__.py")
    write_metadata(directory)
    found = {(each.rule, each.file) for each in check_variant(directory, settings=settings)}
    assert {("layout", "_ops.py"), ("stray-file", "libvendor.so"), ("stray-file", "link")} <= found


def test_a_missing_library(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    (directory / "_k.abi3.so").rename(directory / "_other.abi3.so")
    write_metadata(directory)
    found = {(each.rule, each.file) for each in check_variant(directory, settings=settings)}
    assert found == {("layout", "_k.abi3.so"), ("stray-file", "_other.abi3.so")}


def test_a_changed_file_is_named(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    (directory / "__init__.py").write_text("changed = True\n")
    (finding,) = check_variant(directory, settings=settings)
    assert (finding.rule, finding.file) == ("digest", "__init__.py")


def test_metadata_that_contradicts_the_name(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    write_metadata(directory, backend=BackendKind.CUDA)
    (finding,) = check_variant(directory, settings=settings)
    assert "says cpu" in finding.message


@pytest.mark.parametrize("text", ["", "{", json.dumps({"name": "k"})])
def test_metadata_that_cannot_be_read(tmp_path: Path, settings: Settings, text: str) -> None:
    directory = make_variant(tmp_path, "clean.c")
    (directory / "metadata.json").write_text(text)
    (finding,) = check_variant(directory, settings=settings)
    assert finding.file == "metadata.json"


def test_a_directory_that_is_not_named_as_a_variant(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c").rename(tmp_path / "result")
    (finding,) = check_variant(directory, settings=settings)
    assert finding.rule == "layout"


def test_an_op_outside_the_namespace(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    (directory / "sub").mkdir()
    (directory / "sub" / "ops.py").write_text(
        '@torch.library.custom_op("k::f", mutates_args=())\ndef f(x): ...\n'
    )
    write_metadata(directory)
    (finding,) = check_variant(directory, settings=settings)
    assert finding.file == "sub/ops.py:1"


@pytest.mark.parametrize("kind", [6, 11, 0x6FFFFFFE, 0x6FFFFFFF], ids=hex)
@pytest.mark.parametrize("field", ["sh_type", "sh_size"])
@pytest.mark.parametrize(
    ("source", "flags"),
    [("glibc_too_new.c", ["-lm", "-lpthread"]), ("clean.c", ["-Wl,-rpath,/opt"])],
)
def test_section_headers_that_lie_hide_nothing(
    tmp_path: Path, settings: Settings, *, source: str, flags: list[str], field: str, kind: int
) -> None:
    """The loader reads the dynamic segment; sections of other types or sizes do not change it."""
    directory = make_variant(tmp_path, source, "-Wl,--no-as-needed", *flags)
    library = directory / "_k.abi3.so"
    data = bytearray(library.read_bytes())
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    for header in range(table, table + size * count, size):
        if struct.unpack_from("<I", data, header + 4) == (kind,):
            if field == "sh_type":
                struct.pack_into("<I", data, header + 4, 1)
            else:
                struct.pack_into("<Q", data, header + 0x20, 0)
    library.write_bytes(data)
    write_metadata(directory)
    assert rules(directory, settings)


def test_code_under_another_name_and_hidden_files(tmp_path: Path, settings: Settings) -> None:
    directory = make_variant(tmp_path, "clean.c")
    for name in ("notes.txt", "libx.so.1", "sub/data", ".hidden", "__pycache__/x.txt"):
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copy(directory / "_k.abi3.so", directory / name)
    # Code for a GPU is data: e_machine EM_CUDA.
    device = bytearray((directory / "_k.abi3.so").read_bytes())
    device[18:20] = (190).to_bytes(2, "little")
    (directory / "kernel.cubin").write_bytes(device)
    write_metadata(directory)
    found = {each.file: each.rule for each in check_variant(directory, settings=settings)}
    assert found == dict.fromkeys(
        ["notes.txt", "libx.so.1", "sub/data", ".hidden", "__pycache__/x.txt"], "stray-file"
    )


def test_a_pipe_named_as_python_is_a_finding_and_not_read(
    tmp_path: Path, settings: Settings
) -> None:
    directory = make_variant(tmp_path, "clean.c")
    os.mkfifo(directory / "pipe.py")
    (finding,) = check_variant(directory, settings=settings)
    assert "pipe.py: expected a file or a directory" in finding.message


def test_what_may_not_be_read_is_a_finding(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_variant(tmp_path, "clean.c")

    def refuse(path: Path) -> object:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("kernel_builder.check.variant.read_elf", refuse)
    (finding,) = check_variant(directory, settings=settings)
    assert (finding.file, finding.rule) == ("_k.abi3.so", "unreadable")
