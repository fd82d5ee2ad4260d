"""Which kernels the gate gives to one that needs others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernels
from kernel_builder.gate import needed


@pytest.fixture
def place(tmp_path: Path):
    """``place(name, (id, version, revision), ...)``: a variant that needs kernels."""

    def write(name: str, *depends: tuple[str, int | None, str | None]) -> Path:
        found = tmp_path / name
        found.mkdir()
        below = [
            {"repo-id": repo} | ({"version": v} if v else {}) | ({"revision": r} if r else {})
            for repo, v, r in depends
        ]
        document = {
            "name": name,
            "id": f"_{name}",
            "version": 1,
            "license": "MIT",
            "python-depends": [],
            "backend": {"type": "cpu"},
            "kernel-depends": below,
        }
        (found / "metadata.json").write_text(json.dumps(document))
        return found

    return write


def request(directory: Path, tmp_path: Path) -> dict[str, str]:
    root = str(Path(kernels.__file__).parents[1])
    answer = str(tmp_path / "answer")
    return {"root": root, "directory": str(directory), "device": "cpu", "answer": answer}


def test_they_are_asked_for_as_the_metadata_names_them_and_what_they_need_too(
    place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = place("top", ("acme/middle", 2, None), ("acme/bottom", None, "a" * 40))
    places = {
        "acme/middle": place("middle", ("acme/bottom", 1, None)),
        "acme/bottom": place("bottom"),
    }
    asked = []

    def install(repo_id, revision=None, *, version=None, backend=None):
        asked.append((repo_id, revision, version, backend))
        return places[repo_id]

    monkeypatch.setattr(kernels, "install_kernel", install)
    assert needed.main(request(top, tmp_path)) == 0
    bottom = {
        "repo_id": "acme/bottom",
        "directory": str(places["acme/bottom"]),
        "needs": [],
    }
    middle = {
        "repo_id": "acme/middle",
        "directory": str(places["acme/middle"]),
        "needs": [bottom],
    }
    assert json.loads((tmp_path / "answer").read_text()) == {"needed": [middle, bottom]}
    assert asked == [
        ("acme/middle", None, 2, "cpu"),
        ("acme/bottom", None, 1, "cpu"),
        ("acme/bottom", "a" * 40, None, "cpu"),
    ]


def test_one_that_cannot_be_had_is_an_answer_with_the_reason(
    place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    monkeypatch.setenv("KERNELS_HUB", f"file://{hub}")
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    top = place("top", ("acme/none", 1, None))
    assert needed.main(request(top, tmp_path)) == needed.LACKING
    said = json.loads((tmp_path / "answer").read_text())["lacking"]
    assert "acme/none" in said
    assert str(hub) in said
