"""The scheduler, without sleeping: clocks are moved by hand, waiting is a function."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent.meter import Meter
from collector.agent.schedule import (
    Report,
    Runner,
    Scheduler,
    describe,
    first_tick_ns,
    next_tick_ns,
    phase_ns,
    run_ticks,
)
from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import SourceSettings
from tests.doubles.fakes import (
    SECOND_NS,
    HandClock,
    HandHost,
    RecipeSource,
    RememberingSource,
    sample,
)

SETTINGS = SourceSettings(interval_seconds=10, timeout_seconds=3)


class Bench:
    """One runner with everything around it in the test's hands."""

    def __init__(self, root: Path, source: RecipeSource | None = None) -> None:
        self.host = HandHost(root)
        self.clock = self.host.clock
        self.meter = Meter()
        self.reports: list[Report] = []
        self.source = source or RecipeSource(SETTINGS)
        self.runner = self.make()

    def make(self, state: bytes | None = None) -> Runner:
        return Runner(
            self.source,
            SETTINGS,
            host=self.host,
            meter=self.meter,
            publish=self.reports.append,
            state=state,
        )

    def value(self, metric: str, **labels: str) -> float | None:
        return self.meter.value(f"fabric_agent_source_{metric}", source="recipe", **labels)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# --- the grid ----------------------------------------------------------------------------------


@given(st.integers(0, 10**12), st.integers(1, 10**11), st.integers(0, 10**11))
def test_ticks_stand_on_the_grid_and_are_never_made_up(
    now: int, interval: int, elapsed: int
) -> None:
    phase = phase_ns("host", "source", interval)
    tick = first_tick_ns(now, interval_ns=interval, phase=phase)
    assert now <= tick < now + interval
    assert tick % interval == phase
    later, missed = next_tick_ns(tick, tick + elapsed, interval)
    assert later % interval == phase
    assert tick + elapsed < later <= tick + elapsed + interval
    assert missed == (later - tick) // interval - 1


def test_phases_are_stable_and_spread_over_hosts() -> None:
    phases = [phase_ns(f"node-{i}", "ib_sysfs", 1000) for i in range(1000)]
    assert phases == [phase_ns(f"node-{i}", "ib_sysfs", 1000) for i in range(1000)]
    tenths = [sum(1 for phase in phases if phase // 100 == tenth) for tenth in range(10)]
    assert min(tenths) > 60


def test_missed_ticks_are_counted_and_the_next_one_is_on_time(bench: Bench) -> None:
    waits: list[float] = []
    durations = iter([1.0, 25.0, 1.0])

    def recipe(_: Host) -> Iterator[Reading]:
        bench.clock.advance(next(durations))
        return iter(())

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        bench.clock.advance(seconds)
        return len(waits) > 3

    bench.source.recipe = recipe
    start_ns = bench.clock.steady_ns
    phase = (start_ns + 4 * SECOND_NS) % bench.runner.interval_ns
    run_ticks(bench.runner, phase=phase, monotonic_ns=bench.host.monotonic_ns, wait=wait)
    # Read at 4 s; at 14 s for 25 s, until 39 s: 24 and 34 are missed; at 44 s.
    assert waits == [4.0, 9.0, 5.0, 9.0]
    assert bench.value("ticks_missed_total") == 2


def test_a_source_that_looks_does_so_between_its_reads(tmp_path: Path) -> None:
    """Reads at 5 s and 15 s, looks every 4 s from the start and after each read."""
    clock, moments = HandClock(), list[tuple[str, float]]()
    host = HandHost(tmp_path, clock)
    start_ns = clock.steady_ns
    reports: list[Report] = []

    class Looking(RecipeSource):
        look_seconds = 4.0

        def look(self, _: Host) -> Iterator[Reading]:
            moments.append(("look", (clock.steady_ns - start_ns) / SECOND_NS))
            return iter([sample("m", 1)] if len(moments) == 1 else [])

        def read(self, _: Host) -> Iterator[Reading]:
            moments.append(("read", (clock.steady_ns - start_ns) / SECOND_NS))
            return iter(())

    def wait(seconds: float) -> bool:
        clock.advance(seconds)
        return len(moments) >= 6

    settings = SourceSettings(interval_seconds=10)
    runner = Runner(Looking(settings), settings, host=host, meter=Meter(), publish=reports.append)
    phase = (start_ns + 5 * SECOND_NS) % runner.interval_ns
    run_ticks(runner, phase=phase, monotonic_ns=host.monotonic_ns, wait=wait)
    assert moments == [
        ("look", 0.0),
        ("look", 4.0),
        ("read", 5.0),
        ("look", 9.0),
        ("look", 13.0),
        ("read", 15.0),
    ]
    # A look that saw nothing reports nothing.
    assert [(report.is_look, len(report.readings)) for report in reports] == [
        (True, 1),
        (False, 0),
        (False, 0),
    ]


def test_a_look_that_breaks_is_counted_and_stops_nothing(tmp_path: Path) -> None:
    class Broken(RecipeSource):
        look_seconds = 1.0

        def look(self, _: Host) -> Iterator[Reading]:
            yield sample("m", 1)
            raise RuntimeError("no")

    meter, reports = Meter(), list[Report]()
    settings = SourceSettings()
    runner = Runner(
        Broken(settings), settings, host=HandHost(tmp_path), meter=meter, publish=reports.append
    )
    runner.look()
    assert meter.value("fabric_agent_source_reads_total", source="recipe", result="failed") == 1
    assert [each.readings for each in reports] == [[sample("m", 1)]]


# --- one read ----------------------------------------------------------------------------------


def test_a_good_read_is_up_and_counted(bench: Bench) -> None:
    absent = Missing(sample("n", 0).series, UnreadReason.ABSENT, "no file")

    def recipe(_: Host) -> Iterator[Reading]:
        bench.clock.advance(0.5)
        yield sample("m", 1)
        yield absent

    bench.source.recipe = recipe
    bench.runner.tick()
    bench.clock.advance(7)
    assert bench.value("up") == 1
    assert bench.value("duration_seconds") == 0.5
    assert bench.value("readings") == 1
    assert bench.value("missing", reason="absent") == 1
    assert bench.value("reads_total", result="ok") == 1
    assert bench.value("last_success_age_seconds") == 7
    assert bench.reports[0].readings == [sample("m", 1), absent]
    bench.source.recipe = lambda _: iter(())
    bench.runner.tick()
    assert bench.value("missing", reason="absent") == 0


def test_a_source_that_raises_keeps_its_readings_and_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def recipe(_: Host) -> Iterator[Reading]:
        yield sample("m", 1)
        raise ZeroDivisionError("bug")

    bench.source.recipe = recipe
    for _ in range(3):
        bench.runner.tick()
        bench.clock.advance(10)
    assert bench.value("up") == 0
    assert bench.value("reads_total", result="failed") == 3
    assert bench.value("last_success_age_seconds") is None
    first, failed = bench.reports[0].readings
    assert first == sample("m", 1)
    assert isinstance(failed, Missing)
    assert (failed.reason, failed.detail) == (UnreadReason.FAILED, "ZeroDivisionError: bug")
    assert failed.series.metric == "fabric_agent_source_up"
    traces = [record for record in caplog.records if record.exc_info]
    assert len(traces) == 1
    bench.clock.advance(300)
    bench.runner.tick()
    assert len([record for record in caplog.records if record.exc_info]) == 2


def test_a_read_that_overruns_is_reported_once_and_what_comes_late_is_kept(bench: Bench) -> None:
    def recipe(_: Host) -> Iterator[Reading]:
        yield sample("early", 1)
        bench.clock.advance(2.9)
        bench.runner.watch()
        assert not bench.reports
        bench.clock.advance(0.1)
        bench.runner.watch()
        bench.runner.watch()
        yield sample("late", 2)

    bench.source.recipe = recipe
    bench.runner.tick()
    early, late = bench.reports
    timeout = early.readings[1]
    assert isinstance(timeout, Missing)
    assert timeout.reason is UnreadReason.TIMEOUT
    assert early.readings[early.fresh :] == [sample("early", 1), timeout]
    assert late.readings[late.fresh :] == [sample("late", 2)]
    assert late.readings == [sample("early", 1), timeout, sample("late", 2)]
    assert bench.value("up") == 0
    assert bench.value("reads_total", result="timeout") == 1
    assert bench.value("reads_total", result="ok") is None


def test_an_overrun_between_two_looks_of_the_watchdog_is_one_too(bench: Bench) -> None:
    def recipe(_: Host) -> Iterator[Reading]:
        bench.clock.advance(3.5)
        yield sample("m", 1)

    bench.source.recipe = recipe
    bench.runner.tick()
    assert bench.value("up") == 0
    assert bench.value("reads_total", result="timeout") == 1
    assert bench.reports[0].readings[0] == sample("m", 1)


# --- what sources remember -----------------------------------------------------------------------


def test_state_goes_from_one_life_to_the_next(tmp_path: Path) -> None:
    source = RememberingSource(SETTINGS)
    source.kept = {"count": 41}
    first = Bench(tmp_path, source)
    first.runner.tick()
    assert first.runner.state == msgspec.msgpack.encode({"count": 41})
    second = Bench(tmp_path, RememberingSource(SETTINGS))
    runner = second.make(first.runner.state)
    runner.tick()
    assert isinstance(second.source, RememberingSource)
    assert second.source.kept == {"count": 41}


def test_state_that_the_source_cannot_use_costs_one_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, RememberingSource(SETTINGS))
    runner = bench.make(msgspec.msgpack.encode({"other": 1}))
    runner.tick()
    assert bench.value("up") == 0
    runner.tick()
    assert bench.value("up") == 1


# --- threads -----------------------------------------------------------------------------------


class LiveSource(RecipeSource):
    """Reads from a thread; signals it, and may be held there."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self.has_read = threading.Event()
        self.may_end = threading.Event()

    def read(self, host: Host) -> Iterator[Reading]:
        self.has_read.set()
        yield sample("m", 1, host.now_ns())
        assert self.may_end.wait(30)


class SlowSource(LiveSource):
    name = "slow"


class QuickSource(LiveSource):
    name = "quick"


def test_one_slow_source_delays_no_other_and_is_left_behind_at_the_end(tmp_path: Path) -> None:
    host, meter = Host(tmp_path), Meter()
    settings = SourceSettings(interval_seconds=0.01, timeout_seconds=0.02)
    slow, quick = SlowSource(settings), QuickSource(settings)
    quick.may_end.set()
    seen = threading.Event()
    late = threading.Event()
    counts = {"slow": 0, "quick": 0}

    def publish(report: Report) -> None:
        counts[report.source] += 1
        if counts["quick"] >= 5:
            seen.set()
        if any(isinstance(each, Missing) for each in report.readings):
            late.set()

    runners = [
        Runner(source, settings, host=host, meter=meter, publish=publish)
        for source in (slow, quick)
    ]
    scheduler = Scheduler(runners, host, "node")
    scheduler.start()
    assert seen.wait(30)
    assert late.wait(30)
    assert scheduler.stop(0.05) == ["slow"]
    slow.may_end.set()
    assert scheduler.stop(30) == []
    assert counts["slow"] >= 1


def test_the_first_line_lists_what_was_found(
    caplog: pytest.LogCaptureFixture, bench: Bench
) -> None:
    caplog.set_level(logging.INFO)
    bench.source.recipe = lambda _: iter(
        [sample("m", 1, device="a", port="1"), sample("n", 1, device="a", port="1")]
    )
    bench.runner.tick()
    bench.runner.tick()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["source recipe: found 1 port, 2 samples; read every 10 s"]
    assert isinstance(bench.reports[0].readings[0], Sample)
    assert describe([], SETTINGS).startswith("found nothing;")
