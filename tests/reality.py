"""The simulator held against reality: a real ring of eight hosts under two faults, and ours.

`python -m tests.reality record CAPTURES` reads real captures into a small file of figures
(`tests/fixtures/simulator/h200_ring.json`), once. `python -m tests.reality write` simulates the
same ring with the same faults and draws both into docs/.
"""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from collector.contract.collective import Collective, Operation
from collector.formats import Origin, discover

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "tests/fixtures/simulator/h200_ring.json"
RUNS = ("healthy", "net3", "compute5")
RANKS = 8
BIN_SECONDS = 0.01
"""Rates are looked at in bins of ten milliseconds, as the captures were sampled."""
DRAWN_SECONDS = 1.0

Floats = NDArray[np.float64]


class Figures(msgspec.Struct, kw_only=True):
    """What one run shows of itself in the stretch in which its fault acts. Lists go by rank."""

    collectives: int
    """All-reduces in the stretch."""
    transfer_ms: float
    """Last exit minus last entry, median."""
    skew_ms: float
    """Last entry minus first entry, median."""
    last_in: list[int]
    """How often each rank entered last."""
    least_inside: list[int]
    """How often each rank spent the least time inside."""
    exit_ms: list[float]
    """Each rank's exit after the first one's, median."""
    rate_mbps: list[float]
    """Mean of what each NIC sent."""
    peak_mbps: list[float]
    """Its 95th percentile over bins."""
    variation: list[float]
    """Coefficient of variation over bins: the larger one of both directions."""
    drawn_mbps: list[list[float]]
    """What each NIC sent in each bin of a second in the middle."""


class Timeline(NamedTuple):
    """All-reduces as [collectives, ranks] (seconds), and bytes sent/received in bins."""

    entry_s: Floats
    exit_s: Floats
    sent: Floats
    """[ranks, bins]"""
    received: Floats


def figures_of(run: Timeline) -> Figures:
    """The figures of a stretch."""
    inside = run.exit_s - run.entry_s
    scale = 8 / BIN_SECONDS / 1e6
    rates = run.sent * scale
    drawn = int(DRAWN_SECONDS / BIN_SECONDS)
    start = max(0, (rates.shape[1] - drawn) // 2)
    return Figures(
        collectives=len(run.entry_s),
        transfer_ms=median_ms(run.exit_s.max(1) - run.entry_s.max(1)),
        skew_ms=median_ms(run.entry_s.max(1) - run.entry_s.min(1)),
        last_in=np.bincount(run.entry_s.argmax(1), minlength=RANKS).tolist(),
        least_inside=np.bincount(inside.argmin(1), minlength=RANKS).tolist(),
        exit_ms=np.round(
            np.median(run.exit_s - run.exit_s.min(1, keepdims=True), axis=0) * 1e3, 1
        ).tolist(),
        rate_mbps=np.round(rates.mean(1), 1).tolist(),
        peak_mbps=np.round(np.quantile(rates, 0.95, axis=1), 1).tolist(),
        variation=np.round(
            np.maximum(variation_of(run.sent), variation_of(run.received)), 2
        ).tolist(),
        drawn_mbps=np.round(rates[:, start : start + drawn], 0).tolist(),
    )


def median_ms(seconds: Floats) -> float:
    """A median in milliseconds."""
    return round(float(np.median(seconds)) * 1e3, 2)


def variation_of(rates: Floats) -> Floats:
    """Standard deviation over mean, for each row."""
    result: Floats = rates.std(1) / np.maximum(rates.mean(1), 1e-9)
    return result


# --- real ----------------------------------------------------------------------------------------


def read_capture(folder: Path) -> Timeline:
    """One captured run, cut to the stretch of its fault (or to its middle third)."""
    entry, exits = read_all_reduces(folder / "inspector")
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    from_s, to_s = truth.get("fault_on_ns", 0) / 1e9, truth.get("fault_off_ns", 0) / 1e9
    if not from_s:
        third = len(entry) // 3
        from_s, to_s = entry[third].min(), exits[2 * third].max()
    inside = (entry.min(1) >= from_s) & (exits.max(1) <= to_s)
    sent = read_rates(folder / "nic.openmetrics.gz", "transmit", from_s, to_s)
    received = read_rates(folder / "nic.openmetrics.gz", "receive", from_s, to_s)
    return Timeline(entry[inside], exits[inside], sent, received)


def read_all_reduces(folder: Path) -> tuple[Floats, Floats]:
    """Entries and exits of the all-reduces that all ranks have, in order."""
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for path in sorted(folder.glob("*.log")):
        parsed = discover()["nccl_inspector"].parse(
            io.BytesIO(path.read_bytes()), Origin(path.name)
        )
        for record in parsed:
            if not isinstance(record, Collective) or record.operation != Operation.ALL_REDUCE:
                continue
            if record.ranks == RANKS and record.entry_ns and record.exit_ns:
                times = (record.entry_ns, record.exit_ns)
                found.setdefault(record.sequence, {})[record.rank] = times
    rows = [found[number] for number in sorted(found) if len(found[number]) == RANKS]
    table = np.array([[row[rank] for rank in range(RANKS)] for row in rows]) / 1e9
    return table[:, :, 0], table[:, :, 1]


def read_rates(path: Path, direction: str, from_s: float, to_s: float) -> Floats:
    """Bytes in bins: [ranks, bins]."""
    wanted = f"node_network_{direction}_bytes_total{{"
    edges = np.arange(from_s, to_s, BIN_SECONDS)
    series: dict[int, list[tuple[float, float]]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(wanted):
                labels, value, time = line.rsplit(" ", 2)
                host = int(labels.split('instance="node', 1)[1].split('"', 1)[0])
                series.setdefault(host, []).append((float(time), float(value)))
    counts = [
        np.interp(edges, *np.array(series[host]).T) for host in range(RANKS)
    ]
    return np.diff(np.array(counts), axis=1)


def record(captures: Path) -> None:
    """Write the figures of real runs."""
    figures = {name: figures_of(read_capture(captures / name)) for name in RUNS}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_bytes(msgspec.json.encode(figures) + b"\n")


def recorded() -> dict[str, Figures]:
    """The figures of real runs."""
    return msgspec.json.decode(FIGURES.read_bytes(), type=dict[str, Figures])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", captures]:
            record(Path(captures))
        case _:
            sys.exit("usage: python -m tests.reality record CAPTURES | write")
