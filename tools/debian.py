"""Fetches packages of a Debian suite through apt, from the mirror that this machine is configured for.

apt keeps its lists apart from those of the machine and checks them against Debian's key; nothing is installed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from peers import PeerUnavailableError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def fetch_source(work: Path, suite: str, package: str) -> None:
    """Fetch the files of a source package into a new directory.

    Raises:
        PeerUnavailableError: this is no Debian, or the mirror has no such package.
    """
    apt = _prepare(work, f"deb-src [signed-by={KEYRING}] {{mirror}} {suite} main\n")
    run([*apt, "source", "--download-only", package], work)


def fetch_packages(work: Path, suite: str, sections: str, packages: Iterable[str]) -> None:
    """Fetch packages for amd64, each as ``name=version``, into a new directory.

    Raises:
        PeerUnavailableError: this is no Debian, or the mirror has no such package of that version.
    """
    line = f"deb [arch=amd64 signed-by={KEYRING}] {{mirror}} {suite} {sections}\n"
    apt = _prepare(work, line)
    run([*apt, "download", *packages], work)


def _prepare(work: Path, line: str) -> list[str]:
    """Return the command of an apt that knows one line of sources."""
    if shutil.which("apt-get") is None or not KEYRING.is_file():
        raise PeerUnavailableError("this is no Debian, whose packages are wanted")
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    sources = work / "sources.list"
    sources.write_text(line.format(mirror=_find_mirror()))
    options = [
        f"Dir::Etc::SourceList={sources}",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State={work / 'state'}",
        f"Dir::Cache={work / 'cache'}",
        "Dir::State::Status=/var/lib/dpkg/status",
        "APT::Sandbox::User=",
        "Acquire::Retries=3",
    ]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    run([*apt, "update"], work)
    return apt


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
        raise PeerUnavailableError("apt takes no packages of Debian here")
    return found


def run(command: list[str], folder: Path) -> None:
    """Run a program there.

    Raises:
        PeerUnavailableError: it fails; with the end of what it says.
    """
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        words = " ".join([*command[:3], *command[-1:]])
        raise PeerUnavailableError(f"{words}: {(done.stdout + done.stderr)[-1500:]}")
