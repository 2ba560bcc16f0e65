"""Slots that move too little: NICs by their stalls, GPUs by lanes and generation."""

import msgspec
import numpy as np
import pytest

from alerts.detectors.pcie import STALLS, detect
from alerts.window.model import Gpus, Readings, Window
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.small_fabric import (
    CELLS,
    SmallFabric,
    check_garbage_accuses_nobody,
    check_order_does_not_matter,
    host,
)

LATE = slice(20, None)
NODE_3 = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf-0", switch_port="4")


def with_gpus(count: int = 4, **values: dict[int, float]) -> Window:
    """A window with GPUs of one host: generation 5, 16 lanes, all at work; some as they are not."""
    window = SmallFabric().window()
    usual = {
        "pcie_lanes": 16.0,
        "pcie_lanes_max": 16.0,
        "pcie_generation": 5.0,
        "pcie_generation_max": 5.0,
        "utilization_ratio": 0.9,
    }
    readings = {}
    for name, value in usual.items():
        table = np.full((count, CELLS), value)
        for row, other in values.get(name, {}).items():
            table[row] = other
        rows = np.arange(count, dtype=np.int64)
        readings[name] = Readings(metric=f"fabric_gpu_{name}", row=rows, values=table)
    gpus = Gpus(
        grid=window.ports.grid,
        host=["node0"] * count,
        gpu=list(range(count)),
        readings=readings,
        seen_ns=np.zeros(count, dtype=np.int64),
    )
    return msgspec.structs.replace(window, gpus=gpus)


@pytest.mark.parametrize("name", STALLS)
def test_a_nic_that_stalls_on_its_host_is_named(name: str) -> None:
    fabric = SmallFabric()
    fabric.set(name, host(3), 0.45, LATE)
    (found,) = detect(fabric.window())
    assert (found.cause, found.reason, found.culprit) == (Cause.SLOW_LINK, Reason.PCIE, NODE_3)
    assert [victim.rank for victim in found.victims] == [3]


def test_one_stalled_reading_is_not_enough() -> None:
    fabric = SmallFabric()
    fabric.set(STALLS[0], host(3), 0.45, slice(23, None))
    assert detect(fabric.window()) == []


def test_short_stalls_are_health() -> None:
    fabric = SmallFabric()
    fabric.set(STALLS[0], host(3), 0.05)
    assert detect(fabric.window()) == []


def test_a_gpu_with_lost_lanes_is_context_for_a_straggler() -> None:
    (found,) = detect(with_gpus(pcie_lanes={2: 8.0}))
    assert (found.cause, found.reason) == (Cause.STRAGGLER, Reason.PCIE)
    assert found.culprit == Culprit(host="node0", gpu=2)
    assert found.is_context


def test_a_lower_generation_counts_under_load_only() -> None:
    assert detect(with_gpus(pcie_generation={2: 1.0}, utilization_ratio={2: 0.0})) == []
    (found,) = detect(with_gpus(pcie_generation={2: 3.0}))
    assert found.culprit == Culprit(host="node0", gpu=2)


def test_machines_that_are_built_so_are_not_accused() -> None:
    assert detect(with_gpus(pcie_generation=dict.fromkeys(range(4), 4.0))) == []


def test_stalls_do_not_depend_on_the_order_of_ports() -> None:
    fabric = SmallFabric()
    fabric.set(STALLS[0], host(3), 0.45, LATE)
    fabric.set(STALLS[2], host(5), 0.3, LATE)
    check_order_does_not_matter(detect, fabric)


def test_garbage_is_no_stall() -> None:
    check_garbage_accuses_nobody(detect, (*STALLS, "pcie_buffer_overflow_packets_total"))


@pytest.mark.parametrize(("reads", "is_context"), [(0.0, True), (0.4, False)])
def test_a_receiver_that_stops_its_switch_is_no_slot_unless_it_cannot_read_either(
    reads: float, *, is_context: bool
) -> None:
    fabric = SmallFabric()
    fabric.set("pcie_write_stalled_seconds_total", host(3), 0.5, LATE)
    fabric.set("pcie_read_stalled_seconds_total", host(3), reads, LATE)
    fabric.set("transmit_pause_seconds_total", host(3), 0.5, LATE)
    (found,) = detect(fabric.window())
    assert found.is_context is is_context
