"""Requests to a switch that streams and its messages, for the live client and the replay alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import msgspec

from collector.contract.errors import FabricscopeError
from collector.contract.reason import UnreadReason

NAME_CHARS_MAX = 255
"""Of a switch's name: it becomes the label `host`, and names of hosts are not longer."""

Keys = tuple[tuple[str, str], ...]
"""Keys of one list entry, sorted by name: (("name", "Ethernet1"),)."""
Element = tuple[str, Keys]
"""One step of a path: ("interface", (("name", "Ethernet1"),))."""

Value = Any
"""A leaf's value or a subtree as Python types: None, bool, int, float, str, list, dict. Any,
because a subtree is whatever JSON holds; `collector.switches.gnmi.leaves` looks at every part of
it."""


class GnmiError(FabricscopeError):
    """A switch that cannot be listened to: out of reach, refusing us, or sending nonsense.

    ``reason`` is that of the `Missing`: TIMEOUT (no answer), UNREADABLE (it refuses us: TLS, user,
    password), NOT_SUPPORTED (it refuses what was asked), UNPARSEABLE (what it sent is no gNMI),
    ABSENT (there is no such recording, or pygnmi is not installed).
    """

    def __init__(self, reason: UnreadReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One switch and how to listen to it."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    """The label `host` of its series; on a captured tree the recording is `gnmi/<name>.json`."""
    address: str = ""
    """Name or address. Empty: the same as ``name``."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 9339
    """9339 is gNMI's own; Arista listens on 6030, Nokia on 57400, SONiC on 8080 or 50051."""
    profile: str = "openconfig"
    """Which paths to ask for: collector/switches/gnmi/gnmi_<profile>.toml."""
    tls: bool = True
    """False sends everything, the password too, as plain text."""
    ca_file: str = ""
    """Certificates that the switch's must be signed by. Empty: the system's."""
    cert_file: str = ""
    """Our own certificate, for switches that want one; with ``key_file``."""
    key_file: str = ""
    server_name: str = ""
    """The name in the switch's certificate, where it is not its address."""
    skip_verify: bool = False
    """Trust whatever certificate the switch shows: an attacker in between can read the password."""
    user: str = ""
    password_file: str = ""
    """A file that holds the password; read at every connection, so that it can be replaced."""
    encoding: Literal["", "json", "json_ietf", "proto"] = ""
    """Empty: the first of json_ietf, json and proto that the switch reports it supports."""
    origin: str = ""
    """The origin of the paths, for switches that ask for one; empty: the profile's."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, where the settings are read."""
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file go together")
        if self.skip_verify and self.ca_file:
            raise ValueError("ca_file and skip_verify contradict each other; keep one")
        if not self.name.isprintable():
            raise ValueError("name must be printable")

    @property
    def host(self) -> str:
        return self.address or self.name


class Path:
    """A place in a switch's tree. Made once and kept: its hash is computed once."""

    __slots__ = ("_hash", "elements")

    def __init__(self, elements: tuple[Element, ...]) -> None:
        self.elements = elements
        self._hash = hash(elements)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Path) and self.elements == other.elements

    def __repr__(self) -> str:
        steps = (
            name + "".join(f"[{key}={value}]" for key, value in keys)
            for name, keys in self.elements
        )
        return "/" + "/".join(steps)


class Update(NamedTuple):
    """A path and what is there now."""

    path: Path
    value: Value


class Notification(NamedTuple):
    """One message of a switch: paths that are gone, then values; ``time_ns`` by its clock."""

    time_ns: int
    updates: list[Update]
    deletes: list[Path]
    odd: int = 0
    """Parts that could not be understood and are not here."""


class Synced(NamedTuple):
    """The switch has sent every value that it has; from here on it sends what is new."""


class Nonsense(NamedTuple):
    """A message, or a part of one, that could not be understood; the stream goes on."""

    detail: str


Message = Notification | Synced | Nonsense


class Subscription(NamedTuple):
    """A part of the tree that the switch shall send."""

    path: str
    on_change: bool
    """True: sent when it changes. False: sent every ``seconds``."""
    seconds: float


class Request(NamedTuple):
    """Everything that one stream asks for."""

    subscriptions: tuple[Subscription, ...]
    target: str = ""
    """The database, for switches that have several behind one address (SONiC)."""
    origin: str = ""


class Connection(Protocol):
    """One switch, for one thread at a time. Every refusal is a GnmiError."""

    def subscribe(self, request: Request) -> Iterator[Message]:
        """Connect, subscribe, and yield the switch's messages until it ends or fails."""
        ...

    def cancel(self) -> None:
        """Make `subscribe` end soon; for any thread."""

    def close(self) -> None: ...
