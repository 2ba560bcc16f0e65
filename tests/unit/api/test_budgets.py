"""Budgets of senders: meters, the count of a day's series, and what a request may bring."""

import numpy as np
import pytest

from api.base.host_names import ANY_HOST, Hosts
from api.base.limits import (
    HOSTS_NEW_AT_ONCE_MAX,
    SERIES_A_DAY_PER_HOST_MAX,
    SERIES_NEW_A_MINUTE_PER_HOST_MAX,
)
from api.data.ingest import budgets as module
from api.data.ingest.budgets import (
    HOSTS_NEW,
    SAMPLES,
    SERIES_DAY,
    SERIES_NEW,
    Budgets,
    Distinct,
    KnownHosts,
    Meter,
    Over,
    Sender,
    Sizes,
)
from api.data.ingest.columns import UInt64s

NODE = Sender("node-a", Hosts.of(["node-a"]))
PROMETHEUS = Sender("prometheus", ANY_HOST)
NOTHING: UInt64s = np.empty(0, dtype=np.uint64)
DAY_S = 86_400.0


class Clock:
    """Both clocks of a service: unix seconds, and those that only pass."""

    def __init__(self) -> None:
        self.now_s = 100 * DAY_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budgets(clock: Clock) -> Budgets:
    return Budgets(clock, ticks=clock)


def ids(first: int, count: int) -> UInt64s:
    """Identities that are spread as hashes are."""
    made = np.arange(first, first + count, dtype=np.uint64)
    made = (made ^ (made >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    made = (made ^ (made >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return made ^ (made >> np.uint64(31))


def test_a_meter_fills_by_itself_and_no_higher_than_it_holds() -> None:
    meter = Meter(per_minute=60, holds=100, now_s=0)
    assert meter.level(0) == 100
    meter.take(150)
    assert meter.level(10) == -40
    assert meter.wait_seconds(1) == 41
    assert meter.wait_seconds(1e9) == 60, "a minute at most"
    assert meter.level(5) == -40, "a clock that goes back takes nothing"
    assert meter.level(1_000) == 100


@pytest.mark.parametrize("count", [0, 1, 100, 2_000, 3_000, 50_000, 1_000_000])
def test_a_day_s_series_are_counted_to_a_tenth(count: int) -> None:
    distinct = Distinct()
    for _ in range(2):  # what is there already counts once
        distinct.add(ids(0, count))
    assert len(distinct) == pytest.approx(count, rel=0.1)


def test_a_large_prometheus_and_a_large_poller_pass_at_their_start(budgets: Budgets) -> None:
    """500,000 series of 500 hosts, in requests of 2,000; 8,000 ports with a hundred counters."""
    for number in range(250):
        allowed = budgets.allowance(PROMETHEUS)
        assert allowed.take_hosts([f"h{number}", f"i{number}"], budgets.hosts) is None
        assert all(allowed.take_series() is None for _ in range(2_000))
        allowed.settle(2_000, ids(number * 2_000, 2_000), budgets.hosts)
    poller = Sender("poller", Hosts.of(["leaf-*", "spine-*"]))
    for number in range(8):
        allowed = budgets.allowance(poller)
        allowed.check_series(100_000)
        allowed.settle(100_000, ids(number * 100_000, 100_000), budgets.hosts)


def test_a_bound_token_has_its_hosts_worth() -> None:
    of_one, of_three = (Sizes.of(Hosts.of(names), 1.0) for names in (["a"], ["a", "b", "c"]))
    assert of_one.series_new == SERIES_NEW_A_MINUTE_PER_HOST_MAX
    assert of_three.series_new == 3 * of_one.series_new
    of_any = Sizes.of(ANY_HOST, 1.0)
    assert Sizes.of(Hosts.of(["a-*"]), 1.0) == of_any
    assert Sizes.of(Hosts.of([str(n) for n in range(1_000)]), 1.0).bytes == of_any.bytes
    assert Sizes.of(ANY_HOST, 2.0).samples == 2 * of_any.samples
    assert Sizes.of(Hosts.of(["a"]), 0.0).series_new > 1e12


def test_new_series_are_refused_by_the_minute_and_then_by_the_day(
    budgets: Budgets, clock: Clock
) -> None:
    sent = 0
    for _ in range(10):
        allowed = budgets.allowance(NODE)
        taken = 0
        while (rule := allowed.take_series()) is None:
            taken += 1
        allowed.settle(0, ids(sent, taken), budgets.hosts)
        sent += taken
        if rule == SERIES_DAY:
            break
        assert rule == SERIES_NEW
        clock.now_s += 30
    assert rule == SERIES_DAY
    assert sent == pytest.approx(SERIES_A_DAY_PER_HOST_MAX, rel=0.1)
    assert budgets.allowance(NODE).is_past_day(1)
    assert budgets.allowance(PROMETHEUS).take_series() is None, "another sender"
    clock.now_s += DAY_S
    assert budgets.allowance(NODE).take_series() is None


def test_series_that_were_written_ahead_count_tomorrow_and_are_not_new(
    budgets: Budgets, clock: Clock
) -> None:
    many = SERIES_A_DAY_PER_HOST_MAX - 1_000
    allowed = budgets.allowance(NODE)
    left = allowed.series
    allowed.settle(0, NOTHING, budgets.hosts, ids(0, many))
    assert budgets.allowance(NODE).series == left
    clock.now_s += DAY_S
    assert budgets.allowance(NODE).is_past_day(many), "they are most of this day's series"
    clock.now_s += 2 * DAY_S
    assert not budgets.allowance(NODE).is_past_day(many)


def test_a_whole_batch_waits_or_passes_when_the_bucket_is_full(
    budgets: Budgets, clock: Clock
) -> None:
    many = 2 * SERIES_NEW_A_MINUTE_PER_HOST_MAX
    allowed = budgets.allowance(NODE)
    allowed.check_series(many)
    allowed.settle(many, ids(0, many // 4), budgets.hosts)
    allowed = budgets.allowance(NODE)
    allowed.check_series(many // 4)
    with pytest.raises(Over) as caught:
        allowed.check_series(many)
    assert caught.value.body.rule == SERIES_NEW
    clock.now_s += int(caught.value.headers["Retry-After"])
    budgets.allowance(NODE).check_series(many)


def test_new_hosts_are_counted_once_and_known_ones_never(budgets: Budgets, clock: Clock) -> None:
    names = [f"h{number}" for number in range(HOSTS_NEW_AT_ONCE_MAX)]
    allowed = budgets.allowance(PROMETHEUS)
    for name in names:
        assert allowed.take_hosts([name], budgets.hosts) is None
        assert allowed.take_hosts([name], budgets.hosts) is None, "its second series"
    assert allowed.take_hosts(["one", "more"], budgets.hosts) == HOSTS_NEW
    allowed.settle(0, NOTHING, budgets.hosts)
    allowed = budgets.allowance(Sender("other"))
    assert allowed.take_hosts(names[:2], budgets.hosts) is None
    assert not allowed.new_hosts
    allowed = budgets.allowance(PROMETHEUS)
    with pytest.raises(Over, match="new hosts a minute"):
        allowed.check_hosts(["another"], budgets.hosts)
    allowed.check_hosts(names, budgets.hosts)
    clock.now_s += 60
    budgets.allowance(PROMETHEUS).check_hosts(["another"], budgets.hosts)


def test_samples_are_paid_off_before_the_next_request(budgets: Budgets, clock: Clock) -> None:
    account = budgets.enter(NODE)
    account.settle(round(1.5 * account.sizes.samples), NOTHING, NOTHING, 0, 0)
    with pytest.raises(Over) as caught:
        budgets.enter(NODE)
    assert (caught.value.body.status, caught.value.body.rule) == (429, SAMPLES)
    clock.now_s += int(caught.value.headers["Retry-After"])
    budgets.enter(NODE)


def test_known_hosts_and_senders_are_bounded(
    budgets: Budgets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOSTS_KNOWN_MAX", 10)
    known = KnownHosts(["kept"])
    for number in range(50):
        known.update([str(number)])
        assert "kept" in known, "what is named again is not forgotten"
    assert len(known) <= 12
    assert "0" not in known
    monkeypatch.setattr(module, "SENDERS_KEPT_MAX", 2)
    first = budgets.of(NODE)
    budgets.of(PROMETHEUS)
    assert budgets.of(NODE) is first
    budgets.of(Sender("third"))
    assert len(budgets) == 2
    assert budgets.of(NODE) is first, "the one that was quiet longest was forgotten"
