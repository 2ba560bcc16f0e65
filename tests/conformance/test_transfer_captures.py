"""Slow links in real collectives: eight ranks, each with a NIC of its own, one slowed down.

The captures lie beside the checkout; without them the tests are skipped. Records are joined
without a store, which is fast enough to try many clocks and many parts of a run.
"""

import gzip
import io
import math
from functools import cache

import msgspec
import numpy as np
import pytest

from alerts.detectors.slow_link import detect
from alerts.finding import Finding
from alerts.window.clocks import align
from alerts.window.columns import Records
from alerts.window.common_clock import correct
from alerts.window.model import Communicator, JobWindow, Rank, Window
from alerts.window.split import split
from collector.contract.collective import Collective
from collector.formats import Origin, discover
from tests.tools.captures import RINGS
from tests.worlds.collectives import shift_clocks, to_columns
from tests.worlds.ring_jobs import make_window

SLOW = {"net3": 3, "half4": 4, "tree_net2": 2, "groups_net3": 3}
"""Runs with a slow NIC, and whose."""
NOT_SLOW = ("healthy", "noisy", "ckpt", "hang6", "compute5", "cpu2", "groups_cpu6")
SHIFT_NS = 2e9
DRIFT = 5e-5

pytestmark = pytest.mark.skipif(
    not (RINGS / "net3").is_dir(), reason="no captures beside the repository"
)
each_slow_run = pytest.mark.parametrize("run", SLOW)


@cache
def records_of(run: str) -> Records:
    """What Inspector wrote of the run's own job; an aborted start may have left others."""
    found: list[Collective] = []
    for path in sorted((RINGS / run / "inspector").glob("*.log")):
        content = path.read_bytes()
        if content.count(b"\n") > 5:
            stream = io.BytesIO(content)
            parsed = discover()["nccl_inspector"].parse(stream, Origin(path.name))
            found += [record for record in parsed if isinstance(record, Collective)]
    return to_columns(found)


def window_of(records: Records) -> Window:
    """The job of these records, its clocks aligned, without a known topology."""
    fits = align(records)
    records = correct(records, fits)
    communicators = {}
    for code, name in enumerate(records.communicators):
        own = records.communicator == code
        hosts = dict(zip(records.rank[own].tolist(), records.host[own].tolist(), strict=True))
        communicators[name] = Communicator(name=name, ranks=len(hosts), job_rank=hosts)
    job = JobWindow(
        job="captured",
        size=len(records.hosts),
        ranks={
            number: Rank(rank=number, host=host, devices=("eth0",))
            for number, host in enumerate(records.hosts)
        },
        communicators=communicators,
        source="nccl_inspector",
        records=records,
        operations=split(records),
        clocks=fits,
    )
    return make_window(job)


def culprits(findings: list[Finding]) -> list[str]:
    return [found.culprit.host for found in findings]


@each_slow_run
def test_the_slow_nic_is_named(run: str) -> None:
    (found,) = detect(window_of(records_of(run)))
    assert found.culprit.host == f"node{SLOW[run]}"
    assert found.suspects[0].share > 0.5
    assert found.strength > 0.7


@each_slow_run
def test_the_slow_nic_is_named_whatever_the_clocks_say(run: str) -> None:
    records = records_of(run)
    for seed in range(4):
        random = np.random.default_rng([seed, len(run)])
        hosts = len(records.hosts)
        shifted = shift_clocks(
            records,
            random.uniform(-SHIFT_NS, SHIFT_NS, hosts),
            random.uniform(-DRIFT, DRIFT, hosts),
        )
        assert culprits(detect(window_of(shifted))) == [f"node{SLOW[run]}"]


@each_slow_run
def test_it_began_and_ended_when_the_fault_did(run: str) -> None:
    """To within the step that it fell into, by the truth that lies beside the capture."""
    truth = msgspec.json.decode((RINGS / run / "truth.json").read_bytes())
    times = [value for value in numbers_in(truth) if 1.7e18 < value < 2e18]
    (found,) = detect(window_of(records_of(run)))
    assert min(abs(found.since_ns - time) for time in times) < 1.5e9
    assert min(abs(found.last_ns - time) for time in times) < 1.5e9


def numbers_in(value: object) -> list[float]:
    """All numbers in a decoded document, however deep."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers_in(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers_in(item)]
    return [float(value)] if isinstance(value, int | float) and math.isfinite(value) else []


@each_slow_run
def test_the_beginning_of_the_fault_is_enough(run: str) -> None:
    """A capture that ends ten steps into the fault names the same NIC."""
    records = records_of(run)
    (whole,) = detect(window_of(records))
    until = whole.since_ns + (whole.last_ns - whole.since_ns) // 3
    cut: Records = records.select(records.exit_ns <= until)
    assert culprits(detect(window_of(cut))) == [f"node{SLOW[run]}"]


def test_without_any_healthy_time_the_ladder_is_enough() -> None:
    """The middle of the fault alone, as if it had been so for ever."""
    records = records_of("net3")
    (whole,) = detect(window_of(records))
    lasted = whole.last_ns - whole.since_ns
    inside = (records.entry_ns > whole.since_ns + lasted // 10) & (
        records.exit_ns < whole.last_ns - lasted // 10
    )
    (found,) = detect(window_of(records.select(inside)))
    assert found.culprit.host == "node3"
    assert found.evidence[0].baseline is None
    assert found.strength < 0.7 * whole.strength


@each_slow_run
def test_what_is_said_against_a_straggler_speaks_against_it(run: str) -> None:
    """Behind a slow NIC ranks come late only because they left late."""
    (found,) = detect(window_of(records_of(run)))
    (ruled_out,) = found.ruled_out
    assert ruled_out.what == "straggler"
    assert ruled_out.why.startswith("No rank comes later")


@pytest.mark.parametrize("run", NOT_SLOW)
def test_nobody_is_accused_of_what_is_not_the_networks(run: str) -> None:
    records = records_of(run)
    assert detect(window_of(records)) == []
    random = np.random.default_rng(len(run))
    hosts = len(records.hosts)
    shifted = shift_clocks(
        records, random.uniform(-SHIFT_NS, SHIFT_NS, hosts), random.uniform(-DRIFT, DRIFT, hosts)
    )
    assert detect(window_of(shifted)) == []


@pytest.mark.parametrize("run", ["healthy", "noisy", "ckpt", "hang6", "compute5"])
def test_nobody_is_accused_in_any_part_of_a_healthy_run(run: str) -> None:
    """Other runs of the same machines are like other parts of this one."""
    records = records_of(run)
    entries = np.sort(records.entry_ns)
    for part in range(12):
        first, last = entries[len(entries) * part // 24], entries[len(entries) * (part + 12) // 24]
        cut: Records = records.select((records.entry_ns >= first) & (records.entry_ns < last))
        assert detect(window_of(cut)) == []


@pytest.mark.parametrize("run", ["net3", "half4", "tree_net2"])
def test_a_profile_of_five_slow_steps_is_enough(run: str) -> None:
    """torch.profiler's traces cover the first steps of the fault."""
    found: list[Collective] = []
    for rank in range(8):
        path = RINGS / run / "kineto" / f"rank{rank}.pt.trace.json.gz"
        stream = io.BytesIO(gzip.decompress(path.read_bytes()))
        parsed = discover()["kineto"].parse(stream, Origin(path.name))
        seen = [record for record in parsed if isinstance(record, Collective)]
        # The traces know no hosts: each rank of this job has its own.
        found += [msgspec.structs.replace(record, host=f"node{rank}") for record in seen]
    assert culprits(detect(window_of(to_columns(found)))) == [f"node{SLOW[run]}"]
