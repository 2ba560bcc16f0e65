"""Bodies of `POST /v1/jobs` and `PATCH /v1/jobs/{id}`: read, bounded, checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from api.base.errors import Problem, decode_json
from api.base.limits import (
    JOB_ATTRIBUTES_MAX,
    JOB_GROUP_RANKS_MAX,
    JOB_RANKS_MAX,
    JOB_TEXT_CHARS_MAX,
)
from api.data.inventory.records import JobChange, JobSaid, RankSaid
from api.data.inventory.sightings import NAME_BYTES_MAX, RANK_MAX, is_name

NOT_A_JOB: Final = "not a job"

PID_MAX: Final = (1 << 32) - 1

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


def read_job(body: bytes) -> JobSaid:
    job = decode_json(body, JobSaid, NOT_A_JOB)
    if not is_name(job.id) or "/" in job.id:
        raise wrong(
            f"id is {job.id[:40]!r}; it must be 1 to {NAME_BYTES_MAX} printable bytes without /"
        )
    check(job)
    return job


def read_change(body: bytes) -> JobChange:
    change = decode_json(body, JobChange, NOT_A_JOB)
    check(change)
    return change


def wrong(detail: str, rule: str = "") -> Problem:
    return Problem(422, NOT_A_JOB, detail, rule=rule)


def check(request: JobSaid | JobChange) -> None:
    check_bound(len(request.ranks), JOB_RANKS_MAX, "JOB_RANKS_MAX", "ranks")
    check_bound(len(request.hosts), JOB_RANKS_MAX, "JOB_RANKS_MAX", "hosts")
    check_bound(len(request.attributes), JOB_ATTRIBUTES_MAX, "JOB_ATTRIBUTES_MAX", "attributes")
    for name in ("name", "user", "scheduler", "cluster"):
        check_text(name, getattr(request, name))
    for name, text in request.attributes.items():
        check_text("an attribute's name", name)
        check_text(f"attribute {name}", text)
    check_times(request)
    check_names("host", request.hosts)
    check_ranks(request.ranks)
    if request.groups is not msgspec.UNSET:
        check_groups(request.groups)


def check_bound(count: int, bound: int, rule: str, what: str) -> None:
    if count > bound:
        raise wrong(f"{count} {what}; {rule} is {bound}", rule)


def check_text(what: str, text: object) -> None:
    if isinstance(text, str) and (len(text) > JOB_TEXT_CHARS_MAX or not text.isprintable()):
        raise wrong(
            f"{what} is {text[:40]!r}; it must be printable and have at most "
            f"JOB_TEXT_CHARS_MAX = {JOB_TEXT_CHARS_MAX} characters"
        )


def check_times(request: JobSaid | JobChange) -> None:
    for name in ("started_at", "ended_at"):
        moment = getattr(request, name, None)
        if not isinstance(moment, datetime):
            continue
        if moment.tzinfo is None:
            raise wrong(f"{name} is {moment.isoformat()}; write it with a zone (…Z)")
        if not EARLIEST <= moment <= LATEST:
            raise wrong(f"{name} is {moment.isoformat()}; it must be after 1970 and before 9999")


def check_names(what: str, names: Iterable[object]) -> None:
    for name in names:
        if name is not None and not is_name(str(name)):
            raise wrong(
                f"{what} {str(name)[:40]!r}: a name has 1 to {NAME_BYTES_MAX} printable bytes"
            )


def check_ranks(ranks: Sequence[RankSaid]) -> None:
    for rank in ranks:
        if not 0 <= rank.rank <= RANK_MAX:
            raise wrong(f"rank {rank.rank}: ranks are 0 to {RANK_MAX}")
        if rank.local_rank is not None and not 0 <= rank.local_rank <= RANK_MAX:
            raise wrong(f"local_rank {rank.local_rank} of rank {rank.rank}: 0 to {RANK_MAX}")
        if rank.pid is not None and not 0 < rank.pid <= PID_MAX:
            raise wrong(f"pid {rank.pid} of rank {rank.rank}: 1 to {PID_MAX}")
        names = (rank.host, rank.gpu, rank.gpu_uuid, rank.device, rank.port)
        check_names(f"of rank {rank.rank}: ", names)
    twice = [rank for rank, count in Counter(rank.rank for rank in ranks).items() if count > 1]
    if twice:
        raise wrong(f"rank {min(twice)} is named twice")


def check_groups(groups: Mapping[str, Sequence[Sequence[int]]]) -> None:
    check_bound(len(groups), JOB_ATTRIBUTES_MAX, "JOB_ATTRIBUTES_MAX", "kinds of groups")
    check_names("group", groups)
    count = sum(1 + len(some) for group in groups.values() for some in group)
    check_bound(count, JOB_GROUP_RANKS_MAX, "JOB_GROUP_RANKS_MAX", "numbers in groups")
    for name, group in groups.items():
        for some in group:
            if some and not (min(some) >= 0 and max(some) <= RANK_MAX):
                raise wrong(f"group {name} has a rank outside of 0 to {RANK_MAX}")
