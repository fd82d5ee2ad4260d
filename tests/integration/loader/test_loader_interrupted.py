"""Processes that are killed while they install, and processes that meet on one cache."""

from __future__ import annotations

import signal

import pytest

LOAD = "import kernels; print(kernels.get_kernel('acme/toy').VALUE)"

POINTS = [
    *(("os", "fsync", count) for count in range(0, 12, 2)),
    ("pathlib.Path", "rename", 0),
    ("pathlib.Path", "mkdir", 3),
    ("kernels.install", "fsync_folder", 2),
    ("kernels.install", "write_index", 0),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_install_leaves_nothing_half_done(machine, commit, point):
    imports, load = "import kernels, kernels.install", "kernels.get_kernel('acme/toy')"
    process = machine.start_killed(point, imports=imports, then=load)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    for place in (machine.store / "variants").glob("*"):
        assert (place / "manifest.json").is_file()
        assert sorted(p.name for p in (place / "torch-cpu").iterdir()) == [
            "__init__.py",
            "a.py",
            "b",
            "metadata.json",
        ]
    assert machine.run() == "1"
    assert list((machine.store / "tmp").iterdir()) == []
    assert len(list((machine.store / "variants").iterdir())) == 1


# A process that says where it is and stays there, holding the lock of the variant.
HOLDER = """
import sys, kernels, kernels.install
def hold(*args, **kwargs):
    print('holding', flush=True)
    sys.stdin.read()
kernels.install.{name} = hold
kernels.get_kernel('acme/toy')
"""
WAITER = "import kernels.install\nkernels.install.QUIET_WAIT_SECONDS = 0.0\n" + LOAD
WAITERS = 5


@pytest.mark.parametrize(
    "moment",
    ["begin_install", "download", "verify_own_digest", "_appear", "mark_used"],
)
def test_a_killed_holder_of_the_lock_blocks_nobody(machine, commit, moment):
    """The first of those who wait takes the lock that dies with its holder, and the others its install."""
    holder = machine.start(HOLDER.format(name=moment), stdin=True)
    assert holder.stdout.readline() == "holding\n"
    waiting = [machine.start(WAITER) for _ in range(WAITERS)]
    for process in waiting:
        assert "waiting for another process that installs acme/toy" in process.stderr.readline()
    holder.kill()
    holder.communicate()
    for process in waiting:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out.strip()) == (0, "1"), err
    assert list((machine.store / "tmp").iterdir()) == []
    assert len(list((machine.store / "variants").iterdir())) == 1


@pytest.mark.parametrize("moment", ["write_index", "_installed"])
def test_what_is_installed_is_used_while_its_installer_hangs_and_after_it_is_killed(
    machine, commit, moment
):
    holder = machine.start(HOLDER.format(name=moment), stdin=True)
    assert holder.stdout.readline() == "holding\n"
    assert machine.run() == "1"
    holder.kill()
    holder.communicate()
    assert machine.run() == "1"
    assert list((machine.store / "tmp").iterdir()) == []


def test_a_reader_is_never_disturbed_by_a_writer(machine, root, commit, republish):
    """Records and refs are replaced by rename: an offline reader always finds a whole one."""
    machine.run()
    reader = machine.start(
        """
import kernels, kernels.load
print('ready', flush=True)
count = 0
while count < 1500:
    kernels.load.forget()
    assert kernels.get_kernel('acme/toy').VALUE == 1
    count += 1
print(count)
""",
        HF_HUB_OFFLINE="1",
    )
    assert reader.stdout.readline() == "ready\n"
    writer = machine.start(
        """
import kernels, kernels.load, kernels.source
from kernels.settings import read_settings
from kernels.store import Store, read_record, write_record
from kernel_spec.names import RepoId
settings = read_settings()
store, hub, repo = Store(settings.cache), settings.hubs[0].url, RepoId('acme', 'toy')
for _ in range(500):
    write_record(store, hub, repo, read_record(store, hub, repo))
print('done')
"""
    )
    for process, last in ((writer, "done"), (reader, "1500")):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.split()[-1] == last


@pytest.fixture
def project(tmp_path, commit):
    """A project that uses the published kernel."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/toy" = 1\n')
    return folder


@pytest.mark.parametrize(
    "point",
    [
        ("os", "fsync", 0),
        ("pathlib.Path", "replace", 0),
        ("pathlib.Path", "replace", 1),
        ("tempfile", "mkstemp", 2),
    ],
)
def test_a_killed_lock_leaves_the_one_there_was(machine, root, republish, project, point):
    command = f"from kernels.cli import main; main(['lock', {str(project)!r}, '--upgrade'])"
    machine.run(command)
    before = (project / "kernels.lock").read_bytes()
    republish(root, {"__init__.py": "VALUE = 2\n"})
    process = machine.start_killed(point, imports="import kernels, tempfile", then=command)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    assert (project / "kernels.lock").read_bytes() == before
    machine.run(command)
    assert (project / "kernels.lock").read_bytes() != before


def test_downloads_at_once_share_one_install(machine, project):
    machine.run(f"from kernels.cli import main; main(['lock', {str(project)!r}])")
    code = f"from kernels.cli import main; main(['download', {str(project)!r}])"
    processes = [machine.start(code) for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert "acme/toy torch-cpu" in out
    assert len(list((machine.store / "variants").iterdir())) == 1
    assert list((machine.store / "tmp").iterdir()) == []
    lock = project / "kernels.lock"
    load = f"import kernels; print(kernels.load_kernel('acme/toy', {str(lock)!r}).VALUE)"
    assert machine.run(load, KERNELS_HUB="file:///nowhere") == "1"
