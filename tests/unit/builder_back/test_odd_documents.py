"""Documents of the builder's own that hold something else: made anew where they can be, else told in words."""

from __future__ import annotations

import json

import pytest

from kernel_builder.errors import ExportError, LockError
from kernel_builder.export.generated import MANIFEST, find_manifest
from kernel_builder.lockfile import parse_lock
from kernel_builder.objects import ObjectCache, ObjectKey, find_object, store_object
from kernel_builder.state import Record, find_record, write_record

DEEP = "[" * 3000 + "]" * 3000
ODD = [
    "",
    "[",
    DEEP,
    "[]",
    "[1]",
    "5",
    "null",
    '"x"',
    "{}",
    '[{"files": [], "object": 1}]',
    "1e999",
]


@pytest.mark.parametrize("text", [*ODD, f'{{"format": 1, "inputs": {DEEP}}}'])
def test_a_lock_that_is_none_says_how_to_write_it_anew(text):
    with pytest.raises(LockError, match="write it anew: kernel-builder lock"):
        parse_lock(text.encode())


@pytest.mark.parametrize("text", ODD)
def test_a_record_that_is_none_builds_again(tmp_path, text):
    place = tmp_path / "state.json"
    place.write_text(text)
    assert find_record(place) is None
    write_record(place, Record(inputs="a", digest="b"))
    assert find_record(place) == Record(inputs="a", digest="b")


@pytest.mark.parametrize("text", ODD)
def test_an_object_cache_with_odd_records_compiles_again_and_then_finds(tmp_path, text):
    cache, stage = ObjectCache(tmp_path / "cache"), tmp_path / "stage"
    stage.mkdir()
    for name in ("a.cpp", "a.o"):
        (stage / name).write_text(name)
    (stage / "a.d").write_text("a.o: a.cpp\n")
    key = ObjectKey(toolchain="x", flags=(), source="a.cpp", files=("a.cpp",), namespace="n")

    def store():
        store_object(cache, key, stage=stage, built=stage / "a.o", depfile=stage / "a.d")

    store()
    (record,) = cache.root.glob("records/*/*.json")
    record.write_text(text)
    assert find_object(cache, key, stage=stage) is None
    store()
    assert find_object(cache, key, stage=stage) is not None
    assert json.loads(record.read_text())


@pytest.mark.parametrize(
    "text",
    [
        *ODD,
        '{"format": 1, "module": "toy", "files": {}, "made": [1]}',
        '{"format": 1, "module": "toy", "files": {"../x": "y"}, "made": []}',
        '{"format": 1, "module": "toy", "files": {}, "made": ["/etc"]}',
        '{"format": 1, "module": "../toy", "files": {}, "made": []}',
        '{"format": 1, "module": "toy", "files": [1], "made": []}',
    ],
)
def test_a_record_of_exported_files_that_is_none_removes_nothing(tmp_path, text):
    place = tmp_path / MANIFEST
    place.parent.mkdir(parents=True)
    place.write_text(text)
    with pytest.raises(ExportError, match="move it away"):
        find_manifest(tmp_path)
