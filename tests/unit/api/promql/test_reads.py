"""What several questions need is read once, and no question gets what is older than itself."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from api.promql import reads
from api.promql.arrange import Stored
from api.promql.reads import Reads, key_of


def stored(samples: int = 1, value: float = 0.0) -> Stored:
    return Stored(
        np.zeros(samples, np.uint64), np.zeros(samples, np.int64), np.full(samples, value)
    )


class Store:
    """Counts what is read; each read has its number as value."""

    def __init__(self, samples: int = 1) -> None:
        self.read_times = 0
        self._samples = samples

    def read(self) -> Stored:
        self.read_times += 1
        return stored(self._samples, self.read_times)


def go_on() -> None:
    """The question that waits was not stopped."""


def test_questions_that_came_before_a_read_take_it() -> None:
    found, store, arrived = Reads(), Store(), time.monotonic()
    first = found.take("a", arrived, store.read, go_on)
    assert found.take("a", arrived, store.read, go_on) is first
    assert (store.read_times, found.shared) == (1, 1)
    assert found.take("b", arrived, store.read, go_on) is not first


def test_a_question_that_comes_later_reads_anew() -> None:
    """What was written between the two must be in its answer."""
    found, store = Reads(), Store()
    found.take("a", time.monotonic(), store.read, go_on)
    later = found.take("a", time.monotonic() + 1, store.read, go_on)
    assert (store.read_times, later.values[0]) == (2, 2)
    # The newer one has taken the place of the one before.
    assert found.take("a", 0.0, store.read, go_on) is later


def test_who_comes_while_it_is_read_waits_for_it() -> None:
    found, store, arrived = Reads(), Store(), time.monotonic()
    begun, may_end, taken = threading.Event(), threading.Event(), list[Stored]()

    def slowly() -> Stored:
        begun.set()
        assert may_end.wait(60)
        return store.read()

    def take() -> None:
        taken.append(found.take("a", arrived, slowly, go_on))

    threads = [threading.Thread(target=take) for _ in range(3)]
    threads[0].start()
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert len({id(one) for one in taken}) == 1
    assert (len(taken), store.read_times) == (3, 1)


def test_a_read_that_failed_is_nobody_else_s_failure() -> None:
    found, store = Reads(), Store()

    def fail() -> Stored:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        found.take("a", 0.0, fail, go_on)
    assert found.take("a", 0.0, store.read, go_on).values[0] == 1


def test_a_question_that_is_stopped_waits_no_longer() -> None:
    found, begun, may_end = Reads(), threading.Event(), threading.Event()

    def slowly() -> Stored:
        begun.set()
        assert may_end.wait(60)
        return stored()

    def stopped() -> None:
        raise RuntimeError("stopped")

    thread = threading.Thread(target=lambda: found.take("a", 0.0, slowly, go_on))
    thread.start()
    assert begun.wait(60)
    with pytest.raises(RuntimeError, match="stopped"):
        found.take("a", 0.0, Store().read, stopped)
    may_end.set()
    thread.join(60)


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 bytes a sample: two reads of ten fit, and none of a hundred."""
    monkeypatch.setattr(reads, "READS_BYTES_MAX", 500)
    monkeypatch.setattr(reads, "READ_BYTES_MAX", 300)
    found, store, large = Reads(), Store(10), Store(100)
    for key in "abc":
        found.take(key, 0.0, store.read, go_on)
    for key in "cba":
        found.take(key, 0.0, store.read, go_on)
    assert store.read_times == 4, "the oldest went, and then came back"
    for _ in range(2):
        found.take("large", 0.0, large.read, go_on)
    assert large.read_times == 2


def test_what_nobody_can_want_any_more_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    found, store = Reads(), Store()
    found.take("a", 0.0, store.read, go_on)
    monkeypatch.setattr(reads, "HELD_SECONDS", -1.0)
    found.take("a", 0.0, store.read, go_on)
    assert store.read_times == 2


def test_the_key_is_the_statement_and_what_it_is_about() -> None:
    assert key_of("a", {"x": [1], "y": 2}) == key_of("a", {"y": 2, "x": [1]})
    assert key_of("a", {"x": [1]}) != key_of("a", {"x": [2]}) != key_of("b", {"x": [2]})
