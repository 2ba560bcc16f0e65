"""Dying optics through the store: what agents sent, asked by PromQL, named for health."""

import asyncio
from collections.abc import Iterator
from typing import Any, Never, cast

import numpy as np
import pytest

from alerts.health.blame import signs_of
from alerts.health.judge import stand
from alerts.health.model import HealthState, TargetKind
from alerts.optics.judge import NAME, Judged
from api.base.metrics import ServiceMetrics
from api.data.store.store import Store, StoreUrl
from api.fleet.optics import read as read_module
from api.fleet.optics.read import CELLS, QUERIES, STEP_SECONDS, Asked, Readings
from api.fleet.optics.task import DYING, EXPECTED, OpticsTask
from api.oncall.evaluate.rows import Wanted, read_findings
from api.promql.engine import Engine
from api.promql.values import Dialect, Grid, Vector
from collector.contract.catalog import load_catalog
from collector.contract.errors import SettingsError
from collector.contract.model import Sample
from collector.contract.units import NS
from simulator.network.optics import OpticBench
from tests.stands.samples import write_series
from tests.worlds.optics import die, raise_errors
from tests.worlds.remote_write import TimeSeries

START_S = 1_795_000_200
TICK_S = 150
PORTS = 8
"""NICs of a host, and as many ports of a leaf."""
DIES, STEADY = 2, 6
HOURS = 4.0
END_S = START_S + round(HOURS * 3_600)


def named(metric: str, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"__name__": metric, **labels}.items()))


def rack() -> list[TimeSeries]:
    """Four hours of a host's NICs as agents send them, and of a leaf's ports as gNMI has them."""
    bench = OpticBench(PORTS, np.random.default_rng(12))
    raise_errors(bench, STEADY, 4.0)
    dies = die(DIES, 0.5, 6.0)
    found: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    corrected = np.zeros(PORTS)
    for tick in range(round(HOURS * 3_600 / TICK_S)):
        dies(bench, tick * TICK_S / 3_600)
        seen = bench.tick(TICK_S)
        corrected += seen.corrected_bits
        at_ms = (START_S + tick * TICK_S) * 1_000
        for port in range(PORTS):
            nic = {"host": "node3", "device": f"enp{port}s0"}
            leaf = {"host": "leaf-1", "device": "leaf-1", "port": f"Ethernet{8 * port}"}
            for metric, value, labels in (
                ("fabric_nic_phy_receive_corrected_bits_total", corrected[port], nic),
                ("fabric_nic_speed_bits_per_second", bench.bits_per_second, nic),
                ("fabric_nic_module_temperature_celsius", seen.celsius[port], nic),
                (
                    "fabric_nic_module_receive_power_watts",
                    seen.watts[port, 0],
                    {**nic, "lane": "1"},
                ),
                # The leaf's own errors are steady: the NIC's laser is well.
                ("fabric_port_receive_fec_pre_bit_error_ratio", 3e-9 * (1 + port), leaf),
                ("fabric_port_rate_bits_per_second", bench.bits_per_second, leaf),
                ("fabric_port_state", 4.0, leaf),
            ):
                found.setdefault(named(metric, **labels), []).append((float(value), at_ms))
    return [TimeSeries(labels=labels, samples=samples) for labels, samples in found.items()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store(StoreUrl.parse(f"chdb://{tmp_path_factory.mktemp('optics')}"))
    made.migrate()
    write_series(made, rack())
    yield made
    made.close()


class Lead:
    """Of the process that leads, while a test lets it."""

    held = True

    def is_held(self) -> bool:
        return self.held

    def may_write(self, _time_ns: int) -> bool:
        return True


class NoTopology:
    """An inventory that cannot be read."""

    def at(self, _at: object) -> Never:
        raise SettingsError("the topology file is broken")


class Own:
    """Samples that a task would write."""

    def __init__(self) -> None:
        self.written: list[Sample] = []

    async def write(self, samples: list[Sample]) -> None:
        self.written = samples


class Desk:
    """A task with a clock that a test turns."""

    def __init__(self, store: Store, now_s: float) -> None:
        self.now_s = now_s
        self.lead, self.own = Lead(), Own()
        self.engine = Engine(store, Dialect.PROMETHEUS_3, load_catalog())
        self.task = OpticsTask(
            store,
            self.engine,
            cast("Any", NoTopology()),
            cast("Any", self.lead),
            cast("Any", self.own),
            ServiceMetrics(lambda: self.now_s),
            lambda: self.now_s,
        )

    def once(self) -> Judged | None:
        return asyncio.run(self.task.once())


def test_a_nic_whose_optic_dies_is_named_and_its_host_is_suspect(store: Store) -> None:
    desk = Desk(store, END_S)
    judged = desk.once()
    assert judged is not None
    (dying,) = judged.dying
    assert dying.finding.culprit.host == "node3"
    assert dying.finding.culprit.device == f"enp{DIES}s0"
    assert dying.signs[0] == "errors"
    written = {sample.series.metric: sample for sample in desk.own.written}
    assert written[DYING].value == dying.finding.strength
    assert 0 < written[EXPECTED].value <= 86_400
    wanted = Wanted(from_ns=(END_S - 60) * NS, to_ns=(END_S + 60) * NS, detector=NAME)
    (row,) = read_findings(store, wanted)
    assert row.finding == dying.finding
    charges = signs_of([row.finding], [])
    host = [charge for charge in charges if charge.target.kind is TargetKind.HOST]
    assert stand(host, END_S * NS).state is HealthState.SUSPECT
    assert host[0].short == f"lossy_link (cable) of link enp{DIES}s0/1, expected"


def test_it_stands_until_it_is_judged_anew_and_costs_one_question_a_cell(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(store, END_S)
    asked: list[int] = []
    ask = Readings._ask

    def counted(self: Readings, what: Asked, grid: Grid) -> Vector:
        asked.append(grid.steps)
        return ask(self, what, grid)

    monkeypatch.setattr(read_module.Readings, "_ask", counted)
    desk.once()
    assert asked == [CELLS] * len(QUERIES)
    first = desk.own.written
    asked.clear()
    desk.now_s += 20
    desk.once()
    assert asked == []
    assert [one.series for one in desk.own.written] == [one.series for one in first]
    desk.now_s += STEP_SECONDS
    desk.once()
    assert asked == [1] * len(QUERIES)


def test_what_is_over_ends_its_series(store: Store) -> None:
    desk = Desk(store, END_S)
    desk.once()
    desk.now_s += 8 * 3_600  # nothing was read since
    judged = desk.once()
    assert judged is not None
    assert judged.dying == []
    assert {sample.series.metric for sample in desk.own.written} == {DYING, EXPECTED}
    assert all(np.isnan(sample.value) for sample in desk.own.written)


def test_a_process_that_does_not_lead_asks_nothing(store: Store) -> None:
    desk = Desk(store, END_S)
    desk.lead.held = False
    assert desk.once() is None
    assert desk.own.written == []


def test_the_same_hours_in_pieces_are_the_same_history(store: Store) -> None:
    """A process that runs along knows what one knows that starts late."""
    engine = Engine(store, Dialect.PROMETHEUS_3, load_catalog())
    along, late = Readings(engine), Readings(engine)
    for now_s in range(END_S - 7_200, END_S + 1, STEP_SECONDS):
        assert along.refresh(now_s * 1_000)
    assert late.refresh(END_S * 1_000)
    one, other = along.history(None), late.history(None)
    assert [end.name for end in one.ends] == [end.name for end in other.ends]
    assert np.allclose(one.pre_fec, other.pre_fec, equal_nan=True)
    assert np.array_equal(one.watts, other.watts, equal_nan=True)


def test_series_past_the_bound_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_module, "OPTICS_SERIES_MAX", 5)
    readings = Readings(Engine(store, Dialect.PROMETHEUS_3, load_catalog()))
    readings.refresh(END_S * 1_000)
    assert sum(len(readings.of(name)) for name in QUERIES) == 5
    assert readings.left_out == 7 * PORTS - 5
