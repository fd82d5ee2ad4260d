"""Isolation of what is imported: names, bytecode, threads, op libraries."""

from __future__ import annotations

import compileall
import importlib
import importlib.machinery
import importlib.util
import shutil
import sys
import sysconfig
import threading
import time
import types
from pathlib import Path

import pytest

import kernels
from kernels.errors import KernelImportError, NotAKernelError, OpConflictError

LATE = """
import importlib

def relative():
    from .cfg import X
    return X

def absolute():
    import toy.cfg
    return toy.cfg.X

def absolute_from():
    from toy.cfg import X
    from toy import cfg
    assert cfg.X == X
    return X

def alias():
    import toy.sub.deep as deep
    return deep.X

def among_others():
    import os, toy, toy.sub.deep
    from toy import cfg as c, sub
    assert os.sep and sub.deep is toy.sub.deep
    return c.X if toy.cfg is c else None


def under_its_hashed_name():
    return importlib.import_module(__name__ + ".cfg").X
"""


def late_kernel(value: int) -> dict[str, str]:
    return {
        "__init__.py": LATE,
        "cfg.py": f"X = {value}\n",
        "sub/__init__.py": "",
        "sub/deep.py": f"from toy.cfg import X as Y\nfrom ..cfg import X\nassert X == Y == {value}\n",
    }


def test_late_and_absolute_imports_find_the_very_copy(make_variant, tmp_path):
    one = kernels.get_local_kernel(make_variant(tmp_path / "1" / "torch-cpu", late_kernel(1)))
    two = kernels.get_local_kernel(make_variant(tmp_path / "2" / "torch-cpu", late_kernel(2)))
    for module, value in ((two, 2), (one, 1)):
        assert module.relative() == value
        assert module.absolute() == value
        assert module.absolute_from() == value
        assert module.alias() == value
        assert module.among_others() == value
        assert module.under_its_hashed_name() == value
    assert "toy" not in sys.modules


def test_an_installed_package_of_the_same_name_has_what_the_kernel_lacks(
    make_variant, tmp_path, monkeypatch
):
    site = tmp_path / "site" / "toy"
    site.mkdir(parents=True)
    (site / "__init__.py").write_text("")
    (site / "extra.py").write_text("X = 5\n")
    monkeypatch.syspath_prepend(site.parent)
    source = "def f():\n    from toy.extra import X\n    return X\n"
    toy = kernels.get_local_kernel(make_variant(tmp_path / "torch-cpu", {"__init__.py": source}))
    assert toy.f() == 5
    del sys.modules["toy"], sys.modules["toy.extra"]


def test_equal_content_at_two_places_is_two_modules(make_variant, tmp_path):
    source = {"__init__.py": "from . import state\n", "state.py": "value = []\n"}
    one = kernels.get_local_kernel(make_variant(tmp_path / "1" / "torch-cpu", source))
    two = kernels.get_local_kernel(make_variant(tmp_path / "2" / "torch-cpu", source))
    assert one is not two
    one.state.value.append(1)
    assert two.state.value == []
    assert one.__name__.startswith("kernels.copies._toy_cpu_0123456789ab_")
    assert sys.modules[one.__name__] is one
    assert sys.modules[one.state.__name__] is one.state


def test_bytecode_is_neither_written_nor_read(make_variant, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    variant = make_variant(
        tmp_path / "torch-cpu", {"__init__.py": "from . import a\n", "a.py": "X = 1\n"}
    )
    (tmp_path / "evil.py").write_text("X = 666\n")
    shutil.copy(variant / "a.py", tmp_path / "a.py")
    # Bytecode that says it belongs to a.py: same size and time, another content.
    evil = (tmp_path / "a.py").stat()
    (variant / "a.py").write_text("X = 6\n")
    import os

    os.utime(variant / "a.py", ns=(evil.st_atime_ns, evil.st_mtime_ns))
    compileall.compile_file(variant / "a.py", quiet=2)
    (variant / "a.py").write_text("X = 1\n")
    os.utime(variant / "a.py", ns=(evil.st_atime_ns, evil.st_mtime_ns))
    planted = list(variant.rglob("*.pyc"))
    assert planted
    before = {path: path.stat().st_mtime_ns for path in variant.rglob("*")}
    assert kernels.get_local_kernel(variant).a.X == 1
    assert {path: path.stat().st_mtime_ns for path in variant.rglob("*")} == before


def test_stray_bytecode_is_not_a_module(make_variant, tmp_path):
    source = "def f():\n    from . import stray\n"
    variant = make_variant(tmp_path / "torch-cpu", {"__init__.py": source})
    (tmp_path / "stray.py").write_text("")
    import py_compile

    py_compile.compile(str(tmp_path / "stray.py"), cfile=str(variant / "stray.pyc"))
    toy = kernels.get_local_kernel(variant)
    with pytest.raises(ImportError, match="stray"):
        toy.f()


def test_a_failed_import_leaves_no_module_and_may_be_tried_again(
    make_variant, tmp_path, monkeypatch
):
    source = {
        "__init__.py": "from . import good\nimport os\nassert os.environ.get('READY'), 'not ready'\n",
        "good.py": "",
    }
    variant = make_variant(tmp_path / "torch-cpu", source)
    before = set(sys.modules)
    with pytest.raises(AssertionError, match="not ready") as error:
        kernels.get_local_kernel(variant)
    assert str(variant) in "".join(error.value.__notes__)
    assert set(sys.modules) - before == set()
    assert all(
        kernel.module.__file__ != str(variant / "__init__.py")
        for kernel in kernels.get_loaded_kernels()
    )
    monkeypatch.setenv("READY", "1")
    assert kernels.get_local_kernel(variant).good


def test_a_missing_dependency_is_an_import_error_that_names_kernel_and_package(
    make_variant, tmp_path
):
    variant = make_variant(tmp_path / "torch-cpu", {"__init__.py": "import no_such_package_1\n"})
    with pytest.raises(KernelImportError, match=r"kernel toy .*no_such_package_1") as error:
        kernels.get_local_kernel(variant)
    assert error.value.exit_code == 1


def test_the_older_layout_has_its_module_below(make_variant, tmp_path):
    files = {
        "flash_toy/__init__.py": "from .ops import f\n",
        "flash_toy/ops.py": "import flash_toy\n\ndef f():\n    return flash_toy.__name__\n",
    }
    toy = kernels.get_local_kernel(make_variant(tmp_path / "torch-cpu", files, name="flash-toy"))
    assert toy.f() == toy.__name__


def test_a_variant_without_a_module_says_so(make_variant, tmp_path):
    variant = make_variant(tmp_path / "torch-cpu", {"other.py": ""})
    with pytest.raises(NotAKernelError, match=r"neither __init__\.py nor toy/__init__\.py"):
        kernels.get_local_kernel(variant)


def test_threads_that_load_at_once_run_the_kernel_once(make_variant, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "thread_runs", [], raising=False)
    source = "import sys, time\nsys.thread_runs.append(1)\ntime.sleep(0.05)\nDONE = True\n"
    variant = make_variant(tmp_path / "torch-cpu", {"__init__.py": source})
    barrier = threading.Barrier(8)
    modules = []

    def load() -> None:
        barrier.wait()
        module = kernels.get_local_kernel(variant)
        modules.append((module, module.DONE))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(modules)) == 1
    assert len(modules) == 8
    assert len(sys.thread_runs) == 1


def test_introspection_works(make_variant, tmp_path):
    import inspect

    toy = kernels.get_local_kernel(make_variant(tmp_path / "torch-cpu"))
    assert "return 2 * x" in inspect.getsource(toy.double)
    assert importlib.util.find_spec(toy.__name__).origin == toy.__file__


def extension() -> bytes:
    """Return the bytes of a real extension module, ``_queue``, of this Python."""
    folder = Path(sysconfig.get_config_var("DESTSHARED") or "")
    found = sorted(folder.glob("_queue.*.so"))
    if not found:
        pytest.skip("this Python has no _queue as a shared library")
    return found[0].read_bytes()


def op_kernel(library: bytes) -> dict[str, str | bytes]:
    return {
        "__init__.py": "from ._ops import q\n",
        "_ops.py": "from . import _queue as q\n",
        "_queue.so": library,
    }


def test_an_equal_op_library_is_shared_and_another_one_refused_before_dlopen(
    make_variant, tmp_path
):
    def load(place: str, library: bytes):
        path = make_variant(tmp_path / place / "torch-cpu", op_kernel(library), op_id="_queue")
        return path, kernels.get_local_kernel(path)

    first_path, first = load("1", extension())
    _, second = load("2", extension())
    assert first is not second
    assert first.q is second.q
    before = set(sys.modules)
    with pytest.raises(OpConflictError) as error:
        load("3", extension() + b"other")
    assert error.value.paths == (
        first_path / "_queue.so",
        tmp_path / "3" / "torch-cpu" / "_queue.so",
    )
    assert all(str(path) in str(error.value) for path in error.value.paths)
    assert set(sys.modules) == before
    assert isinstance(error.value, ImportError)


def test_an_extension_that_registers_no_ops_may_differ(make_variant, tmp_path):
    for place, library in (("1", extension()), ("2", extension() + b"other")):
        path = make_variant(tmp_path / place / "torch-cpu", op_kernel(library), op_id="_other_id")
        assert kernels.get_local_kernel(path).q.SimpleQueue


def test_the_package_of_kernels_is_waited_for_while_another_thread_makes_it(
    make_variant, tmp_path, monkeypatch
):
    """Threads whose first kernels came at the same moment took the half-made package for no package."""
    copies = importlib.import_module("kernels.copies")
    variant = make_variant(tmp_path / "torch-cpu")
    begun = threading.Event()

    class Slow(importlib.machinery.SourceFileLoader):
        def exec_module(self, module):
            begun.set()
            time.sleep(0.3)
            super().exec_module(module)

    spec = importlib.util.spec_from_file_location(
        "kernels.copies", copies.__file__, loader=Slow("kernels.copies", copies.__file__)
    )
    finder = types.SimpleNamespace(
        find_spec=lambda name, path=None, target=None: spec if name == "kernels.copies" else None
    )
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "kernels.copies")
    maker = threading.Thread(target=importlib.import_module, args=("kernels.copies",))
    maker.start()
    begun.wait(5)
    assert kernels.get_local_kernel(variant).VALUE == 1
    maker.join()
