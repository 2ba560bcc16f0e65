"""Reads a policy file (TOML) and names every mistake; holds the shipped policy."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from alerts.health.blame import blame_of
from alerts.health.model import HealthState
from alerts.policy.model import (
    DAY_MINUTES,
    Breaker,
    Check,
    Limits,
    Match,
    Mode,
    Policy,
    Quiet,
    ReturnOn,
    Rule,
)
from collector.contract.collective import Operation
from collector.contract.errors import SettingsError
from collector.contract.layers import Layer, convert_table
from collector.contract.verdict import Cause, Reason

POLICY_BYTES_MAX = 1 << 20
RULES_MAX = 100
QUIET_MAX = 50
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
SECONDS_MAX = 366 * 86_400.0
STANDS_S_MIN = 10.0
"""Two evaluations: a verdict that was given once is no reason to take a host away."""
SHARE_MAX_MAX = 0.25
"""The most of a fleet that a policy may take; beyond it operators act by hand."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TIME = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")


class RuleTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule, as the file has it. Left out: as `Rule` has it."""

    name: str
    causes: tuple[str, ...]
    mode: Mode | None = None
    confidence_min: float = 0.8
    risk_min: float = 0.5
    stands_s: float = 120.0
    hold: HealthState = HealthState.DRAINING
    ttl_s: float = 86_400.0
    """0: it does not end by itself."""
    clean_s: float = 7_200.0
    return_on: tuple[ReturnOn, ...] = tuple(ReturnOn)


class QuietTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Quiet hours, as the file has them."""

    begin: str
    end: str
    days: tuple[str, ...] = DAYS


class PolicyTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole policy file."""

    mode: Mode = Mode.SHADOW
    zone: str = "UTC"
    limits: Limits = Limits()
    breaker: Breaker = Breaker()
    check: Check = Check()
    quiet: tuple[QuietTable, ...] = ()
    rules: tuple[RuleTable, ...] = ()


@cache
def shipped_policy() -> Policy:
    """The policy of an installation without its own: it acts in shadow only."""
    return parse_policy(shipped_text(), "shipped.toml")


def shipped_text() -> str:
    return files("alerts.policy").joinpath("shipped.toml").read_text("utf-8")


def read_policy(path: str) -> Policy:
    """The policy of a file; without a file, the one that is shipped. Raises SettingsError."""
    if not path:
        return shipped_policy()
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(POLICY_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"policy_file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"policy_file {path} is not text: {error}") from error
    return parse_policy(text, path)


def parse_policy(text: str, place: str) -> Policy:
    """The policy in a text; ``place`` names it in messages. Raises SettingsError."""
    if len(text) > POLICY_BYTES_MAX:
        raise SettingsError(f"{place}: {len(text)} characters; at most {POLICY_BYTES_MAX}")
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{place}: not a TOML file: {error}") from error
    layer = Layer(place, values, is_typed=True)
    table: PolicyTable = msgspec.convert(convert_table(PolicyTable, values, layer), PolicyTable)
    return _Reading(place).policy(table)


class _Reading:
    """Checks one file: ``place`` names it in messages."""

    def __init__(self, place: str) -> None:
        self._place = place

    def policy(self, table: PolicyTable) -> Policy:
        self._need(len(table.rules) <= RULES_MAX, f"{len(table.rules)} rules; at most {RULES_MAX}")
        self._need(
            len(table.quiet) <= QUIET_MAX, f"{len(table.quiet)} quiet hours; at most {QUIET_MAX}"
        )
        self._check_zone(table.zone)
        self._check_bounds(table)
        rules = tuple(self._rule(each) for each in table.rules)
        names = [rule.name for rule in rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        self._need(not twice, f"rules.name: {', '.join(twice)} is there twice")
        return Policy(
            mode=table.mode,
            zone=table.zone,
            rules=rules,
            limits=table.limits,
            breaker=table.breaker,
            quiet=tuple(self._quiet(each) for each in table.quiet),
            check=table.check,
        )

    def _need(self, is_met: bool, words: str) -> None:  # noqa: FBT001 - a condition, as in assert
        if not is_met:
            raise SettingsError(f"{self._place}: {words}")

    def _within(self, name: str, value: float, least: float, most: float) -> None:
        is_good = least <= value <= most
        self._need(is_good, f"{name} is {value:g}; between {least:g} and {most:g}")

    def _check_zone(self, zone: str) -> None:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            words = f"{self._place}: zone is {zone!r}; write one as Europe/Berlin, or UTC"
            raise SettingsError(words) from error

    def _check_bounds(self, table: PolicyTable) -> None:
        limits, breaker, check = table.limits, table.breaker, table.check
        self._within("limits.share_max", limits.share_max, 0, SHARE_MAX_MAX)
        self._within("limits.hosts_max", limits.hosts_max, 0, 1e6)
        self._within("limits.cooldown_s", limits.cooldown_s, 0, SECONDS_MAX)
        self._within("limits.proposal_s", limits.proposal_s, 60, SECONDS_MAX)
        self._within("breaker.hosts_max", breaker.hosts_max, 1, 1e6)
        self._within("breaker.within_s", breaker.within_s, 60, SECONDS_MAX)
        self._within("breaker.rest_s", breaker.rest_s, 60, SECONDS_MAX)
        self._within("check.share_min", check.share_min, 0.1, 1.0)
        for operation, floor in check.bus_bandwidth_min.items():
            names = sorted(Operation)
            known = operation in names
            self._need(
                known, f"check.bus_bandwidth_min: {operation!r}; there are {', '.join(names)}"
            )
            self._within(f"check.bus_bandwidth_min.{operation}", floor, 1e-6, 1e6)

    def _rule(self, table: RuleTable) -> Rule:
        is_name = _NAME.fullmatch(table.name) is not None
        self._need(is_name, f"rules.name is {table.name[:80]!r}; letters, digits, . _ -")
        where = f"rule {table.name}: "
        self._need(bool(table.causes), f"{where}causes is empty; it would do nothing")
        self._within(f"{where}confidence_min", table.confidence_min, 0.5, 1)
        self._within(f"{where}risk_min", table.risk_min, 0.2, 1)
        self._within(f"{where}stands_s", table.stands_s, STANDS_S_MIN, SECONDS_MAX)
        self._within(f"{where}clean_s", table.clean_s, 60, SECONDS_MAX)
        is_hold = table.hold in {HealthState.DRAINING, HealthState.OUT}
        self._need(is_hold, f"{where}hold is {table.hold}; draining or out")
        if table.ttl_s:
            self._within(f"{where}ttl_s", table.ttl_s, 60, SECONDS_MAX)
        causes = tuple(self._match(text, where) for text in table.causes)
        heaviest = max(blame_of(m.cause, m.reason or Reason.UNKNOWN).host for m in causes)
        self._need(
            heaviest >= table.risk_min,
            f"{where}risk_min is {table.risk_min:g}, and its causes weigh at most {heaviest:g} "
            "against a host: it would never act",
        )
        return Rule(
            name=table.name,
            causes=causes,
            mode=table.mode,
            confidence_min=table.confidence_min,
            risk_min=table.risk_min,
            stands_s=table.stands_s,
            hold=table.hold,
            ttl_s=table.ttl_s or None,
            clean_s=table.clean_s,
            return_on=frozenset(table.return_on),
        )

    def _match(self, text: str, where: str) -> Match:
        """`lossy_link`, or `straggler/gpu_error`."""
        cause, slash, reason = text.partition("/")
        causes, reasons = sorted(Cause), sorted(Reason)
        self._need(cause in causes, f"{where}no cause is called {cause[:40]!r}; there are {causes}")
        self._need(
            not slash or reason in reasons,
            f"{where}no reason is called {reason[:40]!r}; there are {reasons}",
        )
        return Match(Cause(cause), Reason(reason) if slash else None)

    def _quiet(self, table: QuietTable) -> Quiet:
        unknown = sorted(set(table.days) - set(DAYS))
        self._need(not unknown, f"quiet.days: {unknown}; there are {', '.join(DAYS)}")
        begin, end = (self._minute(text) for text in (table.begin, table.end))
        self._need(begin != end, f"quiet: begin and end are both {table.begin}")
        days = frozenset(DAYS.index(day) for day in table.days)
        return Quiet(days=days, begin=begin, end=end)

    def _minute(self, text: str) -> int:
        found = _TIME.fullmatch(text)
        minute = int(found[1]) * 60 + int(found[2]) if found else DAY_MINUTES + 1
        self._need(minute <= DAY_MINUTES, f"quiet: {text[:20]!r}; write a time as 22:30")
        return minute
