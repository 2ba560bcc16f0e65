"""The load: one synthetic cluster, as remote-write requests and as native batches.

208 hosts x 8 ports x 60 counters = 99,840 series, 60 readings each, 10 s apart: the readings end
now. Everything is encoded and compressed before a clock starts, so that the sender costs little.
The same samples go over both protocols, and the same label sets, so also the same series.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import cramjam
import msgspec
import numpy as np
import numpy.typing as npt

from api.data.store.blocks import encode_length as varint
from collector.contract.catalog import Kind, load_catalog
from collector.contract.identity import METRIC_LABEL
from collector.contract.wire import CONTENT_TYPE, VERSION, Batch, encode_batch

PORTS, COUNTERS = 8, 60
SERIES_PER_HOST = PORTS * COUNTERS
HOSTS_PER_RACK = 32
INTERVAL_SECONDS = 10
BLOCK_SECONDS = 7200
"""Prometheus starts a new block every two hours, and every store of ours a new day at one of
them. A load that crosses such an edge measures the edge, so ours ends before it."""
REQUESTS_AT_ONCE = 8
"""The series are spread over so many remote-write requests, about 12,500 each: as many as the
most connections, so that every connection has the same to do and no series changes its own."""

SAMPLE_BYTES = 18
"""A remote-write sample in its series: 12 10 | 09 <8 bytes> | 10 <6 bytes>."""
TIME_BYTES = 6
"""A varint of milliseconds between 1971 and 2109."""


class Request(msgspec.Struct, frozen=True):
    """A whole HTTP request, and the samples in it."""

    wire: bytes
    samples: int


class Load(msgspec.Struct, frozen=True):
    """Series, and one value for each of them at each time."""

    labels: list[dict[str, str]]
    times_ms: list[int]
    values: npt.NDArray[np.float64]
    """Rows are times, columns series."""

    @property
    def samples(self) -> int:
        """How many there are."""
        return self.values.size


PREFIXES = ("fabric_port_", "fabric_nic_")
"""Of all names in a load; what the service writes by itself (findings, health) has others."""


def counter_names() -> list[str]:
    """Names of counters that ports really have, from the catalog."""
    catalog = load_catalog()
    known = [
        metric.name
        for metric in catalog.metrics
        if metric.kind is Kind.COUNTER and not metric.labels and metric.name.startswith(PREFIXES)
    ]
    return known[:COUNTERS]


def make_load(hosts: int, readings: int, seed: int = 1) -> Load:
    """Growing whole-number counters, each with a rate of its own."""
    names = counter_names()
    assert len(names) == COUNTERS, f"the catalog has only {len(names)} counters"
    labels = [
        {
            METRIC_LABEL: name,
            "cluster": "bench",
            "device": f"mlx5_{port}",
            "host": f"node-{host:04d}",
            "instance": f"node-{host:04d}.bench.example:9100",
            "port": "1",
            "rack": f"r{host // HOSTS_PER_RACK:02d}",
        }
        for host in range(hosts)
        for port in range(PORTS)
        for name in names
    ]
    end = latest_end(int(time.time()), (readings - 1) * INTERVAL_SECONDS)
    return Load(labels, times_until(end, readings), counters(len(labels), readings, seed))


def counters(series: int, readings: int, seed: int) -> npt.NDArray[np.float64]:
    """Whole numbers that grow, each series at a rate of its own; rows are times."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 10**7, series)
    growth = rng.poisson(rng.uniform(1, 2000, series), (readings, series))
    values: npt.NDArray[np.float64] = (first + growth.cumsum(axis=0)).astype(np.float64)
    return values


def times_until(end: int, readings: int) -> list[int]:
    """So many times in milliseconds, the last of them at ``end`` (in seconds)."""
    return [(end - back * INTERVAL_SECONDS) * 1000 for back in reversed(range(readings))]


def latest_end(now: int, span: int) -> int:
    """The latest moment, on the interval's grid, whose span crosses no edge of a block."""
    end = now // INTERVAL_SECONDS * INTERVAL_SECONDS
    edge = end // BLOCK_SECONDS * BLOCK_SECONDS
    return end if end - span >= edge else edge - INTERVAL_SECONDS


# --- remote write ------------------------------------------------------------------------------


def field(number: int, payload: bytes) -> bytes:
    """A protobuf field of a length and bytes."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


class Template:
    """A remote-write body of some series, some samples each, whose numbers can be replaced."""

    def __init__(self, labels: list[dict[str, str]], readings: int = 1) -> None:
        empty = field(2, b"\x09" + bytes(8) + b"\x10" + bytes(TIME_BYTES))
        assert len(empty) == SAMPLE_BYTES
        entries = [
            field(
                1,
                b"".join(
                    field(1, field(1, name.encode()) + field(2, text.encode()))
                    for name, text in sorted(each.items())
                )
                + empty * readings,
            )
            for each in labels
        ]
        self._body = np.frombuffer(b"".join(entries), dtype=np.uint8).copy()
        ends = np.cumsum([len(entry) for entry in entries])[:, np.newaxis]
        # (series, readings, 1): where each sample ends.
        ends = (ends - SAMPLE_BYTES * np.arange(readings)[::-1])[:, :, np.newaxis]
        self._values_at = ends - TIME_BYTES - 9 + np.arange(8)
        self._times_at = ends - TIME_BYTES + np.arange(TIME_BYTES)

    def fill(self, values: npt.NDArray[np.float64], times_ms: list[int]) -> bytes:
        """The body with these values, a row for each time, as a snappy block."""
        stamps = b"".join(map(varint, times_ms))
        assert len(stamps) == TIME_BYTES * len(times_ms)
        columns = np.ascontiguousarray(values.T, dtype="<f8").view(np.uint8)
        self._body[self._values_at] = columns.reshape(self._values_at.shape)
        self._body[self._times_at] = np.frombuffer(stamps, dtype=np.uint8).reshape(-1, TIME_BYTES)
        return bytes(cramjam.snappy.compress_raw(self._body.tobytes()))


def remote_bodies(
    load: Load, spread: int = REQUESTS_AT_ONCE, readings: int = 1
) -> Iterator[tuple[int, bytes, int]]:
    """Compressed bodies in order of time: which series they are of, the bytes, their samples.

    The series are spread over so many bodies, each with so many readings of them.
    """
    assert len(load.times_ms) % readings == 0, f"{len(load.times_ms)} readings, {readings} a body"
    size = -(-len(load.labels) // spread)
    starts = range(0, len(load.labels), size)
    templates = [Template(load.labels[start : start + size], readings) for start in starts]
    for at in range(0, len(load.times_ms), readings):
        times, values = load.times_ms[at : at + readings], load.values[at : at + readings]
        for number, (start, template) in enumerate(zip(starts, templates, strict=True)):
            some = values[:, start : start + size]
            yield number, template.fill(some, times), some.size


def remote_requests(
    load: Load,
    path: str,
    connections: int,
    *,
    spread: int = REQUESTS_AT_ONCE,
    readings: int = 1,
) -> list[list[Request]]:
    """A queue of requests for each connection; a series always travels on the same one."""
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    queues: list[list[Request]] = [[] for _ in range(connections)]
    for number, body, samples in remote_bodies(load, spread, readings):
        queues[number % connections].append(Request(http_post(path, headers, body), samples))
    return queues


# --- native ------------------------------------------------------------------------------------


def native_bodies(load: Load, readings: int) -> Iterator[tuple[int, bytes, int]]:
    """Batches of so many readings in order of time: the agent, the bytes, their samples."""
    hosts = len(load.labels) // SERIES_PER_HOST
    own, tables = ("device", "port"), []
    for host in range(hosts):
        rows = load.labels[host * SERIES_PER_HOST : (host + 1) * SERIES_PER_HOST]
        table = [(row[METRIC_LABEL], {name: row[name] for name in own}) for row in rows]
        common = {k: v for k, v in rows[0].items() if k not in (METRIC_LABEL, *own)}
        tables.append((common, msgspec.Raw(msgspec.msgpack.encode(table))))
    index = np.arange(SERIES_PER_HOST, dtype="<u4")
    for number, at in enumerate(range(0, len(load.times_ms), readings)):
        times = np.array(load.times_ms[at : at + readings], dtype="<i8")
        for host, (common, table_bytes) in enumerate(tables):
            mine = slice(host * SERIES_PER_HOST, (host + 1) * SERIES_PER_HOST)
            batch = Batch(
                version=VERSION,
                agent=common["host"],
                boot="bench",
                sequence=number,
                sent_ms=int(times[-1]),
                common=common,
                series=table_bytes,
                index=np.tile(index, len(times)).tobytes(),
                time_ms=np.repeat(times, SERIES_PER_HOST).tobytes(),
                value=load.values[at : at + readings, mine].astype("<f8").tobytes(),
            )
            yield host, encode_batch(batch), batch.sample_count


def native_requests(load: Load, path: str, connections: int, readings: int) -> list[list[Request]]:
    """A queue of requests for each connection; an agent always has the same one."""
    headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": "zstd"}
    queues: list[list[Request]] = [[] for _ in range(connections)]
    for agent, body, samples in native_bodies(load, readings):
        queues[agent % connections].append(Request(http_post(path, headers, body), samples))
    return queues


def http_post(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of a request; the connection stays open."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "User-Agent: fabricscope-bench"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body
