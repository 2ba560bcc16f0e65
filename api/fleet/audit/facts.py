"""The latest facts of every host; grouped, 1.2 million of 4,096 hosts become thousands of rows."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec
import pyarrow as pa

from api.base.errors import Problem
from api.data.store.store import Store
from collector.audit.facts import Fact
from collector.contract.identity import metric_id

INFO, READ, MISSING, PORT_MTU, GPU_INFO, PORT_PARTITIONS = (
    "fabric_setting_info",
    "fabric_setting_facts",
    "fabric_agent_reading_missing",
    "fabric_port_mtu_bytes",
    "fabric_gpu_info",
    "fabric_port_partitions_info",
)
LOOK_BACK: Final = dt.timedelta(minutes=20)
"""A host whose last read is older does not count: agents read every four minutes, and a batch may
wait in a spool. It must not vote on what is usual, either."""
PORTS_LOOK_BACK: Final = dt.timedelta(minutes=10)
FACT_ROWS_MAX: Final = 500_000
"""Distinct facts of a fleet, about 300 MB: ten thousand hosts with fifty of their own each."""
HOSTS_MAX: Final = 65_536
UNREAD_ROWS_MAX: Final = 1_000
MTU_ROWS_MAX: Final = 1_000_000
GPU_ROWS_MAX: Final = 1_000_000
"""GPUs in NVLink domains: eight times HOSTS_MAX, some of them with an older domain as well."""
PARTITION_ROWS_MAX: Final = 1_000_000
"""Ports of HCAs, some of them with older partitions as well."""
SECONDS_MAX: Final = "30"

_FACTS: Final = f"""
WITH
  reads AS (
    SELECT host, max(seen) AS read FROM
      (SELECT series, max(time) AS seen FROM samples
       WHERE metric = {{read:UInt32}} AND time >= {{since:DateTime64(3)}} GROUP BY series) AS x
    INNER JOIN
      (SELECT series, any(cityHash64(labels['host'])) AS host FROM series
       WHERE metric_name = '{READ}' AND day >= toDate({{since:DateTime64(3)}})
       GROUP BY series) AS y
    USING series
    GROUP BY host
    LIMIT {HOSTS_MAX}
  ),
  current AS (
    SELECT x.series AS series FROM
      (SELECT series, cityHash64(labels['host']) AS host FROM series
       WHERE metric_name = '{INFO}' AND day >= toDate({{since:DateTime64(3)}})) AS y
    INNER JOIN
      (SELECT series, groupUniqArray(time) AS times FROM samples
       WHERE metric = {{info:UInt32}} AND time >= {{since:DateTime64(3)}} GROUP BY series) AS x
    USING series
    INNER JOIN reads ON reads.host = y.host
    WHERE has(x.times, reads.read)
  )
SELECT labels['device'] AS device, labels['setting'] AS setting, labels['value'] AS value,
       labels['origin'] AS origin, groupUniqArray(labels['host']) AS hosts
FROM series
WHERE metric_name = '{INFO}' AND day >= toDate({{since:DateTime64(3)}}) AND series IN current
GROUP BY device, setting, value, origin
ORDER BY device, setting, value, origin
LIMIT {FACT_ROWS_MAX + 1}
"""  # noqa: S608 - names and numbers of ours

_UNREAD: Final = f"""
SELECT y.setting AS setting, y.reason AS reason, uniqExact(y.host) AS hosts FROM
  (SELECT series FROM samples
   WHERE metric = {{missing:UInt32}} AND time >= {{since:DateTime64(3)}} GROUP BY series) AS x
INNER JOIN
  (SELECT series, any(labels['host']) AS host, any(labels['setting']) AS setting,
          any(labels['reason']) AS reason
   FROM series
   WHERE metric_name = '{MISSING}' AND labels['metric'] = '{INFO}'
     AND day >= toDate({{since:DateTime64(3)}})
   GROUP BY series) AS y
USING series
GROUP BY setting, reason
ORDER BY hosts DESC, setting, reason
LIMIT {UNREAD_ROWS_MAX}
"""  # noqa: S608 - names and numbers of ours

_PORT_MTUS: Final = f"""
SELECT y.host AS host, y.device AS device, y.port AS port, x.mtu AS mtu FROM
  (SELECT series, argMax(value, time) AS mtu FROM samples
   WHERE metric = {{mtu:UInt32}} AND time >= {{since:DateTime64(3)}} GROUP BY series) AS x
INNER JOIN
  (SELECT series, any(labels['host']) AS host, any(labels['device']) AS device,
          any(labels['port']) AS port
   FROM series
   WHERE metric_name = '{PORT_MTU}' AND day >= toDate({{since:DateTime64(3)}})
   GROUP BY series) AS y
USING series
WHERE host = device
LIMIT {MTU_ROWS_MAX}
"""  # noqa: S608 - names and numbers of ours


_NVLINK_DOMAINS: Final = f"""
SELECT y.host AS host, y.gpu AS gpu, y.domain AS domain, y.clique AS clique FROM
  (SELECT series, max(time) AS seen FROM samples
   WHERE metric = {{gpu_info:UInt32}} AND time >= {{since:DateTime64(3)}} GROUP BY series) AS x
INNER JOIN
  (SELECT series, any(labels['host']) AS host, any(labels['gpu']) AS gpu,
          any(labels['nvlink_domain']) AS domain, any(labels['clique']) AS clique
   FROM series
   WHERE metric_name = '{GPU_INFO}' AND labels['nvlink_domain'] != ''
     AND day >= toDate({{since:DateTime64(3)}})
   GROUP BY series) AS y
USING series
ORDER BY x.seen
LIMIT {GPU_ROWS_MAX}
"""  # noqa: S608 - names and numbers of ours

_PORT_PARTITIONS: Final = f"""
SELECT y.host AS host, y.device AS device, y.partitions AS partitions FROM
  (SELECT series, max(time) AS seen FROM samples
   WHERE metric = {{partitions:UInt32}} AND time >= {{since:DateTime64(3)}} GROUP BY series) AS x
INNER JOIN
  (SELECT series, any(labels['host']) AS host, any(labels['device']) AS device,
          any(labels['partitions']) AS partitions
   FROM series
   WHERE metric_name = '{PORT_PARTITIONS}' AND day >= toDate({{since:DateTime64(3)}})
   GROUP BY series) AS y
USING series
ORDER BY x.seen
LIMIT {PARTITION_ROWS_MAX}
"""  # noqa: S608 - names and numbers of ours


class UnreadCount(msgspec.Struct, frozen=True):
    """A setting that could not be read, why, and on how many hosts."""

    setting: str
    reason: str
    hosts: int


def ask(store: Store, sql: str, since: dt.datetime, **metrics: str) -> pa.Table:
    parameters: dict[str, Any] = {name: metric_id(metric) for name, metric in metrics.items()}
    parameters["since"] = since
    return store.query(sql, parameters, settings={"max_execution_time": SECONDS_MAX})


def read_facts(store: Store, now: dt.datetime) -> dict[str, list[Fact]]:
    """The facts of every host whose agent has read them lately; equal facts are one object.

    Of each host those of its last read that has arrived whole: `fabric_setting_facts` is sent last,
    and all of one read have one time.
    """
    rows = ask(store, _FACTS, now - LOOK_BACK, info=INFO, read=READ)
    if rows.num_rows > FACT_ROWS_MAX:
        detail = f"over FACT_ROWS_MAX = {FACT_ROWS_MAX} distinct facts"
        raise Problem(422, "too many facts", detail, rule="FACT_ROWS_MAX")
    found: dict[str, list[Fact]] = {}
    names = ("device", "setting", "value", "origin", "hosts")
    columns = [rows[name].to_pylist() for name in names]
    for device, setting, value, origin, hosts in zip(*columns, strict=True):
        fact = Fact(device, setting, value, origin)
        for host in hosts:
            if host in found:
                found[host].append(fact)
            else:
                found[host] = [fact]
    return found


def read_unread(store: Store, now: dt.datetime) -> list[UnreadCount]:
    rows = ask(store, _UNREAD, now - LOOK_BACK, missing=MISSING)
    return [msgspec.convert(row, UnreadCount) for row in rows.to_pylist()]


def read_port_mtus(store: Store, now: dt.datetime) -> dict[tuple[str, str], float]:
    rows = ask(store, _PORT_MTUS, now - PORTS_LOOK_BACK, mtu=PORT_MTU)
    return {(row["host"], row["port"]): row["mtu"] for row in rows.to_pylist()}


def read_nvlink_domains(store: Store, now: dt.datetime) -> dict[str, dict[str, str]]:
    """Of each host the NVLink domain and clique of each GPU that has joined one, as last told."""
    rows = ask(store, _NVLINK_DOMAINS, now - PORTS_LOOK_BACK, gpu_info=GPU_INFO)
    found: dict[str, dict[str, str]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["host"], {})[row["gpu"]] = f"{row['domain']} clique {row['clique']}"
    return found


def read_port_partitions(store: Store, now: dt.datetime) -> dict[tuple[str, str], str]:
    """The partitions of HCAs' ports as a fabric was asked for them, by host and device."""
    rows = ask(store, _PORT_PARTITIONS, now - PORTS_LOOK_BACK, partitions=PORT_PARTITIONS)
    return {(row["host"], row["device"]): row["partitions"] for row in rows.to_pylist()}
