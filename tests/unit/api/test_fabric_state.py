"""The state of links from the readings of their ends: directions, errors, pause, up and down."""

from collections.abc import Mapping

import numpy as np
import pytest

from alerts.window.model import Grid, Ports, Readings
from api.jobs.correlate.fabric import KINDS, NO_ERROR, PAUSE_BITS, FabricState, frames_of, state_of
from collector.contract.identity import PortId
from collector.contract.units import NS
from tests.worlds.topologies import RATE, cable

A, B, C = PortId("node0", "mlx5_0", "1"), PortId("leaf0", "leaf0", "1"), PortId("x", "x", "9")
LINK, DARK = cable(A, B), cable(A, C)
GRID = Grid(0, 10 * NS, 2)
NONE = float("nan")


def state(readings: Mapping[str, Mapping[int, tuple[float, float]]]) -> FabricState:
    """The state of two links whose ends are rows 0 (a host's) and 1 (a switch's); 9 is unread."""
    ports = Ports(
        grid=GRID,
        host=[A.host, B.host],
        device=[A.device, B.device],
        port=[A.port, B.port],
        readings={
            name: Readings(
                metric=f"fabric_port_{name}",
                row=np.array(list(lines), dtype=np.int64),
                values=np.array(list(lines.values())),
            )
            for name, lines in readings.items()
        },
        seen_ns=np.zeros(2, dtype=np.int64),
        is_switch=np.array([False, True]),
        other_end=np.array([1, 0]),
        rate_bits_per_second=np.array([RATE, np.nan]),
        rail=np.array([0, -1]),
        tier=np.array([-1, 0]),
    )
    return state_of(ports, [LINK, DARK])


def test_each_direction_is_told_by_who_sends_and_by_who_receives() -> None:
    byte_rate = RATE / 8
    found = state(
        {
            "transmit_bytes_total": {0: (0.5 * byte_rate, NONE), 1: (0.1 * byte_rate, NONE)},
            "receive_bytes_total": {1: (0.4 * byte_rate, 0.3 * byte_rate)},
        }
    )
    # The link's ends are in the order of its id: leaf0 before node0.
    assert (LINK.id.a, LINK.id.b) == (B, A)
    assert found.b_to_a[:, 0] == pytest.approx([0.5, 0.3])
    assert found.a_to_b[:, 0] == pytest.approx([0.1, NONE], nan_ok=True)


def test_of_a_link_of_which_one_end_was_read_that_end_speaks() -> None:
    found = state({"transmit_bytes_total": {0: (RATE / 8, 0.0)}, "state": {0: (4.0, 1.0)}})
    assert DARK.id.a == A
    assert found.a_to_b[:, 1] == pytest.approx([1.0, 0.0])
    assert np.isnan(found.b_to_a[:, 1]).all()
    assert found.up[:, 1].tolist() == [1.0, 0.0]
    assert np.isnan(found.errors).all()
    assert np.isnan(found.paused).all()


def test_errors_of_both_ends_are_added_and_what_says_the_same_is_not() -> None:
    found = state(
        {
            "symbol_errors_total": {0: (1.0, 0.0), 1: (2.0, 0.0)},
            "receive_errors_total": {0: (5.0, 0.0)},
            "phy_receive_crc_errors_total": {0: (4.0, 0.0)},  # among the five
            "transmit_discards_total": {1: (10.0, 0.0)},
            "phy_receive_discards_total": {0: (0.5, 0.0)},
        }
    )
    assert found.errors[:, 0] == pytest.approx([3.0 + 5.0 + 10.5, 0.0])
    assert KINDS[found.worst[0, 0]] == "discarded_packets"
    assert found.worst[1, 0] == NO_ERROR
    assert KINDS[found.worst[0, 1]] == "damaged_packets"


def test_pause_is_time_of_the_end_that_is_stopped_or_of_the_one_that_stops_it() -> None:
    frames = {"receive_pause_frames_total": {0: (1e9, 1e9), 1: (1e9, 1e9)}}
    waits = {
        "receive_pause_seconds_total": {0: (0.25, 0.0)},
        "transmit_wait_seconds_total": {0: (0.5, 0.0)},
    }
    found = state({**frames, **waits, "transmit_pause_seconds_total": {0: (0.125, 0.75)}})
    assert found.paused[:, 0] == pytest.approx([0.5, 0.75])
    assert np.isnan(found.paused_at_most).all()
    # Of how long the switch's port was stopped nobody counted more than frames.
    found = state({**frames, **waits})
    assert found.paused[:, 0] == pytest.approx([0.5, 0.0])
    assert found.paused_at_most[:, 0] == pytest.approx([1.0, 1.0])


def test_frames_alone_tell_how_long_a_pause_may_have_been_and_none_that_there_was_none() -> None:
    frames = RATE / PAUSE_BITS / 4
    found = state({"receive_pause_frames_total": {0: (frames, 1e12)}})
    assert np.isnan(found.paused[:, 0]).all()
    assert found.paused_at_most[:, 0] == pytest.approx([0.25, 1.0])
    found = state({"receive_pause_frames_total": {0: (0.0, 0.0)}})
    assert found.paused[:, 0].tolist() == [0.0, 0.0]
    assert np.isnan(found.paused_at_most).all()


def test_a_link_is_up_if_no_end_was_down() -> None:
    found = state({"state": {0: (4.0, 4.0)}, "up": {0: (0.0, 0.0), 1: (1.0, 0.0)}})
    assert found.up[:, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("seconds", "frames", "expected"),
    [(300, 60, (5.0, 60)), (3600, 60, (60.0, 60)), (10, 60, (1.0, 10)), (0.001, 60, (1.0, 1))],
)
def test_moments_are_as_many_as_make_sense(
    seconds: float, frames: int, expected: tuple[float, int]
) -> None:
    end_ns = 1_800_000_000 * NS
    grid = frames_of(end_ns - round(seconds * NS), end_ns, frames)
    assert (grid.step_ns / NS, grid.cells) == expected
    assert grid.end_ns == end_ns
    assert grid.step_ns % 1_000_000 == 0
