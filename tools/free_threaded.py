"""Finds a free-threaded CPython, or builds one of Debian's source package, for the tests that run the loader in it.

The source package comes through apt from the mirror that this machine is configured for, checked against
Debian's key. No distribution that the tests run on has such an interpreter ready.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from filelock import FileLock
from peers import PeerUnavailableError

NAMES = ("python3.14t", "python3.13t")
SUITE, PACKAGE = "trixie", "python3.13"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
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
        PeerUnavailableError: there is none and it cannot be built here; says why.
    """
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernels-tests"
    cache.mkdir(parents=True, exist_ok=True)
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
    if shutil.which("apt-get") is None or not KEYRING.is_file():
        raise PeerUnavailableError(
            f"there is none of {', '.join(NAMES)}, and no Debian to build it of"
        )
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    sources = work / "sources.list"
    sources.write_text(f"deb-src [signed-by={KEYRING}] {_find_mirror()} {SUITE} main\n")
    options = [
        f"Dir::Etc::SourceList={sources}",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State={work / 'state'}",
        f"Dir::Cache={work / 'cache'}",
        "Dir::State::Status=/var/lib/dpkg/status",
        "APT::Sandbox::User=",
    ]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    _run([*apt, "update"], work)
    _run([*apt, "source", "--download-only", PACKAGE], work)
    [archive] = work.glob(f"{PACKAGE}_*.orig.tar.*z")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="tar")
    [source] = work.glob("Python-*")
    return source


def _find_mirror() -> str:
    """Return the mirror of Debian that apt takes packages from."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)"],
        check=True,
        capture_output=True,
        text=True,
    )
    mirrors = (
        line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("Debian ")
    )
    found = next((uri for uri in mirrors if "security" not in uri), None)
    if found is None:
        raise PeerUnavailableError(f"there is none of {', '.join(NAMES)}, and this is no Debian")
    return found


def _build(source: Path, prefix: Path) -> None:
    _run(["./configure", "-q", f"--prefix={prefix}", *CONFIGURE], source)
    _run(["make", "-s", "-j2"], source)
    _run(["make", "-s", "altinstall"], source)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise PeerUnavailableError(
            f"{' '.join(command[:3])}: {(done.stdout + done.stderr)[-1500:]}"
        )
