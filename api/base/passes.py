"""Passes: what a notice's link carries, so that its reader may acknowledge one incident. Pure.

A pass is `fsp.INCIDENT.UNTIL.MAC`: the incident's id, unix seconds, and an HMAC-SHA-256 of both
with a key that only the service has. Nothing is kept of it, so it cannot be taken back by itself:
it ends with its time, and all of them end with the key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

import msgspec

from api.base.limits import PASS_SECONDS

PREFIX: Final = "fsp"
"""So that scanners of repositories and people know what they have found."""
MEANT_FOR: Final = b"fabricscope pass 1\0"
"""Before what is signed: a key that signed something else, or another form, makes no pass."""
_FORM = re.compile(rf"({PREFIX}\.([A-Za-z0-9_-]{{1,200}})\.([0-9]{{1,12}}))\.([A-Za-z0-9_-]{{43}})")
_INCIDENT = re.compile(r"[A-Za-z0-9_-]{1,200}")


class Pass(msgspec.Struct, frozen=True):
    """A genuine pass: the one incident that it is for, and the unix second of its end."""

    incident: str
    until_s: int


class Passes:
    """Makes and reads passes. ``clock``: unix seconds."""

    def __init__(self, key: bytes, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock

    def make(self, incident: str) -> str:
        """A pass for this incident from now on; empty for a name that no incident has."""
        if not _INCIDENT.fullmatch(incident):
            return ""
        said = f"{PREFIX}.{incident}.{int(self._clock()) + PASS_SECONDS}"
        return f"{said}.{self._sign(said)}"

    def read(self, text: str) -> Pass | None:
        """What a genuine pass says, also one that is over; None for any other text."""
        found = _FORM.fullmatch(text)
        if found is None or not hmac.compare_digest(self._sign(found[1]), found[4]):
            return None
        return Pass(incident=found[2], until_s=int(found[3]))

    def _sign(self, said: str) -> str:
        mac = hmac.digest(self._key, MEANT_FOR + said.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def is_pass(text: str) -> bool:
    """Whether a text has the form of a pass.

    >>> is_pass("fsp.20261117-1.1794733200." + "x" * 43), is_pass("fsc_0123456789ab_x")
    (True, False)
    """
    return _FORM.fullmatch(text) is not None
