import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.errors import LockError
from kernel_spec.lock import (
    Lock,
    LockedKernel,
    format_lock,
    format_old_lock,
    git_lfs_concat,
    parse_lock,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "fixtures" / "locks.json").read_text())
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def parse(document):
    return parse_lock(json.dumps(document).encode())


def faults_of(document):
    with pytest.raises(LockError) as err:
        parse(document)
    assert "kernels.lock" in str(err.value)
    return [(fault.kind, fault.where) for fault in err.value.faults]


def kernel_of(fields):
    hashes = {
        name: f"sha256-{entry['sha256']}" for name, entry in fields.pop("variants", {}).items()
    }
    return LockedKernel(**fields, lfs_hashes=hashes)


@pytest.mark.parametrize("case", GOLDEN["documents"], ids=lambda case: case["title"])
def test_golden_documents(case):
    if case["outcome"] == "accept":
        kernels = tuple(kernel_of(dict(fields)) for fields in case["locks"])
        assert parse(case["document"]) == Lock(case["form"], kernels)
    else:
        assert faults_of(case["document"]) == [(case["fault"], case.get("at", ""))]


def raw_hash(file):
    data = base64.b64decode(file["base64"]) if "base64" in file else file["text"].encode()
    if file["lfs"]:
        return hashlib.sha256(data).digest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).digest()


@pytest.mark.parametrize("case", GOLDEN["hashes"], ids=lambda case: case["title"])
def test_golden_hashes(case):
    for variant, expected in case["hashes"].items():
        prefix = f"build/{variant}/"
        files = {
            file["path"].removeprefix(prefix): raw_hash(file)
            for file in case["files"]
            if file["path"].startswith(prefix)
        }
        assert git_lfs_concat(files) == expected
        assert git_lfs_concat(dict(reversed(files.items()))) == expected
        if "note" in case:
            assert git_lfs_concat(files, leave_out_bytecode=False) in case["note"]


NEW = {"dependency": {"repo-id": "a/b", "version": 1}, "lock": {"commit": COMMIT}}
OLD = {"repo_id": "a/b", "sha": COMMIT, "variants": {}}
OURS = {"repo-id": "a/b", "commit": COMMIT}


@pytest.mark.parametrize(
    ("document", "faults"),
    [
        ([NEW, OLD], [("mixed-forms", "")]),
        ("x", [("unknown-form", "")]),
        (None, [("unknown-form", "")]),
        ([3], [("wrong-type", "[0]")]),
        ({"format": 2, "kernels": []}, [("unknown-form", "format")]),
        ({"format": "1", "kernels": []}, [("wrong-type", "format")]),
        ({"format": 1}, [("missing-key", "kernels")]),
        ({"format": 1, "kernels": [], "x": 1}, [("unknown-key", "x")]),
        ({"format": 1, "kernels": [OURS, OURS]}, [("duplicate", "kernels[1]")]),
        (
            {"format": 1, "kernels": [OURS | {"commit": "main"}]},
            [("bad-commit", "kernels[0].commit")],
        ),
        (
            {"format": 1, "kernels": [OURS | {"version": 1, "revision": "main"}]},
            [("both-given", "kernels[0]")],
        ),
        (
            {"format": 1, "kernels": [OURS | {"variants": {"torch-cpu": "xyz"}}]},
            [("bad-hash", "kernels[0].variants.torch-cpu")],
        ),
        (
            {"format": 1, "kernels": [OURS | {"variants": {"torch-cpu": None}}]},
            [("wrong-type", "kernels[0].variants.torch-cpu")],
        ),
        ([NEW | {"lock": {"commit": COMMIT, "sha": ""}}], [("unknown-key", "[0].lock.sha")]),
        (
            [NEW | {"dependency": {"repo-id": "../b", "version": 1}}],
            [("bad-value", "[0].dependency.repo-id")],
        ),
        (
            [OLD | {"variants": {"t": {"hash": "sha256-" + "0" * 64, "hash_type": "md5"}}}],
            [("bad-value", "[0].variants.t.hash_type")],
        ),
    ],
)
def test_faults_name_their_kind_and_place(document, faults):
    assert faults_of(document) == faults


def test_a_lock_of_the_future_says_what_to_do():
    with pytest.raises(LockError, match="upgrade kernels"):
        parse({"format": 7, "kernels": {}})


def test_what_is_not_json_or_gives_a_key_twice_is_refused():
    for data, kind in (
        (b"", "bad-json"),
        (b"\xff", "bad-json"),
        (b'{"format":1,"format":1,"kernels":[]}', "duplicate-key"),
    ):
        with pytest.raises(LockError) as err:
            parse_lock(data)
        assert [fault.kind for fault in err.value.faults] == [kind]


def test_every_fault_is_told_at_once():
    bad = {"dependency": {"repo-id": "a/b"}, "lock": {"commit": "1"}}
    assert faults_of([bad, NEW | {"x": 1}]) == [
        ("neither-given", "[0].dependency"),
        ("bad-commit", "[0].lock.commit"),
        ("unknown-key", "[1].x"),
    ]


def test_two_versions_of_one_kernel_may_be_locked():
    other = {"dependency": {"repo-id": "a/b", "version": 2}, "lock": {"commit": COMMIT}}
    assert [kernel.version for kernel in parse([other, NEW]).kernels] == [1, 2]


def test_the_oldest_form_holds_hashes_and_one_commit_of_each_repository():
    locked = LockedKernel(repo_id="a/b", commit=COMMIT, version=1)
    hashed = replace(locked, version=2, lfs_hashes={"torch-cpu": f"sha256-{'0' * 64}"})
    assert parse_lock(format_old_lock((hashed,))).form == "old"
    with pytest.raises(LockError) as err:
        format_old_lock((locked, hashed))
    assert [(fault.kind, fault.where) for fault in err.value.faults] == [
        ("bad-hash", "a/b"),
        ("duplicate", "a/b"),
    ]


def test_an_empty_list_locks_nothing():
    assert parse([]) == Lock("new", ())


hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
selectors = st.one_of(
    st.fixed_dictionaries({"version": st.integers(0, 99)}),
    st.fixed_dictionaries({"version_range": texts}),
    st.fixed_dictionaries({"revision": texts}),
    st.just({}),
)


@st.composite
def locked_kernels(draw):
    return LockedKernel(
        repo_id=draw(st.from_regex(r"[a-z]{1,3}/[a-z]{1,3}", fullmatch=True)),
        commit=draw(hexes | hexes.map(lambda text: text[:40])),
        variants=draw(st.dictionaries(texts, hexes, max_size=3)),
        lfs_hashes=draw(st.dictionaries(texts, hexes.map("sha256-{}".format), max_size=2)),
        **draw(selectors),
    )


@given(
    st.lists(locked_kernels(), max_size=4, unique_by=lambda kernel: kernel.repo_id), st.randoms()
)
def test_a_written_lock_reads_back_equal_in_one_order(kernels, shuffler):
    data = format_lock(tuple(kernels))
    lock = parse_lock(data)
    assert lock.form == "ours"
    assert sorted(lock.kernels, key=lambda kernel: kernel.repo_id) == list(lock.kernels)
    assert {kernel.repo_id: kernel for kernel in lock.kernels} == {
        kernel.repo_id: kernel for kernel in kernels
    }
    shuffler.shuffle(kernels)
    assert format_lock(tuple(kernels)) == data
    assert data.endswith(b"}\n")
