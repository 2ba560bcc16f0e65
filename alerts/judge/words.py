"""Verdicts in words: what is wrong, the culprit and what to do, for the on-call person. Pure.

A sentence states the verdict's fields and no more: what was not measured is not mentioned, and a
culprit is called by the names that are known. Names come from outside, so what is put into a
command that people may copy is quoted as a shell needs it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from alerts.signals.transfer import slower_by
from collector.contract.cause_facts import Family, Layer
from collector.contract.causes import by_reason
from collector.contract.figures import duration, share, shown
from collector.contract.measurement import undecided_words
from collector.contract.ranks_read import RANKS_READ
from collector.contract.storage import server_of
from collector.contract.verdict import (
    Cause,
    Cost,
    Culprit,
    Evidence,
    Reason,
    Verdict,
)

CULPRITS_NAMED_MAX = 8
INFERRED_JOB_PREFIX = "inferred-"
"""Begins the names that the service made up for jobs without one; sentences leave them out."""
CHANGE_SAID_MIN = 1.05
"""A change below a twentieth is not worth words: steps vary as much by themselves."""
RDMA_DEVICE_PREFIXES = ("mlx", "bnxt_re", "irdma", "rocep", "ibp", "hfi", "qib", "efa")
"""Kernel names of devices that the RDMA tools can open; others are plain interfaces."""

SURE = ((0.9, "almost certain"), (0.7, "likely"), (0.5, "more likely than not"))
"""Words for a confidence from this value on."""
UNSURE = "a suspicion"
UNSURE_MAX = 0.5
"""Up to this a verdict may be turned by what was not read (`alerts.judge.attendance`)."""
DECIDED_MIN = 0.7
"""Below it, where verdicts stop being likely, a verdict names who else it may be and what would
decide (`alerts.judge.undecided`)."""
SEVERAL = 2
ALIKE = 0.8
"""Of the first suspect's share: one with more is accused as much, and the sentence says so."""


def summary(verdict: Verdict) -> str:
    facts, own = verdict.cause.facts, by_reason(verdict.cause, verdict.reason)
    culprits = (verdict.culprit, *verdict.accomplices)
    because = verdict.reason.facts.because
    is_unnamed = verdict.culprit == Culprit(job=verdict.culprit.job)
    if is_unnamed and verdict.cause is Cause.STALL:
        return stall_sentence(verdict)
    if is_unnamed:
        sentence = own.unnamed or facts.unnamed
    else:
        one, several = own.does or facts.does
        is_host = facts.family is Family.RANK and is_whole_host(culprits)
        who = f"The ranks on {names(culprits)}" if is_host else capital(either_of(verdict))
        sentence = f"{who} {several if is_host or len(culprits) > 1 else one}"
        if is_absent(verdict):
            sentence = f"{who}, of which nothing was read, may be what the job waits for"
    says_why = own.unnamed if is_unnamed else own.does
    if because and not says_why and not is_said(verdict):
        sentence += f", because {because}"
    if doubt := doubted(verdict):
        sentence += f", as far as {doubt.value:.0f} of {doubt.baseline:.0f} ranks show"
    effects = [words for words in (slower(verdict), cost(verdict.costs)) if words]
    return f"{sentence}{': ' if effects else ''}{', and '.join(effects)}."


def either_of(verdict: Verdict) -> str:
    """The culprits; or, where the evidence accuses others just as much, `one or the other`."""
    suspects = verdict.undecided.suspects if verdict.undecided is not None else ()
    alike = [one.name for one in suspects if one.share >= ALIKE * suspects[0].share]
    if len(alike) < SEVERAL or verdict.accomplices:
        return names((verdict.culprit, *verdict.accomplices))
    return " or ".join((", ".join(alike[:-1]), alike[-1]))


def is_whole_host(culprits: Sequence[Culprit]) -> bool:
    """Whether the culprits are hosts and nothing on them: then their ranks come late."""
    return all(one == Culprit(job=one.job, host=one.host) and one.host for one in culprits)


def stall_sentence(verdict: Verdict) -> str:
    """A stall without a culprit: which job stands, how long, and why."""
    jobs = sorted({*verdict.jobs, verdict.culprit.job} - {""})
    named = [shown(job) for job in jobs if not job.startswith(INFERRED_JOB_PREFIX)]
    who = f"Job {named[0]}" if len(jobs) == len(named) == 1 else "The job"
    who = f"{len(jobs):,} jobs" if len(jobs) > 1 else who
    if verdict.until_ns is None:
        does = "stand still" if len(jobs) > 1 else "stands still"
    else:
        does = f"stood still for {duration((verdict.until_ns - verdict.since_ns) / 1e9)}"
    known = verdict.reason.facts.because
    because = f", because {known}" if known else ""
    doubt = doubted(verdict)
    absent = f"; {doubt.value:.0f} of {doubt.baseline:.0f} ranks were read" if doubt else ""
    return f"{who} {does}{because}; this evidence names no culprit{absent}."


def doubted(verdict: Verdict) -> Evidence | None:
    """The ranks that were not read, where they could turn the verdict; None where they cannot."""
    if verdict.confidence > UNSURE_MAX:
        return None
    return next((one for one in verdict.evidence if one.metric == RANKS_READ), None)


def is_absent(verdict: Verdict) -> bool:
    """Whether the culprit is a rank that nothing was read of."""
    doubt = doubted(verdict)
    ranks = doubt.labels.get("ranks", "").split(",") if doubt is not None else []
    return verdict.culprit.rank is not None and str(verdict.culprit.rank) in ranks


def action(verdict: Verdict) -> str:
    """What to do next: first what to inspect, then what to change.

    Where ranks that were not read could turn the verdict, nothing is changed before they are read.
    """
    if doubt := doubted(verdict):
        few = f"{doubt.value:.0f} of {doubt.baseline:.0f} ranks are too few to blame any"
        asked = "Collect the files of the other ranks and diagnose again."
        if verdict.undecided is not None:
            asked = verdict.undecided.text
        return f"{asked.removesuffix('.')}: {few}."
    facts = verdict.cause.facts
    is_unnamed = verdict.culprit == Culprit(job=verdict.culprit.job)
    is_anywhere = is_unnamed and facts.layer is Layer.NETWORK
    if verdict.undecided is not None and (
        is_anywhere or len(verdict.undecided.suspects) >= SEVERAL
    ):
        return f"Change nothing yet: {undecided_words(verdict.undecided)}"
    keeps_own = by_reason(verdict.cause, verdict.reason).keeps_action
    text = ("" if keeps_own else verdict.reason.facts.action) or facts.action
    culprit = verdict.culprit
    remove = remove_words(culprit)
    advice = text.format_map(
        {
            "who": names((culprit, *verdict.accomplices)) or "the ranks that are late",
            "host": shown(culprit.host) or "its host",
            "hosts": "their hosts" if verdict.accomplices else shown(culprit.host) or "its host",
            "its": "their" if verdict.accomplices else "its",
            "it_is": "they are" if verdict.accomplices else "it is",
            "switch": shown(culprit.switch) or "the switch",
            "server": shown(server_of(culprit.storage)) or "the file server",
            "storage": shown(culprit.storage) or "the mount",
            "gpu": f" -i {culprit.gpu}" if culprit.gpu is not None else "",
            "remove": capital(remove),
            "remove_lower": remove,
            "inspect": inspect_words(culprit),
            "measure": measure_words(culprit),
        }
    )
    return f"{advice} {facts.afterwards}".rstrip()


# The culprit -------------------------------------------------------------------------------------


def name(culprit: Culprit) -> str:
    """A culprit by its best names; empty if it has none.

    >>> name(Culprit(host="node3", device="mlx5_3", port="1", switch="leaf1", switch_port="Eth4"))
    "node3's NIC mlx5_3 (at port Eth4 of switch leaf1)"
    >>> name(Culprit(job="llama", rank=5, host="node5", gpu=2)), name(Culprit(job="llama", rank=5))
    ('rank 5 on node5 (GPU 2)', 'rank 5 of job llama')
    >>> name(Culprit(switch="spine0")), name(Culprit(host="a", gpu=1)), name(Culprit())
    ('switch spine0', "a's GPU 1", '')
    >>> name(Culprit(job="llama", storage="filer1:/data"))
    'the server filer1 (mount filer1:/data)'
    """
    host, job = shown(culprit.host), shown(culprit.job)
    if culprit.storage:
        server = shown(server_of(culprit.storage))
        return f"the server {server} (mount {shown(culprit.storage)})"
    if culprit.device:
        nic = f"NIC {shown(culprit.device)}"
        extra = [f"port {shown(culprit.port)}"] if culprit.port not in ("", "1") else []
        extra += [f"at {far}"] if (far := switch_name(culprit)) else []
        extra += [f"rank {culprit.rank}"] if culprit.rank is not None else []
        return (f"{host}'s {nic}" if host else nic) + in_brackets(extra)
    if culprit.rank is not None:
        where = f" on {host}" if host else (f" of job {job}" if job else "")
        return f"rank {culprit.rank}{where}" + in_brackets(gpu_words(culprit))
    if culprit.gpu is not None:
        return f"{host}'s GPU {culprit.gpu}" if host else f"GPU {culprit.gpu}"
    return switch_name(culprit) or host or (f"job {job}" if job else "")


def short_name(culprit: Culprit) -> str:
    """A culprit by as few names as find it: of a NIC neither its rank nor its switch's port.

    >>> short_name(Culprit(host="node3", device="mlx5_3", port="1", switch="leaf1", rank=3))
    "node3's NIC mlx5_3"
    >>> short_name(Culprit(rank=3, host="node3"))
    'rank 3 on node3'
    """
    if not culprit.device:
        return name(culprit)
    return name(Culprit(host=culprit.host, device=culprit.device, port=culprit.port))


def names(culprits: Sequence[Culprit]) -> str:
    """Several culprits in one phrase: ranks by their hosts, and a host with its ranks once.

    >>> names([Culprit(rank=1, host="a"), Culprit(rank=3, host="b")])
    'ranks 1 (a) and 3 (b)'
    >>> names([Culprit(rank=rank, host="a") for rank in (4, 2, 3, 8)])
    'ranks 2-4 and 8 on a'
    >>> names([Culprit(host="a"), Culprit(rank=2, host="a"), Culprit(rank=3, host="a")])
    'a (ranks 2 and 3)'
    >>> names([Culprit(rank=1), Culprit(host="b"), Culprit(switch="c")])
    'b, switch c and rank 1'
    """
    if len(culprits) == 1:
        return name(culprits[0])
    are_ranks = [one.rank is not None and not one.device for one in culprits]
    by_host: dict[str, list[int]] = {}
    for one, is_rank in zip(culprits, are_ranks, strict=True):
        if is_rank and one.rank is not None:
            by_host.setdefault(one.host, []).append(one.rank)
    called = []
    for one, is_rank in zip(culprits, are_ranks, strict=True):
        if not is_rank and (named := name(one)):
            own = by_host.pop(one.host, []) if one == Culprit(host=one.host) else []
            called.append(named + in_brackets([rank_words(own)] if own else []))
    return listed([*called, *([ranks_by_host(by_host)] if by_host else [])])


def ranks_by_host(by_host: Mapping[str, Sequence[int]]) -> str:
    if len(by_host) == 1:
        ((host, own),) = by_host.items()
        return rank_words(own) + (f" on {shown(host)}" if host else "")
    ordered = sorted(by_host.items(), key=lambda item: (min(item[1]), item[0]))
    return "ranks " + listed([ranges(own) + in_brackets([shown(host)]) for host, own in ordered])


def rank_words(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(set(ranks)) == 1 else 'ranks'} {ranges(ranks)}"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in order, three and more in a row as a range.

    >>> ranges([7, 1, 2, 3, 5, 6])
    '1-3 and 5-7'
    >>> ranges([0, 1, 2, 3, 8])
    '0-3 and 8'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts: list[str] = []
    for first, last in runs:
        parts += [f"{first}-{last}"] if last > first + 1 else map(str, range(first, last + 1))
    return listed(parts)


def listed(parts: Sequence[str]) -> str:
    """Parts in one line, the last after `and`; past CULPRITS_NAMED_MAX how many more there are."""
    if len(parts) > CULPRITS_NAMED_MAX:
        parts = [*parts[:CULPRITS_NAMED_MAX], f"{len(parts) - CULPRITS_NAMED_MAX:,} more"]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def switch_name(culprit: Culprit) -> str:
    if not culprit.switch:
        return f"port {shown(culprit.switch_port)}" if culprit.switch_port else ""
    switch = f"switch {shown(culprit.switch)}"
    return f"port {shown(culprit.switch_port)} of {switch}" if culprit.switch_port else switch


def gpu_words(culprit: Culprit) -> list[str]:
    return [f"GPU {culprit.gpu}"] if culprit.gpu is not None else []


def in_brackets(parts: Sequence[str]) -> str:
    joined = ", ".join(part for part in parts if part)
    return f" ({joined})" if joined else ""


def capital(text: str) -> str:
    """With a capital at the start of a sentence; names of hosts stay as they are.

    >>> capital("rank 3 on a"), capital("node3's NIC eth0"), capital("drain a")
    ('Rank 3 on a', "node3's NIC eth0", 'Drain a')
    """
    is_ours = text.startswith(
        ("rank ", "ranks ", "port ", "switch ", "job ", "drain ", "take ", "the ")
    )
    return text[:1].upper() + text[1:] if is_ours else text


# Its effect --------------------------------------------------------------------------------------


def is_said(verdict: Verdict) -> bool:
    """Whether the culprit's name already gives the reason: a NIC, slow because of the NIC."""
    return verdict.reason is Reason.NIC and bool(verdict.culprit.device)


def slower(verdict: Verdict) -> str:
    ratio = slower_by(verdict.evidence)
    if ratio is None or not math.isfinite(ratio) or ratio < CHANGE_SAID_MIN:
        return ""
    return f"transfers take {times(ratio)} as long as usual"


def cost(costs: Sequence[Cost]) -> str:
    lossy = [one for one in costs if math.isfinite(one.lost_seconds) and one.lost_seconds > 0]
    if not lossy:
        return ""
    worst = max(lossy, key=lambda one: (one.gpu_hours, one.lost_seconds, one.job))
    job = "" if worst.job.startswith(INFERRED_JOB_PREFIX) else shown(worst.job)
    others = len({one.job for one in lossy}) - 1
    more = f" ({others:,} more {'job loses' if others == 1 else 'jobs lose'} time too)"
    now, without = worst.step_seconds, worst.step_seconds_without
    if now is not None and without is not None and now > without * CHANGE_SAID_MIN:
        loss = f"a step{f' of {job}' if job else ''} takes {compared(now, without)}"
        loss += " or less" if worst.is_at_least else ""
    else:
        least = "at least " if worst.is_at_least else ""
        loss = f"{job or 'the job'} has lost {least}{duration(worst.lost_seconds)}"
        loss += f", {share(worst.lost_share)} of its time meanwhile" if worst.lost_share > 0 else ""
    return loss + (more if others else "")


def compared(value_seconds: float, usual_seconds: float) -> str:
    """Two durations side by side.

    >>> compared(0.6, 0.19)
    '600 ms instead of 190 ms'
    """
    return f"{duration(value_seconds)} instead of {duration(usual_seconds)}"


def times(ratio: float) -> str:
    """A factor in two or three figures.

    >>> times(30.4), times(2.34), times(1.25)
    ('30 times', '2.3 times', '1.25 times')
    """
    digits = 0 if ratio >= 10 else 1 if ratio >= 2 else 2  # noqa: PLR2004 - two to three figures
    return f"{ratio:,.{digits}f} times"


def sure(confidence: float) -> str:
    """A confidence in words and as a number.

    >>> sure(0.93), sure(0.72), sure(0.2)
    ('almost certain (93 %)', 'likely (72 %)', 'a suspicion (20 %)')
    """
    word = next((word for least, word in SURE if confidence >= least), UNSURE)
    return f"{word} ({share(confidence)})"


# What to inspect ---------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A name quoted for a shell, so that no host name becomes a command."""
    return shlex.quote(shown(text))


def is_rdma(device: str) -> bool:
    return device.startswith(RDMA_DEVICE_PREFIXES)


def remove_words(culprit: Culprit) -> str:
    """How to take the culprit out of use meanwhile: a host is drained, a port leaves routing."""
    if culprit.host:
        return f"drain {shown(culprit.host)}"
    if far := switch_name(culprit):
        return f"take {far} out of routing"
    return "take it out of use"


def inspect_words(culprit: Culprit) -> str:
    far = switch_name(culprit)
    if culprit.device and is_rdma(culprit.device):
        tool = f"`mlxlink -d {quoted(culprit.device)} -m -c -e`"
    elif culprit.device:
        device = quoted(culprit.device)
        tool = f"`ethtool {device}; ethtool -m {device}; ethtool -S {device}`"
    else:
        return f"Read the state, transceiver and error counts of {far or 'the link'}"
    host = f"On {shown(culprit.host)} run" if culprit.host else "Run"
    return f"{host} {tool}" + (f" and read the counts of {far}" if far else "")


def measure_words(culprit: Culprit) -> str:
    against = "and compare with the same between two healthy hosts"
    host = shown(culprit.host)
    if culprit.device and is_rdma(culprit.device):
        return (
            f"Run `ib_write_bw -d {quoted(culprit.device)}` between {host or 'its host'} and a "
            f"healthy host, {against}"
        )
    if culprit.device or host:
        over = f" over {shown(culprit.device)}" if culprit.device else ""
        return (
            f"Run `iperf3 -P 8` between {host or 'its host'} and a healthy host{over}, both ways, "
            f"{against}"
        )
    far = switch_name(culprit) or "the link"
    return f"Send a known load (`ib_write_bw`) over {far} and over a peer of it, {against}"
