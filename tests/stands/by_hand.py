"""Evidence computed again from what `/v1/explain` answers, in plain Python, one formula for each.

The formulas are those of `docs/how-to/read-a-verdict.md`. Nothing of the detectors is used: what
they get wrong would be wrong here too.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from collector.contract.units import NS

Answer = dict[str, Any]
TOLERANCE = 0.02
"""Of a value: operations at the edges of a stretch may fall on either side."""
SLOW_FACTOR = 1.33


def computed(answer: Answer, verdict: Answer, evidence: Answer) -> float:
    """The evidence's value, again."""
    metric = evidence["metric"]
    if metric in OF_JOBS:
        [job] = [one for one in answer["jobs"] if one["job"] == evidence["labels"]["job"]]
        return OF_JOBS[metric](Rows({"jobs": [job]}), verdict, evidence)
    if metric in OF_EVENTS:
        return OF_EVENTS[metric](answer, evidence)
    return OF_THINGS.get(metric, series)(answer, evidence)


def is_again(answer: Answer, verdict: Answer, evidence: Answer) -> bool:
    """Whether the recomputed value equals the evidence's."""
    value = float(evidence["value"])
    return abs(computed(answer, verdict, evidence) - value) <= TOLERANCE * abs(value) + 1e-12


# Collectives -------------------------------------------------------------------------------------


class Rows:
    """A job's records as rows, with what plain arithmetic computes of them."""

    def __init__(self, answer: Answer) -> None:
        [self.job] = answer["jobs"]
        columns = self.job["records"]
        names, words = columns["communicators"], columns["operations"]
        wanted: tuple[str, ...] = ("sequence", "size_bytes", "rank", "job_rank")
        wanted += ("entry_ns", "exit_ns", "gap_ns", "step")
        self.rows: list[Answer] = [
            {
                "communicator": names[communicator],
                "operation": words[operation],
                **dict(zip(wanted, rest, strict=True)),
            }
            for communicator, operation, *rest in zip(
                columns["communicator"],
                columns["operation"],
                *(columns[name] for name in wanted),
                strict=True,
            )
        ]

    def meetings(self) -> list[list[Answer]]:
        """Rows of one collective at a time."""
        found = defaultdict(list)
        for row in self.rows:
            if row["operation"] not in {"send", "recv", "send_recv"}:
                found[row["communicator"], row["operation"], row["sequence"]].append(row)
        return list(found.values())

    def gaps(self) -> dict[tuple[int, str, str, int], int]:
        """Time outside before each record: since the rank's latest exit of anything."""
        found = {}
        by_rank = defaultdict(list)
        for row in self.rows:
            by_rank[row["job_rank"]].append(row)
        for rank, own in by_rank.items():
            latest = None
            for row in sorted(own, key=lambda row: (row["entry_ns"], row["exit_ns"])):
                if latest is not None:
                    key = (rank, row["communicator"], row["operation"], row["sequence"])
                    found[key] = max(0, row["entry_ns"] - latest)
                latest = max(latest or 0, row["exit_ns"])
        return found

    def outside(self, ranks: list[int], from_ns: int, to_ns: int) -> list[int]:
        """Of these ranks, gaps summed over each step that lies in this time."""
        steps = self.job["own_times"]
        gaps = self.gaps()
        sums: dict[tuple[int, int | None], int] = defaultdict(int)
        for row in self.rows:
            key = (row["job_rank"], row["communicator"], row["operation"], row["sequence"])
            sums[row["job_rank"], row["step"]] += gaps.get(key, 0)
        return [
            sums[rank, step]
            for rank in ranks
            for step, (start, end) in enumerate(
                zip(steps["start_ns"], steps["end_ns"], strict=True)
            )
            if start >= from_ns and end <= to_ns
        ]


def ranks_named(rows: Rows, verdict: Answer, evidence: Answer) -> list[int]:
    """The ranks that an evidence names, by its labels or its sentence: one, or all of its host."""
    labels, culprit = evidence["labels"], verdict["culprit"]
    host = labels.get("host", culprit.get("host", ""))
    rank = labels.get("rank", culprit.get("rank"))
    is_host = "rank" not in labels and ("host" in labels or evidence["text"].startswith(host))
    if rank is not None and not is_host:
        return [int(rank)]
    return sorted({one["job_rank"] for one in rows.job["ranks"] if one["host"] == host})


def rank_gap(rows: Rows, verdict: Answer, evidence: Answer) -> float:
    """The median over steps of the time outside of collectives."""
    ranks = ranks_named(rows, verdict, evidence)
    return statistics.median(rows.outside(ranks, evidence["from_ns"], evidence["to_ns"])) / NS


def last_in(own: list[Answer]) -> Answer:
    """The rank that entered a collective last."""
    return max(own, key=lambda row: (row["entry_ns"], -row["rank"]))


def least_inside(own: list[Answer]) -> Answer:
    """The rank that spent the least time in it."""
    return min(own, key=lambda row: (row["exit_ns"] - row["entry_ns"], row["rank"]))


def share_of(
    choose: Callable[[list[Answer]], Answer], rows: Rows, verdict: Answer, evidence: Answer
) -> float:
    """The share of the named ranks' collectives in which one of them is the chosen one."""
    ranks = ranks_named(rows, verdict, evidence)
    met = won = 0
    for own in rows.meetings():
        ends = max(row["exit_ns"] for row in own)
        mine = [row for row in own if row["job_rank"] in ranks]
        is_inside = evidence["from_ns"] <= ends <= evidence["to_ns"]
        # In a group within one host, a rank of that host is always the last.
        if is_inside and 0 < len(mine) < len(own):
            met += 1
            won += choose(own) in mine
    return won / max(1, met)


def transfers(rows: Rows, labels: Answer, from_ns: float, to_ns: float) -> list[int]:
    """Last exit minus last entry of a communicator's operations that ended in this time."""
    found = []
    for own in rows.meetings():
        ends = max(row["exit_ns"] for row in own)
        is_kind = own[0]["communicator"] == labels["communicator"] and (
            "size_bytes" not in labels or str(own[0]["size_bytes"]) == labels["size_bytes"]
        )
        if is_kind and from_ns <= ends <= to_ns:
            found.append(ends - max(row["entry_ns"] for row in own))
    return found


def collective_transfer(rows: Rows, verdict: Answer, evidence: Answer) -> float:
    """The median transfer of a communicator's operations."""
    del verdict
    found = transfers(rows, evidence["labels"], evidence["from_ns"], evidence["to_ns"])
    return statistics.median(found) / NS


def exit_ladder(rows: Rows, verdict: Answer, evidence: Answer) -> float:
    """From the first to the last to leave, by medians of how ring neighbours leave."""
    del verdict
    name = evidence["labels"]["communicator"]
    size = largest(rows, name)
    [ring] = [
        [place["rank"] for place in one["places"]]
        for one in rows.job["ladders"]
        if one["communicator"] == name and one["size_bytes"] == size
    ]
    exits = [
        {row["rank"]: row["exit_ns"] for row in own}
        for own in rows.meetings()
        if (own[0]["communicator"], own[0]["size_bytes"]) == (name, size)
        and evidence["from_ns"] <= max(row["exit_ns"] for row in own) <= evidence["to_ns"]
    ]
    leaves, at = [0.0], 0.0
    for here, there in itertools.pairwise(ring):
        at += statistics.median(one[there] - one[here] for one in exits)
        leaves.append(at)
    return (max(leaves) - min(leaves)) / NS


def communicator_vote(rows: Rows, verdict: Answer, evidence: Answer) -> float:
    """Communicators over several hosts whose transfer has grown by more than a third."""
    del verdict
    hosts = defaultdict(set)
    for one in rows.job["ranks"]:
        hosts[one["communicator"]].add(one["host"])
    slow = 0
    for name in (name for name, own in hosts.items() if len(own) > 1):
        labels = {"communicator": name, "size_bytes": str(largest(rows, name))}
        during = transfers(rows, labels, evidence["from_ns"], evidence["to_ns"])
        before = transfers(rows, labels, 0, evidence["from_ns"] - 1)
        slow += statistics.median(during) > SLOW_FACTOR * statistics.median(before)
    return float(slow)


def largest(rows: Rows, communicator: str) -> int:
    return max(int(row["size_bytes"]) for row in rows.rows if row["communicator"] == communicator)


def pending_operations(rows: Rows, verdict: Answer, evidence: Answer) -> float:
    """Operations that at least one rank has not left."""
    del verdict, evidence
    return float(len(rows.job["pending"]))


# Readings ----------------------------------------------------------------------------------------


def lines_of(answer: Answer, metric: str, labels: Answer) -> list[tuple[Answer, list[Any]]]:
    """Things and values of the series that a metric with these labels selects."""
    return [
        (thing, one["values"])
        for thing in answer["things"]
        for one in thing["readings"]
        if one["metric"] == metric and labels.items() <= one["labels"].items()
    ]


def inside(answer: Answer, evidence: Answer, values: list[Any]) -> list[float]:
    """What was read in the cells that begin in the evidence's stretch."""
    start, step = answer["grid"]["start_ns"], answer["grid"]["step_ns"]
    return [
        value
        for cell, value in enumerate(values)
        if value is not None
        and evidence["from_ns"] <= start + cell * step < max(evidence["to_ns"], 1)
    ]


def series(answer: Answer, evidence: Answer) -> float:  # noqa: PLR0911 - as many formulas
    """A series of the catalog: by its name and the unit of the evidence's value."""
    metric, unit = evidence["metric"], evidence["unit"]
    lines = lines_of(answer, metric, evidence["labels"])
    assert lines, f"{metric} {evidence['labels']} is not among what is explained"
    [(thing, values)] = lines
    known = inside(answer, evidence, values)
    if metric in GROWN:
        return float(max(known) - min(value for value in values if value is not None))
    if not metric.endswith("_total"):
        return float(LEVELS.get(metric, last)(known))
    mean = statistics.fmean(known)
    if unit == "changes":
        return sum(known) * float(answer["grid"]["step_ns"]) / NS
    if unit == "ratio" and metric.endswith("_bytes_total"):
        return mean * 8 / float(thing["rate_bits_per_second"])
    if unit == "ratio" and metric == "fabric_host_cpu_seconds_total":
        return of_all_modes(answer, evidence)
    if unit == "ratio" and metric == "fabric_step_phase_seconds_total":
        return mean / ranks_on(answer, thing["name"])
    return mean


def last(known: list[float]) -> float:
    """The latest."""
    return known[-1]


def all_bits(known: list[float]) -> float:
    """Every bit that was set."""
    bits = 0
    for value in known:
        bits |= int(value)
    return float(bits)


GROWN = {"fabric_gpu_remapped_rows_corrected", "fabric_gpu_remapped_rows_uncorrected"}
LEVELS: dict[str, Callable[[list[float]], float]] = {
    "fabric_port_state": min,
    "fabric_nic_up": min,
    "fabric_gpu_up": min,
    "fabric_gpu_pcie_lanes": min,
    "fabric_gpu_pcie_generation": min,
    "fabric_gpu_sm_clock_hertz": statistics.median,
    "fabric_gpu_power_watts": statistics.median,
    "fabric_gpu_utilization_ratio": statistics.median,
    "fabric_gpu_clock_event_reasons": all_bits,
    "fabric_host_tasks_blocked": statistics.fmean,
    "fabric_nic_pcie_write_stalled_ratio": statistics.fmean,
    "fabric_nic_pcie_read_stalled_ratio": statistics.fmean,
}
"""Levels whose latest value does not say it."""


def of_all_modes(answer: Answer, evidence: Answer) -> float:
    """A mode's share of a host's CPU time, cell by cell, and the mean of it."""
    host = {"host": evidence["labels"]["host"]}
    modes = [
        inside(answer, evidence, values) for _, values in lines_of(answer, evidence["metric"], host)
    ]
    [(_, own)] = lines_of(answer, evidence["metric"], evidence["labels"])
    mine = inside(answer, evidence, own)
    return statistics.fmean(
        value / sum(column) for value, column in zip(mine, zip(*modes, strict=True), strict=True)
    )


def ranks_on(answer: Answer, host: str) -> int:
    """How many ranks of all jobs run on a host."""
    return sum(
        len({one["job_rank"] for one in job["ranks"] if one["host"] == host})
        for job in answer["jobs"]
    )


def packets_vanished(answer: Answer, evidence: Answer) -> float:
    """Of what a port has sent in cells that both ends were read in, what never arrived."""
    labels = evidence["labels"]
    sent_by = [
        one for one in answer["things"] if any(each["labels"] == labels for each in one["readings"])
    ]
    [port] = sent_by
    [far] = [one for one in answer["things"] if one["name"] == port["other_end"]]
    pairs = list(zip(packets(port, "transmit"), packets(far, "receive"), strict=True))
    start, step = answer["grid"]["start_ns"], answer["grid"]["step_ns"]
    chosen = [
        (sent, received)
        for cell, (sent, received) in enumerate(pairs)
        if sent is not None
        and received is not None
        and evidence["from_ns"] <= start + cell * step < evidence["to_ns"]
    ]
    total = sum(sent for sent, _ in chosen)
    return float(total - sum(received for _, received in chosen)) / float(total)


def packets(thing: Answer, way: str) -> list[Any]:
    """Packets a second, or where a port does not count them those to one receiver."""
    for name in (f"fabric_port_{way}_packets_total", f"fabric_port_{way}_unicast_packets_total"):
        for one in thing["readings"]:
            if one["metric"] == name:
                values: list[Any] = one["values"]
                return values
    raise AssertionError(thing["name"])


def nic_smoothness(answer: Answer, evidence: Answer) -> float:
    """Deviation over mean of what a NIC sends."""
    name = "fabric_port_transmit_bytes_total"
    [(_, values)] = lines_of(answer, name, evidence["labels"])
    known = inside(answer, evidence, values)
    return statistics.pstdev(known) / statistics.fmean(known)


def last_read(answer: Answer, evidence: Answer) -> float:
    """How much later the latest of a host's GPUs was read than this one."""
    own = f"{evidence['labels']['host']}/gpu/{evidence['labels']['gpu']}"
    beside = f"{evidence['labels']['host']}/gpu/"
    seen = {one["name"]: one["seen_ns"] for one in answer["things"] if one["seen_ns"]}
    newest = max(time_ns for name, time_ns in seen.items() if name.startswith(beside))
    return float(newest - seen[own]) / NS


# Events ------------------------------------------------------------------------------------------


def happened(answer: Answer, evidence: Answer) -> float:
    """How many XIDs of this number the GPU had."""
    wanted = evidence["labels"]
    return float(
        sum(
            event["kind"] == "gpu_xid"
            and event["attributes"].get("xid") == wanted["xid"]
            and event["labels"].get("host") == wanted["host"]
            and event["labels"].get("gpu") == wanted["gpu"]
            and evidence["from_ns"] <= event["time_ns"] <= evidence["to_ns"]
            for event in answer["events"]
        )
    )


def bursts_seen(answer: Answer, evidence: Answer) -> float:
    """How many bursts into a NIC its own sampler reported."""
    wanted = evidence["labels"]
    return float(
        sum(
            event["kind"] == "burst"
            and event["attributes"].get("direction") == "receive"
            and event["labels"].get("host") == wanted["host"]
            and event["labels"].get("device") == wanted["device"]
            and evidence["from_ns"] <= event["time_ns"] < evidence["to_ns"]
            for event in answer["events"]
        )
    )


OF_JOBS: dict[str, Callable[[Rows, Answer, Answer], float]] = {
    "rank_gap": rank_gap,
    "rank_last_in": partial(share_of, last_in),
    "rank_least_inside": partial(share_of, least_inside),
    "collective_transfer": collective_transfer,
    "exit_ladder": exit_ladder,
    "communicator_vote": communicator_vote,
    "pending_operations": pending_operations,
}
OF_EVENTS: dict[str, Callable[[Answer, Answer], float]] = {
    "fabric_gpu_xid_errors_total": happened,
    "bursts_seen": bursts_seen,
}
OF_THINGS: dict[str, Callable[[Answer, Answer], float]] = {
    "packets_vanished": packets_vanished,
    "nic_smoothness": nic_smoothness,
    "last_read": last_read,
}
