"""Ids of bytes are git's own."""

import hashlib

import pytest

from kernel_spec.blob import blob_id, is_promised
from kernel_spec.wire import TreeFile

# What `git hash-object --stdin` says.
KNOWN = {
    b"": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    b"hello\n": "ce013625030ba8dba906f756967f9e9ca394464a",
}


@pytest.mark.parametrize("data", KNOWN)
def test_the_id_is_that_of_git(data: bytes) -> None:
    assert blob_id(data) == KNOWN[data]


def test_a_listing_promises_the_blob_id_and_of_a_large_file_the_sha256() -> None:
    small = TreeFile(path="a", size=6, oid=KNOWN[b"hello\n"], sha256=None)
    assert is_promised(small, b"hello\n")
    assert not is_promised(small, b"hello!")
    large = small._replace(sha256=hashlib.sha256(b"other").hexdigest())
    assert is_promised(large, b"other")
    assert not is_promised(large, b"hello\n")
