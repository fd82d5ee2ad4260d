"""A process that is forked while other threads of it import kernels: the child neither hangs nor gets half of one."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from kernels import forking, importer
from kernels.errors import KernelImportError
from kernels.variant_dir import read_variant

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

SLOW = """
import time
time.sleep(0.003)
from .part import X
"""
FILES = {"__init__.py": SLOW, "part.py": "import time\ntime.sleep(0.002)\nX = 1\n"}
# Waits for the test within its import; `gate` is a module of the test.
GATED = """
import gate
gate.begun.set()
gate.go.wait(20)
X = 1
"""


def in_child(action):
    """Do something in a forked child; return its exit code, or minus the signal that ended it if it hangs."""
    if (child := os.fork()) == 0:
        try:
            signal.alarm(5)
            os._exit(action())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def repeating(action):
    """Do something again and again in another thread."""
    stop = threading.Event()

    def run():
        while not stop.is_set():
            action()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def toy(make_variant, tmp_path):
    return read_variant(make_variant(tmp_path / "torch-cpu", FILES))


@pytest.mark.parametrize("what", ["kernel", "part"])
def test_a_child_can_import_what_a_thread_was_importing(toy, what):
    name = importer.package_name(toy)
    importer.load(toy)

    def import_again():
        sys.modules.pop(f"{name}.part", None)
        if what == "part":
            return importlib.import_module(f"{name}.part").X
        sys.modules.pop(name, None)
        return importer.load(toy).X

    with repeating(import_again):
        codes = []
        for number in range(16):
            time.sleep(0.0007 * (number % 8))
            codes.append(in_child(import_again))
    assert codes == [1] * 16


@pytest.fixture
def gate(monkeypatch):
    module = type(sys)("gate")
    module.begun, module.go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "gate", module)
    yield module
    module.go.set()


@pytest.fixture
def half(gate, make_variant, tmp_path):
    """A kernel that another thread has begun to import, and goes on when the gate opens."""
    variant = read_variant(make_variant(tmp_path / "torch-cpu", {"__init__.py": GATED}))
    thread = threading.Thread(target=importer.load, args=(variant,))
    thread.start()
    assert gate.begun.wait(5)
    yield variant
    gate.go.set()
    thread.join()


def test_a_fork_waits_for_an_import_and_the_child_has_it_whole(half, gate):
    threading.Timer(0.1, gate.go.set).start()
    begun = time.monotonic()
    assert in_child(lambda: sys.modules[importer.package_name(half)].X) == 1
    assert time.monotonic() - begun > 0.09


def test_what_a_kernel_imports_does_not_wait_for_the_fork_that_waits_for_it(
    gate, make_variant, tmp_path
):
    inner = read_variant(make_variant(tmp_path / "inner" / "torch-cpu", FILES))
    gate.load = lambda: importer.load(inner).X
    code = GATED.replace("X = 1", "X = gate.load()")
    outer = read_variant(make_variant(tmp_path / "torch-cpu", {"__init__.py": code}))
    thread = threading.Thread(target=importer.load, args=(outer,))
    thread.start()
    assert gate.begun.wait(5)
    threading.Timer(0.1, gate.go.set).start()
    begun = time.monotonic()
    assert in_child(lambda: sys.modules[importer.package_name(outer)].X) == 1
    assert time.monotonic() - begun < forking.PATIENCE / 2
    thread.join()


def test_where_the_import_waits_for_the_fork_the_child_is_told(half, gate, monkeypatch):
    monkeypatch.setattr(forking, "PATIENCE", 0.05)

    def load():
        with pytest.raises(KernelImportError, match="Load kernels before forking"):
            importer.load(half)
        return in_child(lambda: forking.was_cut_off(importer.package_name(half)))

    assert in_child(load) == 1, "a child of the child knows it, too"
    gate.go.set()
    assert importer.load(half).X == 1, "the parent has it"
    assert in_child(lambda: importer.load(half).X) == 1


@pytest.mark.parametrize("what", ["unpickled", "imported", "part"])
def test_who_does_not_load_it_is_told_the_same(half, monkeypatch, what):
    """Begun a second time, a kernel would register its ops a second time, which ends the process."""
    monkeypatch.setattr(forking, "PATIENCE", 0.05)
    name = importer.package_name(half)
    begin = {
        "unpickled": lambda: pickle.loads(f"c{name}\nX\n.".encode()),
        "imported": lambda: importlib.import_module(name),
        "part": lambda: importlib.import_module(f"{name}.part"),
    }[what]

    def told():
        with pytest.raises(KernelImportError, match="Load kernels before forking"):
            begin()
        return 1 + (name in sys.modules)

    assert in_child(told) == 1


def test_an_import_that_forks_waits_for_nobody(make_variant, tmp_path):
    """Two at once, each of which forks within: neither waits for the other."""
    code = "import os\nif (c := os.fork()) == 0: os._exit(0)\nos.waitpid(c, 0)\nX = 1\n"
    variants = [
        read_variant(make_variant(tmp_path / str(n) / "torch-cpu", {"__init__.py": code}))
        for n in range(4)
    ]
    begun = time.monotonic()
    threads = [threading.Thread(target=importer.load, args=(each,)) for each in variants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [importer.load(each).X for each in variants] == [1] * 4
    assert time.monotonic() - begun < forking.PATIENCE / 2


def test_a_child_forked_within_an_import_goes_on_with_it(make_variant, tmp_path):
    code = "import os\nread, write = os.pipe()\nchild = os.fork()\nX = 1\n"
    variant = read_variant(make_variant(tmp_path / "torch-cpu", {"__init__.py": code}))
    other = read_variant(make_variant(tmp_path / "other" / "torch-cpu", FILES))
    module = importer.load(variant)
    if module.child == 0:
        try:
            os.write(module.write, bytes([importer.load(other).X]))
        finally:
            os._exit(0)
    os.waitpid(module.child, 0)
    assert os.read(module.read, 1) == b"\x01"


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_lock_that_a_thread_holds_is_free_in_the_child(make):
    renewed = forking.Renewed(make)
    with repeating(lambda: hold(renewed)):
        time.sleep(0.02)
        assert in_child(lambda: renewed.lock.acquire(timeout=2)) == 1
    with renewed.lock:
        assert in_child(lambda: renewed.lock.acquire(timeout=2)) == 1


def hold(renewed):
    with renewed.lock:
        time.sleep(0.02)
