"""Compiled libraries for one torch each: opened once in a process, carried by everything, and never needed.

The ops file is the one that the builder writes; torch is the installed one. Time budget: 60 s, once the
environment of the published client is there.
"""

from __future__ import annotations

import subprocess
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from lacking import give_up, require_commands
from toy_variant import write_toy_metadata

from kernel_builder.package import format_ops
from kernel_spec import directory, publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernel_spec.per_torch import format_per_torch
from kernel_spec.version import MajorMinor
from kernels.system import detect

OP_ID = "_toy_cpu_0123456789ab"
MAIN = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "%s", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_%s(void) { return PyModule_Create(&module); }
"""
# What registers ops as it is opened leaves a line instead.
PART = """
#include <stdio.h>
#include <stdlib.h>
extern int %s(void);
__attribute__((constructor)) static void open_part(void) {
  FILE *log = fopen(getenv("OPENED"), "a");
  if (log != NULL) { fprintf(log, "%s %%d\\n", %s()); fclose(log); }
}
"""
IN_TORCH, IN_NO_TORCH = "aoti_torch_device_type_cuda", "aoti_torch_of_tomorrow"
INIT = """
from ._ops import load_per_torch
FAST = load_per_torch()
def ask(_): return load_per_torch()
"""


@pytest.fixture(scope="module")
def release():
    torch = detect().torch
    if torch is None:
        give_up("torch is not installed")
    return torch.release


@pytest.fixture(scope="module")
def libraries(tmp_path_factory, release):
    """The bytes of a main library, of one that links with this torch (made twice), and of one that does not."""
    require_commands("gcc")
    folder = tmp_path_factory.mktemp("libraries")
    torch = Path(find_spec("torch").origin).parent / "lib"

    def compile_library(name, source, *words):
        place = folder / f"{name}.c"
        place.write_text(source)
        output = place.with_suffix(".so")
        command = ["gcc", "-shared", "-fPIC", place, "-o", output, *words]
        subprocess.run(command, check=True)
        return output.read_bytes()

    links = [f"-L{torch}", "-Wl,--no-as-needed", "-ltorch_cpu", "-Wl,--allow-shlib-undefined"]
    return {
        "main": compile_library(
            "main", MAIN % (OP_ID, OP_ID), f"-I{sysconfig.get_path('include')}"
        ),
        "part": compile_library("part", PART % (IN_TORCH, "one", IN_TORCH), *links),
        "other": compile_library("other", PART % (IN_TORCH, "other", IN_TORCH), *links),
        "broken": compile_library("broken", PART % (IN_NO_TORCH, "broken", IN_NO_TORCH), *links),
    }


@pytest.fixture
def write(libraries, tmp_path):
    """Write a variant: ``write(project, {release: library})``; a note tells one revision from another."""
    variant = f"torch-stable-abi210-cpu-{detect().cpu}-linux"

    def write(project, parts, note=""):
        place = tmp_path / project / "build" / variant
        place.mkdir(parents=True)
        files = {
            "__init__.py": INIT.encode() + note.encode(),
            "_ops.py": format_ops(OP_ID, compiled=True, per_torch=True).encode(),
            f"{OP_ID}.abi3.so": libraries["main"],
        }
        files |= {format_per_torch(OP_ID, key): libraries[name] for key, name in parts.items()}
        for name, data in files.items():
            (place / name).write_bytes(data)
        write_toy_metadata(place)
        return place

    return write


@pytest.fixture
def opened(tmp_path):
    """What was opened, in all processes that have it in their environment: a line each."""
    log = tmp_path / "opened"
    log.touch()
    return log


@pytest.fixture
def run(machine, opened):
    return lambda code, **more: machine.run(code, OPENED=str(opened), **more)


def publish(root, variant, *, tag=None):
    project = variant.parents[1]
    files = {p.relative_to(project).as_posix(): p for p in project.rglob("*") if p.is_file()}
    hub, repo = DirectoryHub(root), RepoId("acme", "toy")
    known = (
        {ref.name: ref.commit for ref in directory.read_refs(hub, repo).branches}
        if directory.has_repository(hub, repo)
        else {}
    )
    tags = [tag] if tag else []
    return publishing.publish(hub, repo, files, branch="v1", parent=known.get("v1"), tags=tags)


def other(release):
    return MajorMinor(release.major, release.minor + 1)


def test_the_one_for_this_torch_is_opened_and_no_other(write, root, run, opened, release):
    publish(root, write("a", {release: "part", other(release): "broken"}))
    assert run("import kernels; print(kernels.get_kernel('acme/toy').FAST)") == "True"
    assert opened.read_text() == "one 1\n"


@pytest.mark.parametrize("kind", ["other torch", "broken"])
def test_the_kernel_works_without(write, root, run, opened, release, kind):  # noqa: PLR0917
    publish(
        root, write("a", {other(release): "part"} if kind == "other torch" else {release: kind})
    )
    assert run("import kernels; print(kernels.get_kernel('acme/toy').FAST)") == "False"
    assert opened.read_text() == ""
    said = run(
        "import sys; from kernels.cli import run; sys.exit(run(['doctor', 'acme/toy']))"
    ).splitlines()
    [line] = [line for line in said if line.startswith("per-torch library: ")]
    words = {
        "other torch": f"none for this torch, it has those for {other(release)} ",
        "broken": IN_NO_TORCH,
    }
    assert words[kind] in line
    assert "works without" in line
    assert said[-1].startswith("It loads: torch-stable-abi210-cpu-")


COPIES = """
import sys, threading, kernels
paths = sys.argv[1:] or {paths!r}
barrier = threading.Barrier(len(paths))
found = [None] * len(paths)
def load(index, path):
    barrier.wait()
    found[index] = kernels.get_local_kernel(path)
threads = [threading.Thread(target=load, args=pair) for pair in enumerate(paths)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(set(found)), [module.FAST for module in found])
"""


def test_copies_that_threads_load_at_once_open_it_once(write, run, opened, release):
    paths = [str(write(f"copy{i}", {release: "part"})) for i in range(4)]
    assert run(COPIES.format(paths=paths)) == "4 [True, True, True, True]"
    assert opened.read_text() == "one 1\n"


def test_revisions_of_equal_ops_share_it(write, root, run, opened, release):
    """Only what the sources of the ops do not hold differs: their ids are equal."""
    first = publish(root, write("a", {release: "part"}))
    second = publish(root, write("b", {release: "part", other(release): "broken"}, "# later\n"))
    third = publish(root, write("c", {}, "# before there were any\n"))
    code = f"""
import kernels
one, two, three = (kernels.get_kernel('acme/toy', revision=r) for r in {[first, second, third]})
assert one is not two is not three
print(one.FAST, two.FAST, three.FAST)
"""
    assert run(code) == "True True True"
    assert opened.read_text() == "one 1\n"


def test_a_later_copy_may_bring_what_the_first_lacks(write, run, opened, release):
    paths = [write(name, parts) for name, parts in (("a", {}), ("b", {release: "part"}))]
    code = f"import kernels; print([kernels.get_local_kernel(p).FAST for p in {list(map(str, paths))}])"
    assert run(code) == "[False, True]"
    assert opened.read_text() == "one 1\n"


def test_other_bytes_under_an_equal_id_are_refused(write, run, opened, release):
    paths = [str(write(name, {release: name})) for name in ("part", "other")]
    code = f"""
import kernels
one = kernels.get_local_kernel({paths[0]!r})
try:
    kernels.get_local_kernel({paths[1]!r})
except ImportError as err:
    print(type(err).__name__, one.FAST)
"""
    assert run(code) == "OpConflictError True"
    assert opened.read_text() == "one 1\n"


def test_a_process_that_is_spawned_opens_it_for_itself(write, root, run, opened, release):
    publish(root, write("a", {release: "part"}))
    code = """
import multiprocessing, kernels
if __name__ == '__main__':
    toy = kernels.get_kernel('acme/toy')
    with multiprocessing.get_context('{way}').Pool(1) as pool:
        print(pool.map(toy.ask, [0]))
"""
    for way, lines in (("fork", 1), ("spawn", 2)):
        opened.write_text("")
        assert run(code.format(way=way)) == "[True]"
        assert opened.read_text() == "one 1\n" * lines


# CDLL is held up in a thread while the process forks: what a slow disk does.
FORKED = """
import os, signal, sys, threading, kernels
toy = kernels.get_local_kernel({path!r})
part = sys.modules[toy.__name__ + '._ops']
library = vars(part._library)
if {within}:
    library.pop('per_torch')
    begun, go_on, open_part = threading.Event(), threading.Event(), part.ctypes.CDLL
    def hold(place):
        begun.set()
        assert go_on.wait(60)
        return open_part(place)
    part.ctypes.CDLL = hold
    thread = threading.Thread(target=toy.ask, args=(0,))
    thread.start()
    assert begun.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(int(toy.ask(0)))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if {within}:
    go_on.set()
    thread.join()
print(status, toy.ask(0))
"""


def test_a_child_that_is_forked_while_a_thread_opens_it_does_without(write, run, release):
    """It used to wait without end for a lock of a thread that it does not have."""
    path = str(write("a", {release: "part"}))
    assert run(FORKED.format(path=path, within=True)) == "0 True"
    assert run(FORKED.format(path=path, within=False)) == "1 True"


@pytest.fixture
def command(run):
    """Run a command of ``kernels`` on the machine; return its exit code and what it said."""

    def command(*words):
        code = f"from kernels.cli import run; print(run({[str(word) for word in words]}))"
        said, _, number = run(code).rpartition("\n")
        return int(number), said

    return command


LOAD = "import kernels; print(kernels.get_kernel('acme/toy', version=1).FAST)"


def test_a_bundle_carries_it(write, root, run, command, opened, release, tmp_path):  # noqa: PLR0917
    publish(root, write("a", {release: "part", other(release): "broken"}))
    target = f"torch{release}-cpu-{detect().cpu}-linux"
    bundle, hub = tmp_path / "toy.tar", tmp_path / "carried"
    made = command("bundle", "create", "acme/toy@1", "--target", target, "--output", bundle)
    installed = command("bundle", "install", bundle, "--hub", hub)
    assert (made[0], installed[0]) == (0, 0)
    assert run(LOAD, KERNELS_HUB=f"file://{hub}") == "True"
    assert opened.read_text() == "one 1\n"


def test_a_lock_names_it_and_a_changed_one_is_found(  # noqa: PLR0917
    write, root, run, command, opened, release, tmp_path, machine
):
    publish(root, write("a", {release: "part"}))
    (project := tmp_path / "job").mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/toy" = 1\n')
    checks = (["verify", project], ["cache", "verify"])
    for words in (["lock", project], ["download", project], *checks):
        assert command(*words)[0] == 0
    assert run(LOAD, KERNELS_LOCK=str(project / "kernels.lock")) == "True"
    assert opened.read_text() == "one 1\n"
    [place] = machine.store.rglob(format_per_torch(OP_ID, release))
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.chmod(0o644)
    place.write_bytes(data)
    for words in checks:
        code, said = command(*words)
        assert (code, place.name in said) == (1, True), said
    # The load fetches the variant again rather than open what was changed.
    assert run(LOAD) == "True"
    assert opened.read_text() == "one 1\n" * 2


def test_a_wheel_carries_it_and_needs_no_loader(  # noqa: PLR0917
    write, root, run, command, opened, release, tmp_path
):
    publish(root, write("a", {release: "part", other(release): "broken"}), tag="v1.0.0")
    assert command("to-wheel", "acme/toy", "1.0.0", "--out", tmp_path / "wheels")[0] == 0
    [wheel] = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import sys, toy; assert 'kernels' not in sys.modules; print(toy.FAST)"
    assert run(code, PYTHONPATH=str(tmp_path / "site")) == "True"
    assert opened.read_text() == "one 1\n"


def test_the_published_client_loads_such_a_variant(  # noqa: PLR0917
    write, root, serve, reference, opened, release, tmp_path
):
    publish(root, write("a", {release: "part", other(release): "broken"}))
    hub = serve(root, trusted=["acme"])
    code = "import kernels; result = kernels.get_kernel('acme/toy', version=1).FAST"
    assert reference.python(hub, tmp_path, code, environ={"OPENED": str(opened)}) is True
    assert opened.read_text() == "one 1\n"
