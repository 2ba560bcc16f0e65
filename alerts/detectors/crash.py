"""Jobs whose processes have died, and the one that died first, by what they printed.

*Phenomenon.* One process runs out of memory, fails in its program, is killed, or loses its GPU or
its host. Its peers lose their connections or wait for it until their watchdogs end them, and every
one of them prints errors, mostly louder than the first.

*Signal.* The last words of each process, in order (`collector.parsing.dying_words`). A process
whose first words are of a failure of its own is accused; one that first complains about others, or
that prints nothing at all, is not. Launchers and kernels accuse by signal: SIGKILL and SIGSEGV are
a process' own end, SIGABRT and SIGTERM are what watchdogs and launchers do to the others. Peers
that name an address accuse its host where two of them do and it has not complained before. Where
no process is accused, the job died without a culprit, and that is the verdict.

*Assumptions.* Hosts' clocks agree to within seconds; orders within them are not used. The logs are
of one run.

*Misses.* A process that is killed prints nothing: without a launcher's line or dumps of the others
it has no name. Ranks in one file without prefixes. Programs that catch their own failure and hang.

*Reference.* First fatal error across ranks, and victims by their kind of error: Meta's "Revisiting
reliability in large-scale ML research clusters" (2024), and ByteRobust (SOSP'25). A rank that
signals a time-out is not its cause: own recordings of killed ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from alerts.finding import Finding
from alerts.signals.addresses import addresses_of
from alerts.window.model import JobWindow, Window
from collector.contract.communicator import HOST, PID, RANK, RANKS_MAX
from collector.contract.identity import whole_number
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

LAST_WORDS = "last_words"
"""A kind of events (`collector.parsing.last_words`)."""
TOGETHER_NS = 2 * NS
"""Times of two hosts closer than this have no order: stamps have whole seconds."""
MINORITY = 1 / 3
"""Of a job's ranks that may be accused: where more fail alike, it is what they share."""
ACCUSERS_MIN = 2
"""Hosts that must have lost the same peer: of one connection, either end may be at fault."""
EVIDENCE_MAX = 8
VICTIMS_MAX = 64
TEXT_MAX = 240
RANKS_SHOWN = 8
OWN, PEER, END = "own", "peer", "end"
DOUBTFUL = ("cuda_error", "nccl_cuda")
"""Failures of its own that a rank also prints when its communicator was aborted."""

KERNEL = ("xid", "sxid", "oom_killer")
"""Words of a kernel."""

Who = tuple[str, ...]


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The last words of one process, in order."""

    who: Who
    rank: int | None
    host: str
    events: tuple[Event, ...]

    @property
    def first(self) -> Event | None:
        """What it said first of those words that tell a failure from a complaint."""
        return next((one for one in self.events if role_of(one) in (OWN, PEER, END)), None)


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """Who died first, if that is known, and by which words."""

    cause: Cause
    reason: Reason
    strength: float
    accused: tuple[Said, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    shown: tuple[Event, ...] = ()


def detect(window: Window) -> list[Finding]:
    found = []
    for name, events in by_job(window).items():
        job = next((one for one in window.jobs if one.job == name), None)
        finding = detect_job(window, job, events)
        if finding is not None:
            found.append(finding)
    return found


def by_job(window: Window) -> dict[str, list[Event]]:
    """Last words by the job that they name; those that name none are the only job's."""
    only = window.jobs[0].job if len(window.jobs) == 1 else ""
    found: dict[str, list[Event]] = {}
    for event in window.events:
        if event.kind == LAST_WORDS:
            found.setdefault(event.labels.get("job", "") or only, []).append(event)
    return dict(sorted(found.items()))


def detect_job(window: Window, job: JobWindow | None, events: Sequence[Event]) -> Finding | None:
    if not any(event.attributes.get("proof") for event in events):
        return None
    speakers = speakers_of(job, events)
    size = max(job.size if job is not None else 0, len({one.rank for one in speakers} - {None}))
    addresses = addresses_of(window.events)
    named = (
        by_own_words(job, speakers, size)
        or by_peers(job, speakers, addresses)
        or by_absence(job, speakers, size)
        or unnamed(speakers)
    )
    return to_finding(window, job, named, speakers, addresses)


# Who said what -----------------------------------------------------------------------------------


def role_of(event: Event) -> str:
    return event.attributes.get("role", "")


def order_of(event: Event) -> tuple[int, str, int]:
    line = whole_number(event.attributes.get("line", ""), 1 << 40)
    return event.time_ns, event.attributes.get("file", ""), line or 0


def rank_of(event: Event) -> int | None:
    return whole_number(event.labels.get(RANK, ""), RANKS_MAX)


def speakers_of(job: JobWindow | None, events: Sequence[Event]) -> list[Said]:
    """The words of each process, whoever said them; one that is known by nothing is its file."""
    named = {short(e.labels.get(HOST, "")) for e in events if not is_of_kernel(e)} - {""}
    ours = [event for event in events if is_ours(job, event, named)]
    ranks = ranks_of_processes(ours)
    by_who: dict[Who, list[Event]] = {}
    for event in ours:
        by_who.setdefault(who_of(event, ranks), []).append(event)
    merge_hosts(job, by_who)
    found = []
    for who, own in sorted(by_who.items()):
        rank = int(who[1]) if who[0] == "rank" else None
        host = next((one.labels[HOST] for one in own if one.labels.get(HOST)), "")
        if not host and rank is not None and job is not None and rank in job.ranks:
            host = job.ranks[rank].host
        ordered = tuple(sorted(own, key=order_of))
        found.append(Said(who=who, rank=rank, host=host, events=ordered))
    return found


def is_ours(job: JobWindow | None, event: Event, named: Collection[str]) -> bool:
    """Whether words can be of this job.

    A kernel speaks of all that runs on its host: it is heard where the job, or one of its processes
    or launchers, names that host, and where no other process says anything.
    """
    host = short(event.labels.get(HOST, ""))
    hosts = {short(rank.host) for rank in job.ranks.values()} - {""} if job is not None else set()
    if not host or host in hosts:
        return True
    if is_of_kernel(event):
        return not hosts and (host in named or not named) and job is None
    return not hosts


def is_of_kernel(event: Event) -> bool:
    return event.attributes.get("words") in KERNEL


def short(host: str) -> str:
    return host.partition(".")[0]


def who_of(event: Event, ranks: Mapping[Who, int]) -> Who:
    rank, host, pid = rank_of(event), event.labels.get(HOST, ""), event.labels.get(PID, "")
    if rank is None and pid:
        rank = ranks.get((host, pid), ranks.get(("", pid)))
    if rank is not None:
        return ("rank", str(rank))
    if host and pid:
        return ("process", host, pid)
    if host:
        return ("host", host)
    if pid:
        return ("process", "", pid)
    return ("file", event.attributes.get("path", ""), event.attributes.get("file", ""))


def ranks_of_processes(events: Sequence[Event]) -> dict[Who, int]:
    """The rank of each process that some line names by both; one with two ranks is left out."""
    found: dict[Who, set[int]] = {}
    for event in events:
        rank, host, pid = rank_of(event), event.labels.get(HOST, ""), event.labels.get(PID, "")
        if rank is not None and pid:
            for key in {(host, pid), ("", pid)}:
                found.setdefault(key, set()).add(rank)
    return {key: next(iter(own)) for key, own in found.items() if len(own) == 1}


def merge_hosts(job: JobWindow | None, by_who: dict[Who, list[Event]]) -> None:
    """What is said of a host alone is said of its only process that failed, if there is one."""
    for who in [who for who in by_who if who[0] == "host"]:
        there = [
            other
            for other, own in by_who.items()
            if other[0] in ("rank", "process")
            and any(role_of(event) == OWN for event in own)
            and who[1] in hosts_of(job, other, own)
        ]
        if len(there) == 1:
            by_who[there[0]] += by_who.pop(who)


def hosts_of(job: JobWindow | None, who: Who, events: Sequence[Event]) -> set[str]:
    hosts = {event.labels.get(HOST, "") for event in events}
    if who[0] == "rank" and job is not None and int(who[1]) in job.ranks:
        hosts.add(job.ranks[int(who[1])].host)
    return hosts - {""}


def culprit_of(job: JobWindow | None, said: Said) -> Culprit:
    if said.rank is not None and job is not None:
        known = job.culprit(said.rank)
        return msgspec.structs.replace(known, host=known.host or said.host)
    return Culprit(job=job.job if job is not None else "", rank=said.rank, host=said.host)


def has_place(said: Said) -> bool:
    return said.rank is not None or bool(said.host)


def is_proven(said: Said) -> bool:
    return any(one.attributes.get("proof") for one in said.events)


# The culprit -------------------------------------------------------------------------------------


def by_own_words(job: JobWindow | None, speakers: Sequence[Said], size: int) -> Named | None:
    """Processes whose first words are of a failure of their own, the earliest of them."""
    first = {one.who: one.first for one in speakers}
    failed = [one for one in speakers if role_of_first(first[one.who]) == OWN]
    others = [
        said
        for one in speakers
        if (said := first[one.who]) is not None and role_of(said) in (PEER, END)
    ]
    failed = [one for one in failed if is_first(first[one.who], others)]
    # A traceback in a file of no known process may be one that the program has caught.
    failed = [one for one in failed if has_place(one) or is_proven(one)] or failed
    if not failed:
        return None
    times = [said.time_ns for one in failed if (said := first[one.who]) and is_timed(said)]
    start = min(times, default=0)
    kept = [
        one
        for one in failed
        if (said := first[one.who]) and (not is_timed(said) or said.time_ns <= start + TOGETHER_NS)
    ]
    shown = tuple(said for one in kept if (said := first[one.who]))
    reasons = {own_reason(one) for one in kept}
    reason = next(iter(reasons)) if len(reasons) == 1 else Reason.UNKNOWN
    placed = [one for one in kept if has_place(one)]
    if len(placed) < len(kept) or len(kept) > max(1, MINORITY * size):
        return Named(cause=Cause.CRASH, reason=reason, strength=0.7, shown=shown)
    return Named(
        cause=Cause.CRASH,
        reason=reason,
        strength=0.95 if len(kept) == 1 else 0.8,
        accused=tuple(kept),
        culprits=tuple(culprit_of(job, one) for one in kept),
        shown=shown,
    )


def own_reason(said: Said) -> Reason:
    """Why a process failed: launchers only know the signal, the kernel or the program knows why."""
    reasons = [
        reason_of(one.attributes.get("reason", "")) for one in said.events if role_of(one) == OWN
    ]
    order = sorted(reasons, key=lambda one: (one is Reason.UNKNOWN, one is Reason.KILLED))
    return order[0] if order else Reason.UNKNOWN


def role_of_first(said: Event | None) -> str:
    return role_of(said) if said is not None else ""


def is_timed(event: Event) -> bool:
    return bool(event.attributes.get("timed"))


def is_first(said: Event | None, others: Sequence[Event]) -> bool:
    """Whether a failure may be the first: no other process had complained clearly before it.

    A line without a time counts as early for what no other process can cause. Errors of a GPU also
    follow an abort, so they must be earlier than every complaint.
    """
    if said is None:
        return False
    complaints = [one for one in others if is_timed(one)]
    if said.attributes.get("words") in DOUBTFUL:
        if not is_timed(said):
            return not others
        return all(said.time_ns < one.time_ns - TOGETHER_NS for one in complaints) and len(
            complaints
        ) == len(others)
    return not is_timed(said) or all(
        said.time_ns <= one.time_ns + TOGETHER_NS for one in complaints
    )


def by_peers(
    job: JobWindow | None, speakers: Sequence[Said], addresses: Mapping[str, str]
) -> Named | None:
    """The host that several others lost, if it did not lose one before."""
    accusers: dict[str, set[str]] = {}
    shown: dict[str, list[Event]] = {}
    complained: dict[str, int] = {}
    for one in speakers:
        for event in one.events:
            if role_of(event) != PEER or not one.host:
                continue
            complained[one.host] = min(complained.get(one.host, event.time_ns), event.time_ns)
            host = addresses.get(event.attributes.get("peer", "").lower(), "")
            if host and host != one.host:
                accusers.setdefault(host, set()).add(one.host)
                shown.setdefault(host, []).append(event)
    guilty = [
        host
        for host, own in accusers.items()
        if len(own) >= ACCUSERS_MIN and host not in complained
    ]
    if len(guilty) != 1:
        return None
    host = guilty[0]
    ranks = [rank for rank in job.ranks.values() if rank.host == host] if job is not None else []
    whole = Culprit(job=job.job if job is not None else "", host=host)
    culprit = job.culprit(ranks[0].rank) if job is not None and len(ranks) == 1 else whole
    return Named(
        cause=Cause.CRASH,
        reason=Reason.CONNECTION_LOST,
        strength=0.75,
        culprits=(culprit,),
        shown=tuple(shown[host]),
    )


def by_absence(job: JobWindow | None, speakers: Sequence[Said], size: int) -> Named | None:
    """Ranks that desync reports miss, where no connection was lost: states of others stand then."""
    words = [event for one in speakers for event in one.events]
    if any(event.attributes.get("reason") == Reason.CONNECTION_LOST for event in words):
        first_lost = min(
            event.time_ns
            for event in words
            if event.attributes.get("reason") == Reason.CONNECTION_LOST
        )
        words = [event for event in words if event.time_ns < first_lost - TOGETHER_NS]
    reports = [event for event in words if event.attributes.get("absent")]
    sets = {tuple(event.attributes["absent"].split(",")) for event in reports}
    if len(sets) != 1 or len({rank_of(event) for event in reports}) < ACCUSERS_MIN:
        return None
    numbers = [whole_number(text, RANKS_MAX) for text in next(iter(sets))]
    ranks = sorted({rank for rank in numbers if rank is not None})
    silent = {one.rank for one in speakers if role_of_first(one.first) in (PEER, END)}
    if not ranks or len(ranks) > max(1, MINORITY * size) or silent & set(ranks):
        return None
    name = job.job if job is not None else ""
    culprits = tuple(
        job.culprit(rank) if job is not None else Culprit(job=name, rank=rank) for rank in ranks
    )
    return Named(
        cause=Cause.HANG,
        reason=Reason.NOT_LAUNCHED,
        strength=0.8,
        culprits=culprits,
        shown=tuple(reports),
    )


def unnamed(speakers: Sequence[Said]) -> Named:
    """That the job died, by the earliest words that tell why."""
    firsts = [said for one in speakers if (said := one.first) is not None]
    shown = sorted(firsts, key=order_of)
    ended = [one for one in shown if role_of(one) == END]
    told = [
        one for one in shown if reason_of(one.attributes.get("reason", "")) is not Reason.UNKNOWN
    ]
    chosen = ended[:1] if ended and ended[0] is shown[0] else told[:1]
    if not chosen and not shown:
        chosen = [event for one in speakers for event in one.events[:1]][:1]
    reason = reason_of(chosen[0].attributes.get("reason", "")) if chosen else Reason.UNKNOWN
    return Named(cause=Cause.CRASH, reason=reason, strength=0.6, shown=tuple(chosen))


def reason_of(text: str) -> Reason:
    try:
        return Reason(text)
    except ValueError:
        return Reason.UNKNOWN


# The finding -------------------------------------------------------------------------------------


def to_finding(
    window: Window,
    job: JobWindow | None,
    named: Named,
    speakers: Sequence[Said],
    addresses: Mapping[str, str],
) -> Finding:
    name = job.job if job is not None else ""
    accused = {one.who for one in named.accused}
    blamed = set(named.culprits)
    victims = [
        culprit_of(job, one)
        for one in speakers
        if one.who not in accused and one.first is not None and one.rank is not None
    ]
    times = [event.time_ns for one in speakers for event in one.events if is_timed(event)]
    since = min(times, default=window.to_ns)
    if job is not None and (len(job.operations) or job.pending):
        # A watchdog speaks long after the last record: the job stood since that.
        since = min(max(since, window.from_ns), window.to_ns)
    return Finding(
        detector="crash",
        cause=named.cause,
        culprit=named.culprits[0] if named.culprits else Culprit(job=name),
        strength=named.strength,
        since_ns=since,
        until_ns=None,
        last_ns=max(since, window.to_ns),
        reason=named.reason,
        job=name,
        accomplices=named.culprits[1:],
        victims=tuple(one for one in victims if one not in blamed)[:VICTIMS_MAX]
        if named.culprits
        else (),
        evidence=evidence_of(named, speakers, addresses),
    )


def evidence_of(
    named: Named, speakers: Sequence[Said], addresses: Mapping[str, str]
) -> tuple[Evidence, ...]:
    """The decisive words first, then each kind of complaint once, with all who made it."""
    firsts = [said for one in speakers if (said := one.first) is not None]
    if not firsts:
        firsts = [event for one in speakers for event in one.events]
    rows: dict[tuple[str, str], list[Event]] = {}
    for event in (*named.shown, *sorted(firsts, key=order_of)):
        # Complaints of one kind are alike; failures are told one by one.
        text = event.message if role_of(event) == OWN else ""
        same = rows.setdefault((event.attributes.get("words", ""), text), [])
        if event not in same:
            same.append(event)
    return tuple(
        Evidence(
            metric=LAST_WORDS, text=text_of(same, addresses), value=float(len(same)), unit="lines",
            from_ns=min(one.time_ns for one in same), to_ns=max(one.time_ns for one in same),
            labels=dict(same[0].labels), samples=len(same),
        )
        for same in list(rows.values())[:EVIDENCE_MAX]
    )  # fmt: skip


def text_of(same: Sequence[Event], addresses: Mapping[str, str]) -> str:
    """`ranks 1, 3: Connection closed by remote peer 10.0.0.2<54791> (10.0.0.2 is node2)`."""
    first = same[0]
    ranks = sorted({rank for one in same if (rank := rank_of(one)) is not None})
    hosts = sorted({one.labels[HOST] for one in same if one.labels.get(HOST)})
    if ranks:
        shown = ", ".join(map(str, ranks[:RANKS_SHOWN]))
        more = f" and {len(ranks) - RANKS_SHOWN} more" if len(ranks) > RANKS_SHOWN else ""
        who = f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
    else:
        who = ", ".join(hosts[:4]) or first.attributes.get("file", "") or "a process"
    peer = first.attributes.get("peer", "")
    host = addresses.get(peer.lower(), "")
    place = first.attributes.get("place", "")
    notes = [f"at {place}"] if place else []
    notes += [f"{peer} is {host}"] if host else []
    message = first.message
    message = message if len(message) <= TEXT_MAX else f"{message[: TEXT_MAX - 1]}…"
    return f"{who}: {message}" + (f" ({'; '.join(notes)})" if notes else "")
