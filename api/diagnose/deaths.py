"""Last words of processes, from the store, each with the job and the rank that it is about."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import msgspec

from api.diagnose.jobs import Job
from api.diagnose.load import PATH
from api.diagnose.throw_away import ThrowAwayStore
from collector.contract.communicator import HOST, PID, RANK, RANKS_MAX
from collector.contract.identity import whole_number
from collector.contract.model import Event
from collector.parsing.last_words import HOST_ADDRESS, LAST_WORDS

WORDS_MAX = 20_000
"""Events that are read, the earliest: a job of ten thousand ranks has two for each."""

PID_MAX = 1 << 40


def read_last_words(store: ThrowAwayStore, jobs: Sequence[Job]) -> list[Event]:
    """All of them, whenever they were said: a watchdog speaks long after the last record."""
    events = itertools.islice(store.events((LAST_WORDS, HOST_ADDRESS)), WORDS_MAX)
    found = (placed(event, jobs) if event.kind == LAST_WORDS else event for event in events)
    return [event for event in found if event is not None]


def placed(event: Event, jobs: Sequence[Job]) -> Event | None:
    """The event with the labels `job` and `rank`, as far as known; None: of another's process."""
    job = job_of(event, jobs)
    if job is None:
        return event
    labels = {**event.labels, "job": job.name}
    host, pid = labels.get(HOST, ""), whole_number(labels.get(PID, ""), PID_MAX)
    there = [place for place in job.found.places if host in ("", place.host)]
    if RANK not in labels and pid is not None:
        ranks = [place.rank for place in there if place.pid == pid]
        if len(ranks) == 1:
            labels[RANK] = str(ranks[0])
        elif is_of_kernel(event) and there and all(place.pid for place in there):
            return None  # the kernel killed something else
    task = whole_number(event.attributes.get("tasks", ""), RANKS_MAX)
    if task is not None and host and task in {place.rank for place in there}:
        # Where rank and task have one number and one host, each task is a rank.
        labels[RANK] = str(task)
    rank = whole_number(labels.get(RANK, ""), RANKS_MAX)
    if rank is not None and rank >= max(job.size, job.found.ranks, 1):
        # A rank that the job does not have is another job's, or a number of another kind.
        labels.pop(RANK)
    return msgspec.structs.replace(event, labels=labels)


def is_of_kernel(event: Event) -> bool:
    return event.attributes.get("words") == "oom_killer"


def job_of(event: Event, jobs: Sequence[Job]) -> Job | None:
    """The only job; else that of the process; else the one whose files lie nearest, if one does."""
    if len(jobs) == 1:
        return jobs[0]
    pid = whole_number(event.labels.get(PID, ""), PID_MAX)
    own = [job for job in jobs if (event.labels.get(HOST, ""), pid) in job.processes]
    if len(own) == 1:
        return own[0]
    near = [(nearness(event, job), job) for job in jobs]
    best = max((how for how, _ in near), default=0)
    nearest = [job for how, job in near if how == best]
    return nearest[0] if best and len(nearest) == 1 else None


def nearness(event: Event, job: Job) -> int:
    """How many characters the path of a log shares with the job's files."""
    folders = [*job.folders, *(folder for each in job.collections for folder in each.folders)]
    path = os.path.abspath(event.attributes.get(PATH, ""))  # noqa: PTH100 - of texts
    shared = [
        len(os.path.commonpath([path, os.path.abspath(folder)]))  # noqa: PTH100
        for folder in folders
    ]
    return max(shared, default=0)
