"""What one sender may bring a minute: bytes, samples, new series, new hosts; and series a day.

A budget is a bucket that fills by itself and holds one minute's worth. Bytes and samples are
known only when they are there, so a request that begins while the bucket is not empty is taken
whole, and the next ones wait until the debt is paid. New series and hosts are what costs CPU, rows
and memory for good, so they are counted before that work is done (`Allowance`).

A token that is bound to named hosts has so many hosts' budgets; any other sender (a Prometheus, a
poller, agents that share a token) has a large one for each address that it sends from.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec
import numpy as np

from api.base.errors import Problem
from api.base.host_names import ANY_HOST, Hosts
from api.base.limits import (
    BYTES_A_MINUTE_MAX,
    BYTES_A_MINUTE_PER_HOST_MAX,
    HOSTS_KNOWN_MAX,
    HOSTS_NEW_A_MINUTE_MAX,
    HOSTS_NEW_AT_ONCE_MAX,
    SAMPLES_A_MINUTE_MAX,
    SAMPLES_A_MINUTE_PER_HOST_MAX,
    SENDERS_KEPT_MAX,
    SERIES_A_DAY_MAX,
    SERIES_A_DAY_PER_HOST_MAX,
    SERIES_NEW_A_MINUTE_MAX,
    SERIES_NEW_A_MINUTE_PER_HOST_MAX,
)
from api.data.ingest.columns import UInt64s

SECONDS_PER_DAY: Final = 86_400
MINUTE_SECONDS: Final = 60.0
UNLIMITED: Final = 1 << 62

BYTES, SAMPLES = "BYTES_A_MINUTE_MAX", "SAMPLES_A_MINUTE_MAX"
SERIES_NEW, HOSTS_NEW = "SERIES_NEW_A_MINUTE_MAX", "HOSTS_NEW_A_MINUTE_MAX"
SERIES_DAY = "SERIES_A_DAY_MAX"
TENANT_SAMPLES, TENANT_SERIES = "tenant_limits.samples_a_second", "tenant_limits.active_series"
OF_A_DAY: Final = frozenset({SERIES_DAY, TENANT_SERIES})
RULES: Final = frozenset({BYTES, SAMPLES, SERIES_NEW, HOSTS_NEW})
"""Budgets of a minute: past one the answer is 429, and the sender tries again. Past that of a day
new series are refused for good: a request that is tried again until midnight blocks its queue."""


class Sender(msgspec.Struct, frozen=True):
    """Who sends: the name that budgets are kept under, and the hosts that it may speak for."""

    name: str
    hosts: Hosts = ANY_HOST
    line: str = ""
    """The connection, by the address and port of its other end."""
    tenant: str = ""
    """The token's name, whatever address it is used from; empty: there is none."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets of one sender: a minute's worth of each, and series of a day."""

    bytes: float
    samples: float
    series_new: float
    hosts_new: float
    hosts_at_once: float
    series_day: float

    @classmethod
    def of(cls, hosts: Hosts, factor: float) -> Sizes:
        """``factor`` 0: no bounds."""
        if not factor:
            most = float(UNLIMITED)
            return cls(
                bytes=most,
                samples=most,
                series_new=most,
                hosts_new=most,
                hosts_at_once=most,
                series_day=most,
            )

        def either(of_all: float, per_host: float) -> float:
            count = hosts.count
            return factor * (of_all if count is None else min(of_all, per_host * max(count, 1)))

        return cls(
            bytes=either(BYTES_A_MINUTE_MAX, BYTES_A_MINUTE_PER_HOST_MAX),
            samples=either(SAMPLES_A_MINUTE_MAX, SAMPLES_A_MINUTE_PER_HOST_MAX),
            series_new=either(SERIES_NEW_A_MINUTE_MAX, SERIES_NEW_A_MINUTE_PER_HOST_MAX),
            hosts_new=factor * HOSTS_NEW_A_MINUTE_MAX,
            hosts_at_once=factor * HOSTS_NEW_AT_ONCE_MAX,
            series_day=either(SERIES_A_DAY_MAX, SERIES_A_DAY_PER_HOST_MAX),
        )

    @classmethod
    def of_tenant(cls, samples_a_second: float, active_series: int) -> Sizes:
        """Those of all senders with one token together; 0: no bound."""
        return msgspec.structs.replace(
            cls.of(ANY_HOST, 0),
            samples=samples_a_second * MINUTE_SECONDS or float(UNLIMITED),
            series_day=float(active_series or UNLIMITED),
        )


class Meter:
    """A bucket that fills by itself; its level may fall below zero. Seconds are monotonic."""

    __slots__ = ("_filled_s", "_level", "holds", "per_minute")

    def __init__(self, per_minute: float, holds: float, now_s: float) -> None:
        self.per_minute = per_minute
        self.holds = holds
        self._level = holds
        self._filled_s = now_s

    def level(self, now_s: float) -> float:
        gained = max(0.0, now_s - self._filled_s) / MINUTE_SECONDS * self.per_minute
        self._level = min(self.holds, self._level + gained)
        self._filled_s = now_s
        return self._level

    def take(self, amount: float) -> None:
        self._level -= amount

    def wait_seconds(self, wanted: float) -> int:
        """How long it takes until the level is ``wanted``, or as high as it gets; a minute at most.

        After a minute a part of it may come, and a sender whose budgets were raised need not wait.
        """
        missing = min(wanted, self.holds) - self._level
        seconds = math.ceil(missing / self.per_minute * MINUTE_SECONDS)
        return max(1, min(seconds, int(MINUTE_SECONDS)))


NO_IDENTITIES: UInt64s = np.empty(0, dtype=np.uint64)
REGISTERS = 1_024
REGISTER_BITS = 10


class Distinct:
    """About how many different series there were: HyperLogLog, within 3 %, in 1 KiB.

    Identities are hashes already. A set of them would take 60 MB for a million series.
    """

    def __init__(self) -> None:
        self._registers = np.zeros(REGISTERS, dtype=np.uint8)
        self._estimate = 0.0
        self._is_known = True

    def add(self, identities: UInt64s) -> None:
        if not len(identities):
            return
        places = (identities & np.uint64(REGISTERS - 1)).astype(np.int64)
        rest = (identities >> np.uint64(REGISTER_BITS)).astype(np.float64)
        # The exponent of the rest is its highest bit: how many zeros stand before it.
        zeros = 64 - REGISTER_BITS - np.frexp(rest)[1]
        np.maximum.at(self._registers, places, (zeros + 1).astype(np.uint8))
        self._is_known = False

    def __len__(self) -> int:
        if not self._is_known:
            self._estimate, self._is_known = self._count(), True
        return round(self._estimate)

    def _count(self) -> float:
        empty = int((self._registers == 0).sum())
        raw = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS**2
        raw /= float(np.exp2(-self._registers.astype(np.float64)).sum())
        if empty and raw <= 2.5 * REGISTERS:
            return REGISTERS * math.log(REGISTERS / empty)
        return raw


class Over(Problem):
    """A sender is over a budget: 429, with the rule and when it may try again."""

    def __init__(self, rule: str, sender: str, why: str, wait_seconds: int) -> None:
        setting = rule if rule in {TENANT_SAMPLES, TENANT_SERIES} else "sender_budgets"
        super().__init__(
            429,
            "over budget",
            f"{sender!r} {why}; {rule} (docs/reference/settings.md, setting {setting})",
            rule=rule,
            headers={"Retry-After": str(wait_seconds)},
        )


class TenantWatch(Protocol):
    """Knows the bounds of tenants, and counts what they bring."""

    def sizes(self, name: str, /) -> Sizes | None: ...

    def took(self, name: str, samples: int, /) -> None: ...

    def waited(self, name: str, /) -> None: ...


class Account:
    """The budgets of one sender and what is left of them. From any thread."""

    def __init__(
        self, sender: str, sizes: Sizes, now_s: float, tenant: Account | None = None
    ) -> None:
        """``tenant``: what all senders with the same token bring together."""
        self.tenant = tenant
        self.watch: TenantWatch | None = None
        self.sender = sender
        self.sizes = sizes
        self._lock = threading.Lock()
        self._bytes = Meter(sizes.bytes, sizes.bytes, now_s)
        self._samples = Meter(sizes.samples, sizes.samples, now_s)
        self._series = Meter(sizes.series_new, sizes.series_new, now_s)
        self._hosts = Meter(sizes.hosts_new, sizes.hosts_at_once, now_s)
        self._today = 0
        self._alive = Distinct()
        self._tomorrow = Distinct()

    def enter(self, now_s: float) -> None:
        """Raise Over while earlier requests' bytes or samples have not been paid off."""
        if self.tenant is not None:
            self.tenant.enter_tenant(now_s)
        with self._lock:
            for rule, meter, noun in (
                (BYTES, self._bytes, "bytes"),
                (SAMPLES, self._samples, "samples"),
            ):
                if meter.level(now_s) <= 0:
                    why = f"sends more than {meter.per_minute:.0f} {noun} a minute"
                    raise Over(rule, self.sender, why, meter.wait_seconds(1.0))

    def enter_tenant(self, now_s: float) -> None:
        """The same of a tenant, whose bound is of a second."""
        with self._lock:
            if self._samples.level(now_s) <= 0:
                if self.watch is not None:
                    self.watch.waited(self.sender)
                why = f"sends more than {self._samples.per_minute / 60:.0f} samples a second"
                raise Over(TENANT_SAMPLES, self.sender, why, self._samples.wait_seconds(1.0))

    def _series_left(self, day: int) -> float:
        """Of today's; under the lock."""
        if day != self._today:
            self._alive = self._tomorrow if day == self._today + 1 else Distinct()
            self._today, self._tomorrow = day, Distinct()
        return self.sizes.series_day - len(self._alive)

    def series_left(self, day: int) -> float:
        with self._lock:
            return self._series_left(day)

    def take_bytes(self, count: int) -> None:
        with self._lock:
            self._bytes.take(count)

    def allowance(self, now_s: float, day: int) -> Allowance:
        """What a request that is decoded now may bring."""
        of_tenant = math.inf if self.tenant is None else self.tenant.series_left(day)
        with self._lock:
            left = self._series_left(day)
            day_rule = SERIES_DAY if left <= of_tenant else TENANT_SERIES
            left = min(left, of_tenant)
            series = self._series.level(now_s)
            return Allowance(
                account=self,
                series_rule=SERIES_NEW if series <= left else day_rule,
                series=int(min(series, left)),
                is_series_full=series >= self._series.holds and left > 0,
                hosts=int(self._hosts.level(now_s)),
                is_hosts_full=self._hosts.level(now_s) >= self._hosts.holds,
            )

    def settle(
        self, samples: int, identities: UInt64s, ahead: UInt64s, learned: int, hosts: int
    ) -> None:
        """Count what a request brought: its samples, its new series and its new hosts.

        Series that were only learned (and then refused by another rule) cost work, too. Those that
        were written ``ahead`` of tomorrow are not new, and will not be then.
        """
        if self.watch is not None:
            self.watch.took(self.sender, samples)
        if self.tenant is not None:
            self.tenant.settle(samples, identities, ahead, 0, 0)
        with self._lock:
            self._tomorrow.add(ahead)
            self._samples.take(samples)
            self._series.take(max(learned, len(identities)))
            self._hosts.take(hosts)
            self._alive.add(identities)

    def over(self, rule: str, count: int) -> Over:
        """The refusal of a request that is ``count`` past a rule, as an answer."""
        with self._lock:
            if rule == HOSTS_NEW:
                why = f"names more than {self.sizes.hosts_new:.0f} new hosts a minute"
                return Over(rule, self.sender, why, self._hosts.wait_seconds(count))
            why = f"begins more than {self.sizes.series_new:.0f} series a minute"
            return Over(rule, self.sender, why, self._series.wait_seconds(count))


class Allowance:
    """New series and hosts that one request may bring. For the thread that decodes it."""

    __slots__ = (
        *("_account", "_is_hosts_full", "_is_series_full", "_learned", "_series_rule"),
        *("hosts", "new_hosts", "series"),
    )

    def __init__(
        self,
        *,
        account: Account,
        series_rule: str,
        series: int,
        is_series_full: bool,
        hosts: int,
        is_hosts_full: bool,
    ) -> None:
        self._account = account
        self._series_rule = series_rule
        self._is_series_full = is_series_full
        self._is_hosts_full = is_hosts_full
        self._learned = 0
        self.series = series
        self.hosts = hosts
        self.new_hosts: dict[str, None] = {}
        """Hosts that this request is the first to name."""

    def take_series(self) -> str | None:
        """Count one new series; the rule that it breaks, if any."""
        if self.series <= 0:
            return self._series_rule
        self.series -= 1
        self._learned += 1
        return None

    def take_hosts(self, hosts: Iterable[str], known: KnownHosts) -> str | None:
        """Count those of a new series' hosts that are new; the rule that they break, if any."""
        news = [host for host in hosts if host not in self.new_hosts and host not in known]
        if len(self.new_hosts) + len(news) > self.hosts:
            return HOSTS_NEW if news else None
        self.new_hosts.update(dict.fromkeys(news))
        return None

    def is_past_day(self, count: int) -> bool:
        """Whether so many new series are too many for today."""
        return self._series_rule in OF_A_DAY and count > self.series

    @property
    def day_rule(self) -> str:
        """Which bound of a day is the nearest."""
        return self._series_rule if self._series_rule in OF_A_DAY else SERIES_DAY

    def charge(self, count: int) -> None:
        """Count series that were read, and then refused by another rule."""
        self._learned += count

    def check_series(self, count: int) -> None:
        """Raise Over unless a whole batch with so many new series may come.

        One that is larger than the bucket may, when the bucket is full: else it never could.
        """
        if count > max(self.series, 0) and not self._is_series_full:
            raise self._account.over(self._series_rule, count)

    def check_hosts(self, hosts: Iterable[str], known: KnownHosts) -> None:
        """The same of a whole batch's hosts, which are counted."""
        news = dict.fromkeys(host for host in hosts if host not in known)
        if len(news) > max(self.hosts, 0) and not self._is_hosts_full:
            raise self._account.over(HOSTS_NEW, len(news))
        self.new_hosts.update(news)

    def settle(
        self,
        samples: int,
        identities: UInt64s,
        known: KnownHosts,
        ahead: UInt64s = NO_IDENTITIES,
    ) -> None:
        known.update(self.new_hosts)
        hosts = len(self.new_hosts)
        self._account.settle(samples, identities, ahead, self._learned, hosts)

    def over(self, rule: str, count: int) -> Over:
        return self._account.over(rule, count)


class KnownHosts:
    """Names of hosts that are not new, in two generations: a bound forgets the oldest half."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._now: set[str] = set(names)
        self._before: set[str] = set()

    def __contains__(self, name: str) -> bool:
        if name in self._now:
            return True
        if name not in self._before:
            return False
        self.update([name])
        return True

    def __len__(self) -> int:
        return len(self._now | self._before)

    def update(self, names: Iterable[str]) -> None:
        self._now.update(names)
        if len(self._now) > HOSTS_KNOWN_MAX // 2:
            self._now, self._before = set(), self._now


class Budgets:
    """The accounts of all senders; the one that was quiet longest is forgotten first."""

    def __init__(
        self, clock: Callable[[], float], *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self.factor = 1.0
        """Times every budget; 0: none holds."""
        self.hosts = KnownHosts()
        self._clock = clock
        self._ticks = ticks
        self._lock = threading.Lock()
        self._accounts: OrderedDict[Sender, Account] = OrderedDict()
        self._tenants: OrderedDict[str, Account] = OrderedDict()
        self.tenants: TenantWatch | None = None
        """The bounds of tenants; a service sets it."""

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, sender: Sender) -> Account:
        # Whatever connection it comes over: a new one is no new budget.
        sender = msgspec.structs.replace(sender, line="")
        with self._lock:
            account = self._accounts.get(sender)
            if account is None:
                sizes = Sizes.of(sender.hosts, self.factor)
                tenant = self._tenant(sender.tenant)
                account = Account(sender.name, sizes, self._ticks(), tenant)
                self._accounts[sender] = account
                if len(self._accounts) > SENDERS_KEPT_MAX:
                    self._accounts.popitem(last=False)
            else:
                self._accounts.move_to_end(sender)
            return account

    def _tenant(self, name: str) -> Account | None:
        """What the accounts of a token share; under the lock."""
        sizes = self.tenants.sizes(name) if self.tenants is not None else None
        if sizes is None:
            return None
        if name not in self._tenants:
            self._tenants[name] = Account(name, sizes, self._ticks())
            self._tenants[name].watch = self.tenants
            if len(self._tenants) > SENDERS_KEPT_MAX:
                self._tenants.popitem(last=False)
        return self._tenants[name]

    def enter(self, sender: Sender) -> Account:
        """The sender's account; raises Over if it must wait."""
        account = self.of(sender)
        account.enter(self._ticks())
        return account

    def allowance(self, sender: Sender) -> Allowance:
        return self.of(sender).allowance(self._ticks(), int(self._clock()) // SECONDS_PER_DAY)
