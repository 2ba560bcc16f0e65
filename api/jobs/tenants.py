"""Bytes and congestion of RDMA devices by tenant, for the times in which a device has one alone.

An agent tells once a minute whose all queue pairs of a device are (`fabric_rdma_sole_tenant_info`),
and nothing where they are several's. What a port counts between two readings is a tenant's if it
was told before and after them and nobody else between: all else is nobody's. No share is made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from api.base.compare_limits import TENANT_SAMPLES_MAX
from api.data.store.store import Store
from collector.contract.figures import quantity
from collector.contract.identity import metric_id
from collector.contract.units import NS, NS_PER_MS
from collector.contract.verdict import Evidence, Layer, Verdict

TOLD: Final = "fabric_rdma_sole_tenant_info"
TOLD_SECONDS: Final = 150
"""How long a telling stands: it comes once a minute, and one may be lost."""
COUNTERS: Final = {
    "fabric_port_transmit_bytes_total": "sent_bytes",
    "fabric_port_receive_bytes_total": "received_bytes",
    "fabric_port_cnp_handled_total": "slowed_down",
    "fabric_port_receive_ecn_marked_packets_total": "marked_packets",
}
"""Metrics of a port, and the fields of a share that they make."""

SHOWN_MAX: Final = 3
"""Tenants in a verdict: one job after the other."""

NAMES_SQL: Final = """
    SELECT series, any(metric_name) AS name, any(labels) AS words FROM series
    WHERE metric_name IN {names:Array(String)}
      AND day >= toDate({from_s:Int64}) AND day <= toDate({to_s:Int64})
      AND labels['host'] = {host:String} AND labels['device'] = {device:String}
    GROUP BY series ORDER BY series
"""
SAMPLES_SQL: Final = f"""
    SELECT series, toUnixTimestamp64Milli(time) AS time_ms, value AS value FROM samples
    WHERE metric IN {{metrics:Array(UInt32)}} AND series IN {{series:Array(UInt64)}}
      AND time BETWEEN fromUnixTimestamp64Milli({{from_ms:Int64}})
                   AND fromUnixTimestamp64Milli({{to_ms:Int64}})
      AND isFinite(value)
    ORDER BY series, time_ms LIMIT {TENANT_SAMPLES_MAX}
"""  # noqa: S608 - our words


class Tenant(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Whom an agent has told to have a device alone. What is empty is not known of it."""

    job: str = ""
    user: str = ""
    namespace: str = ""
    pod: str = ""

    @property
    def title(self) -> str:
        """As the agent tells tenants apart: by job, without one by pod, without one by user."""
        for word, name in (("job", self.job), ("pod", self.pod), ("user", self.user)):
            if name:
                return f"{word} {name}"
        return "nobody"


class TenantShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a NIC's port counted while one tenant had all queue pairs of the device."""

    host: str
    device: str
    port: str
    tenant: Tenant
    sent_bytes: int = 0
    received_bytes: int = 0
    slowed_down: int = 0
    """Congestion notifications that told its senders to slow down."""
    marked_packets: int = 0
    """Packets that arrived with a mark of congestion (ECN)."""


class Tenants(msgspec.Struct, frozen=True, kw_only=True):
    """Of some ports: what is somebody's, and how many bytes are nobody's."""

    shares: list[TenantShare]
    unknown_bytes: int
    """Sent and received while several had the device, or nobody was told to have it alone."""


class Telling(NamedTuple):
    """A moment (unix milliseconds) at which an agent told who has a device alone."""

    time_ms: int
    tenant: Tenant


def tenants_on(
    store: Store, ports: Iterable[tuple[str, str, str]], span_ns: tuple[int, int]
) -> Tenants:
    """Of these ports (host, device, port), the most bytes first."""
    shares: list[TenantShare] = []
    unknown = 0.0
    for host, device, port in sorted(set(ports)):
        found, nobodys = of_port(store, host, device, port, span_ns)
        shares += found
        unknown += nobodys
    ordered = sorted(
        shares, key=lambda one: (-one.sent_bytes - one.received_bytes, one.tenant, one.host)
    )
    return Tenants(shares=ordered, unknown_bytes=round(unknown))


def of_port(
    store: Store, host: str, device: str, port: str, span_ns: tuple[int, int]
) -> tuple[list[TenantShare], float]:
    from_ms, to_ms = (moment // NS_PER_MS for moment in span_ns)
    reach_ms = TOLD_SECONDS * 1000
    names = [TOLD, *COUNTERS]
    asked: dict[str, Any] = {
        "names": names,
        "host": host,
        "device": device,
        "from_s": (from_ms - reach_ms) // 1000,
        "to_s": (to_ms + reach_ms) // 1000,
    }
    series = {
        row["series"]: (row["name"], dict(row["words"]))
        for row in store.query(NAMES_SQL, asked).to_pylist()
        if row["name"] == TOLD or dict(row["words"]).get("port") == port
    }
    if not any(name == TOLD for name, _ in series.values()):
        return [], 0.0
    table = store.query(
        SAMPLES_SQL,
        {
            "metrics": [metric_id(name) for name in names],
            "series": sorted(series),
            "from_ms": from_ms - reach_ms,
            "to_ms": to_ms + reach_ms,
        },
    )
    owner, times = table["series"].to_numpy(), table["time_ms"].to_numpy().astype(np.int64)
    values = table["value"].to_numpy().astype(np.float64)
    told: list[Telling] = []
    counted: dict[str, dict[Tenant | None, float]] = {}
    for number, (name, words) in series.items():
        own = owner == np.uint64(number)
        if name == TOLD:
            told += [Telling(int(at), tenant_of(words)) for at in times[own].tolist()]
    told.sort()
    for number, (name, _) in series.items():
        inside = (owner == np.uint64(number)) & (times >= from_ms) & (times <= to_ms)
        if name in COUNTERS:
            field = counted.setdefault(COUNTERS[name], {})
            for tenant, amount in attributed(told, times[inside], values[inside]).items():
                field[tenant] = field.get(tenant, 0.0) + amount
    known = sorted({one for field in counted.values() for one in field if one is not None})
    nobodys = sum(counted.get(name, {}).get(None, 0.0) for name in ("sent_bytes", "received_bytes"))
    return [
        TenantShare(
            host=host,
            device=device,
            port=port,
            tenant=tenant,
            **{field: round(amounts.get(tenant, 0.0)) for field, amounts in counted.items()},
        )
        for tenant in known
    ], nobodys


def tenant_of(words: Mapping[str, str]) -> Tenant:
    return Tenant(**{name: words.get(name, "") for name in Tenant.__struct_fields__})


def attributed(
    told: Sequence[Telling], times_ms: Sequence[int], values: Sequence[float]
) -> dict[Tenant | None, float]:
    """What a counter grew by, for each tenant; None: nobody had the device alone, or who is open.

    ``told`` and ``times_ms`` are in order.

    >>> a, b = Tenant(job="a"), Tenant(job="b")
    >>> told = [Telling(0, a), Telling(60_000, a), Telling(120_000, b)]
    >>> attributed(told, [10_000, 40_000, 70_000, 110_000], [0.0, 5.0, 9.0, 99.0])
    {Tenant(job='a', user='', namespace='', pod=''): 5.0, None: 94.0}
    """
    moments = [one.time_ms for one in told]
    found: dict[Tenant | None, float] = {}
    readings = list(zip(times_ms, values, strict=True))
    for (begin, before), (end, after) in pairwise(readings):
        if end <= begin or after < before:
            continue
        first = int(np.searchsorted(moments, begin, side="right")) - 1
        last = min(int(np.searchsorted(moments, end, side="left")), len(told) - 1)
        tenant = None
        if first >= 0 and end - moments[first] <= TOLD_SECONDS * 1000:
            # Who was told before, between and after: a change lies somewhere between two tellings.
            around = {one.tenant for one in told[first : last + 1]}
            tenant = around.pop() if len(around) == 1 else None
        found[tenant] = found.get(tenant, 0.0) + after - before
    return found


# In a verdict ------------------------------------------------------------------------------------


def with_tenants(store: Store, verdict: Verdict, now_ns: int) -> Verdict:
    """A verdict that names a NIC, with whose its port's bytes are: context, no accusation."""
    culprit = verdict.culprit
    if verdict.layer is not Layer.NETWORK or not (culprit.host and culprit.device):
        return verdict
    span_ns = verdict.since_ns, verdict.until_ns or now_ns
    seconds = (span_ns[1] - span_ns[0]) / NS
    if seconds <= 0:
        return verdict
    port = (culprit.host, culprit.device, culprit.port or "1")
    told = tenants_on(store, [port], span_ns).shares[:SHOWN_MAX]
    return msgspec.structs.replace(
        verdict,
        evidence=(*verdict.evidence, *(to_evidence(one, span_ns, seconds) for one in told)),
    )


def to_evidence(one: TenantShare, span_ns: tuple[int, int], seconds: float) -> Evidence:
    sent, received = one.sent_bytes / seconds, one.received_bytes / seconds
    text = (
        f"While {one.tenant.title} had {one.host} {one.device} alone it sent "
        f"{quantity(sent, 'bytes/s')} and received {quantity(received, 'bytes/s')}"
    )
    if one.slowed_down:
        text += f", and was told to slow down {one.slowed_down / seconds:,.0f} times a second"
    return Evidence(
        metric=TOLD,
        text=f"{text}.",
        value=sent + received,
        unit="bytes/s",
        from_ns=span_ns[0],
        to_ns=span_ns[1],
        labels={"host": one.host, "device": one.device},
    )
