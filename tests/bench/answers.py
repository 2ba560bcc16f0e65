"""Asks Prometheus' HTTP API, times the answer, and says how two answers differ."""

from __future__ import annotations

import http.client
import socket
import time
from typing import Any
from urllib.parse import urlencode

import msgspec
import numpy as np
import numpy.typing as npt

from collector.contract.identity import METRIC_LABEL
from tests.bench.processes import Program
from tests.bench.report import BenchError

ANSWER_SECONDS = 150.0
"""Longer than any of the programs lets a query run."""
TOLERANCE = 1e-9
"""Relative, of a value: PromQL does not define the order of additions."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, and how far the answers to it can be compared."""

    title: str
    path: str
    parameters: dict[str, str]
    has_ties: bool = False
    """Whether two series may have the same value and only one of them is in the answer."""
    victoria_agrees: bool = True
    """False for `rate`, which VictoriaMetrics defines in its own way: it does not extrapolate."""

    @property
    def target(self) -> str:
        """Path and parameters. ``nocache`` is VictoriaMetrics'; the others ignore it."""
        return f"{self.path}?{urlencode({**self.parameters, 'nocache': '1'})}"


class Asked(msgspec.Struct, frozen=True):
    """One answer and its price."""

    wall_ms: float
    cpu_ms: float
    """Of the program that answered."""
    body: bytes


class Asker:
    """One open connection to a program.

    The standard library's client costs this machine less than others do, most of all on large
    answers. It asks for no compression: that would measure zlib.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._http = http.client.HTTPConnection("127.0.0.1", program.port, timeout=ANSWER_SECONDS)
        self._connect()

    def _connect(self) -> None:
        self._http.close()
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, question: Question) -> Asked:
        """The whole answer; BenchError if it is not a good one."""
        try:
            return self._ask(question)
        except ConnectionError:
            # Servers close connections that were idle for some seconds.
            self._connect()
            return self._ask(question)
        except TimeoutError as error:
            name = self._program.name
            raise BenchError(f"{name}: {question.title}: nothing in {ANSWER_SECONDS} s") from error

    def _ask(self, question: Question) -> Asked:
        cpu, wall = self._program.cpu_seconds(), time.perf_counter()
        self._http.request("GET", question.target)
        answer = self._http.getresponse()
        body = answer.read()
        taken = time.perf_counter() - wall
        spent = self._program.cpu_seconds() - cpu
        if answer.status != http.client.OK:
            said = body[:300].decode(errors="replace")
            raise BenchError(f"{self._program.name}: {question.title}: {answer.status} {said}")
        return Asked(taken * 1000, spent * 1000, body)

    def close(self) -> None:
        """Hang up."""
        self._http.close()


# --- comparing ---------------------------------------------------------------------------------


class Series(msgspec.Struct):
    """One series of an answer, at one moment or at many."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class Points(msgspec.Struct, frozen=True):
    """An answer in an order of its own, so that two can be laid side by side."""

    keys: list[Any]
    """The label sets, or whatever else the answer lists."""
    times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


def read_points(body: bytes, *, with_labels: bool) -> Points:
    """An answer's points, by labels and time, or by time and value alone.

    The metric's name is no part of it: VictoriaMetrics keeps it where Prometheus does not.
    """
    data = msgspec.json.decode(body)["data"]
    if isinstance(data, list):
        return Points(sorted(data), np.zeros(0), np.zeros(0))
    found: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}
    for series in msgspec.convert(data["result"], list[Series]):
        labels = sorted(pair for pair in series.metric.items() if pair[0] != METRIC_LABEL)
        found[tuple(labels)] = series.values if series.value is None else [series.value]
    keys = sorted(found)
    points = [point for key in keys for point in found[key]]
    times = np.array([at for at, _ in points])
    values = np.array([float(text) for _, text in points])
    if with_labels:
        return Points(keys, times, values)
    order = np.lexsort((values, times))
    return Points([], times[order], values[order])


def difference(ours: bytes, theirs: bytes, question: Question) -> str:
    """In what our answer is not theirs; nothing if they are the same."""
    mine, other = (read_points(each, with_labels=not question.has_ties) for each in (ours, theirs))
    if mine.keys != other.keys:
        unlike = set(map(str, mine.keys)) ^ set(map(str, other.keys))
        return f"{len(mine.keys)} entries against {len(other.keys)}, {len(unlike)} only in one"
    if not np.array_equal(mine.times, other.times):
        return f"{len(mine.times)} points against {len(other.times)}, or at other times"
    near = np.isclose(mine.values, other.values, rtol=TOLERANCE, atol=0, equal_nan=True)
    if bool(near.all()):
        return ""
    worst = int(np.argmax(~near))
    return (
        f"{int((~near).sum())} of {len(near)} values, as {mine.values[worst]!r} "
        f"against {other.values[worst]!r}"
    )
