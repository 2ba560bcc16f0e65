"""Which NIC limits a tree by the peaks of what NICs send, and whom they never accuse."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from alerts.detectors.slow_link import detect
from alerts.finding import Finding
from alerts.signals.edges import fabric_of
from alerts.signals.peaks import PEAK, PEAK_IN, RESOLUTION, SENT, TAKEN, evenest
from alerts.window.model import Grid, Readings, Window
from collector.contract.units import NS
from tests.worlds.ring_jobs import START_NS, Group, make_job, make_ports, make_window

TREES = [
    {0: None, 4: 0, 2: 4, 6: 4, 1: 2, 3: 2, 5: 6, 7: 6},
    {7: None, 3: 7, 5: 3, 1: 3, 6: 5, 4: 5, 2: 1, 0: 1},
]
"""NCCL 2.28.9 of eight hosts with one rank each: the log of the recorded run `tree_net2`."""
SENDS = np.array([2.0, 4, 4, 4, 4, 4, 4, 2])
SLOW_NIC, FROM_STEP, STEPS, CELLS = 2, 100, 300, 12
LINE = 400e9
BUSY, PACE = 0.4, 1e9
"""Of the time with the fault, in which the all-reduces move bytes; a tree's edge then."""

Columns = dict[str, np.ndarray]


def columns() -> Columns:
    """[NICs]: what is read of each while one sends too slowly; the others send ahead."""
    sent = SENDS * PACE * BUSY
    peak = SENDS * PACE * np.where(np.arange(8) == SLOW_NIC, 1.05, 2.2)
    return {
        SENT: sent,
        PEAK: peak,
        RESOLUTION: np.full(8, 0.001),
        TAKEN: sent,
        PEAK_IN: SENDS * PACE * 2.2,
        "rate": np.full(8, LINE),
    }


def window_of(read: Columns, **more: Columns) -> Window:
    """All edges are slow from the hundredth operation on: no exit shows which one it is."""
    group = Group(range(8), dict.fromkeys(range(8), 0.006), range(FROM_STEP, STEPS))
    job = make_job([group], operations=STEPS)
    (name,) = job.communicators
    trees = msgspec.structs.replace(job.communicators[name], trees=TREES)
    random = np.random.default_rng(1)
    readings = {
        key: Readings(
            metric=f"fabric_{key.partition(':')[0]}",
            row=np.arange(8),
            values=one[:, None] * random.uniform(0.99, 1.01, (8, CELLS)),
        )
        for key, one in read.items()
        if key != "rate"
    }
    for key, cells in more.get("cells", {}).items():
        readings[key] = Readings(metric=f"fabric_port_{key}", row=np.arange(8), values=cells)
    ports = make_ports(
        [f"node{number}" for number in range(8)],
        grid=Grid(START_NS, 5 * NS, CELLS),
        rate_bits_per_second=read["rate"],
        readings=readings,
    )
    return make_window(
        msgspec.structs.replace(job, communicators={name: trees}), ports=ports, is_live=True
    )


def named(window: Window) -> Finding:
    (found,) = detect(window)
    return found


def accused(read: Columns, **more: Columns) -> str:
    """The host that `slow_link` accuses with more than one half; empty: none."""
    found = named(window_of(read, **more))
    return found.culprit.host if found.strength > 1 / 2 else ""


def test_the_nic_that_never_sends_ahead_is_named() -> None:
    found = named(window_of(columns()))
    assert (found.culprit.host, found.culprit.device) == ("node2", "mlx5_0")
    assert found.strength > 0.8
    (evidence,) = (one for one in found.evidence if one.metric.startswith("fabric_burst_peak"))
    assert evidence.labels["host"] == "node2"
    assert "each of 7 others does" in evidence.text


def test_without_a_sampler_nothing_is_said() -> None:
    read = columns()
    del read[PEAK], read[RESOLUTION]
    assert not accused(read)


def at(key: str, nic: int | slice, value: Any) -> Callable[[Columns], None]:  # noqa: ANN401
    def change(read: Columns) -> None:
        read[key][nic] = value

    return change


def times(key: str, nic: int | slice, factor: float) -> Callable[[Columns], None]:
    def change(read: Columns) -> None:
        read[key][nic] *= factor

    return change


EVERY = slice(None)
INNOCENT: dict[str, Callable[[Columns], None]] = {
    "a slower model at its own line rate": at("rate", SLOW_NIC, 8 * 4.3e9),
    "a rate that no agent knows": at("rate", SLOW_NIC, np.nan),
    "it carries other traffic": times(SENT, SLOW_NIC, 2.0),
    "it hardly sends": times(SENT, SLOW_NIC, 0.3),
    "a sampler that stands still": at(PEAK, SLOW_NIC, 1e8),
    "a sampler that was never read": at(PEAK, SLOW_NIC, np.nan),
    "a counter that changes every 16 ms": at(RESOLUTION, SLOW_NIC, 0.016),
    "all counters too coarse": at(PEAK, EVERY, SENDS * PACE * 1.05),
    "another one nearly as even": at(PEAK, 5, 4 * PACE * 1.3),
    "five of eight never read": at(PEAK, slice(3, 8), np.nan),
    "five of eight carry other traffic": times(SENT, slice(3, 8), 3.0),
    "bytes that go round in a ring": at(SENT, EVERY, 4 * PACE * BUSY),
    "its parent takes in as evenly": at(PEAK_IN, 1, 4 * PACE * 1.05),
    "what its parent takes in was never read": at(PEAK_IN, 1, np.nan),
    "nothing is sent": at(SENT, EVERY, 0.0),
}


@pytest.mark.parametrize("why", INNOCENT)
def test_what_is_no_witness_accuses_no_one(why: str) -> None:
    read = columns()
    INNOCENT[why](read)
    assert not accused(read)


@pytest.mark.parametrize("reading", ["cnp_handled_total", "transmit_wait_seconds_total"])
def test_a_nic_that_the_network_holds_back_is_not_accused(reading: str) -> None:
    cells = np.zeros((8, CELLS))
    cells[SLOW_NIC, 5:] = 5_000.0 if reading.startswith("cnp") else 0.2
    assert not accused(columns(), cells={reading: cells})


def test_of_two_hosts_and_without_trees_nothing_is_known() -> None:
    window = window_of(columns())
    job = window.jobs[0]
    (name,) = job.communicators
    until = START_NS + 55 * NS
    assert evenest(fabric_of(window, job), {name}, START_NS + 20 * NS, until) is not None
    for trees in ([], [{0: None, 1: 0}], [{0: None, 9: 0}]):
        known = msgspec.structs.replace(job.communicators[name], trees=trees)
        other = msgspec.structs.replace(job, communicators={name: known})
        assert evenest(fabric_of(window, other), {name}, START_NS + 20 * NS, until) is None
    assert evenest(fabric_of(window, job), {name}, until - 6 * NS, until) is None  # too short


def test_a_parent_that_takes_in_as_evenly_is_cleared_where_nothing_waits_before_it() -> None:
    read = columns()
    read[PEAK_IN][1] = 4 * PACE * 1.05
    window = window_of(read)
    job = window.jobs[0]
    span = START_NS + 20 * NS, START_NS + 55 * NS
    found = evenest(fabric_of(window, job), job.communicators, *span, free_rows={1})
    assert found is not None
    assert found.row == SLOW_NIC
    assert evenest(fabric_of(window, job), job.communicators, *span, free_rows={3}) is None
