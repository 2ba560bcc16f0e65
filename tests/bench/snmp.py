"""What asking switches costs us: CPU-seconds for a sweep of 128 switches, beside net-snmp's.

The switches are recordings behind one snmpsim, in a process of its own whose CPU is not counted.
Version 2c asks all 128 of them at once, on one event loop. snmpsim takes most of a minute to answer
that much, so the others ask a few switches, and their cost is multiplied. What is counted of
`snmpbulkwalk` is whole processes, one for each switch: that is how it is used.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import resource
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from pysnmp.hlapi.v1arch.asyncio import (
    CommunityData,
    SnmpDispatcher,
    UdpTransportTarget,
    bulk_cmd,
)
from pysnmp.proto.rfc1902 import Null, ObjectName

from collector.switches.snmp.client import COLUMNS_PER_REQUEST, open_session
from collector.switches.snmp.model import Credentials, Oid
from tests.bench.processes import find_peer, say
from tests.bench.report import Bar, BenchError, Result, Table, number
from tests.doubles.snmp_hostile import PATIENT_SECONDS, recorded, target

SWITCHES, QUICK_SWITCHES = 128, 4
FEW_SWITCHES, QUICK_FEW_SWITCHES = 8, 2
PORTS, COLUMNS = 64, 20
VALUES = SWITCHES * PORTS * COLUMNS
"""Of a whole sweep."""
MODELS = 4
"""Switches of a fleet are of a few models; those of one number their ports alike."""
PERIOD_SECONDS = 30
"""How often a sweep is made; the bar is one core."""
ROWS_PER_ANSWER = 12
"""`snmpbulkwalk` and pysnmp request as many values in an answer as our poller does."""
TABLE: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
ROWS_MAX = 1000

USER = {"user": "walker", "auth": "sha", "privacy": "aes"}
KEYS = {"auth_key": "authentication", "privacy_key": "encryption"}
ARGUMENTS = [
    "--v3-engine-id=auto",
    "--v3-user=walker",
    f"--v3-auth-key={KEYS['auth_key']}",
    "--v3-auth-proto=SHA",
    f"--v3-priv-key={KEYS['privacy_key']}",
    "--v3-priv-proto=AES",
    # It puts 64 values into an answer otherwise.
    "--max-var-binds=128",
]


def columns() -> list[Oid]:
    """The columns of the table."""
    return [(*TABLE, column) for column in range(1, COLUMNS + 1)]


def recording(switch: int) -> str:
    """A switch: its name, counters of 64 bits, and something after them."""
    first = 1000 + switch % MODELS
    rows = [
        f"{'.'.join(map(str, column))}.{first + MODELS * port}|70|{(1 << 40) + port}"
        for column in columns()
        for port in range(PORTS)
    ]
    return "\n".join(["1.3.6.1.2.1.1.5.0|4|leaf", *rows, "1.3.6.1.6.1.0|2|1", ""])


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench; of several rounds the cheapest counts, because the rest only ever slows."""
    many = QUICK_SWITCHES if is_quick else SWITCHES
    few = QUICK_FEW_SWITCHES if is_quick else FEW_SWITCHES
    cost: dict[str, float | None] = {}
    with recorded({f"leaf-{n}": recording(n) for n in range(many)}, ARGUMENTS) as port:

        def best(name: str, switches: int, once: Callable[[int, int], float]) -> float:
            say(f"snmp: {name}, {switches} switches")
            found = min(once(port, switches) for _ in range(rounds))
            return found * SWITCHES / switches

        cost["Fabricscope, 2c"] = best("version 2c", many, ours)
        cost["Fabricscope, 3 authPriv"] = best("version 3", few, ours_private)
        program = find_peer("snmpbulkwalk")
        cost["net-snmp's snmpbulkwalk, 2c"] = (
            best("snmpbulkwalk", few, lambda at, count: net_snmp(program, at, count))
            if program
            else None
        )
        cost["pysnmp's high-level calls, 2c"] = best("pysnmp", few, high_level)
        shares = where_time_goes(port, few)
    return report(cost, shares, is_quick=is_quick)


def cpu_of(work: Callable[[], Awaitable[int]], expected: int) -> float:
    """CPU-seconds of this process for work that brings so many values."""
    started = time.process_time()
    values = asyncio.run(as_coroutine(work))
    spent = time.process_time() - started
    if values != expected:
        raise BenchError(f"{values} values came, and {expected} are there")
    return spent


async def as_coroutine(work: Callable[[], Awaitable[int]]) -> int:
    """For `asyncio.run`, which takes no other awaitable."""
    return await work()


async def sweep(port: int, people: list[Credentials]) -> int:
    """All tables of these switches at once; how many values came."""
    sessions = [
        open_session(target(port, who, answer_seconds=2 * PATIENT_SECONDS)) for who in people
    ]
    found = await asyncio.gather(*(session.walk(columns(), ROWS_MAX) for session in sessions))
    for session in sessions:
        session.close()
    return sum(len(rows) for walked in found for rows in walked.columns.values())


def ours(port: int, switches: int) -> float:
    """Version 2c."""
    people = [Credentials(community=f"leaf-{n}") for n in range(switches)]
    return cpu_of(lambda: sweep(port, people), switches * PORTS * COLUMNS)


def ours_private(port: int, switches: int) -> float:
    """Version 3, signed with SHA and hidden with AES; finding the engines is part of it."""
    people = [
        Credentials(version="3", context=f"leaf-{n}", **USER, **KEYS) for n in range(switches)
    ]
    return cpu_of(lambda: sweep(port, people), switches * PORTS * COLUMNS)


def net_snmp(program: Path, port: int, switches: int) -> float:
    """CPU-seconds of net-snmp's own walker, one process after the other."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = 0
    for number_ in range(switches):
        command = [str(program), "-v2c", "-c", f"leaf-{number_}", "-m", "", "-On", "-t", "30"]
        command += [f"-Cr{ROWS_PER_ANSWER * COLUMNS_PER_REQUEST}", f"127.0.0.1:{port}"]
        command += [".".join(map(str, TABLE))]
        done = subprocess.run(command, capture_output=True, check=True)
        lines += done.stdout.count(b" = Counter64: ")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if lines != switches * PORTS * COLUMNS:
        raise BenchError(f"snmpbulkwalk printed {lines} values")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def high_level(port: int, switches: int) -> float:
    """What pysnmp costs as its manual has it, without MIBs: the same columns side by side."""

    async def one(dispatcher: SnmpDispatcher, community: str) -> int:
        place = await UdpTransportTarget.create(("127.0.0.1", port), timeout=30, retries=0)
        found = 0
        for start in range(0, COLUMNS, COLUMNS_PER_REQUEST):
            heads = columns()[start : start + COLUMNS_PER_REQUEST]
            edges = list(heads)
            while heads:
                pairs = [(ObjectName(head), Null("")) for head in heads]
                failure, status, _, rows = await bulk_cmd(
                    dispatcher,
                    CommunityData(community),
                    place,
                    0,
                    ROWS_PER_ANSWER,
                    *pairs,
                    lookupMib=False,
                )
                if failure or status:
                    raise BenchError(f"pysnmp: {failure or status}")
                width = len(edges)
                names = [tuple(name) for name, _ in rows]
                inside = [n for at, n in enumerate(names) if n[:-1] == edges[at % width]]
                found += len(inside)
                heads = names[-width:] if len(inside) == len(names) else []
        return found

    async def all_of_them() -> int:
        dispatcher = SnmpDispatcher()
        counts = await asyncio.gather(*(one(dispatcher, f"leaf-{n}") for n in range(switches)))
        dispatcher.transport_dispatcher.close_dispatcher()
        return sum(counts)

    return cpu_of(all_of_them, switches * PORTS * COLUMNS)


def where_time_goes(port: int, switches: int) -> dict[str, float]:
    """Shares of the time of a sweep, by whose code it is spent in."""
    profile = cProfile.Profile()
    people = [Credentials(community=f"leaf-{n}") for n in range(switches)]
    profile.enable()
    asyncio.run(sweep(port, people))
    profile.disable()
    spent = {
        "writing requests (pysnmp)": 0.0,
        "reading answers": 0.0,
        "event loop and sockets": 0.0,
    }
    for (path, _, name), row in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        own_seconds = row[2]
        if "poll" in name:
            continue  # it waits
        if "pyasn1" in path or "pysnmp" in path:
            spent["writing requests (pysnmp)"] += own_seconds
        elif "collector/switches/snmp" in path:
            spent["reading answers"] += own_seconds
        elif "asyncio" in path or "sendto" in name or "recvfrom" in name:
            spent["event loop and sockets"] += own_seconds
    total = sum(spent.values())
    return {name: seconds / total for name, seconds in spent.items()}


def report(cost: dict[str, float | None], shares: dict[str, float], *, is_quick: bool) -> Result:
    """Tables and bars."""
    rows = [
        [
            name,
            "none" if cpu is None else number(cpu),
            "none" if cpu is None else f"{cpu / PERIOD_SECONDS:.0%}".replace("%", " %"),
            "none" if cpu is None else number(VALUES / cpu),
        ]
        for name, cpu in cost.items()
    ]
    walker = cost["net-snmp's snmpbulkwalk, 2c"]
    mine = cost["Fabricscope, 2c"] or 0.0
    notes = ["one snmpsim answers for all switches; but for version 2c, a few stand for 128"]
    if walker:
        notes.append(f"snmpbulkwalk spends {walker / mine:.2g} times our CPU, starting included")
    return Result(
        name="snmp",
        tables=[
            Table(
                title="128 switches of 64 ports and 20 columns",
                columns=["", "CPU-s a sweep", "of a core, every 30 s", "values per CPU-s"],
                rows=rows,
            ),
            Table(
                title="Where our time goes (version 2c, under a profiler, waiting left out)",
                columns=["", "share"],
                rows=[[n, f"{share:.0%}".replace("%", " %")] for n, share in shares.items()],
            ),
        ],
        bars=[
            Bar(
                what=f"cores for 128 switches every {PERIOD_SECONDS} s, {which} {{needed}}",
                needed=1,
                value=(cost[name] or 0.0) / PERIOD_SECONDS,
                unit="",
                at_most=True,
            )
            for which, name in (
                ("version 2c", "Fabricscope, 2c"),
                ("version 3", "Fabricscope, 3 authPriv"),
            )
        ],
        figures={"cpu_seconds": cost, "shares": shares},
        notes=notes,
        is_quick=is_quick,
    )
