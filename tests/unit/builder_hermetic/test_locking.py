"""Writing, checking and updating the lock of a project, whatever its inputs are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_builder import locking
from kernel_builder.errors import LockError, SelectionError
from kernel_builder.lockfile import find_lock, write_lock
from kernel_builder.locking import check_lock, lock_project, update_lock
from kernel_builder.planned import Host, Selection
from kernel_builder.scaffold import plan_project, write_project
from kernel_builder.settings import Settings, read_settings
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

TORCH = {"kind": "headers", "version": "2.13.0"}
OLDER = {"kind": "headers", "version": "2.12.0"}
CUDA = {"kind": "wheels", "version": "13.0"}
GCC = {"kind": "system", "version": "12"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"HOME": str(tmp_path), "PATH": ""})


def here(monkeypatch: pytest.MonkeyPatch, inputs: dict[str, Any], *, whole: bool = True) -> None:
    monkeypatch.setattr(locking, "_collect_all", lambda *_, **__: (inputs, whole))
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


def test_nothing_is_locked_for_what_cannot_be_built_here(
    settings: Settings, tmp_path: Path
) -> None:
    project = plan_project(name="me/own", backends=["cpu", "rocm"], licence="MIT")
    write_project(project, tmp_path / "own")
    rocm = Selection(backends=frozenset({BackendKind.ROCM}))
    with pytest.raises(SelectionError, match=r"nothing .*\n  rocm: not built here: needs hipcc"):
        lock_project(tmp_path / "own", settings, selection=rocm)
    assert find_lock(tmp_path / "own") is None


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


def write_two_backends(place: Path) -> Path:
    place.mkdir()
    (place / "build.toml").write_text(
        '[general]\nname = "two-ways"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
        'backends = ["cpu", "cuda"]\n[torch]\nsrc = ["torch-ext/b.cpp"]\n'
        '[kernel.a]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["a.cpp"]\n'
        '[kernel.b]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["b.cu"]\n'
    )
    (place / "torch-ext" / "two_ways").mkdir(parents=True)
    for name in ("torch-ext/b.cpp", "a.cpp", "b.cu", "torch-ext/two_ways/__init__.py"):
        (place / name).write_text("")
    return place


@pytest.mark.parametrize(
    ("selection", "versions", "wanted"),
    [
        (Selection(), (), ({"13.0", "13.2"}, {"cpu", "cuda"}, True)),
        (Selection(backends=frozenset({BackendKind.CPU})), (), (set(), {"cpu"}, False)),
        (Selection(), (MajorMinor(13, 2),), ({"13.2"}, {"cpu", "cuda"}, False)),
    ],
)
def test_the_options_of_a_build_choose_what_is_locked(  # noqa: PLR0917  (pytest passes them by name)
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    settings: Settings,
    selection: Selection,
    versions: tuple[MajorMinor, ...],
    wanted: tuple[set[str], set[str], bool],
) -> None:
    asked: dict[str, Any] = {}

    def collect(variants: Any, _: Settings, *, every_toolkit: bool) -> dict[str, Any]:
        variants = tuple(variants)
        asked["backends"] = {variant.backend.value for variant in variants}
        own = {
            str(each.variant.backend.version) for each in variants if each.backend.value == "cuda"
        }
        asked["toolkits"] = own | ({"13.0", "13.2"} if every_toolkit and own else set())
        return {"torch": TORCH}

    def host(settings: Settings) -> Host:
        toolkit = (settings.cuda_versions or (MajorMinor(13, 0),))[0]
        return Host(
            cpu="x86_64",
            os="linux",
            torch=TorchBuild("2.13.0", MajorMinor(2, 13)),
            toolkits={BackendKind.CUDA: toolkit},
        )

    monkeypatch.setattr(locking, "collect_inputs", collect)
    monkeypatch.setattr(locking, "detect_host", host)
    project = write_two_backends(tmp_path / "p")
    chosen = replace(settings, cuda_versions=versions)
    lock_project(project, chosen, selection=selection)
    toolkits, backends, whole = wanted
    assert asked == {"toolkits": toolkits, "backends": backends}
    # What only other builds use stays in the lock, unless this is all that the project uses.
    write_lock(project, {"torch": TORCH, "eigen": TORCH})
    update_lock(project, [], chosen, selection=selection)
    assert set(find_lock(project) or ()) == ({"torch"} if whole else {"torch", "eigen"})
