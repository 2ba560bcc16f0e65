"""The three stores that take remote write: how to start each, read back, and weigh its data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Protocol

import msgspec

from collector.contract.identity import METRIC_LABEL
from tests.bench.load import Load
from tests.bench.processes import Program, disk_bytes, fabricscope, find_peer
from tests.bench.report import ROOT, BenchError

PROBES = 5
"""Series whose every sample is read back and compared."""
MERGES_MAX = 5


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on disk after the load."""

    data: int
    """The samples alone, merged as far as the store can."""
    indexed: int
    """The samples and what finds them: labels, indexes."""
    folder: int
    """The whole folder as the load left it: logs, caches, parts that wait for a merge."""


class System(Protocol):
    """A store under test."""

    name: str
    title: str
    write_path: str
    ready_path: str

    def command(self, folder: Path, port: int) -> list[str] | None:
        """How to start it on an empty folder; None if it is not here."""

    def check(self, program: Program, load: Load) -> None:
        """Raise BenchError unless what was sent can be read back."""

    def weigh(self, program: Program, folder: Path) -> Disk | None:
        """What the data takes, while the program runs; None if that is known only afterwards."""

    def weigh_stopped(self, folder: Path, load: Load) -> Disk:
        """The same after it was stopped."""


def probes(load: Load) -> list[int]:
    """Columns of the load that are looked at one by one, spread over all of it."""
    last = len(load.labels) - 1
    return [last * probe // (PROBES - 1) for probe in range(PROBES)]


def selector(labels: dict[str, str]) -> str:
    """The selector of exactly one series."""
    others = [f'{name}="{text}"' for name, text in labels.items() if name != METRIC_LABEL]
    return f"{labels[METRIC_LABEL]}{{{','.join(others)}}}"


def compare(name: str, load: Load, column: int, found: list[tuple[int, float]]) -> None:
    """Raise BenchError unless these are exactly the samples of one series."""
    expected = list(zip(load.times_ms, load.values[:, column].tolist(), strict=True))
    if found != expected:
        raise BenchError(
            f"{name}: {selector(load.labels[column])}: sent {len(expected)} samples, "
            f"read back {len(found)}, not the same"
        )


class PrometheusLike:
    """What Prometheus and VictoriaMetrics have in common: how they are asked."""

    name: str

    def _query(self, program: Program, query: str, load: Load) -> list[dict[str, object]]:
        at = str(load.times_ms[-1] / 1000)
        answer = program.get("/api/v1/query", query=query, time=at, nocache="1").json()
        result: list[dict[str, object]] = answer["data"]["result"]
        return result

    def check(self, program: Program, load: Load) -> None:
        """Count everything, and compare a few series sample by sample."""
        span = (load.times_ms[-1] - load.times_ms[0]) // 1000 + 1
        # One metric at a time: without their names, series of two metrics would be the same.
        per_metric = Counter(labels[METRIC_LABEL] for labels in load.labels)
        for metric, series in per_metric.items():
            counts = f"count_over_time({metric}[{span}s])"
            for query, expected in (
                (f"count({counts})", series),
                (f"sum({counts})", series * len(load.times_ms)),
            ):
                result = self._query(program, query, load)
                value = result[0]["value"] if result else None
                if not isinstance(value, list) or float(value[1]) != expected:
                    raise BenchError(f"{self.name}: {query} is {value}, expected {expected}")
        for column in probes(load):
            result = self._query(program, f"{selector(load.labels[column])}[{span}s]", load)
            values = result[0]["values"] if result else []
            assert isinstance(values, list)
            found = [(round(float(at) * 1000), float(text)) for at, text in values]
            compare(self.name, load, column, found)

    def weigh_stopped(self, folder: Path, load: Load) -> Disk:
        """Never asked: `weigh` has answered."""
        raise NotImplementedError(f"{folder} {load.samples}")


class Prometheus(PrometheusLike):
    """Prometheus as a remote-write receiver."""

    name = "prometheus"
    title = "Prometheus"
    write_path = "/api/v1/write"
    ready_path = "/-/ready"

    def command(self, folder: Path, port: int) -> list[str] | None:
        """With an empty configuration: it scrapes no target, not even itself."""
        program = find_peer("prometheus")
        if program is None:
            return None
        (folder / "prometheus.yml").write_text("global: {}\n")
        return [
            str(program),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--web.enable-admin-api",
            "--log.level=warn",
        ]

    def weigh(self, program: Program, folder: Path) -> Disk | None:
        """A snapshot turns the head into a block, which is what stays on disk later."""
        left = disk_bytes(folder / "data")
        snapshot = program.post("/api/v1/admin/tsdb/snapshot")["data"]["name"]
        blocks = folder / "data/snapshots" / str(snapshot)
        data = sum(disk_bytes(chunks) for chunks in blocks.glob("*/chunks"))
        return Disk(data=data, indexed=disk_bytes(blocks), folder=left)


class VictoriaMetrics(PrometheusLike):
    """VictoriaMetrics, single node."""

    name = "victoria-metrics"
    title = "VictoriaMetrics"
    write_path = "/api/v1/write"
    ready_path = "/health"

    def command(self, folder: Path, port: int) -> list[str] | None:
        """Without the offset that hides the newest samples, and without remembered answers."""
        program = find_peer("victoria-metrics")
        if program is None:
            return None
        return [
            str(program),
            f"-storageDataPath={folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-search.latencyOffset=0s",
            "-search.disableCache",
            "-retentionPeriod=1",
            "-loggerLevel=WARN",
        ]

    def check(self, program: Program, load: Load) -> None:
        """As for Prometheus, once it has made what it holds in memory visible."""
        program.get("/internal/force_flush")
        super().check(program, load)

    def weigh(self, program: Program, folder: Path) -> Disk | None:
        """Its own metrics, after a forced merge."""
        left = disk_bytes(folder / "data")
        data, indexed = self._sizes(program)
        for _ in range(MERGES_MAX):
            # It answers before it has merged, and counts replaced parts while they are in use.
            program.get("/internal/force_merge")
            program.settle()
            before, (data, indexed) = data, self._sizes(program)
            if data >= before:
                break
        return Disk(data=data, indexed=indexed, folder=left)

    def _sizes(self, program: Program) -> tuple[int, int]:
        text = program.get("/metrics").text
        sizes = re.findall(r'^vm_data_size_bytes\{type="([^"]+)"\} (\S+)$', text, re.MULTILINE)
        if not sizes:
            raise BenchError("VictoriaMetrics has no vm_data_size_bytes")
        data = sum(float(size) for kind, size in sizes if kind.startswith("storage"))
        return int(data), int(sum(float(size) for _, size in sizes))


class Fabricscope:
    """Ourselves, with the embedded store."""

    name = "fabricscope"
    title = "Fabricscope"
    write_path = "/api/v1/write"
    ingest_path = "/v1/ingest"
    ready_path = "/readyz"

    def command(self, folder: Path, port: int) -> list[str] | None:
        """The default settings, but for numbers of its own, and for rules.

        What is stored is held against the load, and the peers evaluate no rules either.
        """
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "service.toml"
        config.write_text("own_numbers = false\nrules_pack = false\n", encoding="utf-8")
        return [
            fabricscope(),
            "serve",
            "--config",
            str(config),
            "--data",
            str(folder / "data"),
            "--listen",
            f"127.0.0.1:{port}",
            "--log-level",
            "warning",
        ]

    def check(self, program: Program, load: Load) -> None:
        """Compare a few series sample by sample; `weigh_stopped` counts everything."""
        start, end = str(load.times_ms[0] / 1000), str(load.times_ms[-1] / 1000)
        for column in probes(load):
            match = selector(load.labels[column])
            query = {"match": match, "from": start, "to": end}
            items = program.get("/v1/samples", **query).json()["items"]
            found = [
                (int(at), float(value))
                for item in items
                for at, value in zip(item["times_ms"], item["values"], strict=True)
            ]
            compare(self.name, load, column, found)

    def weigh(self, program: Program, folder: Path) -> Disk | None:
        """The service answers no SQL: see `weigh_stopped`."""
        del program, folder
        return None

    def weigh_stopped(self, folder: Path, load: Load) -> Disk:
        """Ask the store in a process of its own: chDB opens one folder a process."""
        left = disk_bytes(folder / "data")
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.weigh_store", str(folder / "data/telemetry")],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise BenchError(f"cannot weigh the store: {done.stderr[-800:]}")
        weight = json.loads(done.stdout)
        counted, expected = (
            (weight["samples"], weight["series"]),
            (load.samples, len(load.labels)),
        )
        if counted != expected:
            raise BenchError(f"fabricscope: stored {counted} (samples, series), sent {expected}")
        return Disk(data=weight["data"], indexed=weight["indexed"], folder=left)
