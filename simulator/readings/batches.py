"""The batches that all agents of a simulated cluster send, without agents and without files.

A `Reporter` is every production agent at once: the same series, records and events by the same
names, in the same wire format, by each host's own clock, of the sources `clock`, `ethtool`,
`flight_recorder`, `host`, `ib_sysfs`, `kernel_log`, `links`, `nccl_debug`, `nccl_inspector`,
`nccl_ras` (of jobs that hang), `netdev`, `nvml` and `steps`; and the agent that polls the switches,
by `snmp` or `ib_fabric` (`simulator.readings.poller`). It does not send the agents' metrics
about themselves (`fabric_agent_…`, but for named absences), nor what `configuration` would find;
of `bursts` it sends the peaks of each port and how fine they are, without events.

A dead agent reads and sends nothing. When it is back it reads what ranks have written into their
logs meanwhile, so that collectives and steps come late; samples of that time are lost. A lost batch
leaves a gap in its host's sequence, for good.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from hashlib import blake2b

import numpy as np

from collector.contract import wire
from collector.contract.collective import StepSpan
from collector.contract.model import Event
from collector.contract.units import NS_PER_MS
from simulator.readings.clocks import ClockSection
from simulator.readings.collectives import CollectiveSection
from simulator.readings.debug_logs import DebugSection
from simulator.readings.devices import Devices
from simulator.readings.dumps import DumpSection
from simulator.readings.fabric import BurstSection, EthtoolSection, NetdevSection, PortSection
from simulator.readings.kernel_log import KernelSection
from simulator.readings.links import LinkSection
from simulator.readings.machines import GpuSection, HostSection, XidSection
from simulator.readings.mounts import MountSection
from simulator.readings.poller import Poller, PollerSpec
from simulator.readings.probes import ProbeMesh, ProbeSection
from simulator.readings.processes import ProcessSection
from simulator.readings.ranks import Ranks
from simulator.readings.ras import RasSection
from simulator.readings.records import Contexts, Records, join_records, pack_records, split_records
from simulator.readings.series import EVERY, NO_COLUMNS, Columns, Section, Table
from simulator.readings.steps import StepSection
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Floats, Topology

BATCH_SAMPLES_MAX = 50_000
"""Samples that an agent puts into one batch."""
BATCH_COLLECTIVES_MAX = 20_000
BATCH_STEPS_MAX = 5_000
BATCH_EVENTS_MAX = 1_000
BOOT_BYTES = 8
"""Length of the random name of a numbering."""
DEFAULT_POLLER = PollerSpec()


class Content:
    """Records and events of one host on their way into its next batch."""

    def __init__(self) -> None:
        self.records: list[Records] = []
        self.spans: list[StepSpan] = []
        self.events: list[Event] = []

    def split(self) -> list[Content]:
        records = split_records(join_records(self.records), BATCH_COLLECTIVES_MAX)
        spans = -(-len(self.spans) // BATCH_STEPS_MAX)
        events = -(-len(self.events) // BATCH_EVENTS_MAX)
        parts = []
        for number in range(max(1, len(records), spans, events)):
            part = Content()
            part.records = records[number : number + 1]
            part.spans = self.spans[number * BATCH_STEPS_MAX : (number + 1) * BATCH_STEPS_MAX]
            part.events = self.events[number * BATCH_EVENTS_MAX : (number + 1) * BATCH_EVENTS_MAX]
            parts.append(part)
        return parts


class HostAgent:
    """The numbering, the series table and the unsent readings of one host's agent."""

    def __init__(self, wanted: Container[str]) -> None:
        self.boot = ""
        self.sequence = 0
        self.table = Table(wanted)
        self.times_ms: list[int] = []
        self.frames: list[Floats] = []
        self.content = Content()


class Reporter:
    """All agents of a cluster. Give it every snapshot, in order."""

    def __init__(
        self,
        topology: Topology,
        cluster: str,
        start_unix_ns: int,
        seed: int,
        flush_ticks: int = 1,
        poller: PollerSpec | None = DEFAULT_POLLER,
        wanted: Container[str] = EVERY,
        probes: ProbeMesh | None = None,
    ) -> None:
        """``flush_ticks``: snapshots of one batch; ``poller`` polls the switches, None for none.

        ``wanted``: metrics whose samples are reported, for a reader that takes no others.
        ``probes``: agents probe each other; as in production they do not unless they are told to.
        """
        self._topology = topology
        self._cluster = cluster
        self._start_unix_ns = start_unix_ns
        self._seed = seed
        self._flush_ticks = flush_ticks
        self._ticks = 0
        self._agents = [HostAgent(wanted) for _ in range(topology.hosts)]
        self._boot_unix_ns = np.full(topology.hosts, -1, dtype=np.int64)
        self._was_read: Bools = np.zeros(topology.hosts, dtype=np.bool_)
        self._ranks = Ranks()
        self._contexts = Contexts(topology.hosts)
        self._collectives = CollectiveSection(topology, self._ranks, self._contexts)
        self._dumps = DumpSection(topology, self._contexts)
        self._steps = StepSection(topology, self._ranks)
        gpus = GpuSection(topology, self._ranks)
        devices = (
            PortSection(topology),
            NetdevSection(topology),
            EthtoolSection(topology),
            BurstSection(topology),
            LinkSection(topology),
            ClockSection(topology),
            gpus,
            HostSection(topology, self._ranks),
            MountSection(topology),
            *([ProbeSection(topology, probes, seed)] if probes is not None else []),
        )
        self._sections: tuple[Section, ...] = (
            Devices(topology.hosts, devices),
            KernelSection(topology),
            XidSection(topology),
            ProcessSection(topology, self._ranks, gpus),
            DebugSection(topology, self._ranks),
            self._dumps,
            RasSection(topology),
            self._collectives,
            self._steps,
        )
        self._poller: Poller | None = None
        if poller is not None:
            run = f"{seed} {start_unix_ns}"
            self._poller = Poller(topology, poller, cluster, run, BATCH_SAMPLES_MAX, wanted)

    def batches(self, snapshot: Snapshot) -> Iterator[bytes]:
        """The arriving batches of this snapshot, compressed: host by host, then the switches'."""
        return map(wire.encode_batch, self.unpacked(snapshot))

    def unpacked(self, snapshot: Snapshot) -> Iterator[wire.Batch]:
        """The same before they are compressed, for a reader in this process."""
        world = snapshot.world
        is_read = ~(world.host_is_down | world.host_agent_is_dead)
        self._ranks.update(snapshot)
        self._start_agents(snapshot, is_read)
        for section in self._sections:
            section.read(snapshot, is_read)
        self._ticks += 1
        is_due = self._ticks % self._flush_ticks == 0
        time_ms = snapshot.host_unix_ns(
            np.arange(self._topology.hosts, dtype=np.int32), snapshot.time_s
        )
        time_ms //= NS_PER_MS
        for host in np.flatnonzero(is_read).tolist():
            agent = self._agents[host]
            if snapshot.reporting[host]:
                yield from self._gather(host, agent, int(time_ms[host]))
            else:
                agent.sequence += 1
            if is_due:
                yield from self._flush(host, agent)
        if self._poller is not None:
            yield from self._poller.batches(snapshot)

    # Restarts ------------------------------------------------------------------------------------

    def _start_agents(self, snapshot: Snapshot, is_read: Bools) -> None:
        """Restart agents that were away: after a boot with another numbering."""
        boot_unix_ns = snapshot.hosts.boot_unix_ns
        is_booted = is_read & (boot_unix_ns != self._boot_unix_ns)
        is_started = is_booted | (is_read & ~self._was_read)
        for host in np.flatnonzero(is_booted).tolist():
            agent = self._agents[host]
            agent.boot, agent.sequence = self._boot_name(host, int(boot_unix_ns[host])), 0
        started, booted = (np.flatnonzero(each).tolist() for each in (is_started, is_booted))
        for section in self._sections if started else ():
            section.restart(started, booted)
        for host in np.flatnonzero(is_booted | ~is_read).tolist():
            # Samples and events that an agent held when it died are lost. An agent saves its
            # position in a log with each batch: records that were in none are read again.
            agent = self._agents[host]
            agent.times_ms, agent.frames, agent.content.events = [], [], []
        self._boot_unix_ns = np.where(is_read, boot_unix_ns, self._boot_unix_ns)
        self._was_read = is_read

    def _boot_name(self, host: int, boot_unix_ns: int) -> str:
        """The name of a numbering: another for each boot of each host of each run."""
        identity = f"{self._seed} {self._start_unix_ns} {host} {boot_unix_ns}"
        return blake2b(identity.encode(), digest_size=BOOT_BYTES).hexdigest()

    # One host ------------------------------------------------------------------------------------

    def _gather(self, host: int, agent: HostAgent, time_ms: int) -> Iterator[wire.Batch]:
        parts = tuple(section.rows(host) for section in self._sections)
        rows = sum(map(len, parts))
        is_full = (len(agent.frames) + 1) * rows > BATCH_SAMPLES_MAX
        is_same = agent.table.holds(parts)
        if agent.frames and (is_full or not is_same):
            yield from self._flush(host, agent)
        if not is_same:
            agent.table.arrange(parts)
        agent.frames.append(np.concatenate([each.values(host) for each in self._sections]))
        agent.times_ms.append(time_ms)
        content = agent.content
        for records in (self._dumps.records(host), self._collectives.records(host)):
            if records is not None:
                content.records.append(records)
        content.spans += self._steps.spans(host)
        for section in self._sections:
            content.events += section.events(host)

    def _flush(self, host: int, agent: HostAgent) -> Iterator[wire.Batch]:
        if not agent.frames:
            return
        samples = agent.table.columns(agent.times_ms, agent.frames)
        sent_ms = agent.times_ms[-1]
        content, agent.content = agent.content, Content()
        agent.frames, agent.times_ms = [], []
        for number, part in enumerate(content.split()):
            columns = NO_COLUMNS if number else samples
            yield self._pack(host, agent, sent_ms, columns, part)
            agent.sequence += 1

    def _pack(
        self, host: int, agent: HostAgent, sent_ms: int, samples: Columns, part: Content
    ) -> wire.Batch:
        name = self._topology.host_name(host)
        given = {"host": name, "cluster": self._cluster}
        contexts = self._contexts.of_host(host)
        return wire.Batch(
            version=wire.VERSION,
            agent=name,
            boot=agent.boot,
            sequence=agent.sequence,
            sent_ms=sent_ms,
            common={label: text for label, text in given.items() if text},
            series=samples.series,
            index=samples.place.astype("<u4", copy=False).tobytes(),
            time_ms=samples.time_ms.astype("<i8", copy=False).tobytes(),
            value=samples.value.astype("<f8", copy=False).tobytes(),
            events=part.events,
            collectives=pack_records(part.records[0], contexts) if part.records else None,
            steps=part.spans,
        )
