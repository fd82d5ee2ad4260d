"""What a hub is told of who asks, seen by a server that records it; and dates in ``Retry-After``."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from email.utils import formatdate
from itertools import pairwise

import pytest
from gateway import open_gate

import kernels

CALLER = "import kernels; print(kernels.get_kernel('acme/toy', user_agent={agent!r}).VALUE)"
# RFC 9110, 5.5: a field value is visible characters, with single blanks between them.
LEGAL = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")


@pytest.fixture(autouse=True)
def published(root, publish):
    publish(root)


@contextmanager
def recording(hub):
    """Yield the URL of a server before the hub, and the user agents of every request to it."""
    agents = []

    def note(handler):
        agents.append(handler.headers["user-agent"])
        return False

    with open_gate(hub.url, note) as gate:
        yield gate.url, agents


def test_the_header_is_that_which_hubs_know(web, host):
    with recording(web) as (url, agents):
        host.hub = url
        assert host.run(CALLER.format(agent={"diffusers": "0.42.1"})) == "1"
    assert len(set(agents)) == 1, "the same at every request"
    [agent] = set(agents)
    parts = agent.split("; ")
    assert parts[:2] == ["diffusers/0.42.1", f"kernels/{kernels.__version__}"]
    keys = {part.partition("/")[0] for part in parts}
    assert {"hf_hub", "python", "torch", "backend", "platform", "glibc", "file_type"} <= keys
    assert "file_type/kernel" in parts
    assert LEGAL.fullmatch(agent)


@pytest.mark.parametrize(
    "switch", ["HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK"]
)
def test_each_switch_leaves_a_legal_header_that_says_the_client_alone(web, host, switch):
    with recording(web) as (url, agents):
        host.hub = url
        assert host.run(CALLER.format(agent={"diffusers": "0.42.1"}), **{switch: "1"}) == "1"
    assert set(agents) == {f"kernels/{kernels.__version__}"}


@pytest.mark.parametrize("agent", ["app/1\r\nx-evil: 1", {"a\nb": "1\x00"}, "größe/1", ""])
def test_a_caller_cannot_break_the_header(web, host, agent):
    with recording(web) as (url, agents):
        host.hub = url
        assert host.run(CALLER.format(agent=agent)) == "1"
    assert all(LEGAL.fullmatch(agent) for agent in agents)
    assert all("x-evil: 1" not in agent.partition(";")[2] for agent in agents)


def test_a_date_in_retry_after_is_waited_for(web, host):
    limited, times = ["/refs"], []

    def limit(handler):
        times.append(time.time())
        if not limited or not handler.path.endswith(limited[0]):
            return False
        limited.clear()
        handler.send_response(429)
        # Dates have whole seconds: at least two of them from now.
        handler.send_header("retry-after", formatdate(time.time() + 3, usegmt=True))
        handler.send_header("content-length", "0")
        handler.end_headers()
        return True

    with open_gate(web.url, limit) as gate:
        host.hub = gate.url
        assert host.run() == "1"
    assert max(b - a for a, b in pairwise(times)) > 1.5


def test_a_date_an_hour_away_is_an_error_that_says_so_at_once(web, host):
    def limit(handler):
        handler.send_response(503)
        handler.send_header("retry-after", formatdate(time.time() + 3600, usegmt=True))
        handler.send_header("content-length", "0")
        handler.end_headers()
        return True

    with open_gate(web.url, limit) as gate:
        host.hub = gate.url
        begin = time.monotonic()
        said = host.run(fails=True)
        assert time.monotonic() - begin < 20
        wait = re.search(r"Try again in (\d+) s", said)
        assert wait is not None
        assert 3500 < int(wait[1]) <= 3600
