"""Variables that disable NCCL's fast transports: InfiniBand, NVLink, shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Fact, Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import ACTIVE, INTERFACE, KIND_NIC, KIND_RDMA, PORT_RATE, PORT_STATE

SOURCE = "NCCL user guide, environment variables: {}"
IS_ON = frozenset({"1", "2", "true", "yes"})
MANAGEMENT_SHARE = 0.5
"""An interface with less than so much of a training NIC's speed is there for management."""

IS_OFF = frozenset({"0", "false", "no"})
SWITCHED_OFF = (
    ("NCCL_P2P_DISABLE", IS_ON, "GPUs use neither NVLink nor PCI Express", Severity.CRITICAL),
    ("NCCL_SHM_DISABLE", IS_ON, "GPUs without a direct way use the network", Severity.WARNING),
    ("NCCL_NVLS_ENABLE", IS_OFF, "NVSwitches no longer reduce", Severity.INFO),
)
"""Variables, the values that switch a way between GPUs of a host off, and what that means."""

INTERFACES, DISABLE, NETWORK = "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_NET"


def judge(facts: Facts) -> Iterator[Finding]:
    for job in facts.jobs:
        if facts.active_fabric_nics:
            yield from judge_network(facts, job)
        if len(facts.gpus) > 1:
            yield from judge_local(facts, job)
        yield from judge_interfaces(facts, job)


def uses_sockets(facts: Facts, job: str) -> Fact | None:
    disable, network = facts.get(job, DISABLE), facts.get(job, NETWORK)
    if disable is not None and disable.value.lower() in IS_ON:
        return disable
    return network if network is not None and network.value.lower() == "socket" else None


def judge_network(facts: Facts, job: str) -> Iterator[Finding]:
    """TCP in place of RDMA, or RDMA that may not touch the GPU."""
    if fact := uses_sockets(facts, job):
        yield Finding(
            check="nccl_transport",
            severity=Severity.CRITICAL,
            device=job,
            title=f"{job} sets {fact.setting}={fact.value}: NCCL uses TCP",
            read=evidence_of([fact]),
            expected=f"{fact.setting} not set",
            why=f"{listed(facts.active_fabric_nics)} could carry RDMA.",
            source=SOURCE.format(fact.setting),
            fix=unset_fix(fact),
            confidence=0.95,
            cost="Most of the bandwidth between hosts, and load on the processors.",
        )
    level = facts.get(job, "NCCL_NET_GDR_LEVEL")
    if level is not None and level.value.upper() in {"0", "LOC"} and facts.gpus:
        yield Finding(
            check="nccl_transport",
            severity=Severity.WARNING,
            device=job,
            title=f"{job} sets NCCL_NET_GDR_LEVEL={level.value}: no GPUDirect RDMA",
            read=evidence_of([level]),
            expected="not set",
            why="NCCL chooses by the distance between GPU and NIC; LOC means never.",
            source=SOURCE.format("NCCL_NET_GDR_LEVEL"),
            fix=unset_fix(level),
            confidence=0.9,
            cost="Data go through the host's memory, there and back.",
        )


def judge_local(facts: Facts, job: str) -> Iterator[Finding]:
    for name, values, lost, severity in SWITCHED_OFF:
        fact = facts.get(job, name)
        if fact is None or fact.value.lower() not in values:
            continue
        yield Finding(
            check="nccl_transport",
            severity=severity,
            device=job,
            title=f"{job} sets {name}={fact.value}: {lost}",
            read=evidence_of([fact]),
            expected=f"{name} not set",
            why="It is meant for tests; jobs inherit it from there.",
            source=SOURCE.format(name),
            fix=unset_fix(fact),
            confidence=0.9,
            cost="Collectives inside a host at the speed of a copy through memory.",
        )


def judge_interfaces(facts: Facts, job: str) -> Iterator[Finding]:
    """TCP of NCCL on the management's interface."""
    fact = facts.get(job, INTERFACES)
    if fact is None:
        return
    known = {facts.value(device, INTERFACE): device for device in network_devices(facts)}
    known.pop("", None)
    chosen = [known[name] for name in known if is_chosen(fact.value, name)]
    fast = max((facts.number(nic, PORT_RATE) or 0.0 for nic in facts.fabric_nics), default=0.0)
    slow = [
        device
        for device in chosen
        if 0 < (facts.number(device, PORT_RATE) or 0.0) < MANAGEMENT_SHARE * fast
    ]
    if not chosen or len(slow) < len(chosen):
        return
    carries_data = uses_sockets(facts, job) is not None or not facts.active_fabric_nics
    rates = [facts.get(device, PORT_RATE) for device in slow[:4]]
    yield Finding(
        check="nccl_transport",
        severity=Severity.CRITICAL if carries_data else Severity.INFO,
        device=job,
        title=f"{job} sets NCCL_SOCKET_IFNAME={fact.value}: {listed(slow)}, a management NIC",
        read=evidence_of([fact, *rates]),
        expected="the training network, if NCCL's data may ever go over TCP",
        why="All data go there."
        if carries_data
        else "Only start-up goes there now; without RDMA all data would, without a warning.",
        source=SOURCE.format(INTERFACES),
        fix=f"export {INTERFACES}=<an interface of the training network>; set NCCL_NET=IB, "
        "so that NCCL stops instead of falling back",
        confidence=0.9 if carries_data else 0.3,
        cost="The speed of the management NIC." if carries_data else "None while RDMA works.",
    )


def unset_fix(fact: Fact) -> str:
    """How to remove a variable, by where it was found."""
    if fact.origin.startswith("proc/"):
        return f"unset {fact.setting} in the job's script and where it is submitted"
    return f"remove {fact.setting} from /{fact.origin}"


def network_devices(facts: Facts) -> Iterator[str]:
    for device in (*facts.of_kind(KIND_RDMA), *facts.of_kind(KIND_NIC)):
        if facts.value(device, PORT_STATE) == ACTIVE:
            yield device


def is_chosen(pattern: str, name: str) -> bool:
    """Whether NCCL's list of interfaces names this one.

    >>> is_chosen("eth", "eth0"), is_chosen("=eth", "eth0"), is_chosen("^docker,lo", "eth0")
    (True, False, True)
    """
    is_excluding, rest = pattern.startswith("^"), pattern.removeprefix("^")
    is_exact, rest = rest.startswith("="), rest.removeprefix("=")
    words = [word for word in rest.split(",") if word]
    matches = any(name == word if is_exact else name.startswith(word) for word in words)
    return matches != is_excluding


CHECK = Check(name="nccl_transport", reads=frozenset({"NCCL_*", INTERFACE}), judge=judge)
