"""Hours of readings of optics, kept in memory: each round asks for the cells that are new.

The queries are PromQL, so that aliases of other exporters and roll-ups work as everywhere. For one
thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alerts.optics.history import PRE_FEC_KP4, PRE_FEC_KR4, End, History
from api.base.limits import QUERY_SECONDS_DEFAULT
from api.base.optics_limits import OPTICS_SERIES_MAX
from api.fabric.model import Topology
from api.promql.engine import Engine, Question
from api.promql.values import Grid, Vector
from collector.contract.identity import PortId
from collector.contract.units import NS_PER_MS
from collector.contract.verdict import Culprit

STEP_SECONDS: Final = 300
"""A cell. Modules are read every minute, switches every minute or two."""
CELLS: Final = 72
"""Six hours: the longest look back of `alerts.optics.trend`."""
SETTLE_SECONDS: Final = 120
"""How long after its end a cell is read: agents and pollers send within a minute."""
PAM4_LEAST_BITS: Final = 2e11
"""Links from 200 Gb/s on have lanes with four levels, whose code repairs more; of slower ones the
kind is not known, and the stricter limit holds."""
CODEWORD_BITS: Final = 5440
"""RS(544,514): symbols of ten bits."""

Line = NDArray[np.float32]
Key = tuple[str, ...]
"""Host, device and port, and behind them a lane or a serial number. A NIC's interface has no
port."""


class Asked(NamedTuple):
    """One query, and the labels that tell its series apart."""

    text: str
    labels: tuple[str, ...]


NIC, PORT = ("host", "device"), ("host", "device", "port")
QUERIES: Final = {
    # Error rates before correction, the best first.
    "nic_ber": Asked(
        "max by (host, device) (avg_over_time(fabric_nic_module_pre_fec_bit_error_ratio"
        '{side="media"}[5m]))',
        NIC,
    ),
    "nic_bits": Asked(
        "sum by (host, device) (rate(fabric_nic_phy_receive_corrected_bits_total[5m]))", NIC
    ),
    "nic_blocks": Asked(
        "sum by (host, device) (rate(fabric_nic_phy_receive_fec_corrected_blocks_total[5m]))", NIC
    ),
    "port_ber": Asked(
        "max by (host, device, port) "
        "(avg_over_time(fabric_port_receive_fec_pre_bit_error_ratio[5m]))",
        PORT,
    ),
    "port_bits": Asked(
        "sum by (host, device, port) (rate(fabric_port_receive_fec_corrected_bits_total[5m]))", PORT
    ),
    "port_symbols": Asked(
        "sum by (host, device, port) (rate(fabric_port_receive_fec_symbol_errors_total[5m]))", PORT
    ),
    "port_blocks": Asked(
        "sum by (host, device, port) (rate(fabric_port_receive_fec_corrected_blocks_total[5m]))",
        PORT,
    ),
    "port_lanes": Asked(
        "sum by (host, device, port) (rate(fabric_port_receive_lane_errors_total[15m]))", PORT
    ),
    "nic_speed": Asked("max by (host, device) (fabric_nic_speed_bits_per_second)", NIC),
    "port_speed": Asked("max by (host, device, port) (fabric_port_rate_bits_per_second)", PORT),
    # Where a link was down, or another module is in.
    "nic_downs": Asked(
        "max by (host, device) (changes(fabric_nic_carrier_changes_total[10m]))", NIC
    ),
    "port_state": Asked(
        "min by (host, device, port) (min_over_time(fabric_port_state[10m]))", PORT
    ),
    "nic_module": Asked("max by (host, device, serial) (fabric_nic_module_info)", (*NIC, "serial")),
    # Light and heat.
    "nic_watts": Asked(
        "max by (host, device, lane) (avg_over_time(fabric_nic_module_receive_power_watts[5m]))",
        (*NIC, "lane"),
    ),
    "port_watts": Asked(
        "max by (host, device, port, lane) "
        "(avg_over_time(fabric_port_module_receive_power_watts[5m]))",
        (*PORT, "lane"),
    ),
    "nic_celsius": Asked(
        "max by (host, device) (avg_over_time(fabric_nic_module_temperature_celsius[5m]))", NIC
    ),
    "port_celsius": Asked(
        "max by (host, device, port) (avg_over_time(fabric_port_module_temperature_celsius[5m]))",
        PORT,
    ),
    "nic_celsius_limit": Asked(
        'max by (host, device) (fabric_nic_module_temperature_limit_celsius{level="high_alarm"})',
        NIC,
    ),
    "nic_watts_limit": Asked(
        'max by (host, device) (fabric_nic_module_receive_power_limit_watts{level="low_alarm"})',
        NIC,
    ),
}


class Readings:
    """The last hours, by query and series."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lines: dict[str, dict[Key, Line]] = {name: {} for name in QUERIES}
        self._until_ms = 0
        self.left_out = 0
        """Series past OPTICS_SERIES_MAX, so far."""

    def forget(self) -> None:
        """Another process has read on: start over."""
        self._lines = {name: {} for name in QUERIES}
        self._until_ms = 0

    def refresh(self, now_ms: int) -> bool:
        """Whether there are new cells; raises QueryError and StoreError, and then asks again."""
        step_ms = STEP_SECONDS * 1_000
        until_ms = (now_ms - SETTLE_SECONDS * 1_000) // step_ms * step_ms
        fresh = min(CELLS, (until_ms - self._until_ms) // step_ms)
        if fresh <= 0:
            return False
        grid = Grid(until_ms - (fresh - 1) * step_ms, step_ms, fresh)
        answers = {name: self._ask(asked, grid) for name, asked in QUERIES.items()}
        for name, answer in answers.items():
            self._take(name, QUERIES[name].labels, answer, fresh)
        self._until_ms = until_ms
        return True

    def _ask(self, asked: Asked, grid: Grid) -> Vector:
        question = Question(
            text=asked.text, grid=grid, is_range=True, timeout_s=QUERY_SECONDS_DEFAULT
        )
        value = self._engine.start(question).answer().value
        assert isinstance(value, Vector)
        return value

    def _take(self, name: str, labels: tuple[str, ...], answer: Vector, fresh: int) -> None:
        """Move the lines on, and write what is new behind them."""
        lines = self._lines[name]
        for line in lines.values():
            line[:-fresh] = line[fresh:]
            line[-fresh:] = np.nan
        room = OPTICS_SERIES_MAX - sum(map(len, self._lines.values()))
        for row, found in enumerate(answer.labels):
            key = tuple(found.get(label, "") for label in labels)
            if key not in lines:
                if room <= 0:
                    self.left_out += 1
                    continue
                room -= 1
                lines[key] = np.full(CELLS, np.nan, dtype=np.float32)
            lines[key][-fresh:] = np.where(answer.present[row], answer.values[row], np.nan)
        for key in [key for key, line in lines.items() if np.isnan(line).all()]:
            del lines[key]

    def of(self, name: str) -> Mapping[Key, Line]:
        return self._lines[name]

    def history(self, topology: Topology | None) -> History:
        return make_history(self._lines, topology, self._until_ms)


# From lines to a history -------------------------------------------------------------------------


class Found(NamedTuple):
    """The error rate of an end, and where it comes from."""

    key: Key
    line: Line
    metric: str


def make_history(
    lines: Mapping[str, Mapping[Key, Line]], topology: Topology | None, until_ms: int
) -> History:
    """All that was read, on one grid; an end without an error rate may still have light."""
    rates = {one.key: one for one in error_rates(lines)}
    keys = sorted(
        {
            *rates,
            *(key[:-1] for name in ("nic_watts", "port_watts") for key in lines[name]),
            *(key for name in ("nic_celsius", "port_celsius") for key in lines[name]),
        }
    )
    names = Names(topology)
    unknown = np.full(CELLS, np.nan, dtype=np.float32)
    lanes = [
        (row_key, key[-1], line)
        for name in ("nic_watts", "port_watts")
        for key, line in lines[name].items()
        if (row_key := key[:-1])
    ]
    row_of = {key: row for row, key in enumerate(keys)}
    celsius = {**lines["nic_celsius"], **lines["port_celsius"]}
    modules = modules_by_end(lines)
    return History(
        step_s=float(STEP_SECONDS),
        until_ns=until_ms * NS_PER_MS,
        ends=tuple(names.end_of(key, rates.get(key), speed_of(lines, key)) for key in keys),
        pre_fec=matrix([rates[key].line if key in rates else unknown for key in keys]),
        breaks=np.array(
            [breaks_of(lines, key, modules.get(key, ())) for key in keys], dtype=np.bool_
        ).reshape(len(keys), CELLS),
        celsius=matrix([celsius.get(key, unknown) for key in keys]),
        celsius_limit=np.array([last_of(lines["nic_celsius_limit"].get(key)) for key in keys]),
        watts=matrix([line for _, _, line in lanes]),
        watts_limit=np.array([last_of(lines["nic_watts_limit"].get(key)) for key, _, _ in lanes]),
        lane_end=np.array([row_of[key] for key, _, _ in lanes], dtype=np.int64),
        lane_name=tuple(name for _, name, _ in lanes),
    )


def matrix(rows: list[Line]) -> NDArray[np.float64]:
    return np.array(rows, dtype=np.float64).reshape(len(rows), CELLS)


def last_of(line: Line | None) -> float:
    if line is None or np.isnan(line).all():
        return float("nan")
    return float(line[~np.isnan(line)][-1])


def speed_of(lines: Mapping[str, Mapping[Key, Line]], key: Key) -> float:
    """The highest of these hours: a link that is down for a moment may report a lower one."""
    line = lines["nic_speed" if len(key) == len(NIC) else "port_speed"].get(key)
    if line is None or not (line > 0).any():
        return float("nan")
    return float(line[line > 0].max())


def error_rates(lines: Mapping[str, Mapping[Key, Line]]) -> Iterator[Found]:
    """Of each end the best that was read; counts are shares of the bits of its speed."""
    ways: tuple[tuple[str, str, Callable[[Line, float], Line]], ...] = (
        ("nic_ber", "fabric_nic_module_pre_fec_bit_error_ratio", measured),
        ("nic_bits", "fabric_nic_phy_receive_corrected_bits_total", per_bit),
        ("nic_blocks", "fabric_nic_phy_receive_fec_corrected_blocks_total", by_blocks),
        ("port_ber", "fabric_port_receive_fec_pre_bit_error_ratio", measured),
        ("port_bits", "fabric_port_receive_fec_corrected_bits_total", per_bit),
        ("port_lanes", "fabric_port_receive_lane_errors_total", per_bit),
        ("port_symbols", "fabric_port_receive_fec_symbol_errors_total", per_bit),
        ("port_blocks", "fabric_port_receive_fec_corrected_blocks_total", by_blocks),
    )
    done: set[Key] = set()
    for name, metric, rate in ways:
        for key, line in lines[name].items():
            speed = speed_of(lines, key)
            if key in done or (rate is not measured and np.isnan(speed)):
                continue
            done.add(key)
            yield Found(key, rate(line, speed), metric)


def measured(line: Line, _speed: float) -> Line:
    return line


def per_bit(line: Line, speed: float) -> Line:
    """Wrong bits over all bits; of symbols, nearly each has one wrong bit."""
    return line / np.float32(speed)


def by_blocks(line: Line, speed: float) -> Line:
    """From the share of blocks with an error to that of bits: many errors meet in one block."""
    share = np.clip(line * np.float32(CODEWORD_BITS / speed), 0.0, 0.999)
    found: Line = (-np.log1p(-share) / CODEWORD_BITS).astype(np.float32)
    return found


def breaks_of(
    lines: Mapping[str, Mapping[Key, Line]], key: Key, modules: Sequence[Line]
) -> NDArray[np.bool_]:
    """Cells in which a link was down or its module became another one."""
    found = np.zeros(CELLS, dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        if key in lines["nic_downs"]:
            found |= lines["nic_downs"][key] > 0
        if key in lines["port_state"]:
            found |= lines["port_state"][key] < 4  # noqa: PLR2004 - active
    for line in modules:
        was_there = ~np.isnan(line)
        found[1:] |= was_there[1:] & ~was_there[:-1]
    return found


def modules_by_end(lines: Mapping[str, Mapping[Key, Line]]) -> dict[Key, list[Line]]:
    """Of each interface the lines of its modules, where there was more than one."""
    found: dict[Key, list[Line]] = {}
    for key, line in lines["nic_module"].items():
        found.setdefault(key[:-1], []).append(line)
    return {key: modules for key, modules in found.items() if len(modules) > 1}


class Names:
    """Names of ends: both of a cable, where the topology knows it."""

    def __init__(self, topology: Topology | None) -> None:
        self._topology = topology
        self._netdevs: dict[Key, PortId] = {}
        for port in topology.ports.values() if topology is not None else ():
            if port.netdev:
                self._netdevs[port.id.host, port.netdev] = port.id

    def end_of(self, key: Key, rate: Found | None, speed: float) -> End:
        is_nic = len(key) == len(NIC)
        host, device = key[:2]
        place = self._netdevs.get(key) if is_nic else PortId(host, device, key[2])
        place = place or PortId(host, device, "1")
        labels = dict(zip(NIC if is_nic else PORT, key, strict=True))
        is_slow = speed < PAM4_LEAST_BITS
        return End(
            name=" ".join(dict.fromkeys(key)),
            culprit=self._culprit(place),
            group=place.host,
            cable=self._cable(place),
            metric=rate.metric if rate is not None else "",
            labels=labels,
            limit=PRE_FEC_KR4 if is_slow else PRE_FEC_KP4,
        )

    def _cable(self, place: PortId) -> str:
        link = self._topology.link_of.get(place) if self._topology is not None else None
        return str(link.id) if link is not None else str(place)

    def _culprit(self, place: PortId) -> Culprit:
        """By both ends, if they are known; a switch's port has the switch as its device."""
        link = self._topology.link_of.get(place) if self._topology is not None else None
        ends = [place] if link is None else [link.id.a, link.id.b]
        hosts = [end for end in ends if end.device != end.host]
        switches = sorted(
            (end for end in ends if end.device == end.host), key=lambda end: end != place
        )
        return Culprit(
            host=hosts[0].host if hosts else "",
            device=hosts[0].device if hosts else "",
            port=hosts[0].port if hosts else "",
            switch=switches[0].host if switches else "",
            switch_port=switches[0].port if switches else "",
        )
