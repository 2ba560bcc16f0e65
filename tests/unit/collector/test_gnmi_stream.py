"""The thread that listens: its pauses, its patience, and what ends it. Without time or network."""

from collections.abc import Callable, Iterator

import pytest

from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.switches.gnmi.leaves import Feed, SwitchLeaves
from collector.switches.gnmi.model import (
    Connection,
    GnmiError,
    Message,
    Notification,
    Path,
    Request,
    Subscription,
    Synced,
    Update,
)
from collector.switches.gnmi.stream import (
    LOG_SECONDS,
    PLAN_SECONDS,
    RETRY_SECONDS_MAX,
    STEADY_SECONDS,
    UPDATES_PER_SECOND_MAX,
    Clock,
    Stream,
)
from collector.switches.gnmi.tables import profile_named
from tests.doubles.fakes import HandClock

WANTED = Request((Subscription("/a", True, 10.0), Subscription("/b", False, 10.0)))
Talk = Callable[[Request], Iterator[Message]]


class Scripted:
    """A connection that follows its script."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def subscribe(self, request: Request) -> Iterator[Message]:
        return self._talk(request)

    def cancel(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""


class Pauses:
    """Stands in for the event that stops a thread: waiting moves the clock, the last wait stops."""

    def __init__(self, clock: HandClock, count: int) -> None:
        self.taken: list[float] = []
        self._clock = clock
        self._count = count

    def is_set(self) -> bool:
        return len(self.taken) >= self._count

    def set(self) -> None:
        self._count = 0

    def wait(self, seconds: float) -> None:
        self.taken.append(seconds)
        self._clock.advance(seconds)


def make_stream(talk: Talk, clock: HandClock, pauses: int = 1) -> tuple[Stream, Pauses]:
    def connect() -> Connection:
        return Scripted(talk)

    stream = Stream(
        name="leaf-1",
        connect=connect,
        leaves=SwitchLeaves("leaf-1", {}),
        feed=Feed(profile_named("openconfig").streams[0]),
        wanted=WANTED,
        clock=Clock(lambda: clock.wall_ns, lambda: clock.steady_ns),
    )
    stream._lease_ns = clock.steady_ns + 3600 * NS
    waits = Pauses(clock, pauses)
    stream._stop = waits  # type: ignore[assignment]
    return stream, waits


def fail(_: Request) -> Iterator[Message]:
    raise GnmiError(UnreadReason.UNREADABLE, "out of reach")


def test_pauses_double_up_to_a_bound_and_are_spread() -> None:
    stream, pauses = make_stream(fail, HandClock(), 12)
    stream._run()
    for number, taken in enumerate(pauses.taken):
        full = min(2.0**number, RETRY_SECONDS_MAX)
        assert full / 2 <= taken <= full
    assert len(set(pauses.taken)) == 12


def test_a_stream_that_failed_has_answered_so_that_nothing_waits_for_its_names() -> None:
    stream, _ = make_stream(fail, HandClock())
    assert not stream.feed.has_answered
    stream._run()
    assert stream.feed.has_answered


def test_after_a_stream_that_held_the_next_pause_is_short() -> None:
    clock = HandClock()
    lengths = iter([0, 0, 0, 0, STEADY_SECONDS + 1, 0])

    def talk(_: Request) -> Iterator[Message]:
        clock.advance(next(lengths))
        yield Synced()

    stream, pauses = make_stream(talk, clock, 6)
    stream._run()
    assert pauses.taken[3] >= 4
    assert pauses.taken[4] <= 1


def test_a_mistake_of_ours_is_named_and_the_stream_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def talk(_: Request) -> Iterator[Message]:
        raise RuntimeError("a bug")

    stream, pauses = make_stream(talk, HandClock(), 2)
    stream._run()
    assert stream.error is not None
    assert (stream.error.reason, stream.error.detail) == (
        UnreadReason.FAILED,
        "RuntimeError: a bug",
    )
    assert len(pauses.taken) == 2
    assert "a bug" in caplog.text


def test_a_failure_that_repeats_is_logged_from_time_to_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    stream, pauses = make_stream(fail, clock, 30)
    stream._run()
    logged = caplog.text.count("out of reach")
    assert logged == pytest.approx(sum(pauses.taken) / LOG_SECONDS, abs=2)
    assert logged > 1


def test_more_than_its_share_in_a_second_makes_it_wait() -> None:
    clock = HandClock()
    path = Path((("x", ()),))
    many = Notification(clock.wall_ns, [Update(path, 1)] * (UPDATES_PER_SECOND_MAX * 2), [])
    stream, pauses = make_stream(lambda _: iter((many,)), clock, 99)
    stream._listen(WANTED)
    (taken,) = pauses.taken
    assert taken == pytest.approx(2.0, abs=0.01)


def test_a_stream_without_reads_ends() -> None:
    clock = HandClock()

    def talk(_: Request) -> Iterator[Message]:
        while True:
            clock.advance(600)
            yield Synced()

    stream, _ = make_stream(talk, clock, 99)
    stream._run()
    assert not stream.feed.is_live


def test_what_is_refused_is_found_out_and_asked_again_after_a_while() -> None:
    clock = HandClock()
    asked: list[tuple[Subscription, ...]] = []

    def talk(request: Request) -> Iterator[Message]:
        asked.append(request.subscriptions)
        if any(each.on_change or each.path == "/b" for each in request.subscriptions):
            raise GnmiError(UnreadReason.NOT_SUPPORTED, "no")
        yield Synced()

    stream, pauses = make_stream(talk, clock, 2)
    stream._run()
    assert asked[-2:] == [(Subscription("/a", False, 10.0),)] * 2
    assert stream.refused == {"/b": "no"}
    assert asked.count(WANTED.subscriptions) == 1
    clock.advance(PLAN_SECONDS)
    stream._lease_ns = clock.steady_ns + 3600 * NS
    pauses.taken.clear()
    stream._run()
    assert asked.count(WANTED.subscriptions) == 2


def test_a_switch_that_refuses_everything_is_left_in_peace_for_a_while() -> None:
    def talk(_: Request) -> Iterator[Message]:
        raise GnmiError(UnreadReason.NOT_SUPPORTED, "no")

    stream, pauses = make_stream(talk, HandClock(), 3)
    stream._run()
    assert stream.refused == {"/a": "no", "/b": "no"}
    assert len(pauses.taken) == 3


def test_a_switch_that_goes_away_while_it_is_found_out_is_found_out_again_later() -> None:
    answers = iter(["no", "no", "away", "no", None, None, None])

    def talk(_: Request) -> Iterator[Message]:
        answer = next(answers)
        if answer is not None:
            raise GnmiError(
                UnreadReason.NOT_SUPPORTED if answer == "no" else UnreadReason.UNREADABLE, answer
            )
        yield Synced()

    stream, _ = make_stream(talk, HandClock(), 2)
    stream._run()
    # Asked, refused; the first one refused, then gone. Asked again, refused; both taken; heard.
    assert next(answers, "none left") == "none left"
    assert stream.refused == {}
    assert stream.connects == 1
