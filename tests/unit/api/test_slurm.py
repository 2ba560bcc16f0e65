"""Slurm's hostlists, nodes and topology: pure parts of `fabricscope slurm`."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.remote.answers import Action
from api.remote.slurm.hostlist import compress, expand
from api.remote.slurm.jobs import job_id, job_said
from api.remote.slurm.reconcile import Node, drain_of, parse_sinfo, plan
from api.remote.slurm.topology import Cables, LinkSeen, NodeSeen, block_lines, groups_of, tree_lines
from collector.contract.errors import ParseError

# --- hostlists ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("login", ["login"]),
        ("n[1,3-4]", ["n1", "n3", "n4"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("rack[1-2]-n[01-02]-ib", ["rack1-n01-ib", "rack1-n02-ib", "rack2-n01-ib", "rack2-n02-ib"]),
        ("a,b[1],c.d.e", ["a", "b1", "c.d.e"]),
    ],
)
def test_a_list_is_expanded_in_its_order(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n]1[", "n[3-1]", "n[a]", "n[]", "a,,b", "n[1-999999999]", "n[0-999][0-999]",
     "n;rm", "n[1-2", "$(x)", "n[1--2]", "a b", "x" * (1 << 21)],
)  # fmt: skip
def test_what_is_no_list_is_named(text: str) -> None:
    with pytest.raises(ParseError):
        expand(text)


@given(st.text(max_size=60))
def test_any_text_is_a_list_or_an_error(text: str) -> None:
    try:
        hosts = expand(text)
    except ParseError:
        return
    assert all(host and host.isprintable() for host in hosts)


@given(
    st.lists(
        st.from_regex(r"(node|gpu-|r1n)[0-9]{1,4}", fullmatch=True) | st.sampled_from(["a", "b.c"]),
        max_size=40,
    )
)
def test_compressed_hosts_expand_to_the_same(hosts: list[str]) -> None:
    assert sorted(expand(compress(hosts))) == sorted(set(hosts))


def test_many_hosts_are_few_words() -> None:
    assert compress(f"node{number:04}" for number in range(4_096)) == "node[0000-4095]"


# --- nodes --------------------------------------------------------------------------------------


def wanted(host: str, number: str = "a1", reason: str = "slow_link (nic)") -> Action:
    return Action(id=number, kind="drain", host=host, state="standing", reason=reason)


def commands(
    nodes: bytes, *standing: Action, ended: dict[str, bool] | None = None
) -> list[list[str]]:
    found = plan(standing, parse_sinfo(nodes), ended or {})
    return [list(change.command[2:]) for change in found.changes]


def test_no_more_than_the_share_is_drained() -> None:
    listed = b"n1|idle+drain|fabricscope:a1 x|\nn2|idle|none|\nn3|idle|none|\nn4|idle|none|\n"
    standing = [wanted(f"n{number}", f"a{number}") for number in range(1, 5)]
    found = plan(standing, parse_sinfo(listed), {}, share_max=0.5)
    assert [change.node for change in found.changes] == ["n2"]
    why = "not drained: 2 of 4 nodes are already, and --share-max is 0.5"
    assert found.refused == [f"n3: {why}", f"n4: {why}"]
    outcomes = {each.action: each.outcome for each in found.reports}
    assert outcomes == {"a1": "done", "a3": "failed", "a4": "failed"}


def test_what_sinfo_lists_is_read() -> None:
    text = b"n1|idle+drain|fabricscope:a1 slow | link|\nn1|idle+drain|x|\nn2|mixed|none|\n\n"
    text += b"n3|down||\n"
    nodes = parse_sinfo(text)
    assert nodes["n1"] == Node("n1", "idle+drain", "x"), "the last partition's line"
    assert (nodes["n2"].state, nodes["n2"].reason, nodes["n2"].is_drained) == ("mixed", "", False)
    assert nodes["n3"].is_away
    assert parse_sinfo(text.split(b"\n")[0])["n1"].reason == "fabricscope:a1 slow | link"


@pytest.mark.parametrize(
    "text", [b"sinfo: error: x", b"n1|idle", b"n 1|idle|none", b"\xff|idle|none", b"-n|idle|none"]
)
def test_what_is_no_list_of_nodes_is_named(text: bytes) -> None:
    with pytest.raises(ParseError, match=r"is no line of sinfo"):
        parse_sinfo(text)


def test_a_held_node_is_drained_once() -> None:
    drain = [["NodeName=n1", "State=DRAIN", "Reason=fabricscope:a1 slow_link (nic)"]]
    assert commands(b"n1|idle|none|", wanted("n1")) == drain
    assert commands(b"n1|allocated|none|", wanted("n1")) == drain
    assert commands(b"n1|allocated+drain|fabricscope:a1 x|", wanted("n1")) == []
    assert commands(b"n1|down|fabricscope:a1 x|", wanted("n1")) == []
    again = commands(b"n1|idle+drain|fabricscope:a0 x|", wanted("n1"))
    assert again == drain, "another action now"
    assert commands(b"n1|idle+drain|bad fan|", wanted("n1")) == []
    assert commands(b"n2|idle|none|", wanted("n1")) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # As sinfo of Slurm 22.05 lists them: tests/conformance/test_slurm_daemons.py.
        (b"n1|idle+drain|bad fan|", "drained by another already: bad fan"),
        (b"n1|down|bad fan|", "taken away by another already: bad fan"),
        (b"n1|idle+reboot_requested|kernel|", "taken away by another already: kernel"),
        (b"n1|down+drain+reboot_issued|Reboot ASAP|", "drained by another already: Reboot ASAP"),
        (b"n1|idle+drain+invalid_reg|Low memory|", "drained by another already: Low memory"),
    ],
)
def test_what_another_has_taken_away_keeps_its_reason(line: bytes, words: str) -> None:
    found = plan([wanted("n1")], parse_sinfo(line), {})
    assert found.changes == []
    assert [each.words for each in found.reports] == [f"n1: {words}"]


@pytest.mark.parametrize("reason", [b"", b"Not responding", b"Node unexpectedly rebooted"])
def test_a_node_that_slurm_would_put_back_to_work_is_drained(reason: bytes) -> None:
    line = b"n1|down+not_responding|" + reason + b"|"
    assert [words[1] for words in commands(line, wanted("n1"))] == ["State=DRAIN"]


def test_a_node_that_is_rebooted_is_neither_drained_again_nor_given_back() -> None:
    line = b"n1|down+drain+reboot_issued|fabricscope:a1 x : reboot issued|"
    assert commands(line, wanted("n1")) == []
    assert commands(line, ended={"a1": True}) == []
    assert commands(line.replace(b"+reboot_issued", b""), ended={"a1": True}) != []


def test_a_node_is_given_back_only_if_its_very_action_is_over() -> None:
    ours = b"n1|idle+drain|fabricscope:a1 x|"
    assert commands(ours, ended={"a1": True}) == [["NodeName=n1", "State=UNDRAIN"]]
    assert commands(ours, ended={"a1": False}) == []
    assert commands(ours, ended={"a2": True}) == []
    assert commands(ours) == []
    assert commands(b"n1|idle+drain|fabricscope: by hand|", ended={"a1": True}) == []
    assert commands(b"n1|idle+drain|bad fan|", ended={"": True, "a1": True}) == []
    assert commands(b"n1|down|fabricscope:a1 x|", ended={"a1": True}) == []
    assert commands(ours, wanted("n1"), ended={"a1": True}) == []


@pytest.mark.parametrize("host", ["-x", "n1,n2", "n1 State=DOWN", "n[1-9]", "ALL;", ""])
def test_a_name_that_means_more_than_one_node_is_refused(host: str) -> None:
    with pytest.raises(ParseError, match="is no name of a node"):
        drain_of(wanted(host))


def test_a_reason_is_one_bounded_line_without_quotes() -> None:
    change = drain_of(wanted("n1", reason="a\n\"b\" 'c' | d\\e\x1b[2J" + "x" * 900))
    assert change.reason.startswith("fabricscope:a1 a b c d e [2Jxxx")
    assert len(change.reason) == 200
    assert change.reason.isprintable()


# --- jobs ---------------------------------------------------------------------------------------


def test_a_job_is_what_its_environment_says() -> None:
    now = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
    said = job_said(
        {
            "SLURM_JOB_ID": "12",
            "SLURM_ARRAY_JOB_ID": "10",
            "SLURM_ARRAY_TASK_ID": "3",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_JOB_NAME": "x" * 500,
            "SLURM_JOB_ACCOUNT": "(null)",
            "SLURM_JOB_RESTART_COUNT": "2",
        },
        now,
    )
    assert (said["id"], said["hosts"], len(said["name"])) == ("10_3", ["n1", "n2"], 200)
    assert said["attributes"] == {"restarts": "2"}, "Slurm writes (null) where it has no account"
    for environment in ({}, {"SLURM_JOB_ID": "../x"}, {"SLURM_JOB_ID": ""}):
        with pytest.raises(ParseError, match="SLURM_JOB_ID"):
            job_id(environment)


# --- the topology -------------------------------------------------------------------------------


def cables(
    switches: dict[str, int | None], links: list[tuple[str, str]], hosts: list[str]
) -> Cables:
    nodes = [NodeSeen(name=name, kind="switch", tier=tier) for name, tier in switches.items()]
    nodes += [NodeSeen(name=name, kind="host") for name in hosts]
    return Cables(nodes, [LinkSeen(a=f"{a}/x/1", b=f"{b}/y/2") for a, b in links])


def test_rails_of_one_pod_are_one_switch() -> None:
    hosts = [f"n{number}" for number in range(8)]
    switches: dict[str, int | None] = {f"l{pod}{rail}": 0 for pod in "ab" for rail in range(4)}
    links = [
        (host, f"l{'ab'[number // 4]}{rail}")
        for number, host in enumerate(hosts)
        for rail in range(4)
    ]
    spines: dict[str, int | None] = {f"s{rail}": 1 for rail in range(4)}
    links += [(leaf, f"s{leaf[-1]}") for leaf in switches]
    groups, left = groups_of(cables({**switches, **spines}, links, [*hosts, "lost"]))
    assert list(tree_lines(groups, left))[1:] == [
        "SwitchName=leaf0 Nodes=n[0-3]",
        "SwitchName=leaf1 Nodes=n[4-7]",
        "SwitchName=tier1-0 Switches=leaf0,leaf1",
        "# Not cabled to any leaf, as far as is known: lost",
    ]
    assert list(block_lines(groups, []))[1:] == [
        "BlockName=leaf0 Nodes=n[0-3]",
        "BlockName=leaf1 Nodes=n[4-7]",
        "BlockSizes=4",
    ]


def test_three_tiers_are_three_levels_and_islands_one_fabric() -> None:
    hosts = [f"n{number}" for number in range(6)]
    switches: dict[str, int | None] = {f"l{number}": 0 for number in range(6)}
    links = [(f"n{number}", f"l{number}") for number in range(6)]
    switches |= {"s0": 1, "s1": 1, "s2": 1, "c0": 2}
    links += [(f"l{number}", f"s{number // 2}") for number in range(6)]
    links += [("s0", "c0"), ("s1", "c0")]
    groups, left = groups_of(cables(switches, links, hosts))
    assert left == []
    assert list(tree_lines(groups, left))[-5:] == [
        "SwitchName=tier2-0 Switches=tier1-0,tier1-1",
        "SwitchName=leaf4 Nodes=n4",
        "SwitchName=leaf5 Nodes=n5",
        "SwitchName=tier1-2 Switches=leaf4,leaf5",
        "SwitchName=fabric Switches=tier2-0,tier1-2",
    ]


def test_without_cables_there_is_no_topology() -> None:
    assert groups_of(cables({"l0": 0}, [], ["n1"])) == ([], ["n1"])
    assert groups_of(cables({"l0": None}, [("n1", "l0")], ["n1"])) == ([], ["n1"])


def test_a_host_that_could_be_another_line_is_refused() -> None:
    groups, left = groups_of(cables({"l0": 0}, [("n1 Nodes=ALL", "l0")], ["n1 Nodes=ALL"]))
    with pytest.raises(ParseError, match="is no name of a node"):
        list(tree_lines(groups, left))
