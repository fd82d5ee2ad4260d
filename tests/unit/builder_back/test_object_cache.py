import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.objects import (
    ObjectCache,
    ObjectKey,
    find_object,
    find_objects,
    parse_depfile,
    prune_objects,
    store_object,
)


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    place = tmp_path / "src"
    place.mkdir()
    (place / "a.cpp").write_text('#include "a.h"\n')
    (place / "a.h").write_text("int a;\n")
    (tmp_path / "system.h").write_text("int s;\n")
    return place


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "objects")


def key(**changes: object) -> ObjectKey:
    fields: dict[str, object] = {
        "toolchain": "g++ 12",
        "flags": ("-O3",),
        "source": "a.cpp",
        "files": ("a.cpp", "a.h"),
        "namespace": "_k_1",
    }
    return ObjectKey(**{**fields, **changes})  # type: ignore[arg-type]


def store(cache: ObjectCache, stage: Path, which: ObjectKey, content: bytes = b"object") -> None:
    built = stage.parent / "a.o"
    built.write_bytes(content)
    depfile = stage.parent / "a.d"
    depfile.write_text(f"a.o: a.cpp \\\n a.h {stage.parent}/system.h\n")
    store_object(cache, which, stage=stage, built=built, depfile=depfile)


def test_what_was_stored_is_found(cache: ObjectCache, stage: Path) -> None:
    assert find_object(cache, key(), stage=stage) is None
    store(cache, stage, key())
    found = find_object(cache, key(), stage=stage)
    assert found is not None
    assert found.read_bytes() == b"object"


@pytest.mark.parametrize(
    "changes",
    [
        {"toolchain": "g++ 13"},
        {"flags": ("-O2",)},
        {"source": "b.cpp"},
        {"files": ("a.cpp", "a.h", "shadow/a.h")},
    ],
)
def test_another_key_finds_nothing(
    cache: ObjectCache, stage: Path, changes: dict[str, object]
) -> None:
    store(cache, stage, key())
    assert find_object(cache, key(**changes), stage=stage) is None


@pytest.mark.parametrize("name", ["a.cpp", "a.h", "../system.h"])
def test_a_changed_or_missing_file_finds_nothing(
    cache: ObjectCache, stage: Path, name: str
) -> None:
    store(cache, stage, key())
    (stage / name).write_text("something else\n")
    assert find_object(cache, key(), stage=stage) is None
    (stage / name).unlink()
    assert find_object(cache, key(), stage=stage) is None


def test_going_back_finds_the_older_object(cache: ObjectCache, stage: Path) -> None:
    store(cache, stage, key(), b"old")
    (stage / "a.h").write_text("int b;\n")
    store(cache, stage, key(), b"new")
    (stage / "a.h").write_text("int a;\n")
    found = find_object(cache, key(), stage=stage)
    assert found is not None
    assert found.read_bytes() == b"old"


def test_the_namespace_counts_only_where_it_is_mentioned(cache: ObjectCache, stage: Path) -> None:
    store(cache, stage, key())
    assert find_object(cache, key(namespace="_k_2"), stage=stage) is not None
    (stage / "a.h").write_text("NAME(TORCH_EXTENSION_NAME)\n")
    store(cache, stage, key())
    assert find_object(cache, key(namespace="_k_1"), stage=stage) is not None
    assert find_object(cache, key(namespace="_k_2"), stage=stage) is None


def test_objects_of_other_namespaces_are_found_where_the_files_are_the_same(
    cache: ObjectCache, stage: Path
) -> None:
    def found() -> dict[str | None, bytes]:
        objects = find_objects(cache, key(namespace="_k_9"), stage=stage)
        return {name: path.read_bytes() for name, path in objects}

    (stage / "a.h").write_text("NAME(TORCH_EXTENSION_NAME)\n")
    store(cache, stage, key(namespace="_k_1"), b"one")
    store(cache, stage, key(namespace="_k_2"), b"two")
    assert found() == {"_k_1": b"one", "_k_2": b"two"}
    (stage / "a.h").write_text("NAME(TORCH_EXTENSION_NAME);\n")
    assert found() == {}
    (stage / "a.h").write_text("int a;\n")
    store(cache, stage, key(namespace="_k_3"), b"three")
    assert found() == {None: b"three"}


def test_damaged_records_are_as_good_as_none(cache: ObjectCache, stage: Path) -> None:
    store(cache, stage, key())
    (record,) = (cache.root / "records").rglob("*.json")
    for text in ("", "{", "null", "7"):
        record.write_text(text)
        assert find_object(cache, key(), stage=stage) is None
    store(cache, stage, key())
    assert find_object(cache, key(), stage=stage) is not None


def test_an_object_that_is_gone_is_not_found(cache: ObjectCache, stage: Path) -> None:
    store(cache, stage, key())
    (stored,) = (cache.root / "objects").rglob("*.o")
    stored.unlink()
    assert find_object(cache, key(), stage=stage) is None


def test_a_damaged_object_is_not_used(cache: ObjectCache, stage: Path) -> None:
    store(cache, stage, key())
    (stored,) = (cache.root / "objects").rglob("*.o")
    stored.write_bytes(b"obj")
    assert find_object(cache, key(), stage=stage) is None


def test_the_longest_unused_objects_go_first(cache: ObjectCache, stage: Path) -> None:
    def find(number: int) -> Path | None:
        return find_object(cache, key(flags=(f"-O{number}",)), stage=stage)

    for number in range(8):
        store(cache, stage, key(flags=(f"-O{number}",)), b"%d" % number * 100)
        found = find(number)
        assert found is not None
        os.utime(found, (number, number))
    assert find(0) is not None  # used again
    prune_objects(cache, limit=400)
    assert [number for number in range(8) if find(number) is not None] == [0, 5, 6, 7]
    prune_objects(cache, limit=400)
    assert find(5) is not None


def test_a_depfile_of_gcc() -> None:
    text = "obj/a.o: a.cpp \\\n with\\ blank.h dol$$lar.h \\\n  a.cpp\n\nother.h:\n"
    assert parse_depfile(text) == ("a.cpp", "with blank.h", "dol$lar.h")


@given(
    st.lists(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="\\:#")
        ).filter(bool),
        unique=True,
        min_size=1,
    )
)
def test_depfiles_read_back(paths: list[str]) -> None:
    text = "a.o: " + " \\\n ".join(path.replace("$", "$$") for path in paths) + "\n"
    assert parse_depfile(text) == tuple(paths)
