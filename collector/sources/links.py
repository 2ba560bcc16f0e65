"""Links that go down, come up or change their rate: reported as it happens, not at the next scrape.

The kernel reports changes of network interfaces through rtnetlink. RDMA ports (InfiniBand has no
such messages) are read ten times a second: two small files each. What happens between two looks is
still counted, by the kernel (carrier_down_count) or by the port (link_downed), and reported as a
flap.

An RDMA port and the interface on it are one link: its events carry the labels of the port, with
the interface beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from typing import ClassVar, TypeVar

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.doors.netlink import LinkMessage
from collector.reading.sysfs import list_or_nothing, read_label, read_netdev
from collector.sources import SourceSettings

RDMA_CLASS = "sys/class/infiniband"
NET_CLASS = "sys/class/net"

PORTS_MAX = 256
"""Ports and interfaces of one host; a host with hundreds of virtual functions has so many, and
each costs two reads at every look. Those beyond it are not watched, and a `Missing` counts them."""
COUNT_DIGITS_MAX = 20
UNKNOWN = "unknown"
GONE = "gone"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `links`."""

    look_seconds: float = 0.1
    """From one look to the next. Ten a second cost a thousandth of a core on a host of eight."""
    include: tuple[str, ...] = ()
    """Interfaces without hardware to watch as well (bonds, VLANs), as shell patterns."""
    exclude: tuple[str, ...] = ()
    """RDMA devices and interfaces to leave alone, as shell patterns; wins over ``include``."""


class Link:
    """One port or interface: what it was at the last look, and how often it went down."""

    def __init__(self, labels: dict[str, str], series: Series) -> None:
        self.labels = labels
        self.series = series
        self.state = UNKNOWN
        """Its last known state: `ACTIVE`, `up`, `down`…"""
        self.is_up: bool | None = None
        self.rate = ""
        self.downs = 0
        """Seen or counted since the agent started."""
        self.counted: int | None = None
        """The kernel's or the port's own count at the last look."""
        self._reported = 0
        """Downs that were reported since that count was last read."""
        self._early = 0
        """Downs that were reported before the count had them: it may lag one look behind."""
        self.trouble: HostError | None = None
        """Why its state cannot be read."""

    def see(self, *, is_up: bool, state: str, seen_by: str, time_ns: int) -> Iterator[Event]:
        """An event if this is a change; the first sight is none."""
        was_up, was = self.is_up, self.state
        self.is_up, self.state = is_up, state
        self.trouble = None
        if was_up is None or was_up == is_up:
            return
        if not is_up:
            self.downs += 1
            self._reported += 1
        yield self._event("link_up" if is_up else "link_down", was, state, seen_by, time_ns)

    def see_rate(self, rate: str, time_ns: int) -> Iterator[Event]:
        """An event if a link that is up has another rate than when it was last up."""
        if not self.is_up or not rate:
            return
        before, self.rate = self.rate, rate
        if before and before != rate:
            yield self._event("link_rate", before, rate, "sysfs", time_ns)

    def see_count(self, counted: int | None, seen_by: str, time_ns: int) -> Iterator[Event]:
        """An event if more downs were counted than were seen: it flapped between two looks."""
        if counted is None:
            return
        before, self.counted = self.counted, counted
        reported, self._reported = self._reported, 0
        known = reported + self._early
        grown = counted - before if before is not None and counted > before else 0
        self._early = min(reported, max(0, known - grown))
        flaps = grown - known
        if flaps > 0:
            self.downs += flaps
            what = f"went down and came back {flaps} time{'' if flaps == 1 else 's'}"
            yield Event(
                kind="link_flap",
                time_ns=time_ns,
                labels=self.labels,
                message=f"{self} {what} between two looks",
                attributes={"flaps": str(flaps), "seen_by": seen_by},
            )

    def _event(self, kind: str, was: str, state: str, seen_by: str, time_ns: int) -> Event:
        return Event(
            kind=kind,
            time_ns=time_ns,
            labels=self.labels,
            message=f"{self} went from {was} to {state}",
            attributes={"from": was, "to": state, "seen_by": seen_by},
        )

    def __str__(self) -> str:
        port = self.labels.get("port")
        return self.labels["device"] + (f" port {port}" if port else "")


class RdmaLink(Link):
    """A port of an RDMA device, read from sysfs."""

    def __init__(self, device: str, port: str, netdev: str) -> None:
        labels = {"device": device, "port": port}
        super().__init__(
            labels | ({"netdev": netdev} if netdev else {}),
            Series("fabric_port_downs_seen_total", labels),
        )
        self.path = f"{RDMA_CLASS}/{device}/ports/{port}"
        self.netdev = netdev


class NetLink(Link):
    """A network interface without an RDMA device."""

    def __init__(self, name: str) -> None:
        super().__init__({"device": name}, Series("fabric_nic_downs_seen_total", {"device": name}))
        self.name = name
        self.path = f"{NET_CLASS}/{name}"


class Links:
    """The source; it remembers how every link was at the last look."""

    name: ClassVar[str] = "links"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self.look_seconds = settings.look_seconds
        self._rdma: dict[tuple[str, str], RdmaLink] = {}
        self._net: dict[str, NetLink] = {}
        self._left_out: Missing | None = None
        self._lost = 0
        self._lost_series = Series("fabric_agent_link_messages_lost_total")
        self._has_netlink = True

    def read(self, host: Host) -> Iterator[Reading]:
        """The events of a look, and how often each link went down."""
        yield from self._discover(host)
        yield from self.look(host)
        yield from self._count_rdma(host)
        time_ns = host.now_ns()
        for link in self._all():
            if link.trouble is not None:
                yield Missing(link.series, link.trouble.reason, link.trouble.detail)
            else:
                yield Sample(link.series, link.downs, time_ns)
        if self._left_out is not None:
            yield self._left_out
        if self._all():
            yield Sample(self._lost_series, self._lost, time_ns)

    def look(self, host: Host) -> Iterator[Reading]:
        """Changes since the last look; none the first time."""
        time_ns = host.now_ns()
        if self._has_netlink:
            try:
                news = host.link_news()
            except HostError:
                self._has_netlink = False  # until the next discovery; sysfs shows it too
            else:
                self._lost += news.lost
                yield from self._hear(news.messages, time_ns)
        if not self._has_netlink:
            yield from self._look_at_interfaces(host, time_ns)
        yield from self._look_at_ports(host, time_ns)

    def _all(self) -> list[Link]:
        return [*self._rdma.values(), *self._net.values()]

    # The kernel's messages -----------------------------------------------------------------------

    def _hear(self, messages: Iterable[LinkMessage], time_ns: int) -> Iterator[Event]:
        counts: dict[str, int | None] = {}
        for message in messages:
            counts[message.name] = message.downs
            link = self._net.get(message.name)
            if link is None:
                continue
            state = "up" if message.is_up else "down" if message.is_enabled else "switched off"
            yield from link.see(
                is_up=message.is_up and not message.is_gone,
                state=GONE if message.is_gone else state,
                seen_by="rtnetlink",
                time_ns=time_ns,
            )
        for name, downs in counts.items():
            # Of an RDMA port's interface only the count is used: the port itself reports its state.
            link = self._net.get(name)
            if link is not None:
                yield from link.see_count(downs, "rtnetlink", time_ns)

    # sysfs ---------------------------------------------------------------------------------------

    def _look_at_interfaces(self, host: Host, time_ns: int) -> Iterator[Event]:
        """The fallback for old kernels, containers without netlink, and captured trees."""
        links = list(self._net.values())
        states = host.reread_all([f"{link.path}/operstate" for link in links])
        for link, state in zip(links, states, strict=True):
            if isinstance(state, HostError):
                link.trouble = state
                continue
            word = state.decode("utf-8", "replace").strip() or UNKNOWN
            yield from link.see(is_up=word == "up", state=word, seen_by="sysfs", time_ns=time_ns)

    def _look_at_ports(self, host: Host, time_ns: int) -> Iterator[Event]:
        links = list(self._rdma.values())
        paths = [f"{link.path}/{file}" for link in links for file in ("state", "rate")]
        texts = iter(host.reread_all(paths))
        for link, state, rate in zip(links, texts, texts, strict=True):
            if isinstance(state, HostError):
                link.trouble = state
                continue
            number, _, word = state.decode("utf-8", "replace").partition(":")
            word = word.strip() or UNKNOWN
            is_up = number.strip() == "4"
            yield from link.see(is_up=is_up, state=word, seen_by="sysfs", time_ns=time_ns)
            if not isinstance(rate, HostError):
                yield from link.see_rate(rate.decode("utf-8", "replace").strip(), time_ns)

    def _count_rdma(self, host: Host) -> Iterator[Event]:
        """Downs that ports and interfaces have counted; at reads only, firmware answers for it."""
        time_ns = host.now_ns()
        for link in self._rdma.values():
            on_ethernet = link.netdev and host.exists(f"{NET_CLASS}/{link.netdev}")
            path = f"{NET_CLASS}/{link.netdev}/carrier_down_count"
            if not (on_ethernet and host.exists(path)):
                path = f"{link.path}/counters/link_downed"
            yield from link.see_count(read_count(host, path), "sysfs", time_ns)
        if not self._has_netlink:
            for net in self._net.values():
                count = read_count(host, f"{net.path}/carrier_down_count")
                yield from net.see_count(count, "sysfs", time_ns)

    # Discovery ---------------------------------------------------------------------------------

    def _discover(self, host: Host) -> Iterator[Event]:
        """Find what there is; a link that is gone has gone down."""
        time_ns = host.now_ns()
        ports = list(self._find_ports(host))
        self._rdma, gone_ports = keep(self._rdma, ports)
        for device, port in ports:
            if (device, port) not in self._rdma:
                path = f"{RDMA_CLASS}/{device}"
                layer = read_label(host, f"{path}/ports/{port}/link_layer")
                netdev = read_netdev(host, path, f"{path}/ports/{port}", layer)
                self._rdma[device, port] = RdmaLink(device, port, netdev)
        behind = {link.netdev for link in self._rdma.values() if link.netdev}
        names = [name for name in self._find_interfaces(host) if name not in behind]
        room = max(0, PORTS_MAX - len(self._rdma))
        self._note_left_out(names[room:])
        self._net, gone_nets = keep(self._net, names[:room])
        fresh = [name for name in names[:room] if name not in self._net]
        self._net |= {name: NetLink(name) for name in fresh}
        if fresh:
            # The kernel reports only changes: the present states have to be read once.
            yield from self._look_at_fresh(host, fresh, time_ns)
        for link in (*gone_ports, *gone_nets):
            yield from link.see(is_up=False, state=GONE, seen_by="sysfs", time_ns=time_ns)

    def _look_at_fresh(self, host: Host, names: list[str], time_ns: int) -> Iterator[Event]:
        for name in names:
            link = self._net[name]
            try:
                word = host.read(f"{link.path}/operstate").decode("utf-8", "replace").strip()
            except HostError as error:
                link.trouble = error
                continue
            yield from link.see(is_up=word == "up", state=word, seen_by="sysfs", time_ns=time_ns)
            link.counted = read_count(host, f"{link.path}/carrier_down_count")

    def _find_ports(self, host: Host) -> Iterator[tuple[str, str]]:
        for device in list_or_nothing(host, RDMA_CLASS):
            if not self._is_excluded(device):
                for port in list_or_nothing(host, f"{RDMA_CLASS}/{device}/ports"):
                    yield device, port

    def _find_interfaces(self, host: Host) -> Iterator[str]:
        for name in list_or_nothing(host, NET_CLASS):
            is_wanted = host.exists(f"{NET_CLASS}/{name}/device") or any(
                fnmatch(name, pattern) for pattern in self._settings.include
            )
            if is_wanted and not self._is_excluded(name):
                yield name

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self._settings.exclude)

    def _note_left_out(self, names: list[str]) -> None:
        self._left_out = None
        if names:
            detail = f"{len(names)} more are not watched; PORTS_MAX is {PORTS_MAX}"
            series = Series("fabric_nic_downs_seen_total", {"device": names[0]})
            self._left_out = Missing(series, UnreadReason.NOT_SUPPORTED, detail)


SOURCE = Links

Key = TypeVar("Key")
Kept = TypeVar("Kept", bound=Link)


def keep(links: dict[Key, Kept], wanted: Iterable[Key]) -> tuple[dict[Key, Kept], list[Kept]]:
    """The links that are still there, in the order wanted, and those that are gone."""
    kept = {key: links[key] for key in wanted if key in links}
    return kept, [link for key, link in links.items() if key not in kept]


def read_count(host: Host, path: str) -> int | None:
    try:
        text = host.reread(path).strip()
    except HostError:
        return None
    return int(text) if text.isdigit() and len(text) <= COUNT_DIGITS_MAX else None
