"""Joins facts about jobs from series (`fabric_job_info`) with the stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from sqlalchemy import Connection

from api.data.inventory.database import Row
from api.data.inventory.job_model import JobRank, Origin, said
from api.data.inventory.job_rows import change_row, open_job, write_hosts, write_ranks
from api.data.inventory.merge import NO_RANK, JobKey, Seen, Things
from api.data.inventory.records import JobOrigin, JobState
from api.data.inventory.sightings import RANK_MAX
from collector.contract.identity import whole_number

PID_MAX: Final = (1 << 32) - 1

OF_A_JOB: Final = ("user", "scheduler", "cluster")
"""Labels that are columns of a job."""


def write_job_sightings(connection: Connection, seen: Things[JobKey]) -> None:
    for job, items in groupby(seen.in_order(), key=lambda item: item[0][0]):
        write_job(connection, job, list(items))


def write_job(connection: Connection, job: str, items: Sequence[tuple[JobKey, Seen]]) -> None:
    last = max(seen.last for _, seen in items)
    row = open_job(connection, job, JobOrigin.SCHEDULER, last)
    if row["alias_of"] is not None:
        return
    places = [place_of(rank, host, seen) for (_, rank, host), seen in items if rank != NO_RANK]
    hosts = {host for (_, _, host), _ in items}
    news = write_hosts(connection, job, hosts, Origin.SCHEDULER)
    news = write_ranks(connection, job, places) or news
    change_row(
        connection,
        row,
        **known_columns(row, items),
        **awake(row, items),
        ranks=max([row["ranks"] or 0, *(place.rank + 1 for place in places)]) or None,
        revision=row["revision"] + news,
    )


def known_columns(row: Row, items: Sequence[tuple[JobKey, Seen]]) -> dict[str, str | None]:
    """Columns that a scheduler's labels fill, if they are still empty."""
    found: dict[str, str | None] = {}
    for name in OF_A_JOB:
        texts = {seen.attributes[name][1] for _, seen in items if name in seen.attributes}
        registered = row["origin"] == JobOrigin.REGISTERED and row[name] is not None
        found[name] = row[name] if registered or not texts else max(texts)
    return found


def awake(row: Row, items: Sequence[tuple[JobKey, Seen]]) -> dict[str, object]:
    """Times and state of a job that was seen; only a registered job's end is final."""
    first = min(seen.first for _, seen in items)
    last = max(seen.last for _, seen in items)
    times = {"first_seen": min(first, row["first_seen"]), "last_seen": max(last, row["last_seen"])}
    ended = row["state"] == JobState.ENDED and row["origin"] != JobOrigin.REGISTERED
    if ended and (row["ended_at"] is None or last > row["ended_at"]):
        return {**times, "state": JobState.RUNNING, "ended_at": None}
    if row["origin"] == JobOrigin.INFERRED:
        return {**times, "origin": JobOrigin.SCHEDULER}
    return dict(times)


def place_of(rank: int, host: str, seen: Seen) -> JobRank:
    texts = {name: text for name, (_, text) in seen.attributes.items()}
    return said(
        rank,
        Origin.SCHEDULER,
        host=host,
        pid=whole_number(texts.get("pid", ""), PID_MAX),
        gpu=texts.get("gpu"),
        gpu_uuid=texts.get("gpu_uuid"),
        device=texts.get("device"),
        devices=texts.get("device"),
        local_rank=whole_number(texts.get("local_rank", ""), RANK_MAX),
    )
