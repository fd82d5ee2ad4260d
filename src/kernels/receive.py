"""Writes the files of a variant as a hub sends them: each hashed, flushed, asked for again where it breaks off."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernel_spec.digest import is_counted
from kernel_spec.errors import KernelError
from kernel_spec.metadata import FILE_NAME
from kernel_spec.names import parse_safe_path
from kernel_spec.wire import TreeFile
from kernels.errors import CacheError, HubUnreachableError
from kernels.fetch import Wanted, again, read_verified
from kernels.hub import Sender
from kernels.progress import Advance, show_progress
from kernels.variant_dir import SIGNATURE_NAME

DOWNLOADS_AT_ONCE = 8


def download(wanted: Wanted, root: Path, have: Mapping[str, bytes]) -> dict[str, str]:
    """Write every file of a variant below a folder; return the sha256 (hex) of each by path.

    Args:
        wanted: the variant, and the hub that sends it.
        root: the folder, which is there.
        have: verified bytes of files that were fetched already, by path.

    Raises:
        CacheError, HubUnreachableError: as :func:`receive`.
        IntegrityError: bytes are not those that were promised.
    """
    files = [file for file in wanted.files if is_counted_or_named(file.path)]
    for file in files:
        with writing(root):
            (root / file.path).parent.mkdir(parents=True, exist_ok=True)

    def fetch(file: TreeFile, advance: Advance | None = None) -> tuple[str, str]:
        place = root / file.path
        return file.path, _fetch_file(wanted, file, place, have.get(file.path), advance)

    if wanted.hub.is_directory or len(files) < 2:
        return dict(map(fetch, files))
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(DOWNLOADS_AT_ONCE, thread_name_prefix="kernels-download")
    with show_progress(str(wanted), sum(file.size for file in files)) as advance:
        try:
            return dict(pool.map(lambda file: fetch(file, advance), files))
        finally:
            # After an error or an interrupt, what has not begun never begins.
            pool.shutdown(cancel_futures=True)


def is_counted_or_named(path: str) -> bool:
    """Say whether a file of a listing is installed: all but bytecode."""
    return path in {FILE_NAME, SIGNATURE_NAME} or is_counted(parse_safe_path(path))


def _fetch_file(
    wanted: Wanted, file: TreeFile, path: Path, have: bytes | None, advance: Advance | None
) -> str:
    def read() -> Sequence[bytes] | Iterator[bytes]:
        return [have] if have is not None else read_verified(wanted, file)

    return receive(read, path, wanted.hub, executable=file.executable, advance=advance)


def receive(
    read: Callable[[], Sequence[bytes] | Iterator[bytes]],
    path: Path,
    hub: Sender,
    *,
    executable: bool = False,
    advance: Advance | None = None,
) -> str:
    """Write a file that a hub sends, asking again where it breaks off; return its sha256.

    Args:
        read: begins to read its bytes; verifies them.
        path: where to write them.
        hub: who sends them.
        executable: whether the file may be run.
        advance: told how many bytes have come; a negative number of those that are asked for again.

    Raises:
        CacheError: it cannot be written.
        HubUnreachableError: the hub went away, or asks for a longer pause than ``LONGEST_PAUSE``.
    """

    def receive_once() -> str:
        sha256 = hashlib.sha256()
        come = 0

        def note(chunk: bytes) -> None:
            nonlocal come
            sha256.update(chunk)
            come += len(chunk)
            if advance is not None:
                advance(len(chunk))

        try:
            write_flushed(path, _noting(read(), note), executable=executable)
        except HubUnreachableError:
            if advance is not None:
                advance(-come)
            raise
        except OSError as err:
            if isinstance(err, KernelError):
                raise
            raise CacheError(path, err) from None
        return sha256.hexdigest()

    return again(receive_once, hub)


def _noting(
    chunks: Sequence[bytes] | Iterator[bytes], note: Callable[[bytes], None]
) -> Iterator[bytes]:
    for chunk in chunks:
        note(chunk)
        yield chunk


def write_flushed(
    path: Path, chunks: Sequence[bytes] | Iterator[bytes], *, executable: bool = False
) -> None:
    """Write a file and see it onto the disk.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if executable:
        path.chmod(path.stat().st_mode | 0o111)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report what the operating system refuses as a fault of the cache.

    Raises:
        CacheError: in place of any other OSError.
    """
    try:
        yield
    except OSError as err:
        if isinstance(err, CacheError):
            raise
        # The place and the reason are in it; what pathlib tried before would be a page of tracebacks.
        raise CacheError(
            Path(err.filename) if isinstance(err.filename, str) else path, err
        ) from None
