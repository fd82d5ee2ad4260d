"""Our checks beside ``auditwheel`` and ``abi3audit``, on what we build and on what is broken on purpose.

About half a minute, besides building a kit once.
"""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import peers
import pytest
from click.testing import CliRunner
from lacking import give_up, require_commands

from kernel_builder.check.glibc import check_symbol_versions
from kernel_builder.check.python_abi import check_python_abi
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.cli.check_abi import check_abi
from kernel_builder.policy import find_policy, list_policies
from kernel_spec.binary import read_elf

BROKEN = Path(__file__).parents[2] / "kits" / "broken"
INFO = "kit-1.0.dist-info"
PLANTED = {
    "glibc_too_new": ["-lm", "-lpthread"],
    "libstdcxx_too_new": ["-O0"],
    "python_not_stable": ["-lc"],
    "torch_cxx": [],
}


@pytest.fixture(scope="module")
def tools() -> Path:
    """The directory of the commands of both tools."""
    require_commands("g++", "gcc", "strip")
    try:
        venv = peers.make_venv("auditwheel==6.8.2", "abi3audit==0.0.26")
    except peers.PeerUnavailableError as err:
        give_up(err)
    return venv.folder / "bin"


@pytest.fixture(scope="module")
def built(build_kit, tools: Path) -> Path:
    (library,) = (build_kit("add_stable") / "build").glob("*/*.so")
    return library


@pytest.fixture(params=[*PLANTED, "built"])
def library(request: pytest.FixtureRequest, tmp_path: Path, built: Path) -> Path:
    target = tmp_path / "_k.abi3.so"
    if request.param == "built":
        return Path(shutil.copy(built, target))
    (source,) = BROKEN.glob(f"{request.param}.c*")
    compiler = "g++" if source.suffix == ".cpp" else "gcc"
    flags = ["-shared", "-fPIC", "-O1", "-w", "-Wl,--no-as-needed"]
    subprocess.run([compiler, *flags, source, "-o", target, *PLANTED[request.param]], check=True)
    return target


def oldest_policy(library: Path) -> str | None:
    facts = SharedLibrary(file=library.name, facts=read_elf(library))
    for name in list_policies():
        caps = find_policy(name, facts.facts.machine)
        if caps is not None and not list(check_symbol_versions(facts, caps)):
            return name
    return None


def show_wheel(tools: Path, library: Path) -> str:
    wheel = library.parent / "kit-1.0-cp39-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, f"kit/{library.name}")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp39-abi3-linux_x86_64\n"
        archive.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: kit\nVersion: 1.0\n")
        archive.writestr(f"{INFO}/WHEEL", tags)
        names = [f"kit/{library.name}", *(f"{INFO}/{name}" for name in ("METADATA", "WHEEL"))]
        archive.writestr(f"{INFO}/RECORD", "".join(f"{name},,\n" for name in names))
    done = subprocess.run(
        [tools / "auditwheel", "show", "--json", wheel], capture_output=True, text=True, check=True
    )
    return str(json.loads(done.stdout)["sym_tag"])


def test_auditwheel_names_the_same_oldest_system(tools: Path, library: Path) -> None:
    assert f"{oldest_policy(library)}_x86_64" == show_wheel(tools, library)
    subprocess.run(["strip", library], check=True)
    assert f"{oldest_policy(library)}_x86_64" == show_wheel(tools, library)


def test_abi3audit_names_the_same_functions(tools: Path, library: Path) -> None:
    for strip in (False, True):
        if strip:
            subprocess.run(["strip", library], check=True)
        done = subprocess.run(
            [tools / "abi3audit", "-R", "--assume-minimum-abi3", "3.9", library],
            capture_output=True,
            text=True,
            check=False,
        )
        (spec,) = json.loads(done.stdout)["specs"].values()
        said = spec["object"]["result"]
        facts = SharedLibrary(file=library.name, facts=read_elf(library))
        ours = {finding.symbol for finding in check_python_abi(facts)}
        assert ours == {*said["non_abi3_symbols"], *said["future_abi3_objects"]}


def test_check_abi_on_what_is_built_and_stripped(built: Path, tools: Path) -> None:
    variant = built.parent
    subprocess.run(["strip", built], check=True)
    passing = CliRunner().invoke(check_abi, [str(variant)])
    assert passing.exit_code == 0, passing.output
    assert "manylinux_2_28, Python 3.9, torch's stable ABI 2.10" in passing.output
    for option, value, rule in (
        ("--manylinux", "manylinux_2_5", "symbol-version"),
        ("--python-abi", "3.1", "python-abi"),
        ("--torch-stable-abi", "2.9", "torch-stable-abi"),
    ):
        result = CliRunner().invoke(check_abi, [str(variant), option, value])
        assert result.exit_code == 1, option
        assert rule in result.output
