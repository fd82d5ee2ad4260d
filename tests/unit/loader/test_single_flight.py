"""A question that many ask at once is asked by one; nobody waits for ever, and no lock is needed to ask."""

from __future__ import annotations

import threading
import time

import pytest

from kernels import single_flight
from kernels.errors import HubUnreachableError
from kernels.single_flight import ask_once
from kernels.store import Store

SUBJECT = ("record", "https://hub", "acme/toy")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


def at_once(count, action):
    found = []
    threads = [threading.Thread(target=lambda: found.append(action())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_one_asks_and_the_others_read_its_answer(store):
    kept, asked = [], []

    def ask():
        asked.append(1)
        time.sleep(0.1)
        kept.append("answer")
        return "answer"

    found = at_once(8, lambda: ask_once(store, SUBJECT, lambda: kept[0] if kept else None, ask))
    assert found == ["answer"] * 8
    assert len(asked) == 1


def test_questions_about_different_things_do_not_wait_for_each_other(store):
    inner = lambda: ask_once(store, ("tree",), lambda: None, lambda: "tree")  # noqa: E731
    assert ask_once(store, SUBJECT, lambda: None, inner) == "tree"


def test_a_failure_is_that_of_who_asked_and_the_next_one_asks(store):
    def fail():
        raise HubUnreachableError("https://hub", "gone")

    with pytest.raises(HubUnreachableError):
        ask_once(store, SUBJECT, lambda: None, fail)
    assert ask_once(store, SUBJECT, lambda: None, lambda: "here") == "here"


def test_nobody_waits_longer_than_its_patience(store, monkeypatch):
    monkeypatch.setattr(single_flight, "PATIENCE", 0.2)
    held, release = threading.Event(), threading.Event()

    def hang():
        held.set()
        release.wait(30)
        return "late"

    holder = threading.Thread(target=lambda: ask_once(store, SUBJECT, lambda: None, hang))
    holder.start()
    held.wait(30)
    assert ask_once(store, SUBJECT, lambda: None, lambda: "mine") == "mine"
    assert not release.is_set()
    release.set()
    holder.join(30)


def test_a_cache_that_cannot_be_written_costs_a_request_and_no_error(tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    store = Store(tmp_path / "cache")
    assert ask_once(store, SUBJECT, lambda: None, lambda: "mine") == "mine"
