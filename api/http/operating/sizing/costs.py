"""What one unit costs, and where that was measured: the only place with these numbers.

All on two cores of an aarch64 machine, Python 3.11, chDB 26.9, Fabricscope 0.1.0; on faster cores
it is less. `live` is the bench of the whole service in docs/benchmarks.md: simulated hosts of 8
GPUs and 8 NICs in jobs, read every 5 s, three browsers, all rules, at 16 and at 64 hosts. Straight
lines go through these two sizes: everything past 64 hosts is extrapolated.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec


class Line(msgspec.Struct, frozen=True):
    """A cost that grows with the hosts, from two sizes of the live bench."""

    at_16: float
    at_64: float

    @property
    def per_host(self) -> float:
        """Never less than nothing: noise must not make a host free."""
        return max(0.0, (self.at_64 - self.at_16) / 48)

    @property
    def fixed(self) -> float:
        return max(0.0, self.at_64 - 64 * self.per_host)

    def at(self, hosts: float, places: int = 1) -> float:
        """The cost of so many hosts, spread over places that each pay what is fixed.

        >>> Line(2.0, 5.0).at(64), Line(2.0, 5.0).at(112), Line(2.0, 5.0).at(112, 2)
        (5.0, 8.0, 9.0)
        """
        return places * self.fixed + self.per_host * hosts

    def places(self, hosts: float, most: float) -> int:
        """How many places it takes so that each costs so much at most.

        >>> Line(2.0, 5.0).places(112, 5.0)
        2
        """
        return max(1, math.ceil(self.per_host * hosts / (most - self.fixed)))


MEASURED_HOSTS_MAX: Final = 64
GPUS: Final = 8
INTERVAL_S: Final = 5.0

SERIES_PER_HOST: Final = 5_100
"""live: 81,602 series of 16 hosts, 325,976 of 64, what the service computes among them."""
SAMPLES_PER_HOST: Final = 855.0
"""live: 13.7 k/s of 16 hosts, 54.7 k/s of 64: samples a second and host at INTERVAL_S."""

INGEST: Final = Line(0.124, 0.208)
"""live: cores for decode, commit, loop and inventory feed."""
ENGINE: Final = Line(0.237, 0.491)
"""live: cores of the engine's threads: inserts, merges, queries."""
EVALUATE: Final = Line(0.352, 0.477)
"""live: cores for evaluator, rules, roll, job watch, port watch, health."""
QUERY: Final = Line(0.026, 0.053)
"""live: cores for answers and promql, of three browsers."""
MEMORY_MIB: Final = Line(810.0, 1_383.0)
"""live: RSS of the one process."""
ROUND_S: Final = Line(1.74, 3.74)
"""live: a round of verdicts in one process; a round begins every 5 s."""
ROUND_S_MAX: Final = 5.0

PROCESS_SAMPLES_MAX: Final = 75_000.0
"""docs/benchmarks.md, "what falls short": samples a second at which one process is full."""
PROCESS_MEMORY_MIB: Final = 300.0
"""Of a process of Python with the service's packages and no data; the RSS of `fabricscope serve` a
second after its start is 250 to 300 MiB. Counted for each process past the first."""

SAMPLE_BYTES: Final = 1.73
"""ingest: merged, with labels and index."""
COLLECTIVES_PER_GPU: Final = 11.0
"""A second. streams: 440 records of a host in 5 s."""
COLLECTIVE_BYTES: Final = 15.3
"""Two million rows with random durations, merged: made for this table, not recorded."""
STEPS_PER_GPU: Final = 7.25
"""streams: 290 marks of a host in 5 s."""
STEP_BYTES: Final = 8.5
"""As for collectives."""
ROLLUP_BYTES: Final = {300: 10.3, 3_600: 12.0}
"""rollups: of a merged row, by the seconds that it stands for."""
NAME_BYTES: Final = 16.8
"""rollups: the name of a series of one day, with three labels, merged."""
UNMERGED: Final = 0.3
"""Room for parts that wait for their merge and for merges under way. Assumed: the benches' folders
hold twice to twelve times the merged size within minutes of a load, and merge afterwards."""

BUSY: Final = 0.6
"""How busy a core may be on average: bursts, restarts and a process that fails need the rest."""
SHARD_CORES: Final = 16
SHARD_BYTES: Final = 8 << 40
"""Of one server of ClickHouse. Assumed: an ordinary machine."""
REPLICAS: Final = 2
"""Of each shard once there are several: one machine may fail."""
