"""Results of nccl-tests: a table for each test, and the baseline for a job's collectives.

They are held here and not in the store: a table has a few hundred numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from api.jobs.correlate.baseline import Baselines
from collector.contract.collective import Operation
from collector.contract.communicator import HOST
from collector.contract.model import Event, Sample
from collector.formats import nccl_tests
from collector.formats.nccl_tests import GIGA
from collector.parsing.nccl_settings import NIC_RATE

RESULTS_MAX = 200_000
"""Numbers that are held: a thousand files of forty sizes."""
FIELDS: Final = {
    nccl_tests.BUS: "bus_bytes_per_second",
    nccl_tests.ALGORITHM: "algorithm_bytes_per_second",
    nccl_tests.DURATION: "seconds",
    nccl_tests.WRONG: "wrong",
}
"""Of each metric, the member of a `BandwidthRow`."""

Test = tuple[str, str, int]
"""A file, an operation and a number of ranks: one test, or several runs of one."""
Measured = tuple[int, str, str]
"""A size, a type and a placement."""


class BandwidthRow(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a test of nccl-tests, measured one way."""

    size_bytes: int
    """One rank's part, as NCCL counts; of all-gather and the like nccl-tests prints the whole."""
    type: str
    placement: str
    """`out_of_place` or `in_place`."""
    seconds: float | None = None
    algorithm_bytes_per_second: float | None = None
    bus_bytes_per_second: float | None = None
    wrong: float | None = None
    """Values that were wrong; null if the test did not check."""


class BandwidthReport(msgspec.Struct, frozen=True, kw_only=True):
    """One test of nccl-tests in one file."""

    path: str
    operation: str
    ranks: int | None
    is_inferred: bool = False
    """Whether operation or ranks were not stated, and follow from bus over algorithm bandwidth."""
    hosts: int | None = None
    gpus: str = ""
    """Their model, as the test prints it."""
    rows: list[BandwidthRow]
    mean_bus_bytes_per_second: float | None = None
    expected_bus_bytes_per_second: float | None = None
    """The most that the hosts' NICs allow; null where that is not known."""
    expectation: str = ""
    """How that was found, or what is missing for it."""

    @property
    def best_bus_bytes_per_second(self) -> float | None:
        found = (row.bus_bytes_per_second for row in self.rows)
        return max((bus for bus in found if bus is not None), default=None)

    @property
    def wrong(self) -> int:
        """Rows with wrong values."""
        return sum(1 for row in self.rows if row.wrong)


def is_result(sample: Sample) -> bool:
    return sample.series.metric in FIELDS or sample.series.metric == nccl_tests.MEAN


class Results:
    """What the files hold. A test that is run twice in a file has its later numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._rows: dict[Test, dict[Measured, dict[str, float]]] = {}
        self._means: dict[Test, float] = {}
        self._places: dict[tuple[str, int], tuple[list[str], str]] = {}
        """By file and number of ranks, the hosts and the model of their GPUs."""

    def add(self, path: str, sample: Sample) -> str | None:
        """The reason if it is refused."""
        if not math.isfinite(sample.value):
            return "a result that is no number"
        if self._count >= RESULTS_MAX:
            return f"over RESULTS_MAX = {RESULTS_MAX} results"
        self._count += 1
        labels = dict(sample.series.labels)
        test = path, labels.get("operation", ""), to_number(labels.get("ranks", ""))
        rows = self._rows.setdefault(test, {})
        if sample.series.metric == nccl_tests.MEAN:
            self._means[test] = sample.value
            return None
        kind, placement = labels.get("type", ""), labels.get("placement", "")
        measured = to_number(labels.get("bytes", "")), kind, placement
        rows.setdefault(measured, {})[FIELDS[sample.series.metric]] = sample.value
        return None

    def describe(self, path: str, event: Event) -> None:
        """Where a test of this file ran; of two with as many ranks the later one counts."""
        ranks = to_number(event.attributes.get("ranks", ""))
        if len(self._places) < RESULTS_MAX:
            hosts = [name for name in event.attributes.get("hosts", "").split(",") if name]
            self._places[path, ranks] = hosts, event.attributes.get("gpus", "")

    def tests(self, rates: Mapping[str, float]) -> list[BandwidthReport]:
        """In order of files, operations and sizes; ``rates`` is what all NICs of a host can do."""
        reports = []
        for (path, operation, ranks), rows in sorted(self._rows.items()):
            hosts, gpus = self._places.get((path, ranks), ([], ""))
            shown, count = (operation, ranks) if ranks else infer(operation, rows.values())
            expected, why = expect(shown, count, hosts, rates)
            reports.append(
                BandwidthReport(
                    path=path,
                    operation=shown,
                    ranks=count or None,
                    is_inferred=(shown, count) != (operation, ranks),
                    hosts=len(hosts) or None,
                    gpus=gpus,
                    rows=[
                        BandwidthRow(size_bytes=size, type=kind, placement=placement, **values)
                        for (size, kind, placement), values in sorted(rows.items())
                    ],
                    mean_bus_bytes_per_second=self._means.get((path, operation, ranks)),
                    expected_bus_bytes_per_second=expected,
                    expectation=why,
                )
            )
        return reports

    def baselines(self) -> Baselines:
        """The best bus bandwidth by operation, number of ranks and size."""
        best: dict[tuple[str, int], dict[int, float]] = {}
        for (_, operation, ranks), rows in self._rows.items():
            sizes = best.setdefault((operation, ranks), {})
            for (size, _, _), values in rows.items():
                bus = values.get("bus_bytes_per_second")
                if bus is not None:
                    sizes[size] = max(bus, sizes.get(size, 0.0))
        return Baselines({test: sorted(sizes.items()) for test, sizes in best.items()})


FACTOR_NOISE = 0.004
"""Of bus over algorithm bandwidth: nccl-tests prints three figures of each."""
RANKS_INFERRED_MAX = 32
"""With more, one rank more or less changes the factor by less than its noise."""


def infer(operation: str, rows: Iterable[Mapping[str, float]]) -> tuple[str, int]:
    """Operation and ranks of a table whose first lines were cut off, by nccl-tests' own factors.

    The bus bandwidth of an all-reduce is 2 (n - 1) / n of the algorithm's, and of no other
    operation more than that; of an all-gather and its like it is (n - 1) / n.

    >>> rows = [{"bus_bytes_per_second": 78.33e9, "algorithm_bytes_per_second": 41.78e9}]
    >>> infer("other", rows), infer("all_gather", rows), infer("other", [])
    (('all_reduce', 16), ('all_gather', 0), ('other', 0))
    """
    best = max(rows, key=lambda row: row.get("bus_bytes_per_second", 0.0), default={})
    bus = best.get("bus_bytes_per_second", 0.0)
    algorithm = best.get("algorithm_bytes_per_second", 0.0)
    if min(bus, algorithm) < GIGA:
        return operation, 0
    factor = bus / algorithm
    is_reduced = operation in (Operation.OTHER, Operation.ALL_REDUCE)
    if is_reduced and factor > 1 + FACTOR_NOISE:
        return Operation.ALL_REDUCE.value, ranks_of(factor / 2)
    if operation in PARTIAL and factor < 1 - FACTOR_NOISE:
        return operation, ranks_of(factor)
    return operation, 0


def ranks_of(share: float) -> int:
    """The n of (n - 1) / n; 0 where none fits."""
    for ranks in range(2, RANKS_INFERRED_MAX + 1):
        if abs((ranks - 1) / ranks - share) < FACTOR_NOISE / 2:
            return ranks
    return 0


PARTIAL: Final = frozenset({Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL})

# What to expect ----------------------------------------------------------------------------------

THROUGH_ALL: Final = frozenset(
    {
        Operation.ALL_REDUCE,
        Operation.ALL_GATHER,
        Operation.REDUCE_SCATTER,
        Operation.BROADCAST,
        Operation.REDUCE,
    }
)
"""Operations whose rings go through all NICs of a host: their bus bandwidth is at most what these
can do together."""


def nic_rates(events: Iterable[Event]) -> dict[str, float]:
    """By host, what its NICs can do together, in bytes a second; as NCCL's topology has it."""
    found: dict[str, dict[str, float]] = {}
    for event in events:
        host = event.attributes.get(HOST, "")
        for name, value in event.attributes.items():
            if name.startswith(NIC_RATE) and value.isdigit():
                found.setdefault(host, {})[name] = float(value)
    return {host: sum(own.values()) for host, own in found.items()}


def expect(
    operation: str, ranks: int, hosts: Sequence[str], rates: Mapping[str, float]
) -> tuple[float | None, str]:
    """The most bus bandwidth that NICs allow, and how it was found or what is missing.

    >>> expect("all_reduce", 16, ["a", "b"], {"a": 1e11, "b": 1e11})[0]
    100000000000.0
    >>> expect("all_to_all", 16, ["a", "b"], {"a": 1e11, "b": 1e11})[0]
    23437500000.0
    >>> expect("all_reduce", 8, ["a"], {})
    (None, 'one host: NVLink or PCIe decides, and no file has its rate')
    """
    if not hosts:
        return (
            None,
            "the file does not say on which hosts it ran (its lines `# Rank …` are missing)",
        )
    if len(hosts) == 1:
        return None, "one host: NVLink or PCIe decides, and no file has its rate"
    known = [rates[host] for host in hosts if host in rates]
    if len(known) < len(hosts):
        return None, (
            f"the NICs' rates are known of {len(known)} of {len(hosts)} hosts: NCCL prints them "
            "with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH"
        )
    least, local = min(known), max(1, ranks // len(hosts))
    together = f"{least / GIGA:.4g} GB/s of NICs in the slowest of {len(hosts)} hosts"
    if operation in THROUGH_ALL:
        return least, f"{together}, all of them in a ring; less for protocols and small sizes"
    if operation == Operation.ALL_TO_ALL and ranks > local:
        # Of what a rank sends, (ranks - local) / (ranks - 1) goes to other hosts.
        bound = least / local * (ranks - 1) / (ranks - local)
        return bound, f"{together}, shared by {local} ranks that send to all others"
    return None, f"what {operation} may reach is not known"


def to_number(text: str) -> int:
    """A label's whole number; 0 where it has none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0  # noqa: PLR2004 - 64 bits
