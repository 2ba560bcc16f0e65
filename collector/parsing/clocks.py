"""What chronyd and ptp4l say of the clocks that they steer. Pure.

`chronyc -c tracking` prints one line of fields between commas, in the order of its text report
(chronyc(1) of chrony 4.3; the fields are the same since 2.2). `pmc` prints one block for each
answer to a GET (pmc(8) of linuxptp 3.1.1; later versions add fields and none is renamed).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from collector.contract.units import NS

TRACKING_FIELDS = 14
UNSYNCHRONISED = "Not synchronised"
LOCAL_REFERENCE = "7F7F0101"
"""chronyd's `local` directive: it serves its own clock and follows none."""
TEXT_CHARACTERS_MAX = 64

_BLOCK = re.compile(r"^\t\S+ seq \d+ RESPONSE MANAGEMENT (\w+)\s*$", re.MULTILINE)
_FIELD = re.compile(r"^\t\t([\w.]+)[ \t]+(\S+)[ \t]*$", re.MULTILINE)
STEERED = ("SLAVE", "UNCALIBRATED")
"""States of a port that follows a master; in the second one its servo has not settled."""


class ChronyTracking(NamedTuple):
    """How chronyd sees the system's clock."""

    source: str
    """The server's address or name, the reference clock's name, or `local`; empty: none."""
    stratum: int
    is_synchronised: bool
    ahead_s: float
    """The system's clock less NTP time."""
    error_bound_s: float
    """As chronyc(1) states it: |system time offset| + root dispersion + root delay / 2."""


class PtpStatus(NamedTuple):
    """How ptp4l sees the clock that it steers."""

    state: str
    """Of the port that follows a master; else of the first port."""
    grandmaster: str
    ahead_s: float | None
    """The steered clock less the master's; None where no master is there."""
    path_delay_s: float | None
    interface: str
    """Of that port; empty where ptp4l does not tell."""
    is_hardware: bool
    """It steers the NIC's clock and not the system's."""
    utc_offset_s: int
    """The time of the hardware clock less UTC: 37 s where the domain counts TAI, else 0."""


def parse_tracking(text: bytes) -> ChronyTracking:
    """The line of `chronyc -c tracking`. ValueError for another text.

    The field `System time` is positive where the clock is slow, as the text report shows.

    >>> line = b"0A630001,10.99.0.1,2,1795030938.2,0.08,-0.1,0.1,-0.036,-0.004,0.1,0.0002,0.001"
    >>> parse_tracking(line + b",0.3,Normal")
    ChronyTracking(source='10.99.0.1', stratum=2, is_synchronised=True, ahead_s=-0.08, \
error_bound_s=0.0811)
    """
    fields = text.decode("utf-8", "replace").strip().split(",")
    if len(fields) < TRACKING_FIELDS:
        raise ValueError(f"{len(fields)} fields instead of {TRACKING_FIELDS}")
    reference, source, leap = fields[0], fields[1], fields[13]
    slow_s, root_delay_s, dispersion_s = (finite(fields[place]) for place in (4, 10, 11))
    is_local = reference == LOCAL_REFERENCE
    return ChronyTracking(
        source="local" if is_local else plain(source),
        stratum=int(fields[2]),
        is_synchronised=leap != UNSYNCHRONISED and not is_local,
        ahead_s=-slow_s,
        error_bound_s=abs(slow_s) + dispersion_s + root_delay_s / 2,
    )


def parse_pmc(text: bytes) -> PtpStatus | None:
    """The answers of `pmc`; None where ptp4l gave none. ValueError for an odd number in them."""
    blocks = list(pmc_blocks(text.decode("utf-8", "replace")))
    ports = [fields for name, fields in blocks if name == "PORT_DATA_SET"]
    known = {name: fields for name, fields in blocks if name != "PORT_DATA_SET"}
    if not ports or "TIME_STATUS_NP" not in known:
        return None
    steered = [one for state in STEERED for one in ports if one.get("portState") == state]
    port = (steered or ports)[0]
    status, current = known["TIME_STATUS_NP"], known.get("CURRENT_DATA_SET", {})
    scale = known.get("TIME_PROPERTIES_DATA_SET", {})
    has_master = bool(steered) and status.get("gmPresent") == "true"
    own = {
        fields.get("portIdentity", ""): fields
        for name, fields in blocks
        if name == "PORT_PROPERTIES_NP"
    }.get(port.get("portIdentity", ""), {})
    offset, delay = status.get("master_offset"), current.get("meanPathDelay")
    return PtpStatus(
        state=plain(port.get("portState", "")),
        grandmaster=plain(status.get("gmIdentity", "")),
        ahead_s=finite(offset) / NS if has_master and offset is not None else None,
        path_delay_s=finite(delay) / NS if has_master and delay is not None else None,
        interface=plain(own.get("interface", "")),
        is_hardware=own.get("timestamping") == "HARDWARE",
        utc_offset_s=int(scale.get("currentUtcOffset", "0"))
        if scale.get("ptpTimescale") == "1"
        else 0,
    )


def pmc_blocks(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The name and fields of each answer."""
    heads = list(_BLOCK.finditer(text))
    for place, head in enumerate(heads):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        yield head[1], dict(_FIELD.findall(text[head.end() : end]))


def finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:TEXT_CHARACTERS_MAX]} is no number of seconds")
    return number


def plain(text: str) -> str:
    return "".join(one for one in text[:TEXT_CHARACTERS_MAX] if one.isprintable()).strip()
