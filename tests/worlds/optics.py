"""Hours of a rack's optics, tick by tick, as the detector of dying ones is given them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from alerts.optics.history import End, History
from alerts.optics.judge import Judged, judge
from collector.contract.units import NS
from collector.contract.verdict import Culprit
from simulator.network.optics import OpticBench, Readings, error_rate, tail_distance

STEP_S = 300.0
HISTORY_CELLS = 72
PORTS = 32
START_NS = 1_800_000_000 * NS
LAST_BER = 1.2e-3
"""At which a link does not stay up any longer."""

Happens = Callable[[OpticBench, float], bool]
"""Changes the bench at an hour; whether the readings of this tick get lost."""


@dataclass
class Watched:
    """What was read and judged so far."""

    readings: list[Readings | None] = field(default_factory=list)
    breaks: list[set[int]] = field(default_factory=list)
    named: dict[int, int] = field(default_factory=dict)
    """Port to the tick in which it was first named."""
    first_lost: dict[int, int] = field(default_factory=dict)
    """Port to the tick of its first uncorrected codeword."""
    judged: Judged | None = None


def history_of(bench: OpticBench, watched: Watched) -> History:
    kept = watched.readings[-HISTORY_CELLS:]
    breaks = watched.breaks[-HISTORY_CELLS:]
    ports, cells = len(bench.healthy), len(kept)

    def line(pick: Callable[[Readings], np.ndarray]) -> np.ndarray:
        nothing = np.full(ports, np.nan)
        return np.stack([nothing if one is None else pick(one) for one in kept], axis=1)

    bits = bench.bits_per_second * STEP_S
    lanes = [
        line(lambda one, lane=lane: one.watts[:, lane])  # type: ignore[misc]
        for lane in range(bench.lanes)
    ]
    return History(
        step_s=STEP_S,
        until_ns=START_NS + round(len(watched.readings) * STEP_S * NS),
        ends=tuple(end_of(port) for port in range(ports)),
        pre_fec=line(lambda one: np.where(one.is_up, one.corrected_bits / bits, np.nan)),
        breaks=np.array([[port in each for each in breaks] for port in range(ports)]).reshape(
            ports, cells
        ),
        celsius=line(lambda one: one.celsius),
        celsius_limit=np.full(ports, 75.0),
        watts=np.concatenate(lanes),
        watts_limit=np.full(ports * bench.lanes, 1e-4),
        lane_end=np.tile(np.arange(ports), bench.lanes),
        lane_name=tuple(str(lane + 1) for lane in range(bench.lanes) for _ in range(ports)),
    )


def end_of(port: int) -> End:
    return End(
        name=f"leaf-1 Ethernet{8 * port}",
        culprit=Culprit(switch="leaf-1", switch_port=f"Ethernet{8 * port}"),
        group="leaf-1",
        cable=f"cable {port}",
        metric="fabric_port_receive_fec_pre_bit_error_ratio",
        labels={"host": "leaf-1", "device": "leaf-1", "port": f"Ethernet{8 * port}"},
    )


def watch(
    seed: int, hours: float, happens: Happens, *, ports: int = PORTS, every: int = 1
) -> Watched:
    """A healthy rack to which something happens, judged after every so many ticks."""
    bench = OpticBench(ports, np.random.default_rng(seed))
    watched = Watched()
    for tick in range(round(hours * 3_600 / STEP_S)):
        was_up, were = bench.is_up.copy(), bench.healthy.copy()
        is_lost = happens(bench, tick * STEP_S / 3_600)
        found = bench.tick(STEP_S)
        changed = (was_up != bench.is_up) | (were != bench.healthy) | ~bench.is_up
        watched.breaks.append(set(np.flatnonzero(changed).tolist()))
        watched.readings.append(None if is_lost else found)
        for port in np.flatnonzero(found.lost_blocks).tolist():
            watched.first_lost.setdefault(port, tick)
        if tick % every:
            continue
        watched.judged = judge(history_of(bench, watched))
        for dying in watched.judged.dying:
            watched.named.setdefault(int(dying.end.cable.split()[1]), tick)
    return watched


def die(port: int, start_h: float, life_h: float) -> Happens:
    """Light goes at an even pace until the link does not stay up."""

    def happens(bench: OpticBench, hour: float) -> bool:
        share = min(1.0, max(0.0, (hour - start_h) / life_h))
        healthy = bench.healthy[port]
        last = tail_distance(np.array([LAST_BER]))[0]
        bench.lost_db[port] = -10 * np.log10((healthy + (last - healthy) * share) / healthy)
        return False

    return happens


def raise_errors(bench: OpticBench, port: int, decades: float) -> None:
    """So many decades more errors, by less light."""
    rate = float(error_rate(bench.healthy[port : port + 1])[0]) * 10**decades
    wanted = tail_distance(np.array([min(rate, 1e-5)]))[0]
    bench.lost_db[port] = -10 * np.log10(wanted / bench.healthy[port])
