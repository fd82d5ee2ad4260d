import hashlib
import json
import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.digest import (
    Digest,
    DigestViolation,
    Violation,
    compare,
    digest_tree,
    is_counted,
    iter_files,
    variant_digest,
)
from kernel_spec.errors import FormatError, IntegrityError

GOLDEN = json.loads((Path(__file__).parents[2] / "fixtures" / "digest.json").read_text())


def write(root, files):
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())


@pytest.mark.parametrize("case", GOLDEN["trees"], ids=lambda case: case["title"])
@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_golden_trees(tmp_path, case, algorithm):
    files = {file["path"]: file["text"] for file in case["files"]}
    write(tmp_path, files)
    digest = digest_tree(tmp_path, algorithm)
    assert digest == Digest(algorithm, case[algorithm])
    assert list(digest.files) == list(case[algorithm])
    assert sorted(files.keys() - digest.files.keys()) == case["left_out"]
    assert compare(digest, digest) == ()


@pytest.mark.parametrize("case", GOLDEN["compare"], ids=lambda case: case["title"])
def test_golden_comparisons(case):
    reference, found = (
        Digest(case[key]["algorithm"], case[key]["files"]) for key in ("reference", "found")
    )
    violations = compare(reference, found)
    assert [(v.kind.value, v.path) for v in violations] == [
        (v["kind"], v.get("path", "")) for v in case["violations"]
    ]
    for violation in violations:
        assert violation.path in str(violation)


def test_violations_say_what_was_expected_and_found():
    assert [str(DigestViolation(kind, "a.py", "x", "y")) for kind in Violation] == [
        "a.py: is missing",
        "a.py: is not in the digest",
        "a.py: expected hash x, found y",
        "expected algorithm x, found y",
    ]


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("__init__.py", True),
        ("metadata.json", False),
        ("metadata.json.sigstore", False),
        ("sub/metadata.json", True),
        ("a.pyc", False),
        ("a.PYC", True),
        ("__pycache__", True),
        ("__pycache__/a.py", False),
        ("a/__pycache__/b/c.so", False),
    ],
)
def test_what_counts(tmp_path, path, counted):
    write(tmp_path, {path: ""})
    assert is_counted(PurePosixPath(path)) is counted
    assert [found for found, _ in iter_files(tmp_path)] == ([path] if counted else [])


def test_links_inside_are_followed_and_those_leading_out_refused(tmp_path):
    root = tmp_path / "variant"
    write(tmp_path, {"variant/a.py": "x", "secret": "y", "variant-2/b.py": "z"})
    (root / "link.py").symlink_to("a.py")
    digest = digest_tree(root)
    assert digest.files["link.py"] == digest.files["a.py"]
    for target in ("../secret", str(tmp_path / "secret"), "../variant-2/b.py"):
        (root / "link.py").unlink()
        (root / "link.py").symlink_to(target)
        with pytest.raises(IntegrityError, match=r"link\.py: a symbolic link leads out"):
            digest_tree(root)


def test_what_is_neither_file_nor_directory_is_refused(tmp_path):
    (tmp_path / "broken").symlink_to("nowhere")
    with pytest.raises(IntegrityError, match="expected a file or a directory"):
        digest_tree(tmp_path)
    (tmp_path / "broken").unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    with pytest.raises(IntegrityError, match="expected a file or a directory"):
        digest_tree(tmp_path)
    (tmp_path / "link").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IntegrityError, match="expected a file or a directory"):
        digest_tree(tmp_path)


def test_an_unknown_algorithm_and_a_missing_folder(tmp_path):
    with pytest.raises(FormatError, match="md5"):
        digest_tree(tmp_path, "md5")
    with pytest.raises(FileNotFoundError):
        digest_tree(tmp_path / "missing")


names = st.text("ab/._é", min_size=1, max_size=6)
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
trees = st.lists(
    st.tuples(names, st.integers(0, 2**40), hashes), unique_by=lambda file: file[0], max_size=6
)


@given(trees, st.randoms())
def test_the_name_of_a_variant_does_not_depend_on_the_order_of_files(files, shuffler):
    name = variant_digest(files)
    shuffler.shuffle(files)
    assert variant_digest(iter(files)) == name
    assert len(name) == 64


@given(trees.filter(len), st.data())
def test_any_change_of_a_file_names_another_variant(files, data):
    index = data.draw(st.integers(0, len(files) - 1))
    path, size, sha256 = files[index]
    changed = data.draw(
        st.sampled_from(
            [(path + "c", size, sha256), (path, size + 1, sha256), (path, size, sha256[::-1] + "0")]
        )
    )
    assert variant_digest([*files[:index], changed, *files[index + 1 :]]) != variant_digest(files)


def test_the_name_of_a_variant_is_the_hash_of_its_lines():
    files = [("b.py", 2, "2" * 64), ("metadata.json", 3, "3" * 64), ("a.py", 1, "1" * 64)]
    lines = f"{'1' * 64} 1 a.py\n{'2' * 64} 2 b.py\n{'3' * 64} 3 metadata.json\n"
    assert variant_digest(files) == hashlib.sha256(lines.encode()).hexdigest()
    bytecode = [("x.pyc", 1, "0" * 64), ("a/__pycache__/y", 1, "0" * 64)]
    assert variant_digest([*files, *bytecode]) == variant_digest(files)


@pytest.mark.parametrize("path", ["a.py", "x\ny"])
def test_a_path_twice_or_of_two_lines_has_no_digest(path):
    with pytest.raises(FormatError, match="cannot hold the path"):
        variant_digest([("a.py", 1, "0" * 64), (path, 2, "1" * 64)])


def test_a_path_that_is_not_utf8_is_refused():
    with pytest.raises(FormatError, match="not UTF-8"):
        variant_digest([("\udcff.py", 1, "0" * 64)])
