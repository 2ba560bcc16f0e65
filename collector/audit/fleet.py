"""Judges many hosts: each by itself, and each against the hosts that are like it.

Hosts of a fleet are mostly alike, so what is the same is judged once. Without an expectation the
majority of like hosts is taken for right; where there is no majority no host is accused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from collector.audit.checks import discover
from collector.audit.checks.nccl_ranks import PER_RANK, RANK_OF_JOB
from collector.audit.expectations import (
    NOTHING_EXPECTED,
    Expectation,
    Expectations,
    is_expected,
    judge_expectations,
)
from collector.audit.facts import Fact, Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of, finding_order
from collector.audit.judge import without_echoes
from collector.audit.settings import (
    IDENTIFYING,
    INTERFACE,
    KIND,
    KIND_GPU,
    KIND_JOB,
    KIND_RDMA,
    LINK_LAYER,
    MODEL,
    NCCL_PREFIX,
    PCI_PATH,
    PCIE_SPEED,
    Compared,
    compared,
)

GROUP_MIN = 5
"""Like hosts that make a group: of fewer, a majority may be chance."""
MAJORITY_SHARE = 0.8
"""Of a group's hosts that have a setting, that must agree before the others are called outliers."""
JOB_HOSTS_MIN = 3
"""Hosts of a job, before its majority decides which of them is wrong."""
FINDINGS_MAX = 50_000
"""Findings of one fleet. Ten for each of 4,096 hosts is a fleet of which everything is wrong."""
PLACE_DEPENDENT = frozenset(
    {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_HOSTID"}
)
"""Variables that name what a host has, and so may differ between unlike hosts of a job."""

Place = tuple[str, str, str]
"""Device, setting, and model of the device: what is compared between hosts."""
HostFacts = Mapping[str, Sequence[Fact]]


class Profile(msgspec.Struct, frozen=True):
    """Hosts whose settings, other than those of jobs, are the same."""

    facts: Facts
    hosts: list[str]


class Survey(msgspec.Struct, frozen=True):
    """The findings about a fleet."""

    findings: list[Finding]
    hosts: int
    profiles: int
    left_out: int
    """Findings beyond FINDINGS_MAX."""


def judge_fleet(
    hosts: HostFacts, expectations: Expectations = NOTHING_EXPECTED, more: Iterable[Finding] = ()
) -> Survey:
    """Everything that is wrong with these hosts, the worst first.

    Facts that are the same should be the same object: then hosts are compared by identity.
    ``more`` are findings from elsewhere that belong to the same answer.
    """
    profiles, jobs = sort_out(hosts)
    found: list[Finding] = []
    judge = Judge(expectations.ignore)
    for profile in profiles:
        found += judge_profile(profile, jobs, expectations, judge)
    outliers = [
        each for group in like_hosts(profiles) for each in find_outliers(group, expectations)
    ]
    found += unexplained(outliers, found)
    found += compare_jobs(jobs)
    found += more
    kept = [finding for finding in found if finding.check not in expectations.ignore]
    kept.sort(key=finding_order)
    left_out = max(0, len(kept) - FINDINGS_MAX)
    return Survey(kept[:FINDINGS_MAX], len(hosts), len(profiles), left_out)


def sort_out(hosts: HostFacts) -> tuple[list[Profile], dict[str, list[Fact]]]:
    """Hosts by what they have in common, and apart from that the facts about jobs, by host."""
    job_devices = {
        fact.device
        for facts in hosts.values()
        for fact in facts
        if fact.setting == KIND and fact.value == KIND_JOB
    }
    profiles: dict[tuple[int, ...], Profile] = {}
    jobs: dict[str, list[Fact]] = {}
    for host, facts in hosts.items():
        still = [fact for fact in facts if fact.device not in job_devices]
        key = tuple([id(fact) for fact in still])
        profile = profiles.get(key)
        if profile is None:
            profile = profiles[key] = Profile(Facts("", still), [])
        profile.hosts.append(host)
        if len(still) < len(facts):
            jobs[host] = [fact for fact in facts if fact.device in job_devices]
    return list(profiles.values()), jobs


# --- each host by itself -------------------------------------------------------------------------


class Judge:
    """Judges profiles, each check once for all that have the same facts which the check sees."""

    def __init__(self, ignored: Sequence[str]) -> None:
        checks = [check for check in discover().values() if check.name not in ignored]
        self._checks = [check for check in checks if not check.is_about_jobs]
        self.about_jobs = [check for check in checks if check.is_about_jobs]
        self._known: list[dict[tuple[int, ...], list[Finding]]] = [{} for _ in self._checks]
        self._seen_by: dict[str, list[int]] = {}

    def judge_still(self, facts: Facts) -> list[Finding]:
        keys: list[list[int]] = [[] for _ in self._checks]
        for fact in facts.all():
            numbers = self._seen_by.get(fact.setting)
            if numbers is None:
                numbers = self._seen_by[fact.setting] = [
                    number
                    for number, check in enumerate(self._checks)
                    if fact.setting in IDENTIFYING or check.sees(fact.setting)
                ]
            for number in numbers:
                keys[number].append(id(fact))
        found: list[Finding] = []
        for check, known, key in zip(self._checks, self._known, keys, strict=True):
            facts_seen = tuple(key)
            if facts_seen not in known:
                known[facts_seen] = list(check.judge(facts))
            found += known[facts_seen]
        return found

    def judge_jobs(self, facts: Facts) -> list[Finding]:
        return [finding for check in self.about_jobs for finding in check.judge(facts)]


def judge_profile(
    profile: Profile, jobs: Mapping[str, list[Fact]], expectations: Expectations, judge: Judge
) -> Iterator[Finding]:
    common = judge.judge_still(profile.facts)
    known: dict[tuple[Expectation, ...], list[Finding]] = {}
    for host in profile.hosts:
        expected = expectations.on_host(host) if expectations.expect else ()
        if host in jobs:
            facts = profile.facts.with_jobs(jobs[host])
            all_of_it = without_echoes([*common, *judge.judge_jobs(facts)])
            found = apply_expectations(all_of_it, facts, expected)
        else:
            if expected not in known:
                all_of_it = without_echoes([*common, *judge.judge_jobs(profile.facts)])
                known[expected] = apply_expectations(all_of_it, profile.facts, expected)
            found = known[expected]
        for finding in found:
            yield msgspec.structs.replace(finding, host=host)


def apply_expectations(
    findings: Sequence[Finding], facts: Facts, expected: tuple[Expectation, ...]
) -> list[Finding]:
    if not expected:
        return list(findings)
    kept = [finding for finding in findings if not is_expected(finding, facts, expected)]
    return kept + [finding for finding, _ in judge_expectations(facts, expected)]


# --- against like hosts --------------------------------------------------------------------------


def like_hosts(profiles: Iterable[Profile]) -> list[list[Profile]]:
    """Profiles of hosts with the same GPUs and NICs: those that should be set alike."""
    groups: dict[tuple[tuple[str, str, str], ...], list[Profile]] = {}
    for profile in profiles:
        kinds = (KIND_GPU, KIND_RDMA)
        hardware = Counter(
            (kind, profile.facts.value(device, MODEL), profile.facts.value(device, LINK_LAYER))
            for kind in kinds
            for device in profile.facts.of_kind(kind)
        )
        key = tuple(sorted((*what[:2], f"{what[2]} {count}") for what, count in hardware.items()))
        groups.setdefault(key, []).append(profile)
    return [group for group in groups.values() if sum(len(p.hosts) for p in group) >= GROUP_MIN]


def find_outliers(group: Sequence[Profile], expectations: Expectations) -> Iterator[Finding]:
    """Hosts that are set otherwise than most of their like; and settings without a majority."""
    counts: defaultdict[Place, Counter[str]] = defaultdict(Counter)
    for profile in group:
        for place, fact in comparable(profile.facts):
            if fact.setting not in expectations.settings:
                counts[place][fact.value] += len(profile.hosts)
    majority: dict[Place, tuple[str, int, int]] = {}
    torn: dict[str, dict[str, Counter[str]]] = {}
    for place, counter in counts.items():
        (value, votes), total = counter.most_common(1)[0], counter.total()
        if len(counter) == 1 or total < GROUP_MIN:
            continue
        if votes >= MAJORITY_SHARE * total:
            majority[place] = value, votes, total
        else:
            torn.setdefault(place[1], {})[place[0]] = counter
    for profile in group:
        yield from accuse(profile, majority)
    for setting, devices in torn.items():
        yield disagreement(setting, devices)


def comparable(facts: Facts) -> Iterator[tuple[Place, Fact]]:
    """Facts that like hosts have in common, with what they are compared under.

    Under the device's model too: hosts that count their devices in another order have another
    device under a name. Not those of interfaces that training does not use, and not the speed of a
    GPU's slot, which falls while the GPU has nothing to do.
    """
    for device, of_device in facts.by_device.items():
        kind = of_device[KIND].value if KIND in of_device else ""
        if device and kind not in {KIND_GPU, KIND_RDMA}:
            continue
        model = model_of(facts, device)
        for setting, fact in of_device.items():
            is_idle = kind == KIND_GPU and setting == PCIE_SPEED
            if compared(setting) is not None and not is_idle:
                yield (device, setting, model), fact


def unexplained(outliers: Sequence[Finding], found: Sequence[Finding]) -> list[Finding]:
    """Outliers without those that a check already explains."""
    accused = {finding.host for finding in outliers}
    explained = {
        (finding.host, each.device, each.setting)
        for finding in found
        if finding.host in accused
        for each in finding.read
    }
    return [
        finding
        for finding in outliers
        if not finding.read
        or not all((finding.host, each.device, each.setting) in explained for each in finding.read)
    ]


def model_of(facts: Facts, device: str) -> str:
    """The model that two devices must share to be compared."""
    return f"{facts.value(device, MODEL)} {facts.value(device, LINK_LAYER)}"


def accuse(profile: Profile, majority: Mapping[Place, tuple[str, int, int]]) -> Iterator[Finding]:
    """One finding for each host of a profile and setting that differs from the majority."""
    wrong: dict[tuple[str, str, str], list[Fact]] = {}
    votes_for: dict[str, tuple[int, int]] = {}
    for (device, setting, model), (value, votes, total) in majority.items():
        fact = profile.facts.get(device, setting)
        if fact is None or fact.value == value or model_of(profile.facts, device) != model:
            continue
        wrong.setdefault((setting, fact.value, value), []).append(fact)
        votes_for[setting] = votes, total
    aside = set(profile.facts.of_kind(KIND_RDMA)) - set(profile.facts.fabric_nics)
    for (setting, value, common), facts in wrong.items():
        rule = compared(setting)
        assert rule is not None
        votes, total = votes_for[setting]
        matters = rule.matters and not all(fact.device in aside for fact in facts)
        finding = Finding(
            check="outlier",
            severity=Severity.WARNING if matters else Severity.INFO,
            device=facts[0].device if len(facts) == 1 else "",
            title=f"{setting} of {devices_text(facts)} is {value}; {votes} of {total} "
            f"like hosts have {common}",
            read=evidence_of(facts[:8]),
            expected=common,
            why=rule.why,
            source=f"the majority of {total} hosts with the same GPUs and NICs",
            fix=fill_in(rule, profile.facts, facts[0], common),
            confidence=round(0.6 + 0.35 * votes / total, 2),
            cost="One host that differs slows every job that it is in."
            if matters
            else "None known.",
        )
        for host in profile.hosts:
            yield msgspec.structs.replace(finding, host=host)


def devices_text(facts: Sequence[Fact]) -> str:
    return listed([fact.device for fact in facts if fact.device]) or "the host"


def fill_in(rule: Compared, facts: Facts, fact: Fact, common: str) -> str:
    """The fix, with this device's names in it."""
    names = {
        "device": fact.device,
        "interface": facts.value(fact.device, INTERFACE) or "INTERFACE",
        "pci": facts.value(fact.device, PCI_PATH).rpartition("/")[2] or "ADDRESS",
        "majority": common,
    }
    text = rule.fix
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def disagreement(setting: str, devices: Mapping[str, Counter[str]]) -> Finding:
    """The finding that hosts differ without a majority: it accuses no host."""
    device, counter = next(iter(devices.items()))
    shown = ", ".join(f"{value} on {count}" for value, count in counter.most_common(3))
    more = f" (and {len(counter) - 3} other values)" if len(counter) > 3 else ""  # noqa: PLR2004 - as shown
    named = listed([name for name in devices if name]) or "the hosts"
    rule = compared(setting)
    assert rule is not None
    return Finding(
        check="outlier",
        severity=Severity.INFO,
        device=device if len(devices) == 1 else "",
        title=f"Like hosts disagree on {setting} of {named}: {shown}{more}",
        expected="one value",
        why=rule.why,
        source=f"no value has {100 * MAJORITY_SHARE:.0f} % of {counter.total()} like hosts",
        fix="set the right value in the expectations",
        confidence=0.5,
        cost="Unknown until it is known which is right.",
    )


# --- jobs over hosts -----------------------------------------------------------------------------


def compare_jobs(jobs: Mapping[str, list[Fact]]) -> Iterator[Finding]:
    by_job: dict[str, dict[str, dict[str, Fact]]] = {}
    for host, facts in jobs.items():
        for fact in facts:
            if fact.device.startswith("job ") and not RANK_OF_JOB.fullmatch(fact.device):
                of_host = by_job.setdefault(fact.device, {}).setdefault(host, {})
                if fact.setting.startswith(NCCL_PREFIX) and fact.setting not in PER_RANK:
                    of_host[fact.setting] = fact
    for job, hosts in by_job.items():
        if len(hosts) > 1:
            yield from compare_job(job, hosts)


def compare_job(job: str, hosts: Mapping[str, Mapping[str, Fact]]) -> Iterator[Finding]:
    names = sorted({name for of_host in hosts.values() for name in of_host})
    for name in names:
        values = {
            host: of_host[name].value if name in of_host else "" for host, of_host in hosts.items()
        }
        counter = Counter(values.values())
        if len(counter) == 1:
            continue
        common, votes = counter.most_common(1)[0]
        has_majority = len(hosts) >= JOB_HOSTS_MIN and votes >= MAJORITY_SHARE * len(hosts)
        differing = [host for host in hosts if values[host] != common]
        accused = differing if has_majority else [""]
        shown = ", ".join(f"{value or 'not set'} on {n}" for value, n in counter.most_common(3))
        example = [hosts[host].get(name) for host in (*differing[:2], *hosts)][:3]
        for host in accused:
            own = f"is {values[host] or 'not set'} here" if host else "differs between hosts"
            yield Finding(
                check="job_environment",
                severity=Severity.INFO if name in PLACE_DEPENDENT else Severity.WARNING,
                host=host,
                device=job,
                title=f"{name} of {job} {own}: {shown}",
                read=evidence_of([hosts[host].get(name)] if host else example),
                expected=(common or "not set") if has_majority else "one value on all hosts",
                why="Ranks that choose differently wait for each other, or meet on a slow way.",
                source="the majority of the job's hosts" if has_majority else "the job's hosts",
                fix="set NCCL's variables where all ranks are launched from",
                confidence=0.8 if has_majority else 0.6,
                cost="From a slower algorithm to a hang.",
            )
