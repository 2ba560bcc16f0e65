"""The latest value of every leaf that one switch has sent, and the changes that no read has taken.

Streams write, reads look. A value replaces the one before it, so that a switch that sends faster
than the agent reads costs no memory; only changes of link states are kept one by one, up to a
bound.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, deque
from collections.abc import Iterator
from fnmatch import fnmatch

from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.switches.gnmi.feed import LeafKey, Reader, covers, has_wildcard, make_reader
from collector.switches.gnmi.model import (
    Element,
    GnmiError,
    Message,
    Nonsense,
    Notification,
    Path,
    Subscription,
    Value,
)
from collector.switches.gnmi.numbers import to_number, to_text
from collector.switches.gnmi.tables import Leaf, Match, Row, StreamTable

LEAVES_MAX = 65_536
"""Leaves of one switch that are kept: 576 ports of 100. What comes beyond is dropped, and
counted."""
EVENTS_MAX = 4096
"""Changes of link states between two reads: 64 ports that flap 32 times each."""
WILD_DELETES_MAX = 16
"""Deletes by pattern in one message: each is compared with every leaf."""
AGE_SECONDS_MAX = 30
AHEAD_SECONDS_MAX = 1
"""How far a switch's clock may seem from ours for its times to be believed: counters are some
seconds old when they are sent, and never from the future. Else the time of arrival is taken."""
EVENT_AGE_SECONDS_MAX = 600
"""The same for changes, which may have waited for a connection to come back."""
STALE_INTERVALS = 3
STALE_SECONDS = 5
"""A value that was not renewed for so many intervals and seconds is not shown any more."""
FORGET_SECONDS = 600
"""And after so many more it is forgotten: the port is gone, and the switch did not delete it."""

STATE_UP = 4
"""Of `fabric_port_state`."""
ALIAS = "alias"
SWITCH_INFO = "fabric_switch_info"
SWITCH_TEMPERATURE = "fabric_switch_temperature_celsius"
MODULE_TEMPERATURE = "fabric_port_module_temperature_celsius"

_HARDWARE_ADDRESS = re.compile(
    r"([0-9a-fA-F]{1,2}[:-]){5}[0-9a-fA-F]{1,2}|([0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}"
)


class Feed:
    """One stream's share of the leaves: how its messages are read and its leaves renewed."""

    def __init__(self, table: StreamTable) -> None:
        self.table = table
        self.reader: Reader = make_reader(table)
        self.names_from: Feed | None = None
        """The feed that names this one's ports, where that is another one."""
        self.is_live = False
        self.is_synced = False
        """Whether the switch has sent everything on the present connection."""
        self.has_answered = False
        """Whether the switch has ever sent everything, or failed: waiting longer gives nothing."""
        self.generation = 0
        """Counts connections: leaves of an older one may be gone."""
        self.slots_of: dict[Path, list[Slot]] = {}
        """Paths that are leaves themselves, so that they need not be taken apart again."""
        self.unheard: set[str] = set()
        """Subscriptions by which nothing known has come on the present connection. For databases:
        SONiC takes a path that it does not have, and sends nothing."""
        self._subscriptions: list[tuple[tuple[str, ...], Subscription]] = []
        self._above: dict[Path, Subscription | None] = {}
        """What `subscription_above` found."""

    def follow(self, subscriptions: tuple[Subscription, ...]) -> None:
        self._subscriptions = [(bare_names(each.path), each) for each in subscriptions]
        self._above.clear()
        if self.table.style == "database":
            optional = {each.path for each in self.table.subscriptions if each.is_optional}
            self.unheard = {each.path for each in subscriptions} - optional

    def subscription_above(self, path: Path) -> Subscription | None:
        """The subscription that a message of a database answers: the longest path above its own."""
        if path not in self._above:
            if len(self._above) >= LEAVES_MAX:
                self._above.clear()
            names = [name for name, _ in self.reader.steps_of(path)]
            found = [
                (len(wanted), each)
                for wanted, each in self._subscriptions
                if len(wanted) <= len(names) and all(map(fnmatch, names, wanted))
            ]
            self._above[path] = max(found, key=lambda one: one[0])[1] if found else None
        return self._above[path]

    def subscription_of(self, key: LeafKey) -> Subscription | None:
        """The subscription that a leaf comes by: the longest path above it."""
        schema, keys = key
        names = tuple(schema.split("/")[1:]) if schema[:1] == "/" else (schema, *keys)
        found: tuple[int, Subscription] | None = None
        for wanted, each in self._subscriptions:
            length = len(wanted)
            is_below = all(w in ("*", n) or "*" in w for w, n in zip(wanted, names, strict=False))
            if is_below and length <= len(names) and (found is None or length > found[0]):
                found = length, each
        return found[1] if found else None


def bare_names(path: str) -> tuple[str, ...]:
    """The names of a path without keys: leaves are compared with subscriptions by them.

    >>> bare_names("/interfaces/interface[name=*]/state")
    ('interfaces', 'interface', 'state')
    """
    return tuple(re.sub(r"\[[^]]*\]", "", path).strip("/").split("/"))


def is_below(
    steps: tuple[Element, ...], wide: set[tuple[Element, ...]], patterns: list[tuple[Element, ...]]
) -> bool:
    """Whether a leaf is at one of these paths or patterns, or below."""
    return any(steps[:length] in wide for length in range(len(steps) + 1)) or any(
        covers(pattern, steps) for pattern in patterns
    )


class Entry:
    """Texts of one list entry, which together are one info series."""

    __slots__ = ("feed", "labels", "row", "series", "slots", "texts")

    def __init__(self, row: Row, labels: dict[str, str], feed: Feed) -> None:
        self.row = row
        self.labels = labels
        self.feed = feed
        self.texts: dict[str, str] = {}
        self.slots = 0
        """Leaves that feed it; without any it is gone."""
        self.series: Series | None = None

    def text_labels(self) -> dict[str, str]:
        return {label: self._choose(names) for label, names in self.row.labels.items()}

    def _choose(self, names: list[str]) -> str:
        texts = [text for name in names if (text := self.texts.get(name, ""))]
        if len(names) > 1:
            texts = [text for text in texts if not _HARDWARE_ADDRESS.fullmatch(text)]
        return next(iter(texts), "")


class Slot:
    """One leaf: its meaning and its last value."""

    __slots__ = (
        "entry",
        "fault",
        "feed",
        "generation",
        "is_excluded",
        "is_gone",
        "is_on_change",
        "key",
        "labels",
        "leaf",
        "name",
        "order",
        "seen_ns",
        "series",
        "stale_ns",
        "time_ns",
        "value",
    )

    def __init__(self, feed: Feed, key: LeafKey, match: Match) -> None:
        self.feed = feed
        self.key = key
        self.leaf: Leaf | None = match.leaf
        self.labels = dict(match.labels)
        self.order = match.order
        self.name = match.name
        self.entry: Entry | None = None
        self.series = Series("")
        self.value: float | None = None
        self.fault = ""
        self.time_ns = 0
        self.seen_ns = 0
        self.generation = 0
        self.is_on_change = False
        self.is_excluded = False
        """Its port is one to leave alone, which is known only by the port's own name."""
        self.is_gone = False
        self.stale_ns = 0

    def renewed_by(self, subscription: Subscription | None) -> None:
        """How this leaf comes; one without a subscription is treated as a slow one."""
        seconds = subscription.seconds if subscription else float(FORGET_SECONDS)
        self.is_on_change = subscription is not None and subscription.on_change
        self.stale_ns = int((STALE_INTERVALS * seconds + STALE_SECONDS) * NS)


class SwitchLeaves:
    """The leaves of one switch. For any thread."""

    def __init__(self, switch: str, facts: dict[str, str], exclude: tuple[str, ...] = ()) -> None:
        self._switch = switch
        self._facts = facts
        self._exclude = exclude
        self._lock = threading.Lock()
        self._slots: dict[LeafKey, list[Slot]] = {}
        self._count = 0
        self._entries: dict[tuple[int, tuple[tuple[str, str], ...]], Entry] = {}
        self._owners: dict[Series, Slot] = {}
        self._rivals: dict[Series, set[Slot]] = {}
        """Series that several leaves could give, and those leaves."""
        self._components: dict[str, set[Slot]] = {}
        """Numbers of parts of the switch, which may belong to a port, and of ports by the names
        that their maker gave them."""
        self._aliases: dict[str, list[str]] = {}
        """Such a part or name → the ports that claim it, the latest last."""
        self._states: dict[str, bool] = {}
        self._events: deque[Event] = deque()
        self.updates = 0
        self.dropped: Counter[str] = Counter(leaves=0, events=0, nonsense=0)
        """Parts that were not kept, by reason; since the start."""
        self.flaws: Counter[str] = Counter()
        self.delay_seconds: float | None = None
        """How old the last message was when it came, by the switch's clock."""
        self._info: Series | None = None

    # --- streams write -----------------------------------------------------------------------

    def begin(self, feed: Feed, subscriptions: tuple[Subscription, ...]) -> None:
        """A new connection of this feed; its subscriptions decide how old a value may be."""
        with self._lock:
            feed.generation += 1
            feed.is_synced = False
            feed.follow(subscriptions)
            for slots in self._slots.values():
                for slot in slots:
                    if slot.feed is feed:
                        slot.renewed_by(feed.subscription_of(slot.key))

    def sync(self, feed: Feed) -> None:
        """The switch has sent everything: an on-change leaf that it did not send is gone."""
        with self._lock:
            gone = [
                slot
                for slots in self._slots.values()
                for slot in slots
                if slot.feed is feed and slot.is_on_change and slot.generation != feed.generation
            ]
            self._remove(gone)
            feed.is_synced = feed.has_answered = True

    def silent(self, feed: Feed) -> list[str]:
        """Subscriptions that the switch took and that brought nothing known, once it has synced."""
        with self._lock:
            return sorted(feed.unheard) if feed.is_live and feed.is_synced else []

    def apply(self, feed: Feed, message: Notification, now_ns: int, steady_ns: int) -> int:
        """Take a message that came now; returns its cost in values."""
        with self._lock:
            age_ns = now_ns - message.time_ns
            is_sane = -AHEAD_SECONDS_MAX * NS <= age_ns <= AGE_SECONDS_MAX * NS
            self.delay_seconds = age_ns / NS
            deletes = [*message.deletes, *self._emptied(feed, message)]
            looked_at = self._delete(feed, deletes) if deletes else 0
            for path, value in message.updates:
                is_known = False
                for slot, leaf_value in self._find(feed, path, value):
                    is_known = True
                    slot.seen_ns, slot.generation = steady_ns, feed.generation
                    slot.time_ns = message.time_ns if is_sane else now_ns
                    if not is_sane and not slot.is_on_change:
                        self.flaws["clock"] += 1
                    self._set(slot, leaf_value, message.time_ns, now_ns)
                if is_known and feed.unheard:
                    above = feed.subscription_above(path)
                    feed.unheard.discard(above.path if above else "")
            return 1 + len(message.updates) + len(deletes) + looked_at

    @staticmethod
    def _emptied(feed: Feed, message: Notification) -> list[Path]:
        """Objects that the switch deleted.

        Only where it sends changes: an empty object among samples may also be one that never had a
        field, and what is gone becomes stale.
        """
        if feed.table.style != "database":
            return []
        gone = []
        for path, value in message.updates:
            if empty := feed.reader.emptied(path, value):
                above = feed.subscription_above(path)
                gone += empty if above and above.on_change else []
        return gone

    def count(self, message: Message) -> None:
        """Count a message; once, however many feeds it is for."""
        with self._lock:
            if isinstance(message, Notification):
                self.updates += len(message.updates)
                self.dropped["nonsense"] += message.odd
            elif isinstance(message, Nonsense):
                self.dropped["nonsense"] += 1

    def note_throttled(self) -> None:
        with self._lock:
            self.flaws["throttled"] += 1

    def _find(self, feed: Feed, path: Path, value: Value) -> Iterator[tuple[Slot, Value]]:
        known = feed.slots_of.get(path)
        if known is not None and not isinstance(value, dict | list):
            for slot in known:
                yield slot, value
            return
        slots: list[Slot] = []
        for key, leaf_value in feed.reader.leaves(path, value):
            slots = self._slots.get(key) or self._make(feed, key)
            for slot in slots:
                yield slot, leaf_value
        if not isinstance(value, dict | list) and len(feed.slots_of) < LEAVES_MAX:
            feed.slots_of[path] = slots

    def _make(self, feed: Feed, key: LeafKey) -> list[Slot]:
        """The slots of a leaf that is new; empty for one that means nothing to us."""
        matches = feed.reader.find(key)
        # The names of a port that is left out are kept: by them its numbers are recognized.
        matches = [
            each
            for each in matches
            if (each.row is not None and each.row.metric == ALIAS)
            or not self._is_excluded(dict(each.labels))
        ]
        if not matches:
            return []
        if self._count + len(matches) > LEAVES_MAX:
            self.dropped["leaves"] += 1
            return []
        slots = [Slot(feed, key, match) for match in matches]
        self._slots[key] = slots
        self._count += len(slots)
        subscription = feed.subscription_of(key)
        for slot, match in zip(slots, matches, strict=True):
            slot.renewed_by(subscription)
            if match.row is not None:
                place = id(match.row), match.labels
                slot.entry = self._entries.setdefault(place, Entry(match.row, slot.labels, feed))
                slot.entry.slots += 1
            else:
                self._name(slot)
                if component := slot.labels.get("component"):
                    self._components.setdefault(component, set()).add(slot)
        return slots

    def _is_excluded(self, labels: dict[str, str]) -> bool:
        port = labels.get("port", "")
        return any(fnmatch(port, pattern) for pattern in self._exclude)

    def _name(self, slot: Slot) -> None:
        """Give a number its series; of two leaves with one series the profile's first one wins."""
        assert slot.leaf is not None
        labels = {name: to_text(value) for name, value in slot.labels.items()}
        metric = slot.leaf.metric
        component = labels.pop("component", "")
        if port := self._port_of(component, slot.feed):
            labels["port"] = port
            metric = MODULE_TEMPERATURE if metric == SWITCH_TEMPERATURE else metric
        elif component:
            labels["sensor" if metric == SWITCH_TEMPERATURE else "port"] = component
        if "port" in labels:
            labels["device"] = self._switch
        slot.is_excluded = bool(component) and self._is_excluded(labels)
        labels |= {"host": self._switch, **slot.leaf.labels}
        slot.series = Series(metric, labels)
        owner = self._owners.setdefault(slot.series, slot)
        if owner is slot:
            return
        self._rivals.setdefault(slot.series, {owner}).add(slot)
        if slot.order < owner.order:
            self._owners[slot.series] = slot
        slot.series = owner.series

    def _port_of(self, component: str, feed: Feed) -> str:
        """The port that a part of the switch, or a maker's name, belongs to; empty if none.

        Two ports under one maker's name cannot be told apart: numbers keep that name. (A part, as
        a transceiver that is broken out, is the latest port's.)
        """
        ports = self._aliases.get(component, [])
        if not ports or (len(ports) > 1 and feed.names_from is not None):
            return ""
        return ports[-1]

    def _set(self, slot: Slot, value: Value, sent_ns: int, now_ns: int) -> None:
        if slot.entry is not None:
            self._set_text(slot, slot.entry, to_text(value))
            return
        assert slot.leaf is not None
        if value in slot.leaf.nothing:
            slot.value, slot.fault = None, ""
            return
        try:
            number = to_number(slot.leaf, value)
        except ValueError as error:
            slot.value, slot.fault = None, str(error)
            return
        slot.value, slot.fault = number, ""
        if slot.leaf.is_link_state:
            self._note_state(slot, number == STATE_UP, sent_ns, now_ns)

    def _set_text(self, slot: Slot, entry: Entry, text: str) -> None:
        if entry.texts.get(slot.name) == text:
            return
        entry.texts[slot.name] = text
        entry.series = None
        if entry.row.metric == SWITCH_INFO:
            self._facts |= entry.text_labels()
            self._info = None
        if entry.row.metric == ALIAS:
            self._alias(entry)

    def _alias(self, entry: Entry) -> None:
        """A component belongs to a port: its numbers are the port's."""
        port = to_text(entry.labels.get("port", ""))
        touched = {name for name, ports in self._aliases.items() if port in ports}
        for name in touched:
            self._aliases[name].remove(port)
            if not self._aliases[name]:
                del self._aliases[name]
        if component := entry.text_labels().get("component", ""):
            self._aliases.setdefault(component, []).append(port)
            touched.add(component)
        for name in touched:
            for slot in self._components.get(name, ()):
                self._disown(slot)
                self._name(slot)

    def _note_state(self, slot: Slot, is_up: bool, sent_ns: int, now_ns: int) -> None:  # noqa: FBT001 - a state
        """An event when a link went up or down; the first known state is none."""
        labels = dict(slot.series.labels)
        port = labels.get("port", "")
        was_up = self._states.get(port)
        if was_up is None and len(self._states) >= LEAVES_MAX:
            self._states.clear()  # ports that come and go under ever new names
        self._states[port] = is_up
        if was_up is None or was_up == is_up:
            return
        if len(self._events) >= EVENTS_MAX:
            self.dropped["events"] += 1
            return
        age_ns = now_ns - sent_ns
        is_sane = -AHEAD_SECONDS_MAX * NS <= age_ns <= EVENT_AGE_SECONDS_MAX * NS
        words = {True: "up", False: "down"}
        self._events.append(
            Event(
                kind="link_up" if is_up else "link_down",
                time_ns=sent_ns if is_sane else now_ns,
                labels=labels,
                attributes={"from": words[was_up], "to": words[is_up], "seen_by": "gnmi"},
                message=f"{self._switch} port {port} went {words[is_up]}",
            )
        )

    # --- leaves that are gone ----------------------------------------------------------------

    def _delete(self, feed: Feed, paths: list[Path]) -> int:
        """Remove leaves at these paths and below; returns how many leaves were checked."""
        gone: list[Slot] = []
        wide: set[tuple[Element, ...]] = set()
        patterns: list[tuple[Element, ...]] = []
        for path in paths:
            steps = feed.reader.steps_of(path)
            if path in feed.slots_of:
                gone += feed.slots_of[path]
            elif not has_wildcard(steps):
                wide.add(steps)
            elif len(patterns) < WILD_DELETES_MAX:
                patterns.append(steps)
            else:
                detail = f"over WILD_DELETES_MAX = {WILD_DELETES_MAX} deletes by pattern at once"
                raise GnmiError(UnreadReason.UNPARSEABLE, detail)
        if wide or patterns:
            for key, slots in self._slots.items():
                if slots[0].feed is feed and is_below(feed.reader.steps_to(key), wide, patterns):
                    gone += slots
        for slot in gone:
            if slot.leaf is not None and slot.leaf.is_link_state:
                self._states.pop(dict(slot.series.labels).get("port", ""), None)
        self._remove(gone)
        return len(self._slots) * (1 + len(patterns)) if wide or patterns else 0

    def _remove(self, gone: list[Slot]) -> None:
        for slot in gone:
            if slot.is_gone:
                continue
            slot.is_gone = True
            if self._slots.pop(slot.key, None) is not None and slot.feed.slots_of:
                slot.feed.slots_of.clear()
            self._count -= 1
            if slot.entry is not None:
                self._empty(slot, slot.entry)
            else:
                self._disown(slot)
                component = slot.labels.get("component", "")
                if slots := self._components.get(component):
                    slots.discard(slot)
                    if not slots:
                        del self._components[component]

    def _disown(self, slot: Slot) -> None:
        """Take its series from this leaf; another one with the same meaning inherits it."""
        rivals = self._rivals.get(slot.series)
        if rivals is not None:
            rivals.discard(slot)
        if self._owners.get(slot.series) is slot:
            del self._owners[slot.series]
            if rivals:
                self._owners[slot.series] = min(rivals, key=lambda each: each.order)
        if rivals is not None and not rivals:
            del self._rivals[slot.series]

    def _empty(self, slot: Slot, entry: Entry) -> None:
        self._set_text(slot, entry, "")
        entry.slots -= 1
        if entry.slots <= 0:
            place = id(entry.row), tuple(entry.labels.items())
            self._entries.pop(place, None)

    # --- reads look --------------------------------------------------------------------------

    def readings(self, now_ns: int, steady_ns: int) -> list[Reading]:
        """Every number and info that holds now, and every change since the last call."""
        with self._lock:
            found: list[Reading] = self._take_events()
            self._forget(steady_ns)
            for slots in self._slots.values():
                for slot in slots:
                    if slot.leaf is not None and self._owners.get(slot.series) is slot:
                        found += self._read_number(slot, now_ns, steady_ns)
            found += self._read_entries(now_ns)
            return found

    def events(self) -> list[Reading]:
        """Every change since the last call, of this or of `readings`."""
        if not self._events:
            return []  # the usual case, without the lock
        with self._lock:
            return self._take_events()

    def _take_events(self) -> list[Reading]:
        found: list[Reading] = list(self._events)
        self._events.clear()
        return found

    def info(self) -> Series:
        with self._lock:
            if self._info is None:
                self._info = Series(SWITCH_INFO, {"host": self._switch, **self._facts})
            return self._info

    def take_flaws(self) -> Counter[str]:
        """Flaws since the last call; 0 for earlier kinds."""
        with self._lock:
            flaws, self.flaws = self.flaws, Counter(dict.fromkeys(self.flaws, 0))
            return flaws

    def _forget(self, steady_ns: int) -> None:
        """Drop leaves that were not renewed for FORGET_SECONDS after they became stale."""
        gone = [
            slot
            for slots in self._slots.values()
            for slot in slots
            if not slot.is_on_change
            and steady_ns - slot.seen_ns > slot.stale_ns + FORGET_SECONDS * NS
        ]
        self._remove(gone)

    def _read_number(self, slot: Slot, now_ns: int, steady_ns: int) -> Iterator[Reading]:
        namer = slot.feed.names_from
        if slot.is_excluded or (namer is not None and not namer.has_answered):
            return
        if namer is not None and len(self._aliases.get(slot.labels.get("component", ""), ())) > 1:
            self.flaws["alias"] += 1
        if slot.is_on_change:
            if not slot.feed.is_live:
                return  # unknown whether it still holds
            time_ns = now_ns
        elif steady_ns - slot.seen_ns > slot.stale_ns:
            self.flaws["stale"] += 1
            return
        else:
            time_ns = slot.time_ns
        if slot.value is None:
            if slot.fault:
                yield Missing(slot.series, UnreadReason.UNPARSEABLE, slot.fault)
            return
        assert slot.leaf is not None
        if slot.leaf.unit == "boot_ns":
            yield Sample(slot.series, max(0.0, (now_ns - slot.value) / NS), now_ns)
        else:
            yield Sample(slot.series, slot.value, time_ns)

    def _read_entries(self, now_ns: int) -> Iterator[Reading]:
        yielded: set[Series] = set()
        for entry in self._entries.values():
            if entry.row.metric in (ALIAS, SWITCH_INFO) or not entry.feed.is_live:
                continue
            if entry.series is None:
                labels_given = entry.text_labels()
                if not any(labels_given.values()):
                    continue
                names = {"port": to_text(entry.labels.get("port", "")), "device": self._switch}
                labels = {"host": self._switch, **names, **entry.row.fixed, **labels_given}
                entry.series = Series(entry.row.metric, labels)
            if entry.series not in yielded:
                yielded.add(entry.series)
                yield Sample(entry.series, 1, now_ns)
