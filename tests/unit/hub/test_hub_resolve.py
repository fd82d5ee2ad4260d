"""Downloads: headers, conditions, ranges."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.api.ranges import Span, matches, parse_range
from kernel_hub.errors import RangeError

SO = "build/torch210-cu128-x86_64-linux/toy.abi3.so"
TEXT = "/kernels/acme/toy/resolve/v1/run.sh"
BINARY = f"/kernels/acme/toy/resolve/v1/{SO}"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_text_file(toy, method):
    answer = toy.ask(method, TEXT)
    assert answer.status == 200
    assert answer.body == (b"echo\n" if method == "GET" else b"")
    assert answer.headers["content-length"] == "5"
    assert answer.headers["etag"] == '"fa11a6a9c54797a8f68963af8ffc4d92bbffc660"'
    assert answer.headers["x-repo-commit"] == toy.v1
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''run.sh"
    assert "x-linked-etag" not in answer.headers
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_large_file(toy, method, v1_files):
    answer = toy.ask(method, BINARY)
    data = v1_files[SO]
    assert answer.body == (data if method == "GET" else b"")
    etag = f'"{hashlib.sha256(data).hexdigest()}"'
    assert answer.headers["etag"] == answer.headers["x-linked-etag"] == etag
    assert answer.headers["x-linked-size"] == answer.headers["content-length"] == str(len(data))
    assert answer.headers["content-type"] == "application/octet-stream"


def test_the_same_path_on_two_branches_has_two_hashes(toy):
    etags = {
        toy.ask("HEAD", f"/kernels/acme/toy/resolve/{branch}/{SO}").headers["etag"]
        for branch in ("v1", "v2", "v1", "v2")
    }
    assert len(etags) == 2


def test_missing_entry_names_the_commit(toy):
    answer = toy.ask("HEAD", "/kernels/acme/toy/resolve/v1/nothing.py")
    assert answer.status == 404
    assert answer.headers["x-repo-commit"] == toy.v1


def test_not_modified(toy):
    etag = toy.ask("HEAD", TEXT).headers["etag"]
    answer = toy.ask("GET", TEXT, headers={"If-None-Match": f'"other", W/{etag}'})
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers["etag"] == etag
    assert answer.headers["x-repo-commit"] == toy.v1
    assert toy.ask("GET", TEXT, headers={"If-None-Match": '"other"'}).status == 200


def test_part(toy):
    answer = toy.ask("GET", TEXT, headers={"Range": "bytes=1-2"})
    assert (answer.status, answer.body) == (206, b"ch")
    assert answer.headers["content-range"] == "bytes 1-2/5"
    assert answer.headers["content-length"] == "2"


def test_part_of_a_changed_file_is_the_whole_file(toy):
    answer = toy.ask("GET", TEXT, headers={"Range": "bytes=1-2", "If-Range": '"other"'})
    assert (answer.status, answer.body) == (200, b"echo\n")


def test_part_behind_the_end(toy):
    answer = toy.ask("GET", TEXT, headers={"Range": "bytes=5-"})
    assert answer.status == 416
    assert answer.headers["content-range"] == "bytes */5"


@pytest.mark.parametrize(
    "header",
    [
        "bytes=" + "9" * 5000 + "-",
        "bytes=0-1,3-4",
        "bytes=0-0," * 2000,
        "bytes=-",
        "bytes=4-2",
        "bytes=a-b",
        "lines=1-2",
        "bytes=--1",
        "",
    ],
)
def test_absurd_ranges_give_the_whole_file(toy, header):
    answer = toy.ask("GET", TEXT, headers={"Range": header})
    assert (answer.status, answer.body) == (200, b"echo\n")


@given(st.binary(min_size=1, max_size=50), st.integers(0, 60), st.integers(0, 60))
def test_range_is_what_a_slice_gives(data, first, last):
    header = f"bytes={first}-{last}"
    if last < first:
        assert parse_range(header, len(data)) is None
    elif first >= len(data):
        with pytest.raises(RangeError):
            parse_range(header, len(data))
    else:
        span = parse_range(header, len(data))
        assert data[span.start : span.stop] == data[first : last + 1]


@given(st.integers(1, 100), st.integers(1, 200))
def test_suffix_range(size, last):
    assert parse_range(f"bytes=-{last}", size) == Span(max(0, size - last), size)


def test_empty_file_has_no_range():
    for header in ("bytes=0-", "bytes=-5", "bytes=-0"):
        with pytest.raises(RangeError):
            parse_range(header, 0)


def test_any_tag_matches_a_star():
    assert matches("*", '"a"')
    assert not matches(None, '"a"')
    assert not matches("a", '"a"')
