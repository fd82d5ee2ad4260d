"""The hub as a process of its own, for every integration test that needs a hub over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest


@dataclass
class ServedHub:
    """A running ``kernel-hub serve``."""

    url: str
    process: subprocess.Popen
    log: Path

    def requests(self):
        """Return every request so far, in order: ``method path query status bytes ms id``."""
        # Each line is written before the last bytes of its answer leave, so none is missing here.
        lines = self.log.read_text().splitlines()
        return [SimpleNamespace(**json.loads(line)) for line in lines if line.startswith("{")]

    def stop(self, number=signal.SIGTERM):
        """Tell the hub to stop; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture(scope="session")
def serve(tmp_path_factory):
    """Serve a directory hub: ``serve(root, *, trusted=()) -> .url .requests() .stop()``."""
    with ExitStack() as stack:

        def start(root, *, trusted=(), host="127.0.0.1"):
            log = tmp_path_factory.mktemp("hub") / "stderr.log"
            command = [sys.executable, "-m", "kernel_hub", "serve", str(root)]
            command += ["--host", host, "--port", "0", "--access-log"]
            command += [word for owner in trusted for word in ("--trusted-owner", owner)]
            with log.open("wb") as stderr:
                process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ}
                )
            line = process.stdout.readline()
            if " at http://" not in line:
                process.kill()
                raise RuntimeError(f"{command} did not start: {line}{log.read_text()}")
            hub = ServedHub(line.rpartition(" at ")[2].strip(), process, log)
            stack.callback(process.stdout.close)
            stack.callback(hub.stop)
            return hub

        yield start
