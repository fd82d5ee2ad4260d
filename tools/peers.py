"""The published clients, each in a virtual environment of its own, and our hub for them to talk to.

Tests and benchmarks share this: the peer is the unmodified package from the index, asked over
loopback, in the same run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from filelock import FileLock

TORCH = "2.13.0"
REFERENCE = ("huggingface_hub==2.4.0", "kernels==0.17.2")
# What torch itself imports, without the gigabyte of torch.
TORCH_NEEDS = ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec")


class PeerUnavailableError(Exception):
    """A published package cannot be installed here; says why."""


@dataclass(frozen=True, slots=True)
class ClientVenv:
    """A virtual environment with a published client in it."""

    folder: Path

    def run(
        self,
        hub: ServedHub,
        home: Path,
        *words: str,
        offline: bool = False,
        check: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment against a hub, with ``home`` as the client's cache."""
        done = subprocess.run(
            self._command(words),
            check=False,
            env=self._environment(hub, home, offline=offline) | dict(environ or {}),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check and done.returncode:
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def start(self, hub: ServedHub, home: Path, *words: str) -> subprocess.Popen[str]:
        """Start a command as :meth:`run` does, with pipes to and from it."""
        return subprocess.Popen(
            self._command(words),
            env=self._environment(hub, home),
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _command(self, words: Sequence[str]) -> list[str]:
        return [str(self.folder / "bin" / words[0]), *words[1:]]

    def _environment(self, hub: ServedHub, home: Path, *, offline: bool = False) -> dict[str, str]:
        keep = {key: os.environ[key] for key in ("PATH", "TMPDIR", "LANG") if key in os.environ}
        return keep | {
            "HOME": str(home),
            "HF_HOME": str(home / "hf"),
            "HF_ENDPOINT": hub.url,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONNOUSERSITE": "1",
            "NO_PROXY": "*",
            **({"HF_HUB_OFFLINE": "1"} if offline else {}),
        }

    def python(
        self,
        hub: ServedHub,
        home: Path,
        code: str,
        *,
        offline: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> Any:
        """Run a script; what it assigns to ``result`` comes back."""
        script = f"{code}\nimport json\nprint('\\nRESULT ' + json.dumps(result))\n"
        done = self.run(hub, home, "python", "-c", script, offline=offline, environ=environ)
        return json.loads(done.stdout.rpartition("\nRESULT ")[2])


def open_cache() -> Path:
    """Return the directory of what tests fetch or build once: ``$XDG_CACHE_HOME/kernels-tests``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernels-tests"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def make_venv(*requirements: str, links: Sequence[Path] = ()) -> ClientVenv:
    """Make a virtual environment once and keep it; ``links`` are put into its site-packages.

    It stays in ``$XDG_CACHE_HOME/kernels-tests``, under a name that hashes what is in it.

    Raises:
        PeerUnavailableError: pip cannot install the requirements.
    """
    cache = open_cache()
    key = json.dumps([requirements, list(map(str, links)), sys.version, sys.base_prefix])
    folder = cache / f"venv-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    stamp = folder / "ready"
    with FileLock(f"{folder}.lock"):
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--no-input"]
            done = subprocess.run(
                [*pip, *requirements], check=False, capture_output=True, text=True
            )
            if done.returncode:
                wanted = " ".join(requirements)
                raise PeerUnavailableError(f"cannot install {wanted}: {done.stderr[-2000:]}")
            [site] = folder.glob("lib/python3*/site-packages")
            for link in links:
                (site / link.name).symlink_to(link)
            stamp.touch()
    return ClientVenv(folder)


def reference_venv() -> ClientVenv:
    """Return the published ``kernels`` 0.17.2 with ``huggingface_hub`` 2.4.0.

    Raises:
        PeerUnavailableError: pip cannot install them.
    """
    return make_torch_venv(*REFERENCE)


def make_torch_venv(*requirements: str) -> ClientVenv:
    """Make an environment as :func:`make_venv` does, with torch in it.

    torch takes a gigabyte, so where this interpreter has the wanted one, its folders are linked
    into the environment rather than installed again. Nothing else of this interpreter can be
    imported there, above all not this project's own ``kernels``.

    Raises:
        PeerUnavailableError: pip cannot install the requirements.
    """
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        site = Path(spec.origin).parent.parent
        info = list(site.glob(f"torch-{TORCH}*.dist-info"))
        if info:
            links = (site / "torch", site / "torchgen", site / "functorch", *info)
            present = [link for link in links if link.exists()]
            return make_venv(*requirements, *TORCH_NEEDS, links=present)
    return make_venv(*requirements, f"torch=={TORCH}")


@dataclass(frozen=True, slots=True)
class ServedHub:
    """A running ``kernel-hub serve``."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def requests(self) -> list[SimpleNamespace]:
        """Return every request so far, in order: ``method path query status bytes ms id``."""
        # Each line is written before the last bytes of its answer leave, so none is missing here.
        lines = self.log.read_text().splitlines()
        return [SimpleNamespace(**json.loads(line)) for line in lines if line.startswith("{")]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell the hub to stop; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def serve_hub(
    root: Path,
    log: Path,
    *,
    trusted: Iterable[str] = (),
    host: str = "127.0.0.1",
    options: Sequence[str] = (),
) -> Iterator[ServedHub]:
    """Serve a directory hub on loopback in a process of its own, its access log in a file."""
    command = [sys.executable, "-m", "kernel_hub", "serve", str(root)]
    command += ["--host", host, "--port", "0", "--access-log"]
    command += [word for owner in trusted for word in ("--trusted-owner", owner)]
    command += options
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
        if " at http://" not in line:
            process.kill()
            raise RuntimeError(f"{command} did not start: {line}{log.read_text()}")
        hub = ServedHub(line.rpartition(" at ")[2].strip(), process, log)
        try:
            yield hub
        finally:
            hub.stop()
