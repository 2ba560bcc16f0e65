"""Events of a case: only kinds, labels and attributes that detectors read, without texts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from alerts.cases.names import NameBook, NameKind
from alerts.cases.times import TimeShift
from alerts.detectors.crash import DOUBTFUL, KERNEL, LAST_WORDS
from alerts.detectors.gpu_error import XID_EVENT
from alerts.detectors.link_flap import EVENTS as LINK_EVENTS
from alerts.detectors.mismatch import TIMED_OUT
from alerts.signals.addresses import HOST_ADDRESS
from alerts.signals.talkers import PORT_DROPS, PORT_TALKERS, QUEUES, parse_counts, parse_talkers
from collector.contract.communicator import COMMUNICATOR, HOST, PID, RANK
from collector.contract.drop_reasons import NAMES as DROP_REASONS
from collector.contract.kernel import (
    AGE,
    COMPONENT,
    COUNT,
    FATAL,
    KERNEL_MESSAGE,
    MESSAGE,
    NIC_COMPONENTS,
    NIC_LIVES,
    SEVERITY,
)
from collector.contract.model import Event
from collector.contract.ras import RAS, REPORT, decode_text, encode_report
from collector.contract.verdict import Reason

KINDS = frozenset(
    {
        *LINK_EVENTS,
        "link_rate",
        "burst",
        "queue_burst",
        PORT_DROPS,
        PORT_TALKERS,
        XID_EVENT,
        LAST_WORDS,
        HOST_ADDRESS,
        RAS,
        KERNEL_MESSAGE,
    }
)
"""Kinds of events that a detector reads; others are dropped."""
WORDS = frozenset({*KERNEL, *DOUBTFUL, TIMED_OUT})
"""Last words that a detector tells from others; of the rest it sees which are alike."""
ROLES = frozenset({"own", "peer", "after", "end"})
DIRECTIONS = frozenset({"receive", "transmit"})
DIGITS_MAX = 20

Rename = Callable[[str], str]


class EventScrub:
    """Replaces what events name. An attribute whose value is not known to be harmless is dropped.

    The text of a log line is replaced by a neutral one: detectors see which lines are alike.
    """

    def __init__(self, names: NameBook, times: TimeShift) -> None:
        self._names = names
        self._times = times
        self._labels: Mapping[str, Rename] = {
            HOST: names.machine,
            "device": names.device,
            "port": names.port,
            "job": lambda text: names.name(NameKind.JOB, text),
            "gpu": digits,
            RANK: digits,
            PID: self._pid,
            COMMUNICATOR: self._communicator,
        }
        self._attributes: Mapping[str, Rename] = {
            "xid": digits,
            "line": digits,
            "proof": digits,
            "timed": digits,
            "absent": numbers,
            "queue": digits,
            "peak_bytes": digits,
            "talkers": self._talkers,
            "reasons": drop_reasons,
            "queues": drop_queues,
            "milliseconds": digits,
            AGE: digits,
            COUNT: digits,
            SEVERITY: lambda text: one_of(text, frozenset({FATAL})),
            COMPONENT: lambda text: one_of(text, NIC_COMPONENTS),
            MESSAGE: lambda text: names.known(NameKind.WORDS, text, NIC_LIVES),
            "direction": lambda text: one_of(text, DIRECTIONS),
            "role": lambda text: one_of(text, ROLES),
            "reason": lambda text: one_of(text, frozenset(Reason)),
            "words": lambda text: names.known(NameKind.WORDS, text, WORDS),
            "file": lambda text: names.name(NameKind.PATH, text),
            "path": lambda text: names.name(NameKind.PATH, text),
            "place": lambda text: names.name(NameKind.PATH, text),
            "peer": lambda text: names.name(NameKind.ADDRESS, text.lower()),
            "address": lambda text: names.name(NameKind.ADDRESS, text.lower()),
            REPORT: self._report,
        }

    def events(self, events: Sequence[Event]) -> list[Event]:
        return [self._event(event) for event in events if event.kind in KINDS]

    def _event(self, event: Event) -> Event:
        return Event(
            kind=event.kind,
            time_ns=self._times.known(event.time_ns),
            labels=renamed(event.labels, self._labels),
            message=self._names.name(NameKind.LINE, event.message),
            attributes=renamed(event.attributes, self._attributes),
        )

    def _communicator(self, text: str) -> str:
        return self._names.name(NameKind.COMMUNICATOR, text)

    def _report(self, text: str) -> str:
        """What RAS says of ranks, without addresses and processes."""
        report = decode_text(text)
        if report is None:
            return ""
        odd = [
            msgspec.structs.replace(
                one,
                address="",
                pid=0,
                waits_in=self._communicator(one.waits_in) if one.waits_in else "",
            )
            for one in report.odd
        ]
        return encode_report(msgspec.structs.replace(report, odd=tuple(odd), nccl=""))

    def _talkers(self, text: str) -> str:
        """Who sends to whom, under other addresses; the hosts that they are of are left out."""
        pairs = [
            (*(self._names.name(NameKind.ADDRESS, end) for end in (source, destination)), share)
            for source, destination, share in parse_talkers(text)
        ]
        return " ".join(f"{source}>{destination}={share}" for source, destination, share in pairs)

    def _pid(self, text: str) -> str:
        return str(self._names.pid(int(text))) if digits(text) else ""


def drop_reasons(text: str) -> str:
    """Why packets were dropped, and how many: words of a specification."""
    return " ".join(f"{name}={count}" for name, count in parse_counts(text, DROP_REASONS).items())


def drop_queues(text: str) -> str:
    return " ".join(f"{name}={count}" for name, count in parse_counts(text, QUEUES).items())


def renamed(texts: Mapping[str, str], how: Mapping[str, Rename]) -> dict[str, str]:
    found = {key: how[key](text) for key, text in texts.items() if key in how}
    return {key: text for key, text in found.items() if text}


def digits(text: str) -> str:
    """The text if it is a number; else nothing.

    >>> digits("79"), digits("node7")
    ('79', '')
    """
    return text if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else ""


def numbers(text: str) -> str:
    """The text if it is a list of numbers; else nothing."""
    return text if all(digits(part) for part in text.split(",")) else ""


def one_of(text: str, vocabulary: frozenset[str]) -> str:
    return text if text in vocabulary else ""
