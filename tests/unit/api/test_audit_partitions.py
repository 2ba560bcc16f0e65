"""Who is named where partitions keep a job's ports apart: only ports that cannot talk, and few."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.fleet.audit.partitions import partitions
from api.fleet.audit.paths import RankPlace
from collector.audit.facts import Fact
from collector.audit.finding import Finding, Severity
from collector.audit.partitions import can_talk, parse_table, to_text

NICS = ("mlx5_0", "mlx5_1")
JOB = "41"


def host_facts(
    tables: Mapping[str, str], layer: str = "InfiniBand", **variables: str
) -> Sequence[Fact]:
    facts = []
    for nic, table in tables.items():
        facts += [
            Fact(nic, "kind", "rdma"),
            Fact(nic, "model", "MT4129"),
            Fact(nic, "link_layer", layer),
            Fact(nic, "port_state", "active"),
            Fact(nic, "partitions", table, f"sys/class/infiniband/{nic}/ports/1/pkeys"),
        ]
    if variables:
        facts.append(Fact(f"job {JOB}", "kind", "job"))
        facts += [Fact(f"job {JOB}", name, value) for name, value in variables.items()]
    return facts


def fleet(usual: str, count: int = 8, **other: str) -> dict[str, Sequence[Fact]]:
    """Hosts with one table on both NICs; some have another one."""
    tables = {f"n{number}": usual for number in range(count)} | other
    return {host: host_facts(dict.fromkeys(NICS, table)) for host, table in tables.items()}


def ranks(hosts: Sequence[str], job: str = JOB, device: str = "") -> list[RankPlace]:
    return [RankPlace(job, number, host, device) for number, host in enumerate(hosts)]


def judge(facts: Mapping[str, Sequence[Fact]]) -> list[Finding]:
    return list(partitions(ranks(sorted(facts)), facts, {}))


TENANT = "0:0x7fff 1:0x8001"
"""As UFM sets it: everyone is a limited member of the fabric's own, and full in the tenant's."""


@pytest.mark.parametrize("other", ["0:0x7fff", "0:0x7fff 1:0x8002", "none"])
def test_a_host_outside_its_jobs_partition_is_named(other: str) -> None:
    (finding,) = judge(fleet(TENANT, n3=other))
    assert (finding.host, finding.check, finding.device) == ("n3", "partitions", "")
    assert finding.severity is Severity.WARNING
    assert "mlx5_0, mlx5_1 of n3: no member of 0x0001; 7 of 8 hosts" in finding.title
    assert [each.value for each in finding.read] == [other, other]
    assert "0x8001" in finding.expected


@pytest.mark.parametrize(
    "facts",
    [
        fleet(TENANT),
        fleet("0:0xffff"),
        fleet("0:0xffff", n3="0:0x7fff"),  # one limited member talks to all full ones
        fleet(TENANT, n3="0:0x7fff 1:0x0001"),
        fleet(TENANT, n3="0:0xffff"),  # it talks to all limited members of the fabric's own
        fleet(TENANT, n3="5:0x8001"),  # at which index, is not judged
        {},
        {"n0": host_facts({"mlx5_0": "none"})},  # a job on one host
        {f"n{number}": host_facts({"mlx5_0": "none"}, layer="Ethernet") for number in range(8)},
    ],
)
def test_ports_that_can_talk_are_not_named(facts: dict[str, Sequence[Fact]]) -> None:
    assert judge(facts) == []


def test_rails_of_several_fabrics_have_partitions_of_their_own() -> None:
    tables = {"mlx5_0": "0:0x8001", "mlx5_1": "0:0x8002"}
    assert judge({f"n{number}": host_facts(tables) for number in range(8)}) == []


def test_two_limited_members_are_named_because_of_each_other() -> None:
    limited = "0:0x7fff 1:0x0001"
    facts = fleet(TENANT, 12, n3=limited, n5=limited)
    found = judge(facts)
    assert [each.host for each in found] == ["n3", "n5"]
    assert "a limited member of 0x0001; 10 of 12 hosts are full members of it" in found[0].title


@pytest.mark.parametrize("count", [2, 8])
def test_a_job_of_limited_members_alone_accuses_no_host(count: int) -> None:
    (finding,) = judge(fleet("0:0x7fff", count))
    assert (finding.host, finding.severity) == ("", Severity.WARNING)
    assert "limited members of 0x7fff" in finding.title


@pytest.mark.parametrize("other", [("n1",), ("n1", "n2", "n3")])
def test_without_a_majority_no_host_is_accused(other: Sequence[str]) -> None:
    facts = fleet("0:0x8001", 2 * len(other), **dict.fromkeys(other, "0:0x8002"))
    (finding,) = judge(facts)
    assert (finding.host, finding.severity) == ("", Severity.INFO)
    assert "no partition in common" in finding.title


@pytest.mark.parametrize(("chosen", "named"), [("1", []), ("0", ["n3"]), ("x", []), ("7", ["n3"])])
def test_the_entry_that_the_job_chooses_counts_alone(chosen: str, named: list[str]) -> None:
    facts = fleet("0:0xffff 1:0x8001")
    table = dict.fromkeys(NICS, "0:0x8002 1:0x8001")
    facts["n3"] = host_facts(table, NCCL_IB_PKEY=chosen)
    found = judge(facts)
    assert [each.host for each in found] == named
    assert all("NCCL_IB_PKEY" in {each.setting for each in one.read} for one in found)


def test_an_entry_that_is_empty_everywhere_is_a_finding_about_the_job() -> None:
    tables = dict.fromkeys(NICS, "0:0xffff")
    (finding,) = judge({f"n{n}": host_facts(tables, NCCL_IB_PKEY="3") for n in range(8)})
    assert finding.host == ""
    assert "no port has a key that the job could use" in finding.title


def test_ports_that_ranks_name_are_judged_and_no_others() -> None:
    facts = fleet(TENANT)
    facts["n3"] = host_facts({"mlx5_0": TENANT, "mlx5_1": "none"})
    hosts = sorted(facts)
    assert list(partitions(ranks(hosts, device="mlx5_0"), facts, {})) == []
    (finding,) = partitions(ranks(hosts, device="mlx5_1"), facts, {})
    assert (finding.host, finding.device) == ("n3", "mlx5_1")


def test_hosts_without_an_agent_are_judged_by_what_the_fabric_was_asked() -> None:
    facts = fleet(TENANT, 7)
    asked = {("n7", "mlx5_0"): "0:0x7fff", ("n7", "mlx5_9"): "none", ("n0", "mlx5_0"): "none"}
    places = ranks([*sorted(facts), "n7"], device="mlx5_0")
    (finding,) = partitions(places, facts, asked)
    assert (finding.host, finding.device) == ("n7", "mlx5_0")
    # Without a rank that names it, no port is known to be the job's.
    assert list(partitions(ranks([*sorted(facts), "n7"]), facts, asked)) == []


KEYS = st.integers(0, 0xFFFF)
TABLES = st.dictionaries(st.integers(0, 127), KEYS, max_size=20)


@given(TABLES)
def test_a_table_survives_its_text(table: dict[int, int]) -> None:
    kept = parse_table(to_text(table))
    assert kept == {index: key for index, key in table.items() if key & 0x7FFF}
    assert parse_table(to_text(kept)) == kept


@given(st.text(max_size=60))
def test_any_text_is_a_table(text: str) -> None:
    assert all(key & 0x7FFF > 0 for key in parse_table(text).values())


@given(st.sets(KEYS), st.sets(KEYS))
def test_both_ends_agree_whether_they_can_talk(one: set[int], other: set[int]) -> None:
    assert can_talk(one, other) == can_talk(other, one)


@given(st.lists(st.frozensets(st.sampled_from([0x7FFF, 0xFFFF, 1, 0x8001, 0x8002])), max_size=9))
def test_hosts_that_all_can_talk_to_each_other_have_no_finding(rail: list[frozenset[int]]) -> None:
    tables = {f"n{at}": to_text(dict(enumerate(sorted(keys)))) for at, keys in enumerate(rail)}
    found = judge({host: host_facts({"mlx5_0": table}) for host, table in tables.items()})
    apart = any(
        not can_talk(one, other)
        for at, one in enumerate(rail)
        for number, other in enumerate(rail)
        if at != number
    )
    assert apart or not found
    accused = {finding.host for finding in found if finding.host}
    # Nobody is named who can talk to everyone else.
    for at, one in enumerate(rail):
        others = [other for number, other in enumerate(rail) if number != at]
        if all(can_talk(one, other) for other in others):
            assert f"n{at}" not in accused
