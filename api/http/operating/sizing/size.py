"""From hosts to machines: arithmetic on `costs`. Pure."""

from __future__ import annotations

import math

import msgspec

from api.http.operating.sizing import costs

DAY_S = 86_400
GIB = 1 << 30


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be watched, and how long it is kept."""

    hosts: int
    gpus_per_host: int = costs.GPUS
    interval_s: float = costs.INTERVAL_S
    retention_days: int = 30
    collectives_days: int = 7
    rollup_5m_days: int = 90
    rollup_1h_days: int = 400

    @property
    def load(self) -> float:
        """How many hosts of the bench send as much: series grow with GPUs and their NICs."""
        share = self.gpus_per_host / costs.GPUS * costs.INTERVAL_S / self.interval_s
        return self.hosts * share


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes. Cores are those of the bench's machine; bytes are of one copy."""

    asked: Asked
    series: int
    samples_per_s: float
    cores: dict[str, float]
    """Busy, on average, by role."""
    processes: dict[str, int]
    """By role, each at most `costs.BUSY` of a core busy."""
    memory_bytes: float
    samples_bytes: float
    records_bytes: float
    rollups_bytes: float
    """With the names of series, which are kept as long."""
    disk_bytes: float
    """With room for merges."""
    shards: int
    replicas: int
    notes: list[str]

    @property
    def cores_needed(self) -> int:
        """With room for bursts and for a process that fails."""
        return math.ceil(sum(self.cores.values()) / costs.BUSY)


def size_of(asked: Asked) -> Size:
    load = asked.load
    samples = load * costs.SAMPLES_PER_HOST
    gpus = asked.hosts * asked.gpus_per_host
    samples_bytes = samples * DAY_S * asked.retention_days * costs.SAMPLE_BYTES
    collectives = costs.COLLECTIVES_PER_GPU * costs.COLLECTIVE_BYTES * asked.collectives_days
    steps = costs.STEPS_PER_GPU * costs.STEP_BYTES * asked.retention_days
    records_bytes = gpus * DAY_S * (collectives + steps)
    series = asked.hosts * asked.gpus_per_host / costs.GPUS * costs.SERIES_PER_HOST
    rollups_bytes = series * rollup_bytes_of_series(asked)
    disk = (samples_bytes + records_bytes + rollups_bytes) * (1 + costs.UNMERGED)
    shards = max(
        costs.ENGINE.places(load, costs.SHARD_CORES * costs.BUSY),
        math.ceil(disk / costs.SHARD_BYTES),
    )
    processes = processes_of(asked)
    count = sum(processes.values())
    memory = costs.MEMORY_MIB.at(load) + (count - 1) * costs.PROCESS_MEMORY_MIB
    return Size(
        asked=asked,
        series=round(series),
        samples_per_s=samples,
        cores={
            "ingest": costs.INGEST.at(load, processes.get("ingest", 1)),
            "store": costs.ENGINE.at(load, shards),
            "evaluate": costs.EVALUATE.at(load, processes.get("evaluate", 1)),
            "query": costs.QUERY.at(load, processes.get("query", 1)),
        },
        processes=processes,
        memory_bytes=memory * (1 << 20),
        samples_bytes=samples_bytes,
        records_bytes=records_bytes,
        rollups_bytes=rollups_bytes,
        disk_bytes=disk,
        shards=shards,
        replicas=costs.REPLICAS if shards > 1 else 1,
        notes=notes_of(asked, is_one=count == 1, shards=shards),
    )


def rollup_bytes_of_series(asked: Asked) -> float:
    """All rows of one series that is there all the time, and its names."""
    kept_days = {300: asked.rollup_5m_days, 3_600: asked.rollup_1h_days}
    rows = sum(
        days * DAY_S / seconds * costs.ROLLUP_BYTES[seconds] for seconds, days in kept_days.items()
    )
    return rows + max(kept_days.values()) * costs.NAME_BYTES


def processes_of(asked: Asked) -> dict[str, int]:
    """One for all where one takes the samples and ends a round before the next one begins."""
    load = asked.load
    is_taken = load * costs.SAMPLES_PER_HOST <= costs.BUSY * costs.PROCESS_SAMPLES_MAX
    if is_taken and evaluators_of(asked) == 1:
        return {"all": 1}
    return {
        # One more, so that one may fail.
        "ingest": costs.INGEST.places(load, costs.BUSY) + 1,
        "query": costs.QUERY.places(load, costs.BUSY) + 1,
        "evaluate": max(evaluators_of(asked), costs.EVALUATE.places(load, costs.BUSY)),
    }


def evaluators_of(asked: Asked) -> int:
    """So many that each ends its share of a round in time."""
    return costs.ROUND_S.places(asked.hosts, costs.ROUND_S_MAX)


def notes_of(asked: Asked, *, is_one: bool, shards: int) -> list[str]:
    """What is not measured, and what is not there."""
    notes = []
    if asked.load > costs.MEASURED_HOSTS_MAX:
        times = asked.load / costs.MEASURED_HOSTS_MAX
        notes.append(
            f"extrapolated: {times:.1f} times the largest measured load, along a straight line"
        )
    if asked.gpus_per_host != costs.GPUS or asked.interval_s != costs.INTERVAL_S:
        notes.append(
            "assumed: series grow with GPUs, samples with GPUs and with 1/interval; measured were "
            f"{costs.GPUS} GPUs every {costs.INTERVAL_S:g} s"
        )
    if not is_one:
        notes.append("more than one process takes: roles in processes of their own, never measured")
    if evaluators_of(asked) > 1:
        notes.append(
            f"{evaluators_of(asked)} evaluators must share the jobs; where one evaluates all of "
            "them, verdicts come later than 5 s after the data, or much later"
        )
    if shards > 1:
        notes.append(f"{shards} shards of ClickHouse: never run with this program")
    return notes
