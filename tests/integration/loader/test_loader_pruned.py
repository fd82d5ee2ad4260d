"""``kernels cache prune`` that is killed, and that meets processes which load what it removes."""

from __future__ import annotations

import signal
import threading

import pytest

IMPORTS = "import kernels.pruning; from kernels.cli import run"
PRUNE_ALL = 'run(["cache", "prune", "--max-size", "0", "--unreferenced", "--yes"])'
POINTS = [
    ("pathlib.Path", "rename", 0),
    ("shutil", "rmtree", 0),
    ("os", "unlink", 2),
    ("os", "unlink", 5),
    ("os", "rmdir", 1),
]
PRUNE = "from kernels.cli import run; raise SystemExit(run(['cache', 'prune', *{words}]))"
# What a kernel imports after it was loaded must still be there.
LOAD_LATE = """
import importlib, kernels, pathlib, time
toy = kernels.get_kernel('acme/toy')
time.sleep(0.05)
late = importlib.import_module(toy.__name__ + '.b')
assert len(pathlib.Path(late.__file__).with_name('data.bin').read_bytes()) == 100_000
print(toy.VALUE)
"""


def prune(machine, *words):
    return machine.run(PRUNE.format(words=list(words)))


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_prune_leaves_what_the_next_one_removes(machine, commit, point):
    assert machine.run() == "1"
    process = machine.start_killed(point, imports=IMPORTS, then=PRUNE_ALL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    # A variant is there whole, or not at all.
    for place in (machine.store / "variants").glob("*"):
        assert (place / "manifest.json").is_file()
        assert (place / "torch-cpu" / "b" / "data.bin").is_file()
    assert machine.run(LOAD_LATE) == "1"
    prune(machine, "--max-size", "0", "--yes")
    assert list((machine.store / "tmp").iterdir()) == []
    assert list((machine.store / "variants").iterdir()) == []
    assert machine.run() == "1"


def test_loads_and_prunes_at_once_never_harm_a_load(machine, commit):
    """Every load succeeds and finds its files to the end, however often its variant is pruned."""
    done, removed = threading.Event(), []

    def keep_pruning():
        while not done.is_set():
            said = prune_once()
            removed.append("1 removed" in said)

    def prune_once():
        process = machine.start(PRUNE.format(words=["--max-size", "0", "--yes"]))
        out, err = process.communicate(timeout=60)
        # 1: the variant is in use, which is what --max-size cannot help.
        assert process.returncode in {0, 1}, err
        assert "Traceback" not in err
        return out

    pruner = threading.Thread(target=keep_pruning)
    pruner.start()
    try:
        for _ in range(12):
            loads = [machine.start(LOAD_LATE) for _ in range(3)]
            for load in loads:
                out, err = load.communicate(timeout=60)
                assert (load.returncode, out.strip()) == (0, "1"), err
    finally:
        done.set()
        pruner.join()
    assert any(removed)
    assert machine.run(LOAD_LATE) == "1"


def test_an_install_is_not_taken_for_a_leftover(machine, commit):
    """A prune while another process downloads removes nothing of it."""
    code = """
import sys, kernels, kernels.install
download = kernels.install.download
def slow(*args):
    print('downloading', flush=True)
    sys.stdin.readline()
    return download(*args)
kernels.install.download = slow
print(kernels.get_kernel('acme/toy').VALUE)
"""
    installing = machine.start(code, stdin=True)
    assert installing.stdout.readline() == "downloading\n"
    assert "nothing to remove" in prune(machine, "--yes")
    out, err = installing.communicate("go\n", timeout=60)
    assert (installing.returncode, out.strip()) == (0, "1"), err
