"""The reasons behind causes: one entry a reason, with all that the product knows about it."""

from __future__ import annotations

import enum
from typing import Self

import msgspec

from collector.contract.cause_facts import (
    CLOCKS,
    GPU_ERRORS,
    HOSTS,
    KERNEL_EVENTS,
    MOUNTS,
    PCIE_GPU,
    PCIE_NIC,
    RATES,
    TIMES,
    XID_EVENTS,
    Absence,
    Layer,
    Sought,
)

OF_CAUSE = ""
"""The runbook of a reason that the cause's own page is right for."""


class ReasonFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the table of reasons."""

    name: str
    title: str
    """On the page, beside the cause."""
    because: str
    """The end of the verdict's sentence, after `because`."""
    layer: Layer
    """Of a standstill, whose cause has none."""
    action: str = ""
    """What to do; names in braces as in `alerts.judge.words.action`. Empty: as the cause."""
    runbook: str
    """Page of `docs/runbooks`, or OF_CAUSE; `ByReason.runbook` of a cause comes before it."""
    looks_for: Sought | None = None
    """Of the detector that finds it; None: no detector is named after it."""
    absence: Absence | None = None


class Reason(enum.StrEnum):
    """What lies behind a cause, where it is known."""

    facts: ReasonFacts

    def __new__(cls, facts: ReasonFacts | str) -> Self:
        assert isinstance(facts, ReasonFacts)  # a text finds a member, and makes none
        reason = str.__new__(cls, facts.name)
        reason._value_ = facts.name
        reason.facts = facts
        return reason

    GPU_THROTTLED = ReasonFacts(
        name="gpu_throttled",
        title="GPU throttled",
        because="the GPU is throttled",
        layer=Layer.COMPUTE,
        action=(
            "On {host} run `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER{gpu}`: it names the "
            "reason. Thermal: look at cooling and airflow; power: at the cap and the supply. "
            "Move the job off {host} until the clocks are back."
        ),
        runbook="gpu-throttle",
        looks_for=Sought("throttled GPUs", (CLOCKS,)),
        absence=Absence("gpus", ("sm_clock_hertz",), "no GPU ran slower than its peers"),
    )
    GPU_ERROR = ReasonFacts(
        name="gpu_error",
        title="GPU errors",
        because="the GPU reports errors",
        layer=Layer.COMPUTE,
        action=(
            "On {host} run `nvidia-smi -q -d ECC,ROW_REMAPPER{gpu}` and `dmesg | grep -i xid`. "
            "Drain {host}, do what NVIDIA's XID catalogue advises for that number, and let it "
            "take jobs again only after `dcgmi diag -r 3` passes."
        ),
        runbook="gpu-xid",
        looks_for=Sought("GPU errors", (GPU_ERRORS, XID_EVENTS)),
        absence=Absence(
            "gpus", ("ecc_corrected_errors_total", "xid_errors_total"), "no GPU reported errors"
        ),
    )
    HOST_STALL = ReasonFacts(
        name="host_stall",
        title="host short of CPU, memory or disk",
        because="the host is short of CPU, memory or disk",
        layer=Layer.COMPUTE,
        action=(
            "On {host} run `vmstat 1` and read `/proc/pressure/*`: steal, blocked tasks or "
            "reclaim show what takes CPU, memory or disk away from {who}. Stop it, or move the "
            "job off {host}."
        ),
        runbook=OF_CAUSE,
        looks_for=Sought("stalled hosts", (HOSTS,)),
        absence=Absence(
            "hosts",
            ("cpu_seconds_total:steal", "pressure_io_stalled_seconds_total"),
            "no host's CPUs, memory or disks were held up",
        ),
    )
    DATA_LOADING = ReasonFacts(
        name="data_loading",
        title="input data late",
        because="input data comes late",
        layer=Layer.COMPUTE,
        action=(
            "Look at the data loader of {who}: its storage mount (`nfsiostat 1`, "
            "`iostat -x 1`), its workers and how far it prefetches. Data that is on the host "
            "beforehand must end the wait."
        ),
        runbook=OF_CAUSE,
    )
    STORAGE = ReasonFacts(
        name="storage",
        title="its way to storage",
        because="a file server answers it slowly, and its peers at once",
        layer=Layer.COMPUTE,
        action=(
            "On {host} run `nfsiostat 1` (Lustre: `lctl get_param osc.*.stats`) for the mount in "
            "the evidence: the server answers its peers at once, so look at the way from {host} to "
            "it: its storage interface, route, MTU and mount options (`findmnt`)."
        ),
        runbook="slow-storage",
        looks_for=Sought("slow ways to storage", (MOUNTS,)),
        absence=Absence(
            "hosts", ("mount_reads_total", "mount_writes_total"), "no host waited for its storage"
        ),
    )
    PCIE = ReasonFacts(
        name="pcie",
        title="PCIe",
        because="PCIe moves less than it should",
        layer=Layer.COMPUTE,
        action=(
            "On {host} compare `LnkSta` with `LnkCap` in `lspci -vv`: speed and width must be "
            "equal. {remove}, power-cycle it (a warm reboot may not train the slot again), and "
            "reseat the card if that does not help."
        ),
        looks_for=Sought("slow PCIe", (PCIE_NIC, PCIE_GPU)),
        runbook=OF_CAUSE,
    )
    SCALE_UP = ReasonFacts(
        name="scale_up",
        title="NVLink or xGMI inside the host",
        because="its GPUs exchange data among themselves more slowly than those of its peers",
        layer=Layer.COMPUTE,
        action=(
            "On {host} run `nvidia-smi nvlink -s -e{gpu}` and `nvidia-smi topo -m` (AMD: `amd-smi "
            "xgmi -l`): links that are down, retrain or repeat; read the fabric manager's log. No "
            "NIC or cable of {host} has a part in it. Drain {host}, reset all its GPUs together, "
            "and have GPU or NVSwitch replaced if it comes again."
        ),
        runbook="gpu-nvlink",
        looks_for=Sought("slow links between the GPUs of a host", (TIMES,)),
    )
    IMBALANCE = ReasonFacts(
        name="imbalance",
        title="uneven work",
        because="the work is uneven",
        layer=Layer.COMPUTE,
        action=(
            "Compare the work of {who} with that of its peers: sequence lengths, experts, "
            "pipeline stage. Balance it; if the work is equal, look at GPU and host again."
        ),
        runbook="uneven-work",
        looks_for=Sought("uneven work", (TIMES,)),
    )
    RATE_DOWNGRADE = ReasonFacts(
        name="rate_downgrade",
        title="below its rate",
        because="the link runs below its rate",
        layer=Layer.NETWORK,
        action=(
            "{inspect}: rate and width must be what the port can do, at both ends. {remove}, "
            "take the link down and up once; if it comes up slow again, swap the cable."
        ),
        runbook="link-below-its-rate",
        looks_for=Sought("links below their rate", (RATES,)),
    )
    NIC = ReasonFacts(
        name="nic",
        title="NIC",
        because="the NIC does not keep up",
        layer=Layer.NETWORK,
        action=(
            "{measure}. If it is slower than that: {remove_lower}, look at its PCIe slot and "
            "firmware, and swap it."
        ),
        runbook=OF_CAUSE,
    )
    NIC_FAILED = ReasonFacts(
        name="nic_failed",
        title="NIC failed",
        because="its driver says that the NIC has failed",
        layer=Layer.NETWORK,
        action=(
            "On {host} read `dmesg -T | grep -e mlx5 -e bnxt -e ice -e efa`: the port may be up "
            "all the same. Drain {host}, reset the NIC (`mlxfwreset`) or power-cycle the host, and "
            "update its firmware if it fails again."
        ),
        runbook="nic-failed",
        looks_for=Sought("NICs that have failed", (KERNEL_EVENTS,)),
    )
    CABLE = ReasonFacts(
        name="cable",
        title="cable or transceiver",
        because="the cable or a transceiver is bad",
        layer=Layer.NETWORK,
        action=(
            "{inspect}: optical levels and error counts, at both ends. {remove}, clean and "
            "reseat the connectors or swap the cable; the error counts must then stand still "
            "under load."
        ),
        runbook=OF_CAUSE,
    )
    SWITCH = ReasonFacts(
        name="switch",
        title="switch",
        because="the switch is at fault",
        layer=Layer.NETWORK,
        action=(
            "On {switch} read its log and the drops and errors of its ports. Take it, or the "
            "ports that drop, out of routing and see whether the job recovers; then restart or "
            "replace it."
        ),
        runbook=OF_CAUSE,
    )
    ROUTING = ReasonFacts(
        name="routing",
        title="routing",
        because="too many flows take the same way",
        layer=Layer.NETWORK,
        action=(
            "On {switch} compare the bytes of ports that should share the load. Change the "
            "hash (its seed or fields) or turn on adaptive routing; for NCCL, more queue pairs "
            "to a connection (NCCL_IB_QPS_PER_CONNECTION) spread the flows."
        ),
        runbook="congested-path",
    )
    CONFIGURATION = ReasonFacts(
        name="configuration",
        title="configuration",
        because="it is not configured for this traffic",
        layer=Layer.NETWORK,
        action=(
            "Compare the flow control of {who} with that of a healthy peer at both ends of the "
            "link: PFC priorities, trust mode, DSCP map, ECN thresholds. Make them equal; "
            "drops must then stop."
        ),
        runbook=OF_CAUSE,
    )
    NOT_LAUNCHED = ReasonFacts(
        name="not_launched",
        title="never launched",
        because="it never launched what the others wait in",
        layer=Layer.COMPUTE,
        action=(
            "Before anything is restarted, run `py-spy dump --pid PID` for {who} and read the "
            "end of {its} log: {it_is} somewhere else in the program, or dead."
        ),
        runbook=OF_CAUSE,
    )
    NOT_FINISHED = ReasonFacts(
        name="not_finished",
        title="never finished",
        because="it never finished what it launched",
        layer=Layer.COMPUTE,
        action=(
            "Before anything is restarted, look on {hosts} for GPU errors (`dmesg | grep -i "
            "xid`) and for a link that is down, and run `py-spy dump --native --pid PID` for "
            "{who}."
        ),
        runbook=OF_CAUSE,
    )
    LINK_DOWN = ReasonFacts(
        name="link_down",
        title="link down",
        because="the link is down",
        layer=Layer.NETWORK,
        action=(
            "{inspect}: is the link down at both ends? {remove}, reseat or swap the cable, and "
            "bring the port up again."
        ),
        runbook="port-down",
    )
    NEIGHBOUR = ReasonFacts(
        name="neighbour",
        title="other traffic",
        because="other traffic is in the way",
        layer=Layer.NETWORK,
        action=(
            "Find the sender: compare the bytes that come in by each port of {switch}. Limit "
            "it, give it a traffic class of its own, or place it elsewhere."
        ),
        runbook=OF_CAUSE,
    )
    STORAGE_TRAFFIC = ReasonFacts(
        name="storage_traffic",
        title="its own storage traffic",
        because="the host behind it reads from its storage, or writes to it, over it",
        layer=Layer.NETWORK,
        action=(
            "Nothing is broken: on {host} `nfsiostat 1` shows the mount in the evidence. Route to "
            "its server over an interface that no collective uses (`ip route get SERVER`), limit "
            "it or give it a traffic class of its own, or spread checkpoints and loads over time."
        ),
        runbook=OF_CAUSE,
    )
    GPU_MEMORY = ReasonFacts(
        name="gpu_memory",
        title="out of GPU memory",
        because="its GPU memory ran out",
        layer=Layer.COMPUTE,
        action=(
            "Read the exception in the evidence: how much was asked for, how much was free, and "
            "who else used the GPU of {who}. Reduce the batch or the longest sequence, shard more, "
            "or end the other process; then restart from the last checkpoint."
        ),
        runbook=OF_CAUSE,
    )
    HOST_MEMORY = ReasonFacts(
        name="host_memory",
        title="out of host memory",
        because="its host's memory ran out and the kernel killed it",
        layer=Layer.COMPUTE,
        action=(
            "On {host} read `dmesg -T | grep -i -A20 oom` and the memory limit of the job's "
            "cgroup: it lists who used how much. Raise the limit, or use fewer data loader workers "
            "and less pinned memory; then restart from the last checkpoint."
        ),
        runbook=OF_CAUSE,
    )
    KILLED = ReasonFacts(
        name="killed",
        title="killed",
        because="it was killed with SIGKILL",
        layer=Layer.COMPUTE,
        action=(
            "A process does not do that to itself. On {host} look for who did: `dmesg -T | grep -i "
            "-e oom -e xid`, the scheduler's log, an operator's shell. Then restart from the last "
            "checkpoint."
        ),
        runbook=OF_CAUSE,
    )
    PROGRAM = ReasonFacts(
        name="program",
        title="error of the program",
        because="its program failed",
        layer=Layer.COMPUTE,
        action=(
            "Read the exception in the evidence and the whole trace in the log of {who}. If only "
            "one rank of many equal ones failed, its data differs: find the sample, or run that "
            "rank's step again on another host."
        ),
        runbook=OF_CAUSE,
    )
    CONNECTION_LOST = ReasonFacts(
        name="connection_lost",
        title="connection to a peer lost",
        because="others lost the connection to it",
        layer=Layer.UNKNOWN,
        action=(
            "A peer died, or the way to it broke; those that complain are its victims. Look for "
            "the first process that ended without a complaint of its own: all ranks' logs, the "
            "scheduler's, `dmesg -T` on the hosts that the evidence names. If all of them lived, "
            "look at the link between the two ends: state, retries and errors on both ports."
        ),
        runbook="connection-lost",
    )
    TIMED_OUT = ReasonFacts(
        name="timed_out",
        title="collective timed out",
        because="a collective of it timed out",
        layer=Layer.UNKNOWN,
        action=(
            "Who prints a time-out has waited; the culprit is who did not come. Collect the Flight "
            "Recorder dumps of all ranks (TORCH_NCCL_TRACE_BUFFER_SIZE=2000, "
            "TORCH_NCCL_DUMP_ON_TIMEOUT=1) and all ranks' logs into one folder and run this again."
        ),
        runbook=OF_CAUSE,
    )
    HOST_LOST = ReasonFacts(
        name="host_lost",
        title="host failed",
        because="its host failed",
        layer=Layer.COMPUTE,
        action=(
            "Look at the console and the management controller of {host}: has it restarted, and "
            "why? Drain it until that is known; restart the job from its last checkpoint without "
            "it."
        ),
        runbook=OF_CAUSE,
    )
    ENDED = ReasonFacts(
        name="ended",
        title="ended from outside",
        because="its scheduler or a user ended it",
        layer=Layer.UNKNOWN,
        action=(
            "Nothing broke: read the scheduler's record of the job for its time limit, a "
            "preemption or a cancellation. If it was not meant to end, ask for more time or save "
            "checkpoints more often."
        ),
        runbook=OF_CAUSE,
    )
    UNKNOWN = ReasonFacts(
        name="unknown", title="", because="", layer=Layer.UNKNOWN, runbook=OF_CAUSE
    )
