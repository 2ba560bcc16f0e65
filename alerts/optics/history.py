"""Hours of readings of ports' optics, on one grid of cells. NaN: not read."""

from __future__ import annotations

import msgspec

from alerts.window.columns import Flags, Floats, Ints
from collector.contract.verdict import Culprit

PRE_FEC_KP4, PRE_FEC_KR4 = 2.4e-4, 5e-5
"""Bit error ratios before correction for which links are designed: RS(544,514) on PAM4 lanes (IEEE
802.3bs, 802.3ck: 2.4e-4) and RS(528,514) on NRZ lanes (IEEE 802.3bj, 802.3by: 5e-5)."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a cable: the port that receives."""

    name: str
    """As people read it: `node3 enp1s0`, `leaf-2 Ethernet8`."""
    culprit: Culprit
    group: str
    """Ports that share its air and its power: those of one switch, or NICs of one host."""
    cable: str
    """The same for both ends of a cable."""
    metric: str
    """The series that its error rate was computed from, and its labels."""
    labels: dict[str, str]
    limit: float = PRE_FEC_KP4


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Readings of ``ends``; cells are equally long and end at ``until_ns``."""

    step_s: float
    until_ns: int
    ends: tuple[End, ...]
    pre_fec: Floats
    """[ends, cells]: share of bits that were wrong before correction."""
    breaks: Flags
    """[ends, cells]: the link was down, or the module is another one than before."""
    celsius: Floats
    """[ends, cells]: temperature of the module."""
    celsius_limit: Floats
    """[ends]: above which the module itself raises an alarm."""
    watts: Floats
    """[lanes, cells]: light that comes in."""
    watts_limit: Floats
    """[lanes]: below which the module itself raises an alarm."""
    lane_end: Ints
    """[lanes]: row of the end that a lane belongs to."""
    lane_name: tuple[str, ...]

    @property
    def cells(self) -> int:
        return int(self.pre_fec.shape[1])
