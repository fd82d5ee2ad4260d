"""The hub as a process of its own, and the published clients, for every integration test."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import peers
import pytest

# A shell starts what it puts in the background with interrupts ignored, and a child inherits that:
# the processes that tests interrupt would never hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def serve(tmp_path_factory):
    """Serve a directory hub: ``serve(root, *, trusted=(), options=()) -> .url .requests() .stop()``."""
    with ExitStack() as stack:

        def start(root, *, trusted=(), host="127.0.0.1", options=()):
            log = tmp_path_factory.mktemp("hub") / "stderr.log"
            return stack.enter_context(
                peers.serve_hub(root, log, trusted=trusted, host=host, options=options)
            )

        yield start


def venv_or_skip(make, *requirements):
    """Make a peer's environment; where that fails, fail in CI and skip elsewhere."""
    try:
        return make(*requirements)
    except peers.PeerUnavailableError as err:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(err))


@pytest.fixture(scope="session")
def reference():
    """The published ``kernels`` 0.17.2 with ``huggingface_hub`` 2.4.0."""
    return venv_or_skip(peers.reference_venv)


@pytest.fixture(scope="session")
def hub_1_10():
    """The oldest ``huggingface_hub`` that knows repositories of kernels."""
    return venv_or_skip(peers.make_venv, "huggingface_hub==1.10.*")
