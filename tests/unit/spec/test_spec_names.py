import json
import string
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.errors import FormatError
from kernel_spec.names import (
    RepoId,
    choose_branch,
    choose_tag,
    module_name,
    parse_repo_id,
    parse_safe_path,
    path_fault,
    ref_fault,
    version_of_branch,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "fixtures" / "semver.json").read_text())


def assert_in_order(words, text):
    places = [text.index(word) for word in words]
    assert places == sorted(places)


@pytest.mark.parametrize("case", GOLDEN["ranges"], ids=lambda case: case["title"])
def test_golden_ranges_over_tags(case):
    if "tag" in case:
        assert choose_tag(case["tags"], case["range"]) == case["tag"]
        assert choose_tag(reversed(case["tags"]), case["range"]) == case["tag"]
        return
    with pytest.raises(FormatError) as err:
        choose_tag(case["tags"], case["range"])
    expected = {"no-match": "no tag fits", "bad-range": "expected a version or a range"}
    assert expected[case["error"]] in str(err.value)
    assert case["range"] in str(err.value)
    assert_in_order(case.get("message_names", []), str(err.value).partition("available")[2])


@pytest.mark.parametrize("case", GOLDEN["branches"], ids=lambda case: case["title"])
def test_golden_branches(case):
    if "branch" in case:
        assert choose_branch(case["branches"], case.get("version")) == case["branch"]
        return
    with pytest.raises(FormatError) as err:
        choose_branch(case["branches"], case.get("version"))
    expected = {"no-branch": "expected a version branch", "version-not-found": "not found"}
    assert expected[case["error"]] in str(err.value)
    assert_in_order(case.get("message_names", []), str(err.value).partition("versions:")[2])


def test_main_is_taken_where_no_version_is():
    assert choose_branch(["main", "dev"], None) == "main"
    with pytest.raises(FormatError, match="available versions: none"):
        choose_branch(["main"], 1)


def test_odd_tags_and_ranges():
    assert choose_tag(["1.0.0", "v1", "v01.0.0", "x", "v1.0.0"], ">=0") == "v1.0.0"
    assert choose_tag(["v2.1.0rc1", "v2.1.0"], "2.1.0rc1") == "v2.1.0rc1"
    for text in ("", " ", "latest", "1.0 or later"):
        with pytest.raises(FormatError):
            choose_tag(["v1.0.0"], text)


@pytest.mark.parametrize(
    ("branch", "version"),
    [("v1", 1), ("v0", 0), ("v10", 10), ("v04", None), ("V1", None), ("v", None), ("v1\n", None)],
)
def test_version_of_a_branch(branch, version):
    assert version_of_branch(branch) == version


@pytest.mark.parametrize(
    "text", ["acme/relu", "A.b_c-d/x", "_a/b_", "kernels-community/triton-layer-norm", "a/b"]
)
def test_repo_ids_are_read_and_written_back(text):
    assert str(parse_repo_id(text)) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("relu", "expected owner/name"),
        ("a/b/c", "expected owner/name"),
        ("", "expected owner/name"),
        (
            "acme/toy@v1",
            "holds '@'; which version, branch, tag or commit is said apart from it, as version= or "
            "revision=, on the command line as --version or --revision",
        ),
        ("/b", "not a path; where a path may stand, there is nothing at this one"),
        ("/srv/kernels/toy", "get_local_kernel loads a kernel at a path"),
        ("./toy", "not a path"),
        ("../b", "not a path"),
        ("~/toy", "not a path"),
        ("a/", "name is empty"),
        (".b/c", "owner begins or ends"),
        ("a/-b", "name begins or ends"),
        ("a/b.", "name begins or ends"),
        ("a/b--c", "name holds '--'"),
        ("a/b..c", "name holds '--' or '..'"),
        ("a/b c", "name holds something else"),
        ("a/é", "name holds something else"),
        ("a/b\n", "name holds something else"),
        ("a/b.git", "ends in '.git'"),
        ("a/" + "b" * 95, "at most 96 characters, found 97"),
    ],
)
def test_repo_ids_that_break_a_rule_are_told_which(text, rule):
    with pytest.raises(FormatError, match="not the id of a repository") as err:
        parse_repo_id(text)
    assert rule in str(err.value)


def test_repo_ids_sort_by_owner_then_name():
    assert sorted([RepoId("b", "a"), RepoId("a", "b")]) == [RepoId("a", "b"), RepoId("b", "a")]


def test_module_of_a_kernel():
    assert module_name("triton-layer-norm") == "triton_layer_norm"


@pytest.mark.parametrize(
    "text", ["a", "a/b.py", "build/torch-cpu/__init__.py", "é/ß", ".github", "a..b"]
)
def test_safe_paths_are_kept(text):
    assert parse_safe_path(text) == PurePosixPath(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/..", "a/../b", "...", "a/b. "),
        *(".git", "a/.GIT/b", "a\\b", "c:", "C:/a", "a:b", "a\0b", "a\nb", "a\x7f", "\ud800"),
        *("x" * 256, "é" * 128),
    ],
)
def test_paths_that_are_not_safe_somewhere_are_refused(text):
    with pytest.raises(FormatError, match="unsafe path"):
        parse_safe_path(text)


@given(
    st.text(st.sampled_from(string.printable + "é\\"))
    | st.lists(st.sampled_from(["..", ".", "a", "", ".git"])).map("/".join)
)
def test_a_safe_path_never_leaves_its_root(text):
    try:
        path = parse_safe_path(text)
    except FormatError:
        return
    assert path.as_posix() == text
    assert not path.is_absolute()
    assert not {"", ".", ".."} & set(text.split("/"))
    root = Path("/root/of/all")
    assert Path(root, path).resolve().is_relative_to(root)


@pytest.mark.parametrize("name", ["main", "v1", "feature/x", "refs/pr/1", "v1.0.0", "a@b", "é"])
def test_good_ref_names(name):
    assert ref_fault(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "@",
        "a b",
        "/a",
        "a/",
        "a//b",
        ".a",
        "a/.b",
        "a.",
        "a.lock",
        "a..b",
        "a@{b",
        "a~",
        "x" * 99,
    ],
)
def test_bad_ref_names(name):
    assert ref_fault(name) is not None


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("d/" * 99 + "x", None),
        ("d/" * 100 + "x", "more than 100 parts"),
        (("d" * 100 + "/") * 10 + "x" * 14, None),
        (("d" * 100 + "/") * 10 + "x" * 15, "longer than 1024 bytes"),
        ("a/" + "b" * 255, None),
        ("a/" + "b" * 256, "a part is longer than 255 bytes"),
        ("a/" + "ü" * 128, "a part is longer than 255 bytes"),
        (("ü" * 100 + "/") * 5 + "x" * 19, None),
        (("ü" * 100 + "/") * 5 + "x" * 20, "longer than 1024 bytes"),
        ("\x9b31m.py", "control character"),
    ],
)
def test_paths_that_no_system_holds_below_a_few_folders(path, fault):
    found = path_fault(path)
    assert found is fault is None or fault in found
