import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.errors import WireError
from kernel_spec.wire import (
    Organization,
    Ref,
    Refs,
    TreeFile,
    format_organization,
    format_refs,
    format_tree_directory,
    format_tree_file,
    lfs_pointer,
    parse_organization,
    parse_refs,
    parse_tree,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BLOB, SHA256 = "1" * 40, "2" * 64
FILE = {"type": "file", "path": "a.py", "size": 3, "oid": BLOB}


def through_json(value):
    return json.loads(json.dumps(value))


def test_refs_are_written_as_clients_read_them():
    refs = Refs((Ref("main", COMMIT),), (Ref("v1.0.0", COMMIT),))
    assert format_refs(refs) == {
        "branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}],
        "tags": [{"name": "v1.0.0", "ref": "refs/tags/v1.0.0", "targetCommit": COMMIT}],
        "converts": [],
    }


def test_refs_are_sorted_and_tags_may_lack():
    answer = {"branches": [{"name": name, "targetCommit": COMMIT} for name in ("v1", "main")]}
    assert parse_refs(answer) == Refs((Ref("main", COMMIT), Ref("v1", COMMIT)), ())


def test_files_are_read_with_what_is_new_ignored_and_folders_left_out():
    answer = [
        {"type": "directory", "path": "build", "oid": BLOB, "size": 0},
        FILE | {"xetHash": "x", "lastCommit": None},
        {
            "type": "file",
            "path": "build/x.so",
            "size": 134,
            "oid": BLOB,
            "lfs": {"oid": SHA256, "size": 5_000_000_000, "pointerSize": 134},
        },
    ]
    assert parse_tree(answer) == (
        TreeFile(path="a.py", size=3, oid=BLOB),
        TreeFile(path="build/x.so", size=5_000_000_000, oid=BLOB, sha256=SHA256),
    )


def test_a_large_file_is_written_with_the_size_of_its_pointer():
    entry = format_tree_file(TreeFile(path="x.so", size=12345, oid=BLOB, sha256=SHA256))
    assert entry["lfs"] == {"oid": SHA256, "size": 12345, "pointerSize": 130}
    assert lfs_pointer(SHA256, 12345) == (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"2" * 64 + b"\nsize 12345\n"
    )


@pytest.mark.parametrize(
    ("parse", "answer", "place"),
    [
        (parse_refs, [], "refs"),
        (parse_refs, {}, "refs.branches"),
        (parse_refs, {"branches": [3]}, r"refs.branches\[0\]"),
        (parse_refs, {"branches": [{"name": "a"}]}, "targetCommit"),
        (parse_refs, {"branches": [{"name": "a", "targetCommit": "main"}]}, "targetCommit"),
        (parse_refs, {"branches": [{"name": 1, "targetCommit": COMMIT}]}, "name"),
        (parse_refs, {"branches": [], "tags": {}}, "refs.tags"),
        (parse_tree, {}, "tree"),
        (parse_tree, ["x"], r"tree\[0\]"),
        (parse_tree, [FILE | {"type": "symlink"}], "symlink"),
        (parse_tree, [FILE | {"path": "../x"}], "unsafe path"),
        (parse_tree, [FILE | {"path": None}], "path"),
        (parse_tree, [FILE | {"oid": "x"}], "oid"),
        (parse_tree, [FILE | {"size": -1}], "size"),
        (parse_tree, [FILE | {"size": True}], "size"),
        (parse_tree, [FILE | {"lfs": []}], "lfs"),
        (parse_tree, [FILE | {"lfs": {"oid": BLOB, "size": 1}}], "lfs.oid"),
        (parse_tree, [FILE | {"lfs": {"oid": SHA256}}], "lfs.size"),
        (parse_organization, None, "organization"),
        (parse_organization, {}, "name"),
        (parse_organization, {"name": "a", "trustedKernelPublisher": "yes"}, "true or false"),
    ],
)
def test_answers_of_another_form_are_refused_with_the_place(parse, answer, place):
    with pytest.raises(WireError, match=place):
        parse(answer)


def test_an_owner_is_trusted_only_where_the_hub_says_so():
    assert parse_organization({"name": "acme"}) == Organization("acme", "acme", False)
    answer = {"name": "acme", "fullname": "Acme", "trustedKernelPublisher": True, "new": 1}
    assert parse_organization(answer) == Organization("acme", "Acme", True)


names = st.text(min_size=1, max_size=5).filter(str.isprintable)
refs = st.lists(
    st.builds(Ref, names, st.text("0123456789abcdef", min_size=40, max_size=40)),
    unique_by=lambda ref: ref.name,
).map(lambda found: tuple(sorted(found, key=lambda ref: ref.name)))
files = st.builds(
    TreeFile,
    path=st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3}){0,2}", fullmatch=True),
    size=st.integers(0, 2**60),
    oid=st.text("0123456789abcdef", min_size=40, max_size=40),
    sha256=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    executable=st.just(False),
)


@given(st.builds(Refs, refs, refs))
def test_written_refs_read_back_equal(value):
    assert parse_refs(through_json(format_refs(value))) == value


@given(st.lists(files))
def test_written_trees_read_back_equal(value):
    answer = [format_tree_directory("build", BLOB), *map(format_tree_file, value)]
    assert parse_tree(through_json(answer)) == tuple(value)


@given(st.builds(Organization, names, names, st.booleans()))
def test_written_organizations_read_back_equal(value):
    assert parse_organization(through_json(format_organization(value))) == value


def test_names_of_refs_that_would_steer_a_terminal_are_left_out():
    names = ["main", "v1", "\x1b[31mred", "a\nb", "\ud800", "\x9b1m", "feature/ünï"]
    answer = {"branches": [{"name": name, "targetCommit": "a" * 40} for name in names]}
    assert [ref.name for ref in parse_refs(answer).branches] == ["feature/ünï", "main", "v1"]


@pytest.mark.parametrize(
    "value", ["x" * 10**7, ["x"] * 10**6, 10**4000, [[[[[[[[[["deep"]]]]]]]]]], None]
)
@pytest.mark.parametrize("key", ["path", "oid", "type"])
def test_what_a_hub_sends_does_not_fill_the_message(key, value):
    with pytest.raises(WireError) as caught:
        parse_tree([{"type": "file", "path": "a", "oid": "0" * 40, "size": 1, key: value}])
    assert len(str(caught.value)) < 400
