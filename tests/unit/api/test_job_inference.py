"""Jobs inferred from communicators: the rules of `api.jobs.infer`, one by one."""

from random import Random
from typing import Any

import pytest

from api.data.inventory.job_model import (
    EarlierJob,
    JobFound,
    JobRank,
    KnownJob,
    Member,
    Origin,
    merged,
    said,
)
from api.jobs.facts import facts_of, nearest_devices
from api.jobs.infer import SLACK_NS, infer
from collector.contract import communicator as words
from collector.contract.model import Event

MINUTE = 60 * 10**9
T = 1_700_000_000 * 10**9


def communicator(
    name: str,
    *processes: tuple[str, int],
    job: str = "",
    first_ns: int = T,
    last_ns: int = T + MINUTE,
) -> list[Member]:
    """The members of a communicator: (host, pid) by rank."""
    return [
        Member(
            communicator=name,
            rank=rank,
            ranks=len(processes),
            host=host,
            pid=pid,
            job=job,
            first_ns=first_ns,
            last_ns=last_ns,
        )
        for rank, (host, pid) in enumerate(processes)
    ]


def on(host: str, *pids: int) -> list[tuple[str, int]]:
    return [(host, pid) for pid in pids]


def places(job: JobFound) -> dict[int, tuple[str | None, int | None]]:
    return {place.rank: (place.host, place.pid) for place in job.places}


def group_event(name: str, ranks: str) -> Event:
    return Event(
        kind=words.PROCESS_GROUP,
        time_ns=T,
        labels={words.COMMUNICATOR: name},
        attributes={words.RANKS: ranks, words.NAME: "default"},
    )


# --- processes of one job ----------------------------------------------------------------------


def test_nobody_is_no_job() -> None:
    assert infer([]) == []


def test_processes_that_share_communicators_are_one_job() -> None:
    members = [
        *communicator("0xd1", *on("a", 1), *on("b", 3)),
        *communicator("0xd2", *on("a", 2), *on("b", 4)),
        *communicator("0xt1", *on("a", 1, 2)),
    ]
    [job] = infer(members)
    assert job.hosts == {"a", "b"}
    assert [found.communicator for found in job.communicators] == ["0xd1", "0xd2", "0xt1"]
    assert len(job.places) == job.ranks == 4


def test_two_jobs_on_one_host_stay_two() -> None:
    members = [*communicator("0x1", *on("a", 1, 2)), *communicator("0x2", *on("a", 3, 4))]
    assert [job.job for job in infer(members)] == ["inferred-1", "inferred-2"]


def test_a_communicator_of_all_processes_gives_the_ranks() -> None:
    world = [("b", 9), ("a", 5), ("b", 2), ("a", 1)]
    members = [
        *communicator("0xworld", *world, first_ns=T + 5),
        *communicator("0xpair", *on("a", 1, 5), first_ns=T),
    ]
    [job] = infer(members)
    assert places(job) == dict(enumerate(world))
    assert {place.origins["rank"] for place in job.places} == {"records"}
    pair = job.communicators[0]
    assert [(member.rank, member.job_rank) for member in pair.members] == [(0, 3), (1, 1)]


def test_without_such_a_communicator_ranks_are_guessed_and_say_so() -> None:
    members = [
        *communicator("0x1", *on("node-10", 7), *on("node-2", 5)),
        *communicator("0x2", *on("node-2", 5), *on("node-2", 4)),
    ]
    [job] = infer(members)
    assert places(job) == {0: ("node-2", 4), 1: ("node-2", 5), 2: ("node-10", 7)}
    assert {place.origins["rank"] for place in job.places} == {"inferred"}


def test_marks_of_steps_give_ranks_where_no_communicator_does() -> None:
    members = [
        *communicator("0x1", *on("a", 1), *on("b", 2)),
        *communicator("0x2", *on("b", 2), *on("c", 3)),
    ]
    [job] = infer(members, marked_ranks={("a", 1): 2, ("b", 2): 1})
    assert places(job) == {0: ("c", 3), 1: ("b", 2), 2: ("a", 1)}
    origins = {place.rank: place.origins["rank"] for place in job.places}
    assert origins == {0: "inferred", 1: "records", 2: "records"}


def test_one_process_may_have_several_ranks() -> None:
    [job] = infer(communicator("0x1", *on("a", 1, 1, 1, 1)))
    assert places(job) == dict.fromkeys(range(4), ("a", 1))
    assert [member.job_rank for member in job.communicators[0].members] == [0, 1, 2, 3]


def test_the_order_of_members_makes_no_difference() -> None:
    members = [
        *communicator("0x1", *on("a", 1, 2), *on("b", 1, 2)),
        *communicator("0x2", *on("a", 1), *on("b", 1)),
        *communicator("0x3", *on("c", 1, 2), job="said"),
    ]
    random = Random(7)
    assert len({str(infer(random.sample(members, len(members)))) for _ in range(10)}) == 1


# --- jobs with an agent's label ----------------------------------------------------------------


def test_a_job_that_was_said_wins_and_spreads_over_its_communicators() -> None:
    members = [
        *communicator("0x1", *on("a", 1, 2), job="train-7"),
        *communicator("0x2", *on("a", 2), *on("b", 3)),
    ]
    [job] = infer(members)
    assert (job.job, job.was_said, sorted(job.hosts)) == ("train-7", True, ["a", "b"])


def test_jobs_that_were_said_are_never_put_together() -> None:
    members = [
        *communicator("0x1", *on("a", 1), job="one"),
        *communicator("0x2", *on("a", 2), job="two"),
        *communicator("0x3", *on("a", 1, 2)),
    ]
    assert [job.job for job in infer(members)] == ["one", "two"]


def test_processes_of_one_said_job_are_one_even_if_they_share_nothing() -> None:
    members = [
        *communicator("0x1", *on("a", 1, 2), job="one"),
        *communicator("0x2", *on("b", 1, 2), job="one"),
    ]
    [job] = infer(members)
    assert len(job.places) == 4


def test_a_job_that_was_started_again_has_the_ranks_of_its_last_run() -> None:
    members = [
        *communicator("0x1", *on("a", 1), *on("b", 2), job="train"),
        *communicator(
            "0x2",
            *on("b", 11),
            *on("a", 12),
            job="train",
            first_ns=T + 5 * MINUTE,
            last_ns=T + 6 * MINUTE,
        ),
    ]
    [job] = infer(members)
    assert places(job) == {0: ("b", 11), 1: ("a", 12)}
    assert [found.communicator for found in job.communicators] == ["0x1", "0x2"]
    assert [member.job_rank for member in job.communicators[0].members] == [0, 1]


# --- jobs that a person or scheduler named -----------------------------------------------------

HERE = communicator("0x1", *on("a", 1, 2))


def known(job: str = "train", **changes: object) -> KnownJob:
    fields: dict[str, object] = {"job": job, "hosts": frozenset({"a", "b"})}
    return KnownJob(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_named_job_takes_over_what_runs_on_its_hosts() -> None:
    assert [job.job for job in infer(HERE, known=[known()])] == ["train"]


@pytest.mark.parametrize(
    "other",
    [
        {"hosts": frozenset({"b"})},
        {"hosts": frozenset[str]()},
        {"ended_ns": T - SLACK_NS - 1},
        {"started_ns": T + MINUTE + SLACK_NS + 1},
        {"places": (said(0, Origin.SCHEDULER, host="a", pid=77),)},
    ],
)
def test_what_does_not_fit_is_not_taken_over(other: dict[str, Any]) -> None:
    assert [job.job for job in infer(HERE, known=[known(**other)])] == ["inferred-1"]


def test_two_named_jobs_that_both_fit_take_nothing_over() -> None:
    assert [job.job for job in infer(HERE, known=[known("x"), known("y")])] == ["inferred-1"]


def test_processes_tell_two_named_jobs_on_one_host_apart() -> None:
    members = [*HERE, *communicator("0x2", *on("a", 3, 4))]
    named = [
        known(
            job,
            ranks=2,
            places=tuple(
                said(rank, Origin.SCHEDULER, host="a", pid=pid) for rank, pid in enumerate(pids)
            ),
        )
        for job, pids in (("x", (2, 1)), ("y", (3, 4)))
    ]
    x, y = infer(members, known=named)
    assert (x.job, places(x)) == ("x", {0: ("a", 2), 1: ("a", 1)})
    assert (y.job, places(y)) == ("y", {0: ("a", 3), 1: ("a", 4)})
    assert {place.origins["rank"] for place in x.places} == {"scheduler"}


def test_gpus_tell_two_named_jobs_on_one_host_apart() -> None:
    members = [*HERE, *communicator("0x2", *on("a", 3, 4))]
    seen = [("0x1", 0, 1, 0), ("0x1", 1, 2, 1), ("0x2", 0, 3, 2), ("0x2", 1, 4, 3)]
    events = [
        words.communicator_event(name, rank, T, {words.PID: str(pid), words.NVML_DEVICE: str(gpu)})
        for name, rank, pid, gpu in seen
    ]
    named = [
        known(
            job,
            places=tuple(
                said(rank, Origin.REGISTERED, host="a", gpu=gpu) for rank, gpu in enumerate(gpus)
            ),
        )
        for job, gpus in (("x", "01"), ("y", "23"))
    ]
    jobs = infer(members, facts_of(events), named)
    assert [(job.job, [place.gpu for place in job.places]) for job in jobs] == [
        ("x", ["0", "1"]),
        ("y", ["2", "3"]),
    ]


def test_a_named_job_takes_only_as_many_processes_as_it_has_ranks() -> None:
    members = [*HERE, *communicator("0x2", *on("a", 3), first_ns=T + 1)]
    assert {job.job for job in infer(members, known=[known(ranks=2)])} == {"train", "inferred-2"}
    assert {job.job for job in infer(members, known=[known(ranks=3)])} == {"train"}
    assert {job.job for job in infer(members, known=[known()])} == {"train", "inferred-2"}


def test_a_named_job_that_was_started_again_takes_the_new_run_over_too() -> None:
    again = communicator("0x2", *on("a", 11, 12), first_ns=T + 5 * MINUTE, last_ns=T + 6 * MINUTE)
    found_out = (said(0, Origin.RECORDS, host="a", pid=1), said(1, Origin.RECORDS, host="a", pid=2))
    [job] = infer([*HERE, *again], known=[known(ranks=2, places=found_out)])
    assert (job.job, places(job)) == ("train", {0: ("a", 11), 1: ("a", 12)})


def test_a_communicator_that_contradicts_the_named_ranks_does_not_number_them() -> None:
    named = known(
        places=(said(0, Origin.REGISTERED, host="b"), said(1, Origin.REGISTERED, host="a"))
    )
    [job] = infer(communicator("0x1", *on("a", 1), *on("b", 2)), known=[named])
    assert places(job) == {0: ("b", 2), 1: ("a", 1)}


# --- names -------------------------------------------------------------------------------------


def test_a_job_without_a_name_is_called_after_its_oldest_communicator() -> None:
    members = [
        *communicator("0xb", *on("a", 1, 2), first_ns=T + 1),
        *communicator("0xc", *on("a", 1, 2), first_ns=T),
        *communicator("0xa", *on("a", 1, 2), first_ns=T + 1),
    ]
    assert infer(members)[0].job == "inferred-c"


def test_a_name_that_was_given_once_stays() -> None:
    earlier = EarlierJob(job="inferred-old", first_ns=T, communicators=frozenset({"0x1"}))
    [job] = infer(HERE, earlier=[earlier])
    assert (job.job, job.aliases) == ("inferred-old", ())


def test_when_two_jobs_turn_out_to_be_one_the_older_name_stays() -> None:
    earlier = [
        EarlierJob(job="inferred-x", first_ns=T + 1, communicators=frozenset({"0x1"})),
        EarlierJob(job="inferred-y", first_ns=T, communicators=frozenset({"0x2"})),
    ]
    members = [*HERE, *communicator("0x2", *on("a", 1), *on("b", 3))]
    [job] = infer(members, earlier=earlier)
    assert (job.job, job.aliases) == ("inferred-y", ("inferred-x",))
    [job] = infer(members, known=[known()], earlier=earlier)
    assert (job.job, job.aliases) == ("train", ("inferred-x", "inferred-y"))


def test_an_odd_communicator_makes_a_name_that_fits_into_a_path() -> None:
    assert infer(communicator("pg: é/../x", *on("a", 1)))[0].job == "inferred-pg:___.._x"
    assert len(infer(communicator("0x" + "f" * 250, *on("a", 1)))[0].job) < 200


# --- the framework's groups --------------------------------------------------------------------


def test_a_dump_that_knows_only_ranks_joins_the_one_job_that_has_them_there() -> None:
    dump = communicator("pg:0:ab", *on("a", 0, 0), *on("b", 0, 0))
    facts = facts_of([group_event("pg:0:ab", "0,1,2,3")])
    world = communicator("0x1", *on("a", 1, 2), *on("b", 3, 4))
    elsewhere = communicator("0x2", *on("c", 1, 2), *on("d", 3, 4))
    jobs = infer([*dump, *world, *elsewhere], facts)
    assert [job.job for job in jobs] == ["inferred-1", "inferred-2"]
    assert [found.communicator for found in jobs[0].communicators] == ["0x1", "pg:0:ab"]
    assert places(jobs[0]) == {0: ("a", 1), 1: ("a", 2), 2: ("b", 3), 3: ("b", 4)}


def test_a_dump_joins_a_job_without_a_communicator_of_all_by_the_marks_of_its_steps() -> None:
    """Two hosts of two ranks, as tensor and data parallel jobs have them: no group has all four."""
    pairs = {"0x1": (("a", 1), ("a", 2)), "0x2": (("b", 3), ("b", 4))}
    pairs |= {"0x3": (("a", 1), ("b", 3)), "0x4": (("a", 2), ("b", 4))}
    members = [one for name, own in pairs.items() for one in communicator(name, *own)]
    dump = [*communicator("pg:1:ab", *on("a", 0), *on("b", 0))]
    facts = facts_of([group_event("pg:1:ab", "1,3")])
    marks = {("a", 1): 0, ("a", 2): 1, ("b", 3): 2, ("b", 4): 3}
    [job] = infer([*members, *dump], facts, marked_ranks=marks)
    assert places(job) == {0: ("a", 1), 1: ("a", 2), 2: ("b", 3), 3: ("b", 4)}
    [group] = [one for one in job.communicators if one.communicator == "pg:1:ab"]
    assert [member.job_rank for member in group.members] == [1, 3]
    assert len(infer([*members, *dump], facts)) == 2, "without marks nothing says whose it is"


def test_a_dump_alone_gives_a_job_with_its_ranks() -> None:
    dump = [*communicator("pg:1:cd", *on("a", 0)), *communicator("pg:0:ab", *on("a", 0, 0))]
    facts = facts_of([group_event("pg:0:ab", "4,7"), group_event("pg:1:cd", "7")])
    [job] = infer(dump, facts)
    assert {place.rank: place.host for place in job.places} == {4: "a", 7: "a"}
    assert [member.job_rank for member in job.communicators[0].members] == [4, 7]


def test_one_name_in_two_jobs_does_not_make_them_one() -> None:
    members = [
        *communicator("pg:0:ab", *on("a", 0, 0)),
        *communicator("pg:0:ab", *on("b", 0, 0)),
    ]
    jobs = infer(members, facts_of([group_event("pg:0:ab", "0,1")]))
    assert [(job.job, sorted(job.hosts)) for job in jobs] == [
        ("inferred-pg:0:ab-a", ["a"]),
        ("inferred-pg:0:ab-b", ["b"]),
    ]


# --- facts -------------------------------------------------------------------------------------


def test_nccl_s_lines_alone_make_a_job_with_gpus_devices_and_rings() -> None:
    events = [
        words.communicator_event(
            "0x1",
            rank,
            T + rank,
            {
                words.HOST: f"h{rank}",
                words.PID: str(10 + rank),
                words.RANKS: "2",
                words.NODES: "2",
                words.NVML_DEVICE: "3",
                words.LOCAL_RANK: "0",
                words.DEVICES: "mlx5_3:1,mlx5_4:1",
                words.ring_attribute(0): words.encode_neighbours(1 - rank, 1 - rank),
                words.tree_attribute(0): ";1" if rank == 0 else "0;",
            },
        )
        for rank in range(2)
    ]
    [job] = infer([], facts_of(events))
    assert job.places[1] == JobRank(
        rank=1,
        host="h1",
        pid=11,
        gpu="3",
        device="mlx5_3",
        devices="mlx5_3,mlx5_4",
        port="1",
        local_rank=0,
        origins={
            "rank": "records",
            "host": "records",
            "pid": "records",
            **dict.fromkeys(("gpu", "device", "devices", "port", "local_rank"), "nccl"),
        },
    )
    [found] = job.communicators
    assert (found.nodes, found.rings, found.trees) == (2, [[0, 1]], [{0: None, 1: 0}])


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300])
def test_a_name_that_no_database_takes_is_none(name: str) -> None:
    event = words.communicator_event("0x1", 0, T, {words.NAME: name, words.PID: "1"})
    [job] = infer(HERE, facts_of([event]))
    assert job.communicators[0].name is None


def test_lines_of_another_process_are_not_taken_for_this_one_s() -> None:
    event = words.communicator_event("0x1", 0, T, {words.PID: "99", words.NVML_DEVICE: "3"})
    [job] = infer(HERE, facts_of([event]))
    assert job.places[0].gpu is None


@pytest.mark.parametrize(
    ("labels", "attributes"),
    [
        ({}, {}),
        ({words.COMMUNICATOR: "x" * 300, words.RANK: "0"}, {}),
        ({words.COMMUNICATOR: "a\nb", words.RANK: "0"}, {}),
        ({words.COMMUNICATOR: "c", words.RANK: "-1"}, {words.NODES: "9" * 400}),
        ({words.COMMUNICATOR: "c", words.RANK: "\u0663"}, {words.RINGS: "[" * 9999}),
        ({words.COMMUNICATOR: "c", words.RANK: "9" * 5000}, {}),
    ],
)
def test_odd_events_say_nothing(labels: dict[str, str], attributes: dict[str, str]) -> None:
    for kind in (words.COMMUNICATOR, words.PROCESS_GROUP, "x"):
        facts = facts_of([Event(kind=kind, time_ns=T, labels=labels, attributes=attributes)])
        assert (facts.ranks, facts.members, facts.groups, facts.rings) == ({}, [], {}, {})


def test_a_stronger_word_stands_and_of_equals_the_newer() -> None:
    person = said(0, Origin.REGISTERED, gpu="1", device="mlx5_0")
    nccl = said(0, Origin.NCCL, gpu="2", port="1")
    both = merged(person, nccl)
    assert (both.gpu, both.port, both.device) == ("1", "1", "mlx5_0")
    assert both.origins["gpu"] == "registered"
    assert merged(nccl, person).gpu == "1"
    assert merged(nccl, said(0, Origin.NCCL, gpu="5")).gpu == "5"


ROOT = "/sys/devices/pci0000:00"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ({}, []),
        ({"far": "/sys/devices/pci0000:80/x"}, []),
        ({"root": f"{ROOT}/0000:00:09.0/n", "far": "/sys/devices/pci0000:80/x"}, ["root"]),
        ({"root": f"{ROOT}/0000:00:09.0/n", "switch": f"{ROOT}/s/n"}, ["switch"]),
        ({"b": f"{ROOT}/s/n", "a": f"{ROOT}/s/m"}, ["a", "b"]),
        ({"odd": "", "worse": "///"}, []),
    ],
)
def test_the_nearest_device_shares_the_longest_way(
    paths: dict[str, str], expected: list[str]
) -> None:
    assert nearest_devices(f"{ROOT}/s/gpu", paths) == expected


# --- some ranks only -----------------------------------------------------------------------------


def seen(members: list[Member], *ranks: int) -> list[Member]:
    return [member for member in members if member.rank in ranks]


def test_a_part_of_a_job_is_not_numbered_by_the_part() -> None:
    """Ranks 4 to 6 of eight: the first of their four has one before it in its pair."""
    hosts = [(f"node{rank}", 10 + rank) for rank in range(8)]
    upper = seen(communicator("upper", *hosts[4:]), 0, 1, 2)
    pairs = [
        member
        for rank in (4, 5, 6)
        for member in seen(communicator(f"pair{rank}", hosts[rank - 4], hosts[rank]), 1)
    ]
    (job,) = infer([*upper, *pairs])
    assert {place.origins["rank"] for place in job.places} == {Origin.INFERRED}


def test_some_ranks_of_a_communicator_of_all_keep_their_numbers() -> None:
    hosts = [(f"node{rank}", 10 + rank) for rank in range(8)]
    world = seen(communicator("world", *hosts), 2, 5, 7)
    pairs = seen(communicator("pair", hosts[1], hosts[5]), 1)
    (job,) = infer([*world, *pairs])
    assert places(job) == {rank: hosts[rank] for rank in (2, 5, 7)}
    assert job.ranks == 8
