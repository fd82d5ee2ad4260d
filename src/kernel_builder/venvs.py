"""Virtual environments in the builder's cache: made once for what is in them, whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import CommandError, StorageError, ToolchainUnavailableError
from kernel_builder.kept import hold
from kernel_builder.process import run

_SECONDS = 3600
_READY = "ready"


@dataclass(frozen=True, slots=True)
class Venv:
    """A virtual environment."""

    root: Path

    @property
    def scripts(self) -> Path:
        """The directory of its programs."""
        return self.root / "bin"

    @property
    def site_packages(self) -> Path:
        """The directory of its packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.root / "lib" / version / "site-packages"


def make_venv(
    requirements: Sequence[str],
    *,
    links: Sequence[Path] = (),
    store: Path,
    variables: Mapping[str, str],
    on_begin: Callable[[str], None] = lambda _: None,
) -> Venv:
    """Return the environment of this Python with these packages; it is made where it is not there.

    Args:
        requirements: what pip installs.
        links: packages of this machine that can be imported there, too.
        store: the directory of all environments.
        variables: the environment of pip, which names the user's package index.
        on_begin: called with one line where it has to be made.

    Raises:
        ToolchainUnavailableError: pip cannot install a package.
        StorageError: the directory cannot be written.
    """
    facts = [list(requirements), [str(path) for path in links], sys.version, sys.base_prefix]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    target = store / key
    try:
        store.mkdir(parents=True, exist_ok=True)
        with hold(store / f"{key}.lock", lambda: on_begin("another process makes it; waiting")):
            if not (target / _READY).is_file():
                on_begin(f"making an environment with {', '.join(requirements)}; this is done once")
                # One that was killed while it was made has no mark, and is made again.
                shutil.rmtree(target, ignore_errors=True)
                _fill(target, requirements, links, variables)
                (target / _READY).write_text(json.dumps(facts, indent=2))
    except OSError as err:
        raise StorageError(
            f"{err.filename or target}: {err.strerror}; the builder keeps its environments in "
            f"{store}: set XDG_CACHE_HOME to a directory that can be written"
        ) from err
    return Venv(target)


def make_overlay(base: Venv, key: str, *, variables: Mapping[str, str]) -> Venv:
    """Return an environment of its own on top of another: what is installed there stays there.

    It lies beside its base, has its programs, and imports its packages.

    Args:
        base: the environment below, which is shared.
        key: tells it from other environments on the same base.
        variables: the environment of programs.

    Raises:
        StorageError: the directory cannot be written.
        CommandError: Python cannot make it.
    """
    name = f"{base.root.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    venv = Venv(base.root.with_name(name))
    try:
        with hold(Path(f"{venv.root}.lock")):
            if not (venv.root / _READY).is_file():
                shutil.rmtree(venv.root, ignore_errors=True)
                python = str(base.scripts / "python")
                run([python, "-m", "venv", "--without-pip", str(venv.root)], variables=variables)
                line = f"import site; site.addsitedir({str(base.site_packages)!r})\n"
                (venv.site_packages / "base.pth").write_text(line)
                for program in sorted(base.scripts.iterdir()):
                    _take_over(program, venv, base)
                (venv.root / _READY).write_text(key)
    except OSError as err:
        raise StorageError(f"{err.filename or venv.root}: {err.strerror}") from err
    return venv


def _take_over(program: Path, venv: Venv, base: Venv) -> None:
    """Give an environment a program of its base; a script is run by the environment's Python."""
    target = venv.scripts / program.name
    if not program.is_file() or os.path.lexists(target) or "activate" in program.name.lower():
        return
    data = program.read_bytes()
    mark = f"#!{base.scripts}/".encode()
    if data.startswith(mark):
        target.write_bytes(f"#!{venv.scripts}/".encode() + data.removeprefix(mark))
        target.chmod(0o755)
    else:
        target.symlink_to(program)


def _fill(
    target: Path, requirements: Sequence[str], links: Sequence[Path], variables: Mapping[str, str]
) -> None:
    venv = Venv(target)
    try:
        run([sys.executable, "-m", "venv", str(target)], variables=variables)
        pip = [str(venv.scripts / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
        run(
            [*pip, "--disable-pip-version-check", *requirements],
            variables=variables,
            timeout=_SECONDS,
        )
    except CommandError as err:
        shutil.rmtree(target, ignore_errors=True)
        raise ToolchainUnavailableError(
            f"an environment with {', '.join(requirements)} cannot be made:\n"
            f"{_last_words(err.finished.output)}\nlet pip reach a package index that has these "
            "(pip's own settings apply: PIP_INDEX_URL, PIP_FIND_LINKS, pip.conf)"
        ) from err
    for link in links:
        (venv.site_packages / link.name).symlink_to(link)


def _last_words(output: str) -> str:
    """Return what pip calls an error, else its last lines."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return "\n".join(f"  {line}" for line in (errors or lines)[-5:])
