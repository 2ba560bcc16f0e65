"""From samples to windows, summaries and bursts: the rules of `collector.bursts`, no clock."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from collector.bursts.detect import LONG_NS, Burst
from collector.bursts.plan import (
    NS_PER_MS,
    NS_PER_SECOND,
    RECEIVE,
    CounterPlan,
    Plan,
    reads_every,
)
from collector.bursts.ring import RING_BYTES_MAX, SAMPLE_BYTES, Ring, ring_length
from collector.bursts.track import Track

LINE = 1_000_000_000
"""Bytes per second: a million a millisecond."""
START = 1_000 * NS_PER_SECOND
FULL = LINE // 1_000


def make_track(line_rate: float = LINE, factor: int = 1, windows_min: int = 2) -> Track:
    counter = CounterPlan("file", "mlx5_0", "1", RECEIVE, factor, 0, line_rate)
    plan = Plan((counter,), windows_min=windows_min)
    return Track(counter, plan, every=1, ring=Ring(10_000))


class Feed:
    """Feeds a track with readings as the sampler would, and keeps the bursts."""

    def __init__(self, track: Track, digest_every: int = 32) -> None:
        self.track = track
        self.now_ns = START
        self.seen_ns = 0
        self.text = b""
        self.value = 10_000
        self.bursts: list[Burst] = []
        self._digest_every = digest_every
        self._reads = 0
        self.keeps_all = False

    def read(self, after_ns: int = NS_PER_MS, text: bytes | None = None) -> None:
        """One read, so long after the last."""
        self.now_ns += after_ns
        text = b"%d\n" % self.value if text is None else text
        if text != self.text or self.keeps_all:
            self.text = text
            self.track.pending.befores.append(self.seen_ns)
            self.track.pending.times.append(self.now_ns)
            self.track.pending.texts.append(text)
        self.seen_ns = self.now_ns
        self._reads += 1
        if self._reads % self._digest_every == 0:
            self.digest()

    def flow(self, steps: Iterable[int]) -> None:
        """Bytes of each following millisecond."""
        for step in steps:
            self.value += step
            self.read()

    def digest(self) -> None:
        self.bursts += self.track.digest(self.seen_ns)

    def summary(self) -> dict[str, object]:
        self.digest()
        return self.track.summary(NS_PER_MS)


@pytest.fixture(params=[1, 7, 32], ids=lambda every: f"digest-{every}")
def feed(request: pytest.FixtureRequest) -> Feed:
    """However often samples are digested, the result is the same."""
    feed = Feed(make_track(), request.param)
    feed.read()
    return feed


# --- windows -------------------------------------------------------------------------------------


def test_a_summary_has_what_was_counted(feed: Feed) -> None:
    feed.flow([FULL // 10] * 500 + [0] * 250 + [FULL * 4 // 5] * 250)
    summary = feed.summary()
    assert summary["seconds"] == 1.0
    assert summary["mean"] == pytest.approx(LINE * (0.1 * 500 + 0.8 * 250) / 1000)
    assert summary["peak"] == pytest.approx(0.8 * LINE)
    assert summary["peak_coarse"] == pytest.approx(0.8 * LINE)
    assert summary["busy"] == pytest.approx(0.25)
    assert summary["windows"] == 750
    #                          0.01  0.1  0.25 0.5 0.75 0.9  1.0  more
    assert summary["histogram"] == [0.25, 0.5, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0]
    second = feed.summary()
    assert (second["seconds"], second["mean"], second["variation"]) == (0.0, None, None)


def test_rates_are_by_the_time_that_passed_not_by_the_period(feed: Feed) -> None:
    feed.flow([FULL // 2] * 20)
    for late_ns in (3_700_000, 1_300_000, 2_000_000):
        feed.value += FULL * late_ns // 2 // NS_PER_MS
        feed.read(late_ns)
    assert feed.summary()["peak"] == pytest.approx(LINE / 2)


def test_a_sliver_of_time_makes_no_peak(feed: Feed) -> None:
    """After a late read comes an early one: a clump of packets between them is no line rate."""
    feed.flow([FULL // 10] * 20)
    feed.value += FULL // 5
    feed.read(1_900_000)
    feed.value += FULL // 10
    feed.read(100_000)
    feed.flow([FULL // 10] * 20)
    summary = feed.summary()
    assert isinstance(summary["peak"], float)
    assert summary["peak"] <= 0.19 * LINE
    assert summary["mean"] == pytest.approx(LINE * (42 + 1) / 42 / 10, rel=0.01)


def test_a_sliver_before_a_silence_is_counted_too(feed: Feed) -> None:
    feed.flow([FULL // 10] * 20)
    feed.value += 7_000
    feed.read(100_000)
    feed.flow([0] * 20)
    summary = feed.summary()
    assert summary["mean"] == pytest.approx((20 * FULL // 10 + 7_000) / 0.0401)


def test_words_of_four_bytes_are_bytes() -> None:
    feed = Feed(make_track(factor=4))
    feed.read()
    feed.flow([FULL // 40] * 100)
    assert feed.summary()["mean"] == pytest.approx(LINE / 10)


def test_samples_worked_through_at_once_count_the_same_as_one_by_one() -> None:
    """The fast way through `Track` is an optimisation: nothing may depend on it."""
    steps = [(number * 7919) % FULL for number in range(3_000)]
    summary = []
    for every, keeps_all in ((1, False), (32, True), (31, True), (64, False)):
        feed = Feed(make_track(), every)
        feed.read()
        feed.keeps_all = keeps_all
        feed.flow(steps)
        feed.flow([0] * 64)
        summary.append((feed.summary(), feed.bursts))
    first, *others = summary
    for other in others:
        assert other[1] == first[1]
        for name, value in first[0].items():
            assert other[0][name] == pytest.approx(value), name
    assert first[1], "there should be bursts to compare"


def test_a_counter_that_was_reset_begins_again(feed: Feed) -> None:
    feed.flow([FULL // 10] * 40)
    feed.value = 0
    feed.flow([FULL // 10] * 40)
    summary = feed.summary()
    assert summary["peak"] == pytest.approx(LINE / 10)
    assert feed.bursts == []


def test_a_smooth_flow_does_not_vary_and_a_bursty_one_does() -> None:
    smooth, bursty = Feed(make_track()), Feed(make_track())
    for feed, steps in ((smooth, [100_000] * 1000), (bursty, ([0] * 90 + [FULL] * 10) * 10)):
        feed.read()
        feed.flow(steps)
    assert smooth.summary()["variation"] == pytest.approx(0.0, abs=1e-9)
    assert bursty.summary()["variation"] == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("text", [b"N/A (no PMA)", b"", b"-5\n", b"9" * 32])
def test_what_is_no_number_is_trouble_until_it_is_one_again(feed: Feed, text: bytes) -> None:
    feed.flow([FULL // 10] * 40)
    feed.read(text=text)
    feed.digest()
    assert "is no number" in feed.track.trouble
    feed.flow([FULL // 10] * 40)
    feed.digest()
    assert feed.track.trouble == ""


def test_a_counter_at_the_end_of_32_bits_is_clamped(feed: Feed) -> None:
    feed.read(text=b"4294967295\n")
    assert feed.summary()["clamped"]
    feed.read(text=b"4294967299\n")
    assert not feed.summary()["clamped"]


# --- how often the file is refreshed -------------------------------------------------------------


def cached(feed: Feed, refresh_ms: int, steps: Iterable[int]) -> None:
    """Bytes that a driver copies to the file only now and then."""
    hidden = feed.value
    for number, step in enumerate(steps):
        hidden += step
        if number % refresh_ms == 0:
            feed.value = hidden
        feed.read()


def test_a_file_that_is_refreshed_seldom_gets_that_resolution_and_no_bursts(feed: Feed) -> None:
    cached(feed, 250, [FULL // 10] * 3_000)
    summary = feed.summary()
    assert summary["resolution"] == pytest.approx(0.25, rel=0.02)
    assert summary["peak_coarse"] is None
    assert isinstance(summary["peak"], float)
    assert summary["peak"] <= 0.11 * LINE
    assert feed.bursts == []


def test_reads_that_come_late_do_not_make_a_file_look_stale(feed: Feed) -> None:
    """On a busy machine reads are two milliseconds apart; each still finds a change."""
    for _ in range(40):
        feed.value += FULL // 5
        feed.read(2 * NS_PER_MS)
    assert feed.summary()["refresh"] == 0.0


def test_bursts_that_are_looked_at_late_stay_apart(feed: Feed) -> None:
    for _ in range(20):
        for _ in range(4):
            feed.value += FULL * 18 // 10
            feed.read(1_900_000)
        feed.value += FULL // 20
        feed.read(60_000)
        feed.flow([0] * 40)
    feed.digest()
    assert len(feed.bursts) == 20


def test_a_slow_trickle_at_a_rhythm_is_recognised_too(feed: Feed) -> None:
    """Too few bytes to be impossible, but at a fixed rhythm and not negligible."""
    cached(feed, 100, [FULL // 1_000] * 2_000)
    assert feed.summary()["resolution"] == pytest.approx(0.1, rel=0.02)


def test_heartbeats_on_an_idle_port_prove_nothing_about_it(feed: Feed) -> None:
    feed.flow(([300] + [0] * 99) * 40)
    assert feed.summary()["refresh"] == 0.0


def test_a_file_that_turns_out_fresh_is_believed_again(feed: Feed) -> None:
    cached(feed, 250, [FULL // 10] * 3_000)
    feed.flow([FULL // 5] * 100)
    assert feed.summary()["refresh"] == 0.0
    feed.flow([0] * 50 + [FULL * 4 // 5] * 10 + [0] * 50)
    feed.digest()
    assert [burst.phase for burst in feed.bursts] == ["whole"]


def test_seldom_refreshed_files_still_show_long_bursts(feed: Feed) -> None:
    cached(feed, 100, [FULL // 10] * 2_000 + [FULL * 9 // 10] * 500 + [FULL // 10] * 1_000)
    feed.digest()
    (burst,) = feed.bursts
    assert burst.end_ns - burst.start_ns == pytest.approx(0.5 * NS_PER_SECOND, rel=0.25)


# --- bursts --------------------------------------------------------------------------------------


def test_a_burst_has_a_start_a_length_a_peak_and_bytes(feed: Feed) -> None:
    feed.flow([0] * 100)
    start_ns = feed.now_ns
    feed.flow([FULL * 8 // 10] * 4 + [FULL * 9 // 10] + [0] * 100)
    assert feed.bursts == [Burst("whole", start_ns, start_ns + 5 * NS_PER_MS, 4_100_000, 0.9, 5)]
    assert feed.track.bursts == 1


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ([FULL], 0),  # one window alone
        ([FULL // 2] * 50, 0),  # at the threshold, not above it
        ([FULL, FULL], 1),
        ([FULL, FULL, 0, FULL, FULL], 1),  # a hole of one window
        ([FULL, FULL, 0, 0, 0, FULL, FULL], 2),
        ([FULL, FULL, *[FULL * 4 // 10] * 20, FULL, FULL], 1),  # between release and threshold
        ([FULL, FULL, *[FULL // 5] * 3, FULL, FULL], 2),
        ([FULL, *[FULL * 4 // 10] * 20], 0),  # never two above the threshold
        ([FULL, *[FULL * 4 // 10] * 1_500], 0),  # however long the flow behind it
        ([FULL, *[FULL * 4 // 10] * 9, FULL, *[FULL * 4 // 10] * 1_500], 0),  # nor two by chance
        ([FULL, FULL * 4 // 10, FULL, 0], 1),
    ],
)
def test_what_is_one_burst(feed: Feed, steps: list[int], count: int) -> None:
    feed.flow([0] * 10 + steps + [0] * 40)
    feed.digest()
    assert len(feed.bursts) == count
    for one, other in pairwise(feed.bursts):
        assert one.end_ns <= other.start_ns


def test_a_long_burst_is_reported_when_it_is_long_and_when_it_ends(feed: Feed) -> None:
    feed.flow([0] * 10)
    start_ns = feed.now_ns
    feed.flow([FULL] * 1_500)
    feed.digest()
    assert [(each.phase, each.start_ns) for each in feed.bursts] == [("started", start_ns)]
    assert feed.bursts[0].end_ns - start_ns >= LONG_NS
    feed.flow([0] * 40)
    feed.digest()
    assert [(each.phase, each.start_ns) for each in feed.bursts[1:]] == [("ended", start_ns)]
    assert feed.bursts[1].bytes == 1_500 * FULL
    assert feed.track.bursts == 1


def test_without_a_line_rate_there_are_numbers_and_no_bursts() -> None:
    feed = Feed(make_track(line_rate=0.0))
    feed.read()
    feed.flow([FULL] * 500 + [0] * 500)
    summary = feed.summary()
    assert summary["peak"] == pytest.approx(LINE)
    assert summary["busy"] is None
    assert feed.bursts == []


def test_a_file_that_was_gone_makes_no_burst_of_what_it_missed(feed: Feed) -> None:
    feed.flow([FULL // 10] * 40)
    feed.digest()
    feed.track.lose()
    feed.text, feed.value = b"", feed.value + 500 * FULL
    feed.now_ns += NS_PER_SECOND
    feed.flow([FULL // 10] * 40)
    summary = feed.summary()
    assert summary["peak"] == pytest.approx(LINE / 10)


# --- ring and plan -------------------------------------------------------------------------------


def test_the_ring_keeps_the_last_samples_in_order() -> None:
    ring = Ring(5)
    for number in range(12):
        ring.append(number, 10 * number)
    assert [list(column) for column in ring.since(0)] == [
        [7, 8, 9, 10, 11],
        [70, 80, 90, 100, 110],
    ]
    assert list(ring.since(10)[0]) == [10, 11]
    ring.extend([12, 13], [120, 130])
    ring.extend([14, 15, 16, 17, 18, 19], [0] * 6)
    assert list(ring.since(0)[0]) == [15, 16, 17, 18, 19]
    assert len(ring) == 5


def test_rings_of_many_counters_stay_within_their_memory() -> None:
    assert ring_length(300.0, NS_PER_MS, 64) * SAMPLE_BYTES * 64 <= RING_BYTES_MAX


def test_the_ring_of_a_track_holds_each_change_and_the_moment_before_it(feed: Feed) -> None:
    feed.flow([0] * 10)
    before_ns = feed.now_ns
    feed.flow([5, 6, 0, 0, 7])
    feed.digest()
    times, values = feed.track.ring.since(before_ns)
    assert list(times) == [before_ns + number * NS_PER_MS for number in (0, 1, 2, 4, 5)]
    assert list(values) == [10_000, 10_005, 10_011, 10_011, 10_018]


def test_a_plan_survives_its_way() -> None:
    counter = CounterPlan("/sys/x", "mlx5_0", "1", RECEIVE, 4, 10, 5e10)
    plan = Plan((counter, counter._replace(port="2")), cpu=3, windows_min=4)
    assert Plan.decode(plan.encode()) == plan


def test_no_counter_is_read_faster_than_it_lives() -> None:
    counter = CounterPlan("", "efa", "1", RECEIVE, 1, 10 * NS_PER_MS, 0.0)
    assert reads_every(counter, 1_000, 2, NS_PER_MS) * NS_PER_MS > counter.floor_ns
    assert reads_every(counter, 10 * NS_PER_MS, 2, NS_PER_MS) == 200
