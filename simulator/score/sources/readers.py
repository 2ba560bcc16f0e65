"""Sources of switches: each renders them in its own words and reads them as production does.

A new source is a class with `deliver`, and its line in `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, cast

import msgspec

from collector.contract.model import Event, Reading, Sample
from collector.contract.units import NS_PER_MS
from collector.contract.wire import encode_batch, pack_batch
from collector.doors.fetch import Access
from collector.doors.host import Host
from collector.doors.udp import Packet
from collector.sources.gnmi import Gnmi, Settings
from collector.sources.ib_fabric import IbFabric
from collector.sources.ib_fabric import Settings as IbSettings
from collector.sources.sflow import Settings as SflowSettings
from collector.sources.sflow import Sflow, SflowSwitch
from collector.switches.gnmi.model import Connection, Target
from collector.switches.gnmi.replay import Recording
from simulator.engine import Simulation
from simulator.interfaces.sflow import DropNotices, hosts_file, port_names, switch_address
from simulator.interfaces.switch_tables import Flavour
from simulator.interfaces.ufm import SETTINGS as UFM_SETTINGS
from simulator.interfaces.ufm import UfmAnswers
from simulator.readings.batches import BATCH_SAMPLES_MAX
from simulator.readings.poller import Poller, PollerSpec
from simulator.score.sources.rendered import Rendered, cumulus_push, sonic_messages, time_ns_of
from simulator.snapshot import Snapshot
from simulator.topology.model import Fabric, Topology

POLL_SECONDS = 10.0
"""Between two readings of a switch: the default of `snmp` and `gnmi`. Cumulus exports every second
by default; detectors look at cells of five."""
AGENT = "poller-0"
BOOT = "sources"
ROUNDING_SECONDS = 1e-6
SFLOW_ADDRESS = "127.0.0.1:6343"
"""Nothing listens there: the listener hands over what it was given."""


class Delivery(Protocol):
    """One source at work: it turns a snapshot into what arrives at the service."""

    def deliver(self, snapshot: Snapshot) -> tuple[list[bytes], list[bytes]]:
        """Native batches, and pushes of OTLP."""


class PolledDelivery:
    """Over SNMP, or of an InfiniBand fabric by its own programs: by the poller of fast mode.

    It does not run the production readers: tests/conformance/test_simulated_poller.py holds its
    samples equal to those of `snmp` and `ib_fabric` on the same switches, number by number.
    """

    def __init__(self, topology: Topology, flavour: Flavour = Flavour.SONIC) -> None:
        spec = PollerSpec(interval_s=POLL_SECONDS, flavour=flavour)
        self._poller = Poller(topology, spec, "", BOOT, BATCH_SAMPLES_MAX)

    def deliver(self, snapshot: Snapshot) -> tuple[list[bytes], list[bytes]]:
        return [encode_batch(batch) for batch in self._poller.batches(snapshot)], []


class Paced:
    """Whether a round is due at a snapshot."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def is_due(self, snapshot: Snapshot) -> bool:
        if snapshot.time_s < self._next_s - ROUNDING_SECONDS:
            return False
        self._next_s = snapshot.time_s + POLL_SECONDS
        return True


class Packer:
    """Batches of one agent that polls, from what its source read."""

    def __init__(self) -> None:
        self._sequence = 0

    def pack(self, readings: Sequence[Reading], time_ns: int) -> Iterator[bytes]:
        samples = [each for each in readings if isinstance(each, Sample)]
        events = [each for each in readings if isinstance(each, Event)]
        for first in range(0, len(samples), BATCH_SAMPLES_MAX):
            batch = pack_batch(
                samples[first : first + BATCH_SAMPLES_MAX],
                events if not first else [],
                agent=AGENT,
                boot=BOOT,
                sequence=self._sequence,
                sent_ms=time_ns // NS_PER_MS,
                common={"host": AGENT},
            )
            self._sequence += 1
            yield encode_batch(batch)


class Rack:
    """A `Host` whose switches answer with what was rendered last, at simulated time."""

    def __init__(self) -> None:
        self.time_ns = 0
        self.texts: dict[str, bytes] = {}

    def gnmi(self, target: Target) -> Connection:
        return Recording(self.texts[target.name])

    def now_ns(self) -> int:
        return self.time_ns

    def monotonic_ns(self) -> int:
        return self.time_ns


class GnmiDelivery:
    """SONiC's databases over gNMI, through the source `gnmi`: decoder, tables, leaves."""

    def __init__(self, topology: Topology) -> None:
        self._shown = Rendered(topology, Flavour.SONIC)
        self._names = [switch.name for switch in topology.switches]
        targets = tuple(Target(name=name, profile="sonic") for name in self._names)
        self._source = Gnmi(Settings(targets=targets))
        self._rack = Rack()
        self._pace = Paced()
        self._packer = Packer()

    def deliver(self, snapshot: Snapshot) -> tuple[list[bytes], list[bytes]]:
        if not self._pace.is_due(snapshot):
            return [], []
        self._shown.update(snapshot)
        time_ns = self._rack.time_ns = time_ns_of(snapshot)
        for switch, name in enumerate(self._names):
            self._rack.texts[name] = sonic_messages(self._shown, switch, time_ns)
        host = cast("Host", self._rack)
        readings = [*self._source.read(host), *self._source.look(host)]
        return list(self._packer.pack(readings, time_ns)), []


class OtlpDelivery:
    """Cumulus' exports over OTLP: protobuf that the service's own door decodes.

    Ports have SONiC's names, not Cumulus' (swp1): the scoreboard's truths name them so.
    """

    def __init__(self, topology: Topology) -> None:
        self._shown = Rendered(topology, Flavour.SONIC)
        self._switches = range(len(topology.switches))
        self._pace = Paced()

    def deliver(self, snapshot: Snapshot) -> tuple[list[bytes], list[bytes]]:
        if not self._pace.is_due(snapshot):
            return [], []
        self._shown.update(snapshot)
        time_ns = time_ns_of(snapshot)
        return [], [cumulus_push(self._shown, each, time_ns) for each in self._switches]


class Manager:
    """A `Host` beside UFM, which answers about the fabric as it was rendered last."""

    def __init__(self) -> None:
        self.time_ns = 0
        self.pages: dict[str, bytes] = {}

    def fetch(self, url: str, seconds: float, access: Access | None = None) -> bytes:  # noqa: ARG002 - the door's
        return self.pages[url]

    def read(self, path: str, limit: int = 0) -> bytes:  # noqa: ARG002 - the door's; the token is all
        return b"simulated"

    def now_ns(self) -> int:
        return self.time_ns

    def monotonic_ns(self) -> int:
        return self.time_ns


class UfmDelivery:
    """UFM's pages, through the source `ib_fabric`."""

    def __init__(self, topology: Topology, *, hcas: bool = False) -> None:
        self._answers = UfmAnswers(topology, hcas=hcas)
        self._source = IbFabric(msgspec.convert(UFM_SETTINGS | {"hcas": hcas}, IbSettings))
        self._manager = Manager()
        self._pace = Paced()
        self._packer = Packer()

    def deliver(self, snapshot: Snapshot) -> tuple[list[bytes], list[bytes]]:
        if not self._pace.is_due(snapshot):
            return [], []
        self._manager.time_ns = time_ns_of(snapshot)
        self._manager.pages = self._answers.pages(snapshot)
        readings = list(self._source.read(cast("Host", self._manager)))
        return list(self._packer.pack(readings, self._manager.time_ns)), []


class Listener:
    """A `Host` whose socket holds what the switches have sent."""

    def __init__(self, topology: Topology) -> None:
        self.time_ns = 0
        self.packets: list[Packet] = []
        self._hosts = hosts_file(topology).encode()

    def receive_udp(self, address: str, count_max: int) -> tuple[Sequence[Packet], int]:  # noqa: ARG002 - the door's
        taken, self.packets = self.packets, []
        return taken, 0

    def read(self, path: str, limit: int = 0) -> bytes:  # noqa: ARG002 - the door's; the hosts are all
        return self._hosts

    def now_ns(self) -> int:
        return self.time_ns

    def monotonic_ns(self) -> int:
        return self.time_ns


class SflowDelivery:
    """SNMP, and beside it what switches tell of dropped packets, through the source `sflow`.

    Notices accuse no one: what is found, and when, is what SNMP alone shows.
    """

    def __init__(self, simulation: Simulation) -> None:
        topology = simulation.topology
        self._polled = PolledDelivery(topology)
        self._notices = DropNotices(topology, simulation.patterns)
        self._listener = Listener(topology)
        self._packer = Packer()
        switches = tuple(
            SflowSwitch(
                name=switch.name,
                address=switch_address(number),
                ports=port_names(topology, number, Flavour.SONIC),
            )
            for number, switch in enumerate(topology.switches)
        )
        self._source = Sflow(SflowSettings(listen=SFLOW_ADDRESS, switches=switches))

    def deliver(self, snapshot: Snapshot) -> tuple[list[bytes], list[bytes]]:
        batches, _ = self._polled.deliver(snapshot)
        readings = self.hear(snapshot)
        return [*batches, *self._packer.pack(readings, self._listener.time_ns)], []

    def hear(self, snapshot: Snapshot) -> list[Reading]:
        """What the source reads of the notices since the last snapshot."""
        self._listener.time_ns = time_ns_of(snapshot)
        for switch, message in self._notices.datagrams(snapshot):
            self._listener.packets.append(Packet(message, switch_address(switch)))
        return list(self._source.read(cast("Host", self._listener)))


class Column(NamedTuple):
    """A source of switches of one fabric: a column of the table."""

    title: str
    fabric: Fabric
    make: Callable[[Simulation], Delivery]
    shows_nics: bool = False
    """Whether ports of NICs are seen too, so that they have names of their own."""


def of_topology(make: Callable[[Topology], Delivery]) -> Callable[[Simulation], Delivery]:
    return lambda simulation: make(simulation.topology)


SOURCES: dict[str, Column] = {
    "snmp": Column("SNMP (SONiC)", Fabric.ROCE, of_topology(PolledDelivery)),
    "sflow": Column("SNMP and sFlow's notices", Fabric.ROCE, SflowDelivery),
    "gnmi": Column("gNMI (SONiC)", Fabric.ROCE, of_topology(GnmiDelivery)),
    "otlp": Column("OTLP (Cumulus)", Fabric.ROCE, of_topology(OtlpDelivery)),
    "ib": Column("InfiniBand's programs", Fabric.INFINIBAND, of_topology(PolledDelivery)),
    "ufm": Column("UFM (InfiniBand)", Fabric.INFINIBAND, of_topology(UfmDelivery)),
    "ufm_hcas": Column(
        "UFM with HCAs",
        Fabric.INFINIBAND,
        of_topology(partial(UfmDelivery, hcas=True)),
        shows_nics=True,
    ),
}
"""By the name on the command line."""
