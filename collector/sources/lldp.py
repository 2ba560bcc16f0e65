"""The neighbours of a host's Ethernet ports, as `lldpd` receives them by LLDP.

Every switch sends LLDP; the kernel drops it, so a daemon has to listen: `lldpd`. It is asked
through `lldpcli`, in the form of JSON whose shape does not depend on how many neighbours there are
(`json0`), and in the older one where that is not known. A host without `lldpcli` yields nothing;
one whose daemon does not answer yields a `Missing`.

A port is named as the rest of the agent names it: by the RDMA device behind the interface, and by
the interface itself where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any, ClassVar, NamedTuple

import msgspec

from collector.contract.errors import HostError
from collector.contract.identity import printable
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.commands import Output
from collector.doors.host import Host
from collector.reading.sysfs import list_or_nothing, read_label
from collector.sources import SourceSettings

CLASS = "sys/class/net"
METHOD = "lldp"
METRIC = "fabric_link_info"

FORMATS = ("json0", "json")
"""Best first; `json0` came with lldpd 0.9.8."""
COMMAND_SECONDS = 1.0
"""lldpcli only asks a daemon on this machine; it takes a few milliseconds."""
TEXT_BYTES_MAX = 4 << 20
"""A neighbour takes 1 to 2 kB; more than two thousand of them are no neighbours of one host."""
NEIGHBOURS_MAX = 256
"""Sixteen ports with a handful of neighbours each. More are seen where something forwards LLDP,
which then does not show cables; those over it are counted in an absence."""
LABEL_CHARACTERS_MAX = 255
"""LLDP's own bound for each of these texts."""
NAME_CHARACTERS_MAX = 127
"""Linux: 15 for an interface's name, 127 for an alternative one."""
COMPLAINT_CHARACTERS_MAX = 200

ABSENT = Series(METRIC, {"method": METHOD})
"""What is absent when it is not one port's neighbour."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `lldp`."""

    interval_seconds: float = 60.0
    """Neighbours send every 30 s and are forgotten after 120 s."""
    exclude: tuple[str, ...] = ()
    """Interfaces whose neighbours are no part of the fabric (management), as shell patterns."""


class Neighbour(NamedTuple):
    """One neighbour at one interface, by its own names; empty: not reported."""

    interface: str
    name: str
    chassis: str
    port: str
    """Its port's name, as a person would call it."""
    port_id: str


class Lldp:
    """The source; it keeps its series between reads."""

    name: ClassVar[str] = "lldp"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._series: dict[tuple[str, str, Neighbour], Series] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        """One sample for each neighbour of each port."""
        output = ask(host)
        if output is None:
            return
        if isinstance(output, Missing):
            yield output
            return
        try:
            neighbours, flawed = parse_neighbours(output.text)
        except ValueError as error:
            yield Missing(ABSENT, UnreadReason.UNPARSEABLE, f"lldpcli: {error}")
            return
        wanted = [each for each in neighbours if not self._is_excluded(each.interface)]
        if flawed or len(wanted) > NEIGHBOURS_MAX:
            yield Missing(ABSENT, UnreadReason.UNPARSEABLE, explain_losses(flawed, len(wanted)))
        time_ns = host.now_ns()
        yield from (Sample(each, 1, time_ns) for each in self._name(host, wanted[:NEIGHBOURS_MAX]))

    def _is_excluded(self, interface: str) -> bool:
        return any(fnmatch(interface, pattern) for pattern in self._settings.exclude)

    def _name(self, host: Host, neighbours: list[Neighbour]) -> list[Series]:
        """The series of these, each once, and as it was made when it was first seen."""
        before, self._series = self._series, {}
        ports: dict[str, tuple[str, str]] = {}
        for each in neighbours:
            if each.interface not in ports:
                ports[each.interface] = find_port(host, each.interface)
            device, port = ports[each.interface]
            key = (device, port, each)
            self._series[key] = before.get(key) or make_series(*key)
        return list(dict.fromkeys(self._series.values()))


SOURCE = Lldp


# Asking ------------------------------------------------------------------------------------------


def ask(host: Host) -> Output | Missing | None:
    """The output of lldpcli; None where it is not installed."""
    for form in FORMATS:
        try:
            output = host.run(["lldpcli", "-f", form, "show", "neighbors"], COMMAND_SECONDS)
        except HostError as error:
            if error.reason is UnreadReason.ABSENT:
                continue
            return Missing(ABSENT, error.reason, f"lldpcli: {error.detail}")
        if output.is_cut:
            return Missing(ABSENT, UnreadReason.TIMEOUT, f"lldpcli took over {COMMAND_SECONDS:g} s")
        complaint = output.complaints.decode("utf-8", "replace").strip()
        if output.status == 0:
            return output
        if form == FORMATS[0] and "format" in complaint:
            continue
        return Missing(ABSENT, UnreadReason.UNREADABLE, explain_refusal(output.status, complaint))
    return None


def explain_refusal(status: int, complaint: str) -> str:
    """Why lldpcli gave nothing: lldpd does not run, or does not let us ask."""
    line = printable(complaint.partition("\n")[0])[:COMPLAINT_CHARACTERS_MAX]
    return f"lldpcli ended with {status}: {line or 'it gives no reason'}"


def explain_losses(flawed: int, neighbours: int) -> str:
    words = [f"{flawed} neighbours cannot be read"] if flawed else []
    if neighbours > NEIGHBOURS_MAX:
        over = neighbours - NEIGHBOURS_MAX
        words.append(f"{over} neighbours over NEIGHBOURS_MAX = {NEIGHBOURS_MAX} are left out")
    return "; ".join(words)


def find_port(host: Host, interface: str) -> tuple[str, str]:
    """Device and port of an interface: the RDMA device behind it, or itself and 1."""
    path = f"{CLASS}/{interface}"
    devices = list_or_nothing(host, f"{path}/device/infiniband")
    if not devices:
        return interface, "1"
    number = read_label(host, f"{path}/dev_port")
    is_number = number.isascii() and number.isdigit()
    return devices[0], str(int(number) + 1) if is_number else "1"


def make_series(device: str, port: str, neighbour: Neighbour) -> Series:
    labels = {
        "device": device,
        "port": port,
        "method": METHOD,
        "peer_name": neighbour.name,
        "peer_port": neighbour.port,
        "peer_chassis": neighbour.chassis,
        "peer_port_id": neighbour.port_id,
    }
    return Series(METRIC, {name: value for name, value in labels.items() if value})


# Parsing -----------------------------------------------------------------------------------------


def parse_neighbours(text: bytes) -> tuple[list[Neighbour], int]:
    """All neighbours in lldpcli's output, in either form, and how many could not be read.

    Raises ValueError if it is no JSON, or JSON of something else.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise ValueError(f"over {TEXT_BYTES_MAX} bytes (TEXT_BYTES_MAX)")
    try:
        # A neighbour may describe itself in Latin-1; that must not hide the others.
        document = msgspec.json.decode(text.decode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(document, dict) or "lldp" not in document:
        raise ValueError("its JSON is not about neighbours")
    found: list[Neighbour] = []
    flawed = 0
    for name, entry in interfaces_of(document["lldp"]):
        neighbour = parse_entry(name, entry)
        if neighbour is None:
            flawed += 1
        else:
            found.append(neighbour)
    return found, flawed


def interfaces_of(lldp: object) -> Iterator[tuple[object, object]]:
    """Name and content of each interface.

    json0: a list of maps with the name inside. json: a map by name, or a list of maps by name.
    """
    for holder in as_list(lldp):
        listed = holder.get("interface") if isinstance(holder, dict) else None
        for item in as_list(listed):
            if not isinstance(item, dict):
                yield None, None
            elif isinstance(item.get("name"), str):
                yield item["name"], item
            else:
                for name, entries in item.items():
                    yield from ((name, entry) for entry in as_list(entries))


def parse_entry(interface: object, entry: object) -> Neighbour | None:
    """The neighbour at one interface; None if nothing in it names one."""
    if not isinstance(interface, str) or not is_interface(interface) or not isinstance(entry, dict):
        return None
    name, chassis = parse_chassis(first(entry.get("chassis")))
    port = first(entry.get("port"))
    port = port if isinstance(port, dict) else {}
    kind, port_id = parse_id(port.get("id"))
    description = text_of(port.get("descr"))
    # An interface's name is what people call the port; a MAC or a number is not.
    port_name = port_id if kind == "ifname" else description or port_id
    if not (name or chassis or port_id):
        return None
    return Neighbour(interface, name, chassis, port_name, port_id)


def parse_chassis(chassis: object) -> tuple[str, str]:
    """A chassis' name and identifier. In `json` the name is the key, if it has one."""
    if not isinstance(chassis, dict):
        return "", ""
    if "id" not in chassis and len(chassis) == 1:
        name, inner = next(iter(chassis.items()))
        if isinstance(inner, dict) and "id" in inner:
            return clean(name), parse_id(inner["id"])[1]
    return text_of(chassis.get("name")), parse_id(chassis.get("id"))[1]


def parse_id(value: object) -> tuple[str, str]:
    value = first(value)
    kind = value.get("type") if isinstance(value, dict) else ""
    return kind if isinstance(kind, str) else "", text_of(value)


def text_of(value: object) -> str:
    """A text, wherever it stands: bare, in a map as `value`, or in a list of such."""
    value = first(value)
    if isinstance(value, dict):
        value = value.get("value")
    return clean(value) if isinstance(value, str) else ""


def clean(text: str) -> str:
    return printable(text.strip()[:LABEL_CHARACTERS_MAX])


def is_interface(name: str) -> bool:
    """Whether Linux could call an interface so; it becomes part of a path below /sys."""
    if not name.isprintable() or not 0 < len(name) <= NAME_CHARACTERS_MAX:
        return False
    return name not in {".", ".."} and "/" not in name and " " not in name


def as_list(value: object) -> list[Any]:
    """A list as it is, nothing as an empty one, anything else as a list of one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def first(value: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, list):
        return value[0] if value else None
    return value
