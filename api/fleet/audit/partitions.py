"""Ports of one job that the subnet manager's partitions keep from each other. Pure.

A job's ports are compared by the name of their device: where each rail is a fabric of its own, it
has its own partitions, and a host's other NICs (storage) are in others. A finding is about two
ports that have no pair of keys by which packets pass; which partition a tenant is in, it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from api.fleet.audit.paths import MAJORITY_SHARE, RANKS_MIN, RankPlace
from collector.audit.facts import Fact, Facts, listed
from collector.audit.finding import Evidence, Finding, Severity
from collector.audit.partitions import FULL, PARTITION, can_talk, membership, parse_table
from collector.audit.settings import IDENTIFYING, INFINIBAND, LINK_LAYER, PARTITIONS
from collector.contract.identity import natural

CHOSEN = "NCCL_IB_PKEY"
"""The index of the entry that NCCL takes. Without it NCCL takes entry 0 and other libraries take
what they like, so that all of a table's keys count."""
CONFIGURATION = "/etc/nccl.conf"
NEEDED = IDENTIFYING | {PARTITIONS, CHOSEN}
HEARD_LEAST = 0.5
"""Of the members' ports that a port must be able to talk to, to count as one of them."""
ASKED = "smpquery pkeys, by the host that polls the fabric"
SOURCE = "InfiniBand Architecture Specification, partitioning; the job's other ports"
WHY = (
    "An HCA drops packets of a partition that its port is not in, and those between two limited"
    " members, without a word to the sender."
)
COST = "Connections over this port time out (NCCL: completion with error 12)."

Asked = Mapping[tuple[str, str], str]
"""The partitions of ports by host and device, as the fabric was asked."""


class Member(NamedTuple):
    """A port of a job, and the keys that the job can use there."""

    host: str
    device: str
    keys: frozenset[int]
    evidence: tuple[Evidence, ...]


def partitions(
    places: Iterable[RankPlace], facts: Mapping[str, Sequence[Fact]], asked: Asked
) -> Iterator[Finding]:
    """Ports that cannot talk to those of the same rail on their job's other hosts."""
    jobs: dict[str, dict[str, set[str]]] = {}
    for place in places:
        jobs.setdefault(place.job, {}).setdefault(place.host, set()).add(place.device)
    for job, hosts in sorted(jobs.items()):
        if len(hosts) > 1:
            yield from judge_job(job, list(members(job, hosts, facts, asked)))


def members(
    job: str,
    hosts: Mapping[str, set[str]],
    facts: Mapping[str, Sequence[Fact]],
    asked: Asked,
) -> Iterator[Member]:
    """The ports of a job: those that ranks name, else a host's training NICs.

    Of hosts whose settings no agent has read only ports that ranks name are known to be the job's.
    """
    for host, named in hosts.items():
        own = Facts(host, (fact for fact in facts.get(host, ()) if fact.setting in NEEDED))
        nics = own.active_fabric_nics
        for device in [nic for nic in nics if nic in named] or nics:
            fact = own.get(device, PARTITIONS)
            if fact is not None and own.value(device, LINK_LAYER) == INFINIBAND:
                yield usable(job, own, fact)
        for device in sorted(named):
            text = asked.get((host, device))
            if text is not None and own.get(device, PARTITIONS) is None:
                read = Evidence(device, PARTITIONS, text, ASKED)
                yield Member(host, device, frozenset(parse_table(text).values()), (read,))


def usable(job: str, facts: Facts, fact: Fact) -> Member:
    """A port with the keys of its table; where the job chooses an entry, with that one alone."""
    table = parse_table(fact.value)
    read = [fact]
    chosen = facts.get(f"job {job}", CHOSEN) or facts.get(CONFIGURATION, CHOSEN)
    if chosen is not None and chosen.value.isdecimal():
        table = {index: key for index, key in table.items() if index == int(chosen.value)}
        read.append(chosen)
    evidence = tuple(Evidence(each.device, each.setting, each.value, each.origin) for each in read)
    return Member(facts.host, fact.device, frozenset(table.values()), evidence)


class Trouble(NamedTuple):
    """What is wrong with ports of one job; ports of several rails are one finding."""

    host: str
    """Empty where no host is accused."""
    partition: int
    is_limited: bool


def judge_job(job: str, ports: Sequence[Member]) -> Iterator[Finding]:
    rails: dict[str, list[Member]] = {}
    for port in ports:
        rails.setdefault(port.device, []).append(port)
    found: dict[Trouble, list[tuple[Member, str]]] = {}
    for device in sorted(rails, key=natural):
        for trouble, port, words in judge_rail(rails[device]):
            found.setdefault(trouble, []).append((port, words))
    for trouble in sorted(found):
        yield finding_of(job, trouble, found[trouble])


def judge_rail(rail: Sequence[Member]) -> Iterator[tuple[Trouble, Member, str]]:
    """The ports of one rail that cannot talk to others, with what the others have."""
    if len({port.host for port in rail}) < 2:  # noqa: PLR2004 - a pair
        return
    common = common_partition(rail)
    inside = [port for port in rail if common in {key & PARTITION for key in port.keys}]
    kinds = Counter(port.keys for port in inside)
    outside = [port for port in rail if is_outside(port.keys, kinds)]
    words = f"{len(inside)} of {len(rail)} hosts are members of 0x{common:04x}"
    words = words if common else "no port has a key that the job could use"
    yield from accuse(rail, outside, len(inside), Trouble("", common, is_limited=False), words)
    limited = [port for port in inside if common | FULL not in port.keys]
    stuck = stuck_ports(limited)
    full = len(inside) - len(limited)
    words = f"{full} of {len(rail)} hosts are full members of it"
    yield from accuse(rail, stuck, full, Trouble("", common, is_limited=True), words)


def is_outside(keys: frozenset[int], kinds: Mapping[frozenset[int], int]) -> bool:
    """Whether a port is no member, and cannot talk to half of those that are by other partitions.

    With a few it can: a subnet manager's own port is a full member where all others are limited.
    """
    heard = sum(count for other, count in kinds.items() if can_talk(keys, other))
    return keys not in kinds and (not kinds or heard < HEARD_LEAST * sum(kinds.values()))


def common_partition(rail: Sequence[Member]) -> int:
    """The partition by which most pairs of ports can talk; of several the one most are in.

    Not the one that most are in: all may be limited members of the fabric's default partition.
    """
    members_of = Counter(part for port in rail for part in {key & PARTITION for key in port.keys})
    full_of = Counter(key & PARTITION for port in rail for key in port.keys if key & FULL)

    def order(partition: int) -> tuple[int, int, int]:
        every, full = members_of[partition], full_of[partition]
        return full * (full - 1) // 2 + full * (every - full), every, -partition

    return max(members_of, key=order, default=0)


def stuck_ports(limited: Sequence[Member]) -> list[Member]:
    """Limited members that cannot talk to another host's, by no partition."""
    kinds = Counter(port.keys for port in limited)
    stuck = {
        keys
        for keys in kinds
        if any(
            not can_talk(keys, other) and (other != keys or count > 1)
            for other, count in kinds.items()
        )
    }
    return [port for port in limited if port.keys in stuck]


def accuse(
    rail: Sequence[Member], wrong: Sequence[Member], right: int, trouble: Trouble, words: str
) -> Iterator[tuple[Trouble, Member, str]]:
    """The wrong ports' hosts, if nearly all of the rail are right; else the job without a host."""
    has_majority = len(rail) >= RANKS_MIN and right >= MAJORITY_SHARE * len(rail)
    for port in wrong if has_majority else wrong[:1]:
        yield trouble._replace(host=port.host if has_majority else ""), port, words


def finding_of(job: str, trouble: Trouble, ports: Sequence[tuple[Member, str]]) -> Finding:
    first, words = ports[0]
    names = listed([port.device for port, _ in ports])
    partition, full = f"0x{trouble.partition:04x}", f"0x{trouble.partition | FULL:04x}"
    if trouble.host:
        role = membership(first.keys, trouble.partition)
        title = f"{names} of {trouble.host}: {role} of {partition}; {words}, in job {job}"
    elif trouble.is_limited:
        title = f"Hosts of job {job} are limited members of {partition} on {names}; {words}"
    else:
        title = f"Hosts of job {job} have no partition in common on {names}; {words}"
    return Finding(
        check="partitions",
        severity=Severity.WARNING if trouble.host or trouble.is_limited else Severity.INFO,
        host=trouble.host,
        device=first.device if len(ports) == 1 else "",
        title=title,
        read=tuple(each for port, _ in ports[:4] for each in port.evidence),
        expected=f"{full} in the port's table: full membership of {partition}",
        why=WHY,
        source=SOURCE,
        fix=f"make the port's GUID a full member of {partition}, in partitions.conf or UFM",
        confidence=0.8 if trouble.host else 0.6,
        cost=COST,
    )
