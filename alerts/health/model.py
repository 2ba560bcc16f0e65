"""Types of health: states, targets, charges against them, holds, and standings."""

from __future__ import annotations

import enum
from functools import cached_property

import msgspec

from collector.contract.identity import DeviceId, GpuId, PortId
from collector.contract.units import NS
from collector.contract.verdict import Cause, Reason


class HealthState(enum.StrEnum):
    """Whether a thing can be used, from best to worst."""

    HEALTHY = "healthy"
    """It reports, and no charge of weight is known."""
    SUSPECT = "suspect"
    """A weak or past charge counts against it, or it has not reported for minutes."""
    DEGRADED = "degraded"
    """An open incident counts clearly against it: the next job would suffer now."""
    DRAINING = "draining"
    """Set by an operator or program: what runs on it may end, nothing new should begin."""
    OUT = "out"
    """Set by an operator or program: it is taken out. No measurement ever sets this."""


SEVERITY = {state: place for place, state in enumerate(HealthState)}
"""0 is healthy, 4 is out: the number of `fabric_host_health_state`."""


class TargetKind(enum.StrEnum):
    """Kinds of things that have a health."""

    HOST = "host"
    DEVICE = "device"
    LINK = "link"
    """A cable, by the host's port at its end; between switches by the switch port that is named."""
    GPU = "gpu"
    SWITCH = "switch"


class Target(msgspec.Struct, frozen=True, order=True):
    """A thing that has a health. ``host`` is the machine that it is part of, or the switch."""

    kind: TargetKind
    host: str
    name: str
    """Unique among its kind: `node3`, `node3/mlx5_0`, `node3/mlx5_0/1`, `node3/2`."""

    @classmethod
    def of_host(cls, host: str) -> Target:
        return cls(TargetKind.HOST, host, host)

    @classmethod
    def of_device(cls, host: str, device: str) -> Target:
        return cls(TargetKind.DEVICE, host, str(DeviceId(host, device)))

    @classmethod
    def of_gpu(cls, host: str, gpu: str) -> Target:
        return cls(TargetKind.GPU, host, str(GpuId(host, gpu)))

    @classmethod
    def of_link(cls, host: str, device: str, port: str) -> Target:
        """The cable at a port; a switch's port has the switch as its host and device."""
        return cls(TargetKind.LINK, host, str(PortId(host, device, port)))

    @classmethod
    def of_switch(cls, switch: str) -> Target:
        return cls(TargetKind.SWITCH, switch, switch)

    @property
    def within_host(self) -> str:
        """Its name without its host, for sentences about that host: `link mlx5_0/1`.

        >>> Target.of_gpu("node3", "2").within_host, Target.of_host("node3").within_host
        ('gpu 2', '')
        """
        _, _, rest = self.name.partition("/")
        return f"{self.kind} {rest}" if self.kind not in WHOLE else ""


WHOLE = (TargetKind.HOST, TargetKind.SWITCH)


class Charge(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one incident, or one finding outside of incidents, counts against one thing."""

    target: Target
    incident: str
    """Empty for a finding."""
    cause: Cause
    reason: Reason
    confidence: float
    weight: float
    """How much the cause counts against this very thing, 0 to 1."""
    half_life_s: float
    """Once it is over, its risk halves in this time."""
    since_ns: int
    until_ns: int | None
    """None while it stands: what stands does not decay."""
    about: Target
    """The nearest thing that is accused: of a host's charge, its link, NIC or GPU."""
    text: str = ""
    """The verdict's sentence, or the finding's evidence."""
    is_forecast: bool = False
    """Whether it has not happened yet."""

    @property
    def is_certain(self) -> bool:
        """Whether it comes from an open incident: only this makes a thing degraded."""
        return bool(self.incident) and self.until_ns is None

    def risk_at(self, now_ns: int) -> float:
        """The probability that a job which uses the thing now suffers from it, by this alone."""
        whole = self.confidence * self.weight
        if self.until_ns is None:
            return whole
        age_s = max(0, now_ns - self.until_ns) / NS
        return float(whole * 0.5 ** (age_s / self.half_life_s))

    @cached_property
    def short(self) -> str:
        """In a few words that do not change with time: `link_flap (cable) of link mlx5_0/1`."""
        reason = "" if self.reason is Reason.UNKNOWN else f" ({self.reason})"
        of = f" of {self.about.within_host}" if self.about.within_host else ""
        if not self.incident:
            return f"{self.cause}{reason}{of}, {'expected' if self.is_forecast else 'found'}"
        end = "open" if self.until_ns is None else "over"
        return f"{self.cause}{reason}{of}, {end}, {self.incident}"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's or program's statement that a thing is draining or out."""

    target: Target
    state: HealthState
    """DRAINING or OUT."""
    reason: str
    by: str
    since_ns: int
    until_ns: int | None
    """When it expires; None: it stands until a client ends it."""

    def stands_at(self, now_ns: int) -> bool:
        return self.until_ns is None or now_ns < self.until_ns

    @property
    def short(self) -> str:
        return f"{self.state} by {self.by}: {self.reason}"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state and risk of a thing at one time."""

    state: HealthState
    risk: float
    """0 to 1, in steps of RISK_STEP: what a job that uses it now would risk."""
    charges: tuple[Charge, ...] = ()
    hold: Hold | None = None
    silent_since_ns: int | None = None
    """Its last report, if that is too long ago."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a thing's state."""

    target: Target
    time_ns: int
    state: HealthState
    was: HealthState
    risk: float
    why: str
    """Short; empty when it is well again."""
