"""An archive that a server sends badly is an error that names it; a full disk is one of the disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from raw_server import serve_raw

from kernel_builder.archives import download
from kernel_builder.errors import ArchiveError

BODY = bytes(range(200))
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\nconnection: close\r\n\r\n" + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    b"64\r\n" + BODY[:100] + b"\r\n64\r\n" + BODY[100:] + b"\r\n0\r\n\r\n"
)


def fetch(sent: bytes, target: Path) -> bytes:
    def answer(client, over):
        client.recv(10_000)
        client.sendall(sent)

    with serve_raw(answer) as (address, _):
        download(f"http://{address}/headers.tar", target, name="headers")
    return target.read_bytes()


@pytest.mark.parametrize("whole", [WHOLE, CHUNKED], ids=["length", "chunked"])
def test_an_archive_that_breaks_off_anywhere_is_told_as_that(whole, tmp_path):
    assert fetch(whole, tmp_path / "whole") == BODY
    # Within its head, Python's client takes what came for all of it: the hash tells then.
    head = whole.index(b"\r\n\r\n") + 4
    for cut in (0, 5, *range(head, len(whole) - 1, 7)):
        # All bytes are there when nothing but the end of chunks is missing.
        if whole is CHUNKED and cut > len(whole) - 8:
            continue
        with pytest.raises(ArchiveError, match=r"headers: http://.* cannot be fetched \(.+\)"):
            fetch(whole[:cut], tmp_path / "cut")


@pytest.mark.parametrize(
    "sent",
    [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 500],
    ids=["another protocol", "no status", "endless headers"],
)
def test_what_is_no_http_is_an_error_of_the_archive(sent, tmp_path):
    with pytest.raises(ArchiveError, match=r"cannot be fetched \(.+\)"):
        fetch(sent, tmp_path / "place")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is of Linux")
def test_a_full_disk_is_not_told_as_a_fault_of_the_network(tmp_path):
    place = tmp_path / "place"
    place.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        fetch(WHOLE.replace(b"200\r\n", b"20000\r\n") + bytes(19_800), place)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(place)
