"""Jobs: what the inventory keeps of them on both databases, and what HTTP answers."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from api.data.inventory.feed import InventoryFeed
from api.data.inventory.job_model import (
    CommunicatorFound,
    JobFound,
    JobRank,
    MemberFound,
    Origin,
    said,
)
from api.data.inventory.job_rows import nanoseconds
from api.data.inventory.jobs import JobConflictError
from api.data.inventory.records import JobChange, JobOrigin, JobSaid, JobState, RankSaid
from api.data.inventory.repository import Inventory
from collector.contract.catalog import load_catalog
from collector.contract.identity import canonical_labels

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
START_NS = int(START.timestamp()) * 10**9


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def train(**changes: Any) -> JobSaid:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {
        "id": "train",
        "name": "a run",
        "ranks": [
            RankSaid(rank=0, host="a", gpu=0, device="mlx5_0", port=1),
            RankSaid(rank=1, host="b", gpu="7"),
        ],
        "groups": {"dp": [[0, 1]]},
        "attributes": {"model": "é"},
    }
    return JobSaid(**{**fields, **changes})


def found(job: str = "inferred-1", **changes: Any) -> JobFound:  # noqa: ANN401 - any field
    """A job of two processes in one communicator, as inference finds it."""
    fields: dict[str, Any] = {
        "job": job,
        "was_said": False,
        "ranks": 2,
        "places": (
            said(0, Origin.RECORDS, host="a", pid=1),
            said(1, Origin.RECORDS, host="b", pid=2),
        ),
        "communicators": (
            CommunicatorFound(
                communicator=job.removeprefix("inferred-"),
                members=(
                    MemberFound(rank=0, host="a", pid=1, job_rank=0),
                    MemberFound(rank=1, host="b", pid=2, job_rank=1),
                ),
                ranks=2,
                name="default",
                rings=[[0, 1]],
                trees=[{0: None, 1: 0}],
                first_ns=START_NS,
                last_ns=START_NS,
            ),
        ),
        "hosts": frozenset({"a", "b"}),
        "first_ns": START_NS,
        "last_ns": START_NS,
    }
    return JobFound(**{**fields, **changes})


# --- registered --------------------------------------------------------------------------------


def test_a_registered_job_comes_back(inventory: Inventory) -> None:
    assert inventory.jobs.register(train(), at(0))
    job = inventory.jobs.get("train")
    assert job is not None
    assert (job.name, job.origin, job.state) == ("a run", "registered", "running")
    assert (job.ranks, job.attributes, job.first_seen) == (2, {"model": "é"}, at(0))
    assert inventory.jobs.groups("train") == {"dp": [[0, 1]]}
    assert inventory.jobs.hosts("train") == ["a", "b"]
    first, second = inventory.jobs.ranks("train")
    assert (first.host, first.gpu, first.device, first.port) == ("a", "0", "mlx5_0", "1")
    assert second == JobRank(
        rank=1,
        host="b",
        gpu="7",
        origins=dict.fromkeys(("rank", "host", "gpu"), "registered"),
    )


def test_the_same_again_changes_nothing_and_something_else_is_refused(inventory: Inventory) -> None:
    inventory.jobs.register(train(), at(0))
    before = inventory.jobs.get("train")
    assert not inventory.jobs.register(train(), at(1))
    assert not inventory.jobs.register(JobSaid(id="train"), at(1))
    for changes, words_ in (
        ({"name": "other"}, "name is 'a run', not 'other'"),
        ({"groups": {"tp": [[0]]}}, "groups is"),
        ({"ranks": [RankSaid(rank=0, host="c")]}, "host of rank 0 is 'a', not 'c'"),
        ({"ranks": [RankSaid(rank=0, host="a")]}, "rank 1 is registered and not given"),
        ({"hosts": ["z"]}, "hosts lack z"),
    ):
        with pytest.raises(JobConflictError) as caught:
            inventory.jobs.register(train(**changes), at(2))
        assert words_ in str(caught.value)
    assert inventory.jobs.get("train") == before


def test_many_differences_are_counted_not_listed(inventory: Inventory) -> None:
    ranks = [RankSaid(rank=rank, host="a") for rank in range(50)]
    inventory.jobs.register(JobSaid(id="big", ranks=ranks), at(0))
    others = [RankSaid(rank=rank, host="b") for rank in range(50)]
    with pytest.raises(JobConflictError, match="and 40 more"):
        inventory.jobs.register(JobSaid(id="big", ranks=others), at(0))


def test_a_change_merges(inventory: Inventory) -> None:
    inventory.jobs.register(train(attributes={"x": "1", "y": "2"}), at(0))
    change = JobChange(
        name=None,
        attributes={"x": None, "z": "3"},
        ranks=[RankSaid(rank=1, host="c"), RankSaid(rank=2, host="d")],
        groups={"pp": [[0], [1, 2]]},
    )
    assert inventory.jobs.change("train", change, at(1))
    job = inventory.jobs.get("train")
    assert job is not None
    assert (job.name, job.attributes, job.ranks) == (None, {"y": "2", "z": "3"}, 3)
    assert [(rank.host, rank.gpu) for rank in inventory.jobs.ranks("train")] == [
        ("a", "0"),
        ("c", "7"),
        ("d", None),
    ]
    assert inventory.jobs.groups("train") == {"pp": [[0], [1, 2]]}
    assert not inventory.jobs.change("nobody", JobChange(), at(1))


def test_a_job_ends_and_runs_again_when_somebody_says_so(inventory: Inventory) -> None:
    inventory.jobs.register(train(), at(0))
    for change, state, ended in (
        (JobChange(state=JobState.ENDED), "ended", at(5)),
        (JobChange(state=JobState.RUNNING), "running", None),
        (JobChange(ended_at=at(3)), "ended", at(3)),
    ):
        inventory.jobs.change("train", change, at(5))
        job = inventory.jobs.get("train")
        assert job is not None
        assert (job.state, job.ended_at) == (state, ended)
    inventory.jobs.keep(found("train", last_ns=START_NS + 10**12), at(60))
    job = inventory.jobs.get("train")
    assert job is not None
    assert job.state is JobState.ENDED


def test_jobs_come_in_pages_by_state_and_by_host(inventory: Inventory) -> None:
    for name in ("b", "A", "c", "é"):
        inventory.jobs.register(JobSaid(id=name, hosts=["h1", f"only-{name}"]), at(0))
    inventory.jobs.change("c", JobChange(state=JobState.ENDED), at(1))

    def names(**asked: Any) -> list[str]:  # noqa: ANN401 - any parameter
        return [job.job for job in inventory.jobs.page(**asked)]

    assert names() == ["A", "b", "c", "é"]
    assert names(limit=2) == ["A", "b"]
    assert names(after="b") == ["c", "é"]
    assert names(state=JobState.RUNNING) == ["A", "b", "é"]
    assert names(host="only-c") == ["c"]
    assert names(host="h1", state=JobState.ENDED) == ["c"]
    assert names(host="\0") == names(host="nobody") == []
    assert [job.job for job in inventory.jobs.running()] == ["A", "b", "é"]


def test_when_any_job_was_last_seen_is_known_after_all_have_ended(inventory: Inventory) -> None:
    assert inventory.jobs.last_seen_ns() is None
    for number, name in enumerate(("one", "two")):
        inventory.jobs.register(JobSaid(id=name, hosts=["h1"]), at(number))
        inventory.jobs.change(name, JobChange(state=JobState.ENDED), at(number))
    assert inventory.jobs.running() == []
    assert inventory.jobs.last_seen_ns() == nanoseconds(at(1))


def test_a_large_job_is_registered_whole(inventory: Inventory) -> None:
    ranks = [RankSaid(rank=rank, host=f"h{rank // 8}", gpu=rank % 8) for rank in range(5_000)]
    assert inventory.jobs.register(JobSaid(id="big", ranks=ranks), at(0))
    assert not inventory.jobs.register(JobSaid(id="big", ranks=ranks), at(0))
    page = inventory.jobs.ranks("big", after=4_000, limit=10)
    assert [place.rank for place in page] == list(range(4_001, 4_011))
    assert len(inventory.jobs.hosts("big")) == 625
    assert inventory.jobs.count_ranks("big") == 5_000


# --- found out ---------------------------------------------------------------------------------


def test_an_inferred_job_is_kept_with_its_communicators(inventory: Inventory) -> None:
    for _ in range(2):
        inventory.jobs.keep(found(), at(1))
    job = inventory.jobs.get("inferred-1")
    assert job is not None
    assert (job.origin, job.ranks, job.last_seen, job.started_at) == ("inferred", 2, at(0), at(0))
    [communicator] = inventory.jobs.communicators("inferred-1")
    assert (communicator.name, communicator.rings) == ("default", [[0, 1]])
    assert communicator.trees == [{"0": None, "1": 0}]
    assert [(m.rank, m.host, m.job_rank) for m in inventory.jobs.members("inferred-1")] == [
        (0, "a", 0),
        (1, "b", 1),
    ]
    assert inventory.jobs.communicators("nobody") == []


def test_what_was_said_stands_and_what_was_found_fills_the_gaps(inventory: Inventory) -> None:
    inventory.jobs.register(train(), at(0))
    lines = tuple(
        msgspec.structs.replace(
            place,
            gpu="3",
            local_rank=0,
            origins={**place.origins, "gpu": "nccl", "local_rank": "nccl"},
        )
        for place in found().places
    )
    inventory.jobs.keep(found("train", places=lines), at(1))
    first = inventory.jobs.ranks("train")[0]
    assert (first.gpu, first.pid, first.local_rank) == ("0", 1, 0)
    assert (first.origins["gpu"], first.origins["pid"]) == ("registered", "records")
    job = inventory.jobs.get("train")
    assert job is not None
    assert job.origin is JobOrigin.REGISTERED


def guessed(*processes: tuple[str, int]) -> tuple[JobRank, ...]:
    places = []
    for rank, (host, pid) in enumerate(processes):
        place = said(rank, Origin.RECORDS, host=host, pid=pid)
        origins = {**place.origins, "rank": "inferred"}
        places.append(msgspec.structs.replace(place, origins=origins))
    return tuple(places)


def test_guessed_ranks_are_taken_back_and_never_touch_better_ones(inventory: Inventory) -> None:
    def ranks() -> list[tuple[str | None, int | None]]:
        return [(place.host, place.pid) for place in inventory.jobs.ranks("inferred-1")]

    inventory.jobs.keep(found(places=guessed(("a", 1), ("b", 2), ("c", 3))), at(0))
    assert ranks() == [("a", 1), ("b", 2), ("c", 3)]
    inventory.jobs.keep(found(places=guessed(("a", 9), ("a", 1))), at(0))
    assert ranks() == [("a", 9), ("a", 1)]
    inventory.jobs.keep(found(), at(0))
    assert ranks() == [("a", 1), ("b", 2)]
    inventory.jobs.keep(found(places=guessed(("z", 9))), at(0))
    assert ranks() == [("a", 1), ("b", 2)]


def test_an_alias_leads_to_the_job_that_it_is(inventory: Inventory) -> None:
    inventory.jobs.keep(found("inferred-1"), at(0))
    inventory.jobs.keep(found("inferred-2"), at(0))
    inventory.jobs.keep(found("inferred-2", aliases=("inferred-1", "inferred-2", "none")), at(0))
    inventory.jobs.keep(found("train", was_said=True, aliases=("inferred-2",)), at(0))
    for name in ("inferred-1", "inferred-2"):
        job = inventory.jobs.get(name)
        assert job is not None
        assert (job.alias_of, job.state) == ("train", "ended")
        assert not inventory.jobs.ranks(name)
        assert not inventory.jobs.members(name)
        assert [each.communicator for each in inventory.jobs.communicators("train")] == ["train"]
    assert [job.job for job in inventory.jobs.page()] == ["train"]
    with pytest.raises(JobConflictError, match="alias of 'train'"):
        inventory.jobs.register(JobSaid(id="inferred-1"), at(0))
    assert not inventory.jobs.change("inferred-1", JobChange(), at(0))
    inventory.jobs.keep(found("inferred-1"), at(0))
    assert inventory.jobs.ranks("inferred-1") == []


def test_a_job_that_somebody_named_is_never_made_an_alias(inventory: Inventory) -> None:
    inventory.jobs.register(train(), at(0))
    inventory.jobs.keep(found(aliases=("train",)), at(0))
    job = inventory.jobs.get("train")
    assert job is not None
    assert job.alias_of is None


def test_quiet_jobs_end_run_again_and_are_forgotten(inventory: Inventory) -> None:
    inventory.jobs.register(train(), at(0))
    inventory.jobs.keep(found(), at(0))
    assert inventory.jobs.end_quiet(at(0)) == 0
    assert inventory.jobs.end_quiet(at(1)) == 1
    job = inventory.jobs.get("inferred-1")
    assert job is not None
    assert (job.state, job.ended_at) == ("ended", at(0))
    inventory.jobs.touch({"inferred-1": at(5), "nobody": at(5)})
    job = inventory.jobs.get("inferred-1")
    assert job is not None
    assert (job.state, job.ended_at, job.last_seen) == ("running", None, at(5))
    inventory.jobs.end_quiet(at(6))
    assert inventory.jobs.forget(at(7)) == 1
    assert inventory.jobs.get("inferred-1") is None
    assert not inventory.jobs.communicators("inferred-1")
    assert not inventory.jobs.members("inferred-1")
    assert inventory.jobs.get("train") is not None


def test_one_name_of_a_communicator_may_be_in_two_jobs(inventory: Inventory) -> None:
    for name in ("x", "y"):
        one = found("inferred-pg:0").communicators
        inventory.jobs.keep(found(f"inferred-{name}", communicators=one), at(0))
    assert inventory.jobs.shared_communicators("inferred-x") == ["pg:0"]
    assert [job.job for job in inventory.jobs.inferred(["pg:0", "none"])] == [
        "inferred-x",
        "inferred-y",
    ]


def test_several_may_write_the_same_jobs_at_once(inventory: Inventory) -> None:
    """As service processes do: each infers the same, while agents and clients write."""

    def work(number: int) -> None:
        for minute in range(5):
            inventory.jobs.keep(found("inferred-1"), at(minute))
            inventory.jobs.keep(found("inferred-2", aliases=("inferred-1",)), at(minute))
            sight(inventory, minute, *(rank_labels(rank) for rank in range(4)))
            inventory.jobs.change("1234", JobChange(attributes={f"by-{number}": "x"}), at(0))
            inventory.jobs.touch({"1234": at(minute), "inferred-2": at(minute)})
            inventory.jobs.end_quiet(at(-10))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()
    assert [job.job for job in inventory.jobs.page()] == ["1234", "inferred-2"]
    job = inventory.jobs.get("1234")
    assert job is not None
    assert len(job.attributes) == 4
    assert len(inventory.jobs.ranks("1234")) == 4
    assert len(inventory.jobs.members("inferred-2")) == 2


def test_odd_names_are_no_jobs(inventory: Inventory) -> None:
    for odd in ("", "\0", "a\nb", "x" * 1000):
        assert inventory.jobs.get(odd) is None
        assert not inventory.jobs.change(odd, JobChange(), at(0))


# --- sighted -----------------------------------------------------------------------------------


def sight(inventory: Inventory, minute: float, *series: dict[str, str]) -> InventoryFeed:
    feed = InventoryFeed(inventory, load_catalog(), lambda: at(minute))
    labels = [canonical_labels({"__name__": "fabric_job_info", **one}) for one in series]
    feed.seen(feed.things(labels))
    feed.run_once()
    return feed


def rank_labels(rank: int, **more: str) -> dict[str, str]:
    own = {"host": f"h{rank // 2}", "rank": str(rank), "gpu": str(rank % 2), "pid": str(50 + rank)}
    return {"job": "1234", "scheduler": "slurm", "user": "ann", **own, **more}


def test_a_scheduler_s_job_is_sighted_with_its_ranks(inventory: Inventory) -> None:
    for minute in (0, 2):
        feed = sight(inventory, minute, *(rank_labels(rank) for rank in range(4)))
        assert (feed.errors, feed.dropped) == (0, 0)
    job = inventory.jobs.get("1234")
    assert job is not None
    assert (job.origin, job.scheduler, job.user, job.ranks) == ("scheduler", "slurm", "ann", 4)
    assert (job.first_seen, job.last_seen) == (at(0), at(2))
    place = inventory.jobs.ranks("1234")[3]
    assert (place.host, place.pid, place.gpu, place.origins["pid"]) == ("h1", 53, "1", "scheduler")
    assert inventory.jobs.hosts("1234") == ["h0", "h1"]
    revision = job.revision
    sight(inventory, 3, rank_labels(0))
    again = inventory.jobs.get("1234")
    assert again is not None
    assert again.revision == revision
    sight(inventory, 4, rank_labels(0, pid="99"))
    moved = inventory.jobs.get("1234")
    assert moved is not None
    assert (moved.revision, inventory.jobs.ranks("1234")[0].pid) == (revision + 1, 99)


def test_odd_series_say_nothing_of_jobs(inventory: Inventory) -> None:
    sight(
        inventory,
        0,
        {"job": "x" * 300, "host": "h"},
        {"job": "a\nb", "host": "h"},
        {"job": "nowhere"},
        {"job": "odd", "host": "h", "rank": "-1", "pid": "x"},
        {"job": "odd", "host": "h", "rank": "99999999999999", "pid": "1"},
    )
    assert [job.job for job in inventory.jobs.page()] == ["odd"]
    assert inventory.jobs.ranks("odd") == []
    assert inventory.jobs.hosts("odd") == ["h"]


def test_a_sighted_job_ends_with_silence_and_comes_back(inventory: Inventory) -> None:
    sight(inventory, 0, rank_labels(0))
    assert inventory.jobs.end_quiet(at(1)) == 1
    sight(inventory, 5, rank_labels(0))
    job = inventory.jobs.get("1234")
    assert job is not None
    assert (job.state, job.ended_at) == ("running", None)


def test_a_registered_job_keeps_what_was_registered(inventory: Inventory) -> None:
    inventory.jobs.register(JobSaid(id="1234", user="bob"), at(0))
    inventory.jobs.change("1234", JobChange(state=JobState.ENDED), at(1))
    sight(inventory, 5, rank_labels(0))
    job = inventory.jobs.get("1234")
    assert job is not None
    assert (job.origin, job.user, job.scheduler) == ("registered", "bob", "slurm")
    assert job.state is JobState.ENDED
