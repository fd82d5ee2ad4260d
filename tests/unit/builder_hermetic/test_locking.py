"""Writing, checking and updating the lock of a project, whatever its inputs are."""

from pathlib import Path
from typing import Any

import pytest

from kernel_builder import locking
from kernel_builder.errors import LockError
from kernel_builder.lockfile import find_lock
from kernel_builder.locking import check_lock, lock_project, update_lock
from kernel_builder.settings import Settings, read_settings

TORCH = {"kind": "headers", "version": "2.13.0"}
OLDER = {"kind": "headers", "version": "2.12.0"}
CUDA = {"kind": "wheels", "version": "13.0"}
GCC = {"kind": "system", "version": "12"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"HOME": str(tmp_path), "PATH": ""})


def here(monkeypatch: pytest.MonkeyPatch, inputs: dict[str, Any], *, whole: bool = True) -> None:
    monkeypatch.setattr(locking, "_collect_all", lambda *_: (inputs, whole))
    monkeypatch.setattr(locking, "collect_inputs", lambda *_: inputs)


def test_a_lock_is_written_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    here(monkeypatch, {"torch": TORCH})
    assert lock_project(tmp_path, settings).written
    assert not lock_project(tmp_path, settings).written
    here(monkeypatch, {"torch": OLDER})
    # Nobody's lock is replaced by writing one.
    with pytest.raises(LockError, match="kernel-builder update torch"):
        lock_project(tmp_path, settings)
    assert find_lock(tmp_path) == {"torch": TORCH}


def test_an_update_takes_what_is_named_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    here(monkeypatch, {"torch": OLDER, "compiler": GCC})
    lock_project(tmp_path, settings)
    here(monkeypatch, {"torch": TORCH, "compiler": {**GCC, "version": "13"}})
    (change,) = update_lock(tmp_path, ["torch"], settings).changes
    assert "locked 2.12.0, found 2.13.0" in str(change)
    assert find_lock(tmp_path) == {"torch": TORCH, "compiler": GCC}
    assert len(update_lock(tmp_path, [], settings).changes) == 1
    assert update_lock(tmp_path, [], settings).written is False


def test_what_is_not_used_any_more_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    here(monkeypatch, {"torch": TORCH, "eigen": TORCH})
    lock_project(tmp_path, settings)
    here(monkeypatch, {"torch": TORCH})
    with pytest.raises(LockError, match="eigen: not used any more"):
        lock_project(tmp_path, settings)
    assert check_lock(tmp_path, (), settings, strict=True) == []
    update_lock(tmp_path, [], settings)
    assert find_lock(tmp_path) == {"torch": TORCH}


def test_a_backend_that_is_not_built_here_keeps_its_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    here(monkeypatch, {"torch": OLDER, "cuda-13.0": CUDA})
    lock_project(tmp_path, settings)
    here(monkeypatch, {"torch": TORCH}, whole=False)
    update_lock(tmp_path, [], settings)
    assert find_lock(tmp_path) == {"torch": TORCH, "cuda-13.0": CUDA}
    update_lock(tmp_path, ["cuda-13.0"], settings)
    assert find_lock(tmp_path) == {"torch": TORCH}


def test_names_that_are_no_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    here(monkeypatch, {"torch": TORCH})
    with pytest.raises(LockError, match=r"no kernel-builder\.lock; write one"):
        update_lock(tmp_path, [], settings)
    lock_project(tmp_path, settings)
    with pytest.raises(LockError, match="no input tocrh; it has torch"):
        update_lock(tmp_path, ["tocrh"], settings)


def test_a_build_without_a_lock_is_free_unless_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    def collect(*_: object) -> dict[str, Any]:
        raise AssertionError("nothing is to be looked at")

    monkeypatch.setattr(locking, "collect_inputs", collect)
    assert check_lock(tmp_path, (), settings, strict=False) == []
    with pytest.raises(LockError, match=r"--locked, and there is no kernel-builder\.lock"):
        check_lock(tmp_path, (), settings, strict=True)


def test_another_compiler_is_told_or_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    here(monkeypatch, {"compiler": GCC})
    lock_project(tmp_path, settings)
    here(monkeypatch, {"compiler": {**GCC, "version": "13"}})
    (told,) = check_lock(tmp_path, (), settings, strict=False)
    assert "locked 12, found 13" in told
    with pytest.raises(LockError):
        check_lock(tmp_path, (), settings, strict=True)
