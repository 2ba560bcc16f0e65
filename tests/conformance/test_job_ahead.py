"""Pieces of jobs that are made before somebody looks: whose, how many, and the same ones."""

import asyncio
import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from api.data.inventory.repository import Inventory
from api.data.store.store import Store, StoreUrl
from api.http import works
from api.jobs.correlate import ahead as ahead_module
from api.jobs.correlate import pieces as pieces_module
from api.jobs.correlate.ahead import AHEAD_NS, Ahead, Hooks
from api.jobs.correlate.near import PIECE_NS
from api.jobs.correlate.piece import Piece, make_piece
from api.jobs.correlate.pieces import JobPieces, Pieced
from collector.contract.collective import Collective
from collector.contract.units import NS
from tests.conformance.test_job_pieces import (
    JOB_RANK,
    SECONDS,
    START_NS,
    assert_same,
    records,
    write,
)
from tests.conformance.test_timeline import NOW_S, jobs, send
from tests.stands.service import TELEMETRY, copy_migrated, eventually, in_process

STRETCH_NS = 7_500_000_000
END_S = START_NS / NS + SECONDS
"""When the last record was written."""
OVER = (SECONDS * NS) // PIECE_NS
"""Half minutes of the records that are over when they end, and what follows came."""
FIRST_SEEN = dt.datetime.fromtimestamp(START_NS / NS, tz=dt.UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    copy_migrated(tmp_path, with_store=True)
    opened = Store(StoreUrl.parse(f"chdb://{tmp_path / TELEMETRY}"))
    yield opened
    opened.close()


class Stand:
    """A service's part with an inventory that says what a test wants; no page is open."""

    def __init__(self, store: Store, *, bytes_max: int = pieces_module.PIECES_BYTES_MAX) -> None:
        self.pieces = JobPieces(store, bytes_max)
        self.now_s = END_S + 5
        self.running = ["job"]
        self.accused: list[str] = []
        self.has_pages = False
        self.is_answering: Iterator[bool] = iter(())
        """What is heard when asked whether an answer is made; then: none is."""
        self.left_out: Counter[str] = Counter()
        self.paused: list[float] = []
        members = [
            SimpleNamespace(communicator=name, rank=rank, job_rank=number)
            for (name, rank), number in JOB_RANK.items()
        ]
        jobs = SimpleNamespace(
            running=lambda: [
                SimpleNamespace(job=job, first_seen=FIRST_SEEN) for job in self.running
            ],
            members=lambda _: members,
        )
        incidents = SimpleNamespace(recent=lambda _: [SimpleNamespace(jobs=self.accused)])
        inventory = cast("Inventory", SimpleNamespace(jobs=jobs, incidents=incidents))
        hooks = Hooks(
            in_turn=in_turn,
            has_pages=lambda: self.has_pages,
            is_answering=lambda: next(self.is_answering, False),
            left_out=lambda rule, count: self.left_out.update({rule: count}),
        )
        self.ahead = Ahead(self.pieces, inventory, lambda: self.now_s, hooks)

    def rounds(self, count: int = 2) -> int:
        """So many, without the pauses that keep it within its share; pieces that were made."""

        async def sleep(seconds: float) -> None:
            self.paused.append(seconds)

        waits = SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread)
        with patch("api.jobs.correlate.ahead.asyncio", waits):
            return sum(asyncio.run(self.ahead.round()) for _ in range(count))

    def look(self, *, spent: bool) -> Pieced:
        end_ns = round(self.now_s * NS)
        found = self.pieces.look("job", JOB_RANK, (end_ns - AHEAD_NS, end_ns), spent=spent)
        assert found is not None
        return found


async def in_turn(step: Callable[[], Piece | None]) -> Piece | None:
    return step()


def until(seconds: float, some: list[Collective]) -> list[Collective]:
    return [one for one in some if one.time_ns < START_NS + seconds * NS]


@pytest.mark.parametrize("spent", [False, True])
def test_a_look_makes_the_newest_pieces_alone(store: Store, *, spent: bool) -> None:
    """Also where somebody looked at where ranks' time went."""
    write(store, records())
    stand = Stand(store)
    stand.ahead.note_look("job", spent=spent)
    assert stand.rounds() > OVER
    with patch.object(pieces_module, "make_piece", side_effect=make_piece) as made:
        stand.look(spent=spent)
        assert made.call_count <= 2


def test_what_is_made_ahead_is_what_a_look_makes(store: Store) -> None:
    write(store, records())
    stand = Stand(store)
    stand.ahead.note_look("job", spent=True)
    stand.rounds()
    found = stand.look(spent=True)
    fresh = JobPieces(store).look("job", JOB_RANK, found.span, spent=True)
    assert fresh is not None
    assert_same(found, fresh, STRETCH_NS)


def test_what_nobody_looks_at_is_made_as_far_as_its_share_goes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest pieces first; what was not made in a round is counted, and made later."""
    ticks = iter(range(10_000))
    # To ask whose pieces are due takes a quarter of a second, and so does each piece.
    clock_by_hand = SimpleNamespace(monotonic=lambda: 0.0, thread_time=lambda: 0.25 * next(ticks))
    monkeypatch.setattr("api.jobs.correlate.ahead.time", clock_by_hand)
    write(store, records())
    stand = Stand(store)
    assert stand.rounds() == 0, "no time has gone by"
    assert stand.left_out["ALWAYS_SHARE"] == 1
    stand.now_s += 15
    taken_s = 0.25 * (1 + ahead_module.ALWAYS_PIECES)
    with patch.object(stand.pieces, "make", side_effect=stand.pieces.make) as make:
        assert stand.rounds(1) == ahead_module.ALWAYS_PIECES
        assert max(make.call_args.args[2]) >= stand.now_s * NS - 3 * PIECE_NS
    assert stand.rounds(3) == 0
    assert stand.left_out["ALWAYS_SHARE"] == 1 + 1 + 3
    # More was taken than had been allowed by then, and that comes first.
    stand.now_s += taken_s / ahead_module.ALWAYS_SHARE - 15 - 1
    assert stand.rounds(1) == 0
    stand.now_s += 2
    assert stand.rounds(1) > 0


def test_whose_pieces_are_made_without_being_asked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that run, the newest first; who was looked at comes before, and takes nothing."""
    write(store, until(60, records()))
    stand = Stand(store)
    stand.running, stand.accused = ["a", "b", "c"], ["b"]
    monkeypatch.setattr(ahead_module, "ALWAYS_SHARE", 1.0)
    stand.now_s += 60
    with patch.object(stand.pieces, "make", side_effect=stand.pieces.make) as make:
        stand.rounds(12)
    order = list(dict.fromkeys(call.args[0] for call in make.call_args_list))
    assert order == ["b", "a", "c"]
    left_out = stand.left_out["ALWAYS_SHARE"]
    assert stand.rounds(2) == 0
    assert stand.left_out["ALWAYS_SHARE"] == left_out, "nothing is left out when all is made"
    monkeypatch.setattr(ahead_module, "AHEAD_JOBS_MAX", 1)
    stand.now_s += 1
    stand.rounds(1)
    assert stand.left_out["ALWAYS_SHARE"] == left_out + 1, "two others run, of which one may be"


@pytest.mark.parametrize("why", ["accused", "page"])
def test_who_is_accused_or_seen_on_an_open_page_is_made(
    store: Store, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "ALWAYS_SHARE", 0.0)
    write(store, records())
    stand = Stand(store)
    stand.accused = ["job", "ended"] if why == "accused" else []
    stand.has_pages = why == "page"
    assert stand.rounds() > OVER
    stand.has_pages = False
    stand.now_s += ahead_module.PAGE_SECONDS + 1
    # Half minutes have passed: who is accused is gone on with, and the page was closed.
    assert (stand.rounds() > 0) == (why == "accused")


def test_nothing_is_made_again_until_something_was_written_and_it_is_quiet(store: Store) -> None:
    whole = records()
    late = [one for one in whole if one.rank == 1 and 60 <= one.sequence < 80]
    write(store, [one for one in whole if one not in late])
    stand = Stand(store)
    stand.ahead.note_look("job", spent=False)
    stand.rounds()
    assert stand.rounds(3) == 0
    write(store, late[:10])
    assert stand.rounds(1) == 0, "more may come"
    write(store, late[10:])
    assert stand.rounds(1) == 0
    assert 1 <= stand.rounds(1) <= 2
    assert stand.rounds(2) == 0


def test_time_that_goes_on_makes_the_piece_that_is_over(store: Store) -> None:
    whole = records()
    write(store, until(90, whole))
    stand = Stand(store)
    stand.now_s = START_NS / NS + 95
    stand.ahead.note_look("job", spent=False)
    stand.rounds()
    write(store, whole[len(until(90, whole)) :])
    stand.now_s = END_S + 5
    # Two that are over since, and the one before, which also reads what follows it.
    assert 2 <= stand.rounds() <= 3
    assert stand.rounds() == 0


def test_no_more_jobs_than_the_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "AHEAD_JOBS_MAX", 2)
    write(store, until(60, records()))
    stand = Stand(store)
    stand.running, stand.has_pages = ["a", "b", "c", "d"], True
    stand.ahead.note_look("d", spent=False)
    with patch.object(stand.pieces, "make", side_effect=stand.pieces.make) as make:
        stand.rounds(4)
    made = {call.args[0] for call in make.call_args_list}
    assert made == {"d", "a"}
    assert stand.left_out["AHEAD_JOBS_MAX"] == 2 * 3, "in each round but the first, which waits"


def test_what_has_no_room_is_counted_once_and_not_made_again(store: Store) -> None:
    write(store, records())
    stand = Stand(store, bytes_max=30_000)
    stand.ahead.note_look("job", spent=False)
    made = stand.rounds()
    assert stand.rounds(4) == 0
    assert 0 < stand.left_out["PIECES_BYTES_MAX"] < made


def test_it_keeps_to_its_share_and_counts_what_it_could_not_make(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "ROUND_PIECES_MAX", 10)
    clock = iter(range(10_000))
    clock_by_hand = SimpleNamespace(monotonic=lambda: float(next(clock)), thread_time=lambda: 0.0)
    monkeypatch.setattr("api.jobs.correlate.ahead.time", clock_by_hand)
    write(store, records())
    stand = Stand(store)
    stand.ahead.note_look("job", spent=False)
    assert stand.rounds() == 10
    assert stand.paused == [pytest.approx(1 / ahead_module.AHEAD_SHARE - 1)] * 10
    assert not stand.left_out["AHEAD_SHARE"]
    stand.now_s += 300
    stand.rounds(1)
    assert stand.left_out["AHEAD_SHARE"] == 0, "the oldest were made"
    stand.now_s += 900
    stand.rounds(1)
    assert stand.left_out["AHEAD_SHARE"] > 0


def test_answers_that_somebody_waits_for_go_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "ROUND_PIECES_MAX", 2)
    write(store, records())
    stand = Stand(store)
    stand.ahead.note_look("job", spent=False)
    stand.is_answering = iter([True, True, True])
    assert stand.rounds() == 2
    given_way = [ahead_module.GIVEN_WAY_SECONDS] * 3
    assert stand.paused[:3] == given_way
    assert stand.paused[3:].count(ahead_module.GIVEN_WAY_SECONDS) == 0


def test_a_piece_is_made_in_the_end_where_answers_never_cease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "ROUND_PIECES_MAX", 1)
    clock = iter(range(10_000))
    clock_by_hand = SimpleNamespace(monotonic=lambda: float(next(clock)), thread_time=lambda: 0.0)
    monkeypatch.setattr("api.jobs.correlate.ahead.time", clock_by_hand)
    write(store, records())
    stand = Stand(store)
    stand.ahead.note_look("job", spent=False)
    stand.is_answering = itertools.repeat(True)
    assert stand.rounds() == 1
    assert stand.paused.count(ahead_module.GIVEN_WAY_SECONDS) < ahead_module.GIVE_WAY_SECONDS


def test_where_others_insert_too_nothing_is_made(store: Store) -> None:
    write(store, records())
    store.touched_records.is_complete = False
    stand = Stand(store)
    stand.ahead.note_look("job", spent=False)
    assert stand.rounds() == 0


def test_a_forgotten_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "LOOKED_MAX", 2)
    stand = Stand(store)
    for job in ("a", "b", "a", "c"):
        stand.ahead.note_look(job, spent=False)
    looked: Any = stand.ahead._looked
    assert list(looked) == ["a", "c"]


def test_a_service_makes_what_was_looked_at(tmp_path: Path) -> None:
    now = [NOW_S - 100.0]
    with (
        patch.object(works, "JOBS_SECONDS", 0.1),
        patch.object(ahead_module, "ROUND_SECONDS", 0.1),
        in_process(tmp_path, clock=lambda: now[0]) as service,
    ):
        send(service.client)
        eventually(lambda: bool(jobs(service.client)), "the job is inferred")
        now[0] = float(NOW_S)
        pieces = service.context.job_pieces
        assert len(pieces.kept) == 0
        (job,) = jobs(service.client)
        stretch = {"from": NOW_S - 60, "to": NOW_S}
        assert service.client.get(f"/v1/jobs/{job}/heat", params=stretch).status_code == 200
        eventually(lambda: len(pieces.kept) >= AHEAD_NS // PIECE_NS, "half an hour is made")
