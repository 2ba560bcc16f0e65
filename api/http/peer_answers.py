"""What a process of the service tells the others, and what it makes of their answers."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from api.base.metrics import defined
from api.base.process_limits import PEER_SECONDS_MAX
from api.base.unix_sockets import bind_unix
from api.http.peers import (
    CAPTURES,
    HEALTH,
    METRICS,
    NEWS,
    NUMBERS,
    READY,
    ROLLOUTS,
    SILENCES,
    Answer,
    Peers,
    Question,
    answering,
)
from api.http.processes.merged import PROCESS, UP, merge
from collector.contract.identity import METRIC_LABEL

if TYPE_CHECKING:
    from api.http.context import Context
    from api.http.duties import Duties

Row = tuple[dict[str, str], float]
ROWS: Final = msgspec.json.Decoder(list[Row])


async def answer_peers(parts: Context, path: Path) -> None:
    """Answer the other processes until cancelled."""
    loop = asyncio.get_running_loop()
    with answering(bind_unix(path), answers_of(parts, loop)):
        await loop.create_future()


def answers_of(parts: Context, loop: asyncio.AbstractEventLoop) -> dict[str, Answer]:
    """By question; each is called in a thread, and asks the event loop what belongs to it."""

    def in_loop(work: Coroutine[Any, Any, bytes]) -> bytes:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PEER_SECONDS_MAX)

    async def ready() -> bytes:
        return "\n".join(await parts.wellbeing.complaints(parts.supervisor.failing)).encode()

    return {
        READY: lambda _: in_loop(ready()),
        METRICS: lambda _: generate_latest(parts.metrics.registry),
        NUMBERS: lambda asked: rows_of(parts.metrics.registry, parts.duties.name, asked.names),
        NEWS: lambda asked: in_loop(take_news(parts, asked.names)),
    }


async def take_news(parts: Context, about: Collection[str]) -> bytes:
    """Look again at what another process has changed."""
    looks: dict[str, Callable[[], object]] = {
        SILENCES: parts.notifying.silences_changed,
        HEALTH: parts.health.poke,
    }
    for name, look in looks.items():
        if name in about:
            look()
    if CAPTURES in about:
        await asyncio.to_thread(parts.captures.look)
    if ROLLOUTS in about:
        await asyncio.to_thread(parts.rollouts.look)
    return b""


def rows_of(registry: CollectorRegistry, process: str, names: Collection[str]) -> bytes:
    """The numbers with these names, as JSON; each with the name of its process."""
    rows = [
        ({METRIC_LABEL: sample.name, **sample.labels, PROCESS: process}, sample.value)
        for family in registry.restricted_registry(names).collect()
        for sample in family.samples
        if math.isfinite(sample.value)
    ]
    return msgspec.json.encode(rows)


def numbers_of(peers: Peers, names: Collection[str]) -> list[Row]:
    """The numbers with these names of all other processes that answer."""
    found: list[Row] = []
    if not peers:
        return found
    for answer in peers.ask_all(Question(NUMBERS, sorted(names))).values():
        with contextlib.suppress(msgspec.DecodeError):
            found += ROWS.decode(answer or b"[]")
    return found


def complaints_of(peers: Peers) -> list[str]:
    """What is wrong with the other processes, one line each, with their names."""
    lines = []
    for name, answer in peers.ask_all(Question(READY)).items():
        if answer is None:
            lines.append(f"{name}: it does not answer")
        else:
            lines += [f"{name}: {line}" for line in answer.decode(errors="replace").splitlines()]
    return lines


def page_of_all(duties: Duties, own: bytes) -> bytes:
    """The metrics of all processes; one that does not answer is shown as down."""
    answers = {duties.name: own, **duties.peers.ask_all(Question(METRICS))}
    pages = {name: page.decode(errors="replace") for name, page in answers.items() if page}
    metric = defined(UP)
    lines = [f"# HELP {UP} {metric.help}", f"# TYPE {UP} gauge"]
    lines += [f'{UP}{{{PROCESS}="{name}"}} {float(name in pages)}' for name in sorted(answers)]
    return (merge(pages) + "\n".join(lines) + "\n").encode()
