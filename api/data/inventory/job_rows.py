"""Rows of jobs, their hosts, ranks and communicators: how they are written.

Every writer of a job first locks the job's own row, so that writers of one job take turns; a writer
of several jobs locks them in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, select, update
from sqlalchemy.sql.expression import bindparam

from api.data.inventory.database import Row, execute_all, in_pieces, insert_into, table_of, upsert
from api.data.inventory.job_model import FACTS, CommunicatorFound, JobRank, Origin, merged, said
from api.data.inventory.records import JobOrigin, JobState, RankSaid
from api.data.inventory.tables import CommunicatorRow, JobHostRow, JobRankRow, JobRow, MemberRow

JOBS: Final = table_of(JobRow)
JOB_HOSTS: Final = table_of(JobHostRow)
JOB_RANKS: Final = table_of(JobRankRow)
COMMUNICATORS: Final = table_of(CommunicatorRow)
MEMBERS: Final = table_of(MemberRow)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(time_ns: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_ns // 1000)


def nanoseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1) * 1000


def new_job(job: str, origin: JobOrigin, now: datetime) -> Row:
    return {
        "job": job,
        "origin": origin,
        "state": JobState.RUNNING,
        "groups": {},
        "attributes": {},
        "revision": 0,
        "first_seen": now,
        "last_seen": now,
    }


def lock_job(connection: Connection, job: str) -> Row | None:
    """Held until the end of the transaction."""
    query = select(JOBS).where(JOBS.c.job == job).with_for_update()
    found = connection.execute(query).mappings().first()
    return None if found is None else dict(found)


def open_job(connection: Connection, job: str, origin: JobOrigin, now: datetime) -> Row:
    connection.execute(
        insert_into(connection, JOBS).on_conflict_do_nothing(), [new_job(job, origin, now)]
    )
    row = lock_job(connection, job)
    assert row is not None, f"the row of job {job!r} was just made"
    return row


def change_row(connection: Connection, old: Row, **values: object) -> bool:
    """Write what differs; True if something did."""
    changed = {name: value for name, value in values.items() if old[name] != value}
    if changed:
        connection.execute(update(JOBS).where(JOBS.c.job == old["job"]).values(changed))
        old.update(changed)
    return bool(changed)


# --- hosts and ranks ----------------------------------------------------------------------------


def write_hosts(connection: Connection, job: str, hosts: Iterable[str], origin: str) -> bool:
    """Add hosts to a job; True if one was new."""
    given = sorted(set(hosts))
    known: set[str] = set()
    for names in in_pieces(given):
        query = select(JOB_HOSTS.c.host).where(JOB_HOSTS.c.job == job, JOB_HOSTS.c.host.in_(names))
        known.update(connection.scalars(query))
    rows = [{"job": job, "host": host, "origin": origin} for host in given if host not in known]
    execute_all(connection, insert_into(connection, JOB_HOSTS).on_conflict_do_nothing(), rows)
    return bool(rows)


def hosts_of(connection: Connection, job: str) -> list[str]:
    query = select(JOB_HOSTS.c.host).where(JOB_HOSTS.c.job == job).order_by(JOB_HOSTS.c.host)
    return list(connection.scalars(query))


_RANK_COLUMNS: Final = ("rank", *FACTS, "origins")


def ranks_of(
    connection: Connection, job: str, after: int | None = None, limit: int | None = None
) -> list[JobRank]:
    wanted = [JOB_RANKS.c[name] for name in _RANK_COLUMNS]
    query = select(*wanted).where(JOB_RANKS.c.job == job).order_by(JOB_RANKS.c.rank)
    if after is not None:
        query = query.where(JOB_RANKS.c.rank > after)
    rows = connection.execute(query.limit(limit)).mappings()
    return [JobRank(**row) for row in rows]


def these_ranks(connection: Connection, job: str, ranks: Sequence[int]) -> list[JobRank]:
    """Those of these ranks of a job that are known: a flush of sightings brings a few of many."""
    wanted = [JOB_RANKS.c[name] for name in _RANK_COLUMNS]
    found: list[JobRank] = []
    for some in in_pieces(ranks):
        query = select(*wanted).where(JOB_RANKS.c.job == job, JOB_RANKS.c.rank.in_(some))
        found += [JobRank(**row) for row in connection.execute(query).mappings()]
    return found


def as_said(rank: RankSaid) -> JobRank:
    return said(
        rank.rank,
        Origin.REGISTERED,
        host=rank.host,
        pid=rank.pid,
        gpu=None if rank.gpu is None else str(rank.gpu),
        gpu_uuid=rank.gpu_uuid,
        device=rank.device,
        devices=rank.device,
        port=None if rank.port is None else str(rank.port),
        local_rank=rank.local_rank,
    )


def write_ranks(connection: Connection, job: str, places: Iterable[JobRank]) -> bool:
    """True if something changed. Ranks that were only guessed, and no longer are, go."""
    given = list(places)
    guesses = any(is_guess(place) for place in given)
    known = (
        ranks_of(connection, job)
        if guesses
        else these_ranks(connection, job, [place.rank for place in given])
    )
    old = {place.rank: place for place in known}
    news = {
        place.rank: place
        for place in given
        # A guess about a rank that has a better origin would mix up two processes.
        if not (is_guess(place) and place.rank in old and not is_guess(old[place.rank]))
    }
    if guesses:
        guessed = [rank for rank, place in old.items() if is_guess(place) and rank not in news]
        drop_ranks(connection, job, guessed)
    for rank, place in old.items():
        # A guess never mixes with another process' facts: it is taken back whole.
        if rank in news and is_guess(place) and differs_in_process(place, news[rank]):
            old[rank] = JobRank(rank=rank)
    after = {rank: merged(old.get(rank, JobRank(rank=rank)), place) for rank, place in news.items()}
    changed = [place for rank, place in sorted(after.items()) if old.get(rank) != place]
    upsert(connection, JOB_RANKS, [{"job": job, **msgspec.structs.asdict(one)} for one in changed])
    return bool(changed)


def is_guess(place: JobRank) -> bool:
    """Whether inference alone gave this process its rank."""
    return place.origins.get("rank") == Origin.INFERRED


def differs_in_process(one: JobRank, other: JobRank) -> bool:
    return (one.host, one.pid) != (other.host, other.pid)


def drop_ranks(connection: Connection, job: str, ranks: Sequence[int]) -> None:
    for some in in_pieces(ranks):
        connection.execute(
            delete(JOB_RANKS).where(JOB_RANKS.c.job == job, JOB_RANKS.c.rank.in_(some))
        )


# --- communicators ------------------------------------------------------------------------------


def write_communicators(
    connection: Connection, job: str, found: Sequence[CommunicatorFound]
) -> None:
    query = select(COMMUNICATORS).where(COMMUNICATORS.c.job == job)
    old = {row["communicator"]: dict(row) for row in connection.execute(query).mappings()}
    rows = [communicator_row(job, one, old.get(one.communicator)) for one in found]
    changed = [row for row in rows if old.get(row["communicator"]) != row]
    upsert(connection, COMMUNICATORS, changed)
    query = select(MEMBERS).where(MEMBERS.c.job == job)
    members = {
        (row["communicator"], row["rank"]): dict(row)
        for row in connection.execute(query).mappings()
    }
    news = [
        {"communicator": one.communicator, "job": job, **msgspec.structs.asdict(member)}
        for one in found
        for member in one.members
    ]
    upsert(
        connection,
        MEMBERS,
        [row for row in news if members.get((row["communicator"], row["rank"])) != row],
    )


def communicator_row(job: str, found: CommunicatorFound, old: Row | None) -> Row:
    """The row of a communicator; what was known and is not seen now stays."""
    first, last = moment(found.first_ns), moment(found.last_ns)
    trees = [{str(rank): parent for rank, parent in tree.items()} for tree in found.trees]
    known: Mapping[str, Any] = old or {}
    return {
        "communicator": found.communicator,
        "job": job,
        "name": found.name or known.get("name"),
        "ranks": found.ranks,
        "nodes": found.nodes or known.get("nodes"),
        "rings": found.rings or known.get("rings", []),
        "trees": trees or known.get("trees", []),
        "is_in_network": found.is_in_network or bool(known.get("is_in_network", False)),
        "first_seen": min(first, known.get("first_seen", first)),
        "last_seen": max(last, known.get("last_seen", last)),
    }


def make_aliases(connection: Connection, job: str, aliases: Iterable[str]) -> None:
    """Reduce inferred jobs that turned out to be this one to aliases of it."""
    for alias in sorted(aliases):
        row = lock_job(connection, alias)
        if row is None or row["origin"] != JobOrigin.INFERRED or alias == job:
            continue
        for table in (MEMBERS, COMMUNICATORS, JOB_RANKS, JOB_HOSTS):
            connection.execute(delete(table).where(table.c.job == alias))
        values = {"alias_of": job, "state": JobState.ENDED, "ended_at": row["last_seen"]}
        change_row(connection, row, **values)
    # An alias of an alias would need a second look-up.
    moved = update(JOBS).where(JOBS.c.alias_of == bindparam("alias")).values(alias_of=job)
    if listed := [{"alias": alias} for alias in aliases]:
        connection.execute(moved, listed)
