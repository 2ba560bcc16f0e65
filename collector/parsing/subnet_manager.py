"""What `sminfo` prints, and the lines of opensm's log. Pure.

Facts: infiniband-diags 44 (`sminfo.c`) and OpenSM 3.3.23 (`osm_log.c`, `osm_state_mgr.c`,
`osm_trap_rcv.c`); numbers of traps: IBTA volume 1, 14.2.5.1 (Notice).
"""

from __future__ import annotations

import enum
import re
from datetime import UTC, datetime
from typing import NamedTuple

from collector.parsing.infiniband_diags import LID_MAX, clean_name, guid_of

LINE_BYTES_MAX = 2_048
"""Of a line of the log that is looked at; opensm cuts its own at 1,024."""
STATES = {"NOTACTIVE": 0, "DISCOVERING": 1, "STANDBY": 2, "MASTER": 3}
"""IBTA volume 1, 14.2.5.13: SMInfo's SMState."""
MASTER = STATES["MASTER"]
TRAPS = {
    64: "port in service",
    65: "port out of service",
    66: "multicast group created",
    67: "multicast group deleted",
    128: "link state changed",
    129: "local link integrity threshold reached",
    130: "excessive buffer overruns",
    131: "flow control update watchdog expired",
    144: "capabilities or description changed",
    145: "system image GUID changed",
    256: "bad management key",
    257: "bad partition key",
    258: "bad queue key",
    259: "bad partition key at a switch",
}
"""What IBTA's traps are about; others are the maker's."""
TROUBLE = frozenset({129, 130, 131, 256, 257, 258, 259})
"""Traps that a working fabric does not send."""


class Manager(NamedTuple):
    """The subnet manager that answered."""

    guid: str
    """Of its port."""
    lid: int
    activity: int
    """Counts up with what it does; a master whose count stands still may be dead."""
    priority: int
    state: int


_SMINFO = re.compile(
    rb"sminfo: sm lid ([0-9]{1,6}) sm guid (0x[0-9a-f]{1,16}), activity count ([0-9]{1,10}) "
    rb"priority ([0-9]{1,3}) state ([0-9])\b",
    re.IGNORECASE,
)


def parse_sminfo(text: bytes) -> Manager | None:
    """The manager in an output of `sminfo`; None where it has none."""
    match = _SMINFO.search(text)
    if match is None or int(match[1]) > LID_MAX:
        return None
    lid, activity, priority, state = (int(match[group]) for group in (1, 3, 4, 5))
    return Manager(guid_of(match[2].decode()), lid, activity, priority, state)


# opensm.log -------------------------------------------------------------------------------------


class What(enum.StrEnum):
    """What a line of the log is about."""

    STATE = "state"
    SWEPT = "swept"
    """A heavy sweep has ended: every node was asked, every route is set. At its ordinary verbosity
    opensm does not log that one begins, nor light sweeps."""
    ROUTED = "routed"
    TRAP = "trap"
    ERROR = "error"


class LogLine(NamedTuple):
    """A line of opensm's log that has a meaning here."""

    what: What
    time_ns: int
    state: int = 0
    engine: str = ""
    """The routing engine whose tables were set."""
    trap: int = 0
    lid: int = 0
    """Who sent the trap."""
    text: str = ""


_HEAD = re.compile(
    rb"([A-Z][a-z]{2}) ([0-9 ][0-9]) ([0-9]{2}:[0-9]{2}:[0-9]{2}) ([0-9]{6}) \[[0-9A-Fa-f]{1,16}\]"
    rb" 0x[0-9A-Fa-f]{2} -> "
)
_MEANINGS: tuple[tuple[What, re.Pattern[bytes]], ...] = (
    (What.STATE, re.compile(rb"Entering (?P<state>NOTACTIVE|DISCOVERING|STANDBY|MASTER) state")),
    (What.SWEPT, re.compile(rb"\*{0,80}\s{0,80}SUBNET UP\b")),
    (
        What.ROUTED,
        re.compile(rb"osm_ucast_mgr_process: (?P<engine>[\w-]{1,32}) tables configured on all"),
    ),
    (
        What.TRAP,
        re.compile(
            rb"\w{1,40}: Received (?:Generic|Vendor) Notice type:[0-9]{1,4} "
            rb"num:(?P<trap>[0-9]{1,5})(?: \(.{0,160}\))? Producer:.{0,40}? "
            rb"from LID:(?P<lid>[0-9]{1,5})"
        ),
    ),
    (What.ERROR, re.compile(rb"\w{1,60}: ERR [0-9A-F]{4}: ")),
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
AHEAD_NS = 86_400 * 10**9
"""How far a line's time may lie ahead of ours: another zone, or a clock that is off."""


def parse_log_line(line: bytes, now_ns: int) -> LogLine | None:
    """The meaning of a line; None for the many that have none here."""
    head = _HEAD.match(line[:LINE_BYTES_MAX])
    if head is None:
        return None
    message = line[head.end() : LINE_BYTES_MAX].rstrip()
    for what, pattern in _MEANINGS:
        if match := pattern.match(message):
            words = {name: word.decode("ascii") for name, word in match.groupdict().items()}
            return LogLine(
                what,
                time_of(head, now_ns),
                state=STATES.get(words.get("state", ""), 0),
                engine=words.get("engine", ""),
                trap=int(words.get("trap", 0)),
                lid=int(words.get("lid", 0)),
                text=clean_name(message.decode("utf-8", "replace")),
            )
    return None


def time_of(head: re.Match[bytes], now_ns: int) -> int:
    """The time of a line, which has no year and is read as UTC: the latest that is not ahead."""
    month, day, clock, micros = (part.decode("ascii") for part in head.groups())
    now = datetime.fromtimestamp(now_ns // 10**9, UTC)
    if month not in MONTHS:
        return now_ns
    for year in (now.year, now.year - 1):
        try:
            at = datetime.fromisoformat(
                f"{year}-{MONTHS.index(month) + 1:02d}-{int(day):02d}T{clock}+00:00"
            )
        except ValueError:
            continue
        time_ns = int(at.timestamp()) * 10**9 + int(micros) * 1000
        if time_ns <= now_ns + AHEAD_NS:
            return min(time_ns, now_ns)
    return now_ns
