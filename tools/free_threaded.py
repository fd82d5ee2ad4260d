"""Finds a free-threaded CPython, or builds one of Debian's source package, for the tests that run the loader in it.

No distribution that the tests run on has such an interpreter ready.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import debian
from filelock import FileLock
from peers import open_cache

NAMES = ("python3.14t", "python3.13t")
SUITE, PACKAGE = "trixie", "python3.13"
CONFIGURE = (
    "--disable-gil",
    "--disable-test-modules",
    "--without-doc-strings",
    "--with-ensurepip=no",
    "CFLAGS=-O1",
)


def find_or_build() -> Path:
    """Return the interpreter; the first call on a machine may take two minutes of two cores.

    It stays in ``$XDG_CACHE_HOME/kernels-tests``.

    Raises:
        peers.PeerUnavailableError: there is none and it cannot be built here; says why.
    """
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    cache = open_cache()
    prefix = cache / f"{PACKAGE}t-{SUITE}"
    python = prefix / "bin" / f"{PACKAGE}t"
    with FileLock(f"{prefix}.lock"):
        if not python.exists():
            work = cache / f"{PACKAGE}t-build"
            shutil.rmtree(work, ignore_errors=True)
            _build(_fetch_source(work), prefix)
            shutil.rmtree(work)
    return python


def _fetch_source(work: Path) -> Path:
    """Return the unpacked source of Debian's package."""
    debian.fetch_source(work, SUITE, PACKAGE)
    [archive] = work.glob(f"{PACKAGE}_*.orig.tar.*z")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="tar")
    [source] = work.glob("Python-*")
    return source


def _build(source: Path, prefix: Path) -> None:
    debian.run(["./configure", "-q", f"--prefix={prefix}", *CONFIGURE], source)
    debian.run(["make", "-s", "-j2"], source)
    debian.run(["make", "-s", "altinstall"], source)
