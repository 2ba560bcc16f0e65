"""Dying optics: named hours before the first uncorrected codeword, and no healthy one ever."""

from collections.abc import Callable

import numpy as np
import pytest

from alerts.optics.history import PRE_FEC_KP4
from alerts.optics.judge import judge
from alerts.optics.trend import WINDOWS, common_shift, find_trend, rise_in, since_break, slopes
from simulator.network.optics import OpticBench
from tests.worlds.optics import (
    HISTORY_CELLS,
    PORTS,
    STEP_S,
    Happens,
    Watched,
    die,
    history_of,
    raise_errors,
    watch,
)

SEEDS = range(5)
LOOK_ALIKE_SEEDS = range(3)
PORT = 5
LEAD_HOURS_LEAST = 3.0
"""Of six: seeds 0 to 4 give 3.3 to 4.0."""


def nothing(_bench: OpticBench, _hour: float) -> bool:
    return False


# --- it dies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_an_optic_that_dies_over_six_hours_is_named_before_its_first_lost_codeword(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    watched = watch(seed, 8.0, die(PORT, start_h=2.0, life_h=6.0), every=2)
    assert PORT in watched.first_lost, "the optic did not die: the test shows nothing"
    assert list(watched.named) == [PORT], "a healthy port was named, or none"
    lead_h = (watched.first_lost[PORT] - watched.named[PORT]) * STEP_S / 3_600
    record_property("lead_hours", lead_h)
    assert lead_h >= LEAD_HOURS_LEAST, f"named only {lead_h:.1f} h before"


def test_the_forecast_is_near_the_truth_while_there_is_time() -> None:
    """A straight line through a curve that flattens says it too early, never too late."""
    watched = watch(3, 5.0, die(PORT, 2.0, 6.0), every=59)
    assert watched.judged is not None
    (dying,) = watched.judged.dying
    assert dying.seconds_left is not None
    assert dying.seconds_least is not None
    whole = watch(3, 8.0, die(PORT, 2.0, 6.0), every=1_000)
    true_s = (whole.first_lost[PORT] - 60) * STEP_S
    assert 0.2 * true_s <= dying.seconds_left <= 1.3 * true_s
    assert dying.seconds_least <= dying.seconds_left


def test_what_is_said_of_it() -> None:
    watched = watch(1, 5.5, die(PORT, 2.0, 6.0), every=5)
    assert watched.judged is not None
    (dying,) = watched.judged.dying
    finding = dying.finding
    assert (finding.cause, finding.reason, finding.detector) == (
        "lossy_link",
        "cable",
        "dying_optic",
    )
    assert finding.is_context
    assert finding.is_forecast
    assert finding.culprit.switch_port == f"Ethernet{8 * PORT}"
    assert dying.signs == ("errors", "light")
    assert finding.strength == pytest.approx(0.9)
    first = finding.evidence[0]
    assert first.text.startswith(f"leaf-1 Ethernet{8 * PORT} had ")
    assert "correction fails from 2.4e-04 on, in " in first.text
    assert first.baseline is not None
    assert 10 * first.baseline <= first.value < PRE_FEC_KP4


@pytest.mark.parametrize("life_h", [2.0, 12.0])
def test_faster_and_slower_deaths(life_h: float) -> None:
    watched = watch(2, 1.0 + life_h, die(PORT, 1.0, life_h), every=2)
    assert list(watched.named) == [PORT]
    assert watched.named[PORT] < watched.first_lost[PORT]


def test_two_of_a_rack_are_both_named() -> None:
    first, second = die(3, 1.0, 6.0), die(20, 2.0, 5.0)

    def happens(bench: OpticBench, hour: float) -> bool:
        return first(bench, hour) or second(bench, hour)

    assert set(watch(4, 6.0, happens, every=3).named) == {3, 20}


def test_a_gap_in_the_readings_delays_it_and_no_more() -> None:
    dies = die(PORT, 1.0, 6.0)

    def happens(bench: OpticBench, hour: float) -> bool:
        dies(bench, hour)
        return 2.0 <= hour < 2.75

    watched = watch(6, 7.0, happens, every=3)
    assert list(watched.named) == [PORT]
    assert watched.named[PORT] < watched.first_lost[PORT]


def test_without_an_error_rate_falling_light_names_it() -> None:
    """A switch that is read by SNMP shows light, and no errors before correction."""
    watched = watch(7, 6.0, die(PORT, 0.5, 6.0), every=1_000)
    bench = OpticBench(PORTS, np.random.default_rng(7))
    history = history_of(bench, watched)
    blind = type(history)(
        **{name: getattr(history, name) for name in history.__struct_fields__}
        | {"pre_fec": np.full_like(history.pre_fec, np.nan)}
    )
    (dying,) = judge(blind).dying
    assert dying.end.cable == f"cable {PORT}"
    assert dying.signs[0] == "light"


def test_a_module_above_its_alarm_and_its_neighbours_is_named() -> None:
    def happens(bench: OpticBench, _hour: float) -> bool:
        bench.warmer[PORT] = 35.0
        return False

    watched = watch(0, 0.5, happens)
    assert watched.judged is not None
    (dying,) = watched.judged.dying
    assert dying.signs == ("heat",)
    assert dying.seconds_left is None


# --- it does not ---------------------------------------------------------------------------------


def warm_aisle(bench: OpticBench, hour: float) -> bool:
    """Eight degrees more for all, within an hour, and back in the evening."""
    bench.warmer[:] = 8.0 * min(1.0, max(0.0, hour - 1.0)) * (1.0 if hour < 5 else 0.3)
    return False


def steady_but_high(bench: OpticBench, hour: float) -> bool:
    """A tenth of what correction bears, from the first minute on."""
    if hour == 0:
        for port in (2, 9, 17):
            raise_errors(bench, port, 9.0)
    return False


def replaced(bench: OpticBench, hour: float) -> bool:
    """A technician pulls a module and plugs in a worse one."""
    bench.is_up[PORT] = not 2.0 <= hour < 2.2
    if abs(hour - 2.0) < 1e-9:
        bench.replace(PORT)
        bench.healthy[PORT] *= 0.86
    return False


def reseated(bench: OpticBench, hour: float) -> bool:
    """A connector is dirtier after it was touched: a step, without a link that goes down."""
    if hour >= 2.0:
        raise_errors(bench, PORT, 2.0)
    return False


def touched_twice(bench: OpticBench, hour: float) -> bool:
    if hour >= 2.0:
        raise_errors(bench, PORT, 1.2 if hour < 3.5 else 2.4)
    return False


def gap(bench: OpticBench, hour: float) -> bool:
    """Nothing is read for an hour in which the aisle warms up."""
    warm_aisle(bench, hour)
    return 1.0 <= hour < 2.0


def lights_off(bench: OpticBench, hour: float) -> bool:
    """The far end is switched off for maintenance."""
    bench.is_up[10:14] = not 2.0 <= hour < 4.0
    return False


@pytest.mark.parametrize("seed", LOOK_ALIKE_SEEDS)
@pytest.mark.parametrize(
    "happens",
    [nothing, warm_aisle, steady_but_high, replaced, reseated, touched_twice, gap, lights_off],
)
def test_look_alikes_name_no_port(happens: Happens, seed: int) -> None:
    watched = watch(100 + seed, 6.5, happens, ports=20, every=3)
    assert watched.named == {}
    assert watched.first_lost == {}


def test_what_a_third_of_a_rack_does_is_withheld() -> None:
    """A firmware that counts differently since an update, or cooling of one half."""

    def happens(bench: OpticBench, hour: float) -> bool:
        for port in range(12):
            die(port, 1.0, 6.0)(bench, hour)
        return False

    watched = watch(5, 4.0, happens, every=4)
    assert watched.named == {}
    assert watched.judged is not None
    assert watched.judged.withheld >= 6


def test_an_empty_history_and_one_without_readings_give_nothing() -> None:
    bench = OpticBench(4, np.random.default_rng(0))
    watched = Watched(readings=[None] * 10, breaks=[set()] * 10)
    assert judge(history_of(bench, watched)).dying == []


# --- trends --------------------------------------------------------------------------------------


def test_a_step_is_no_trend_wherever_it_is() -> None:
    for length, _ in WINDOWS:
        for place in range(1, length):
            line = np.where(np.arange(length) < place, -8.0, -5.0)
            assert rise_in(line, 1.0) is None, (length, place)


def test_a_line_is_a_trend_with_its_slope() -> None:
    line = -8.0 + 0.1 * np.arange(24.0)
    trend = find_trend(line, np.full(24, np.nan), 1.0)
    assert trend is not None
    assert trend.slope == pytest.approx(0.1)
    assert trend.cells_until(trend.now + 1.0, trend.slope) == pytest.approx(10.0)


def test_what_the_peers_do_too_is_no_trend() -> None:
    rises = 0.2 * np.arange(24)
    lines = np.stack([-8.0 + rises * factor for factor in (1.0, 1.0, 1.1, 0.9, 1.0, 1.05)])
    shift = common_shift(lines, [range(6)])
    assert find_trend(lines[0], shift[0], 1.0) is None
    alone = common_shift(lines, [[row] for row in range(6)])
    assert np.isnan(alone).all()
    assert find_trend(lines[0], alone[0], 1.0) is not None


def test_cells_before_a_break_do_not_count() -> None:
    breaks = np.zeros((2, 10), dtype=np.bool_)
    breaks[0, 3] = True
    counts = ~np.isnan(since_break(breaks, settle=2))
    assert counts[0].tolist() == [False] * 6 + [True] * 4
    assert counts[1].all()


def test_the_interval_of_a_slope_holds_it() -> None:
    random = np.random.default_rng(1)
    x = np.arange(40.0)
    inside = 0
    for _ in range(100):
        middle, least, most = slopes(x, 0.05 * x + random.normal(0, 0.5, 40))
        assert least <= middle <= most
        inside += least <= 0.05 <= most
    assert inside >= 95


def test_the_longest_window_fits_the_history() -> None:
    assert max(length for length, _ in WINDOWS) <= HISTORY_CELLS
