"""Probes that are lost or slow: which end is named, and which never is."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.detectors.probe_loss import (
    PEERS_LEAST,
    SENT_LEAST,
    Pair,
    detect,
    leaves_of,
    localise,
)
from alerts.judge.verdict import judge
from alerts.window.model import Hosts, Ports, Readings, Window
from collector.contract.probes import LOST, ROUND_TRIP, SENT, far_end
from collector.contract.verdict import Cause, Culprit
from tests.worlds.machines import CELLS, GRID, machines
from tests.worlds.ring_jobs import make_ports

HOSTS = 6
RAIL = "rail0"
PER_SECOND = 0.8
"""Four flows every five seconds."""
FAST_S = 20e-6
Loss = Callable[[str, str], float]


def mesh(
    loss: Loss,
    trip: Loss = lambda *_: FAST_S,
    hosts: int = HOSTS,
    mute: str = "",
    leaf_of: Callable[[int], str] = lambda _: "leaf-0",
) -> Window:
    """A full mesh; ``mute`` has no agent: it sends nothing and answers nothing."""
    window = machines(hosts)
    window = msgspec.structs.replace(window, ports=cabled([leaf_of(one) for one in range(hosts)]))
    names = window.hosts.host
    readings = dict(window.hosts.readings)
    for target in names:
        to = far_end(target, RAIL)
        rows = [row for row, name in enumerate(names) if name not in {target, mute}]
        shares = [1.0 if target == mute else loss(names[row], target) for row in rows]
        for metric, values in (
            (SENT, [PER_SECOND] * len(rows)),
            (LOST, [PER_SECOND * share for share in shares]),
            (ROUND_TRIP, [trip(names[row], target) for row in rows]),
        ):
            name = f"{metric.removeprefix('fabric_host_')}:{to}"
            full = np.repeat(np.array(values)[:, np.newaxis], CELLS, axis=1)
            row = np.array(rows, dtype=np.int64)
            readings[name] = Readings(metric=metric, row=row, values=full, label="to")
    own = window.hosts
    changed = Hosts(grid=own.grid, host=names, readings=readings, seen_ns=own.seen_ns)
    return msgspec.structs.replace(window, hosts=changed)


def cabled(leaves: Sequence[str]) -> Ports:
    """A port of each host, and the port of a leaf that it hangs on; an empty name is not known."""
    known = [place for place, leaf in enumerate(leaves) if leaf]
    count, far = len(leaves), len(leaves) + np.arange(len(known))
    other_end = np.full(count + len(known), -1, dtype=np.int64)
    other_end[known], other_end[far] = far, known
    return make_ports(
        [*(f"node{place}" for place in range(count)), *(leaves[place] for place in known)],
        other_end=other_end,
        is_switch=np.arange(len(other_end)) >= count,
        port=["1"] * count + [str(place) for place in known],
    )


def touching(*ends: str, share: float = 0.1) -> Loss:
    return lambda source, target: share if source in ends or target in ends else 0.0


def culprits(window: Window) -> list[Culprit]:
    return [finding.culprit for finding in detect(window)]


def test_a_host_that_loses_with_all_its_peers_is_named_before_any_job() -> None:
    window = mesh(touching("node2"))
    (found,) = detect(window)
    assert (found.cause, found.culprit) == (Cause.LOSSY_LINK, Culprit(host="node2"))
    assert found.is_context
    assert "10.0% of 120 probes were lost" in found.evidence[0].text
    assert judge(window, [found]) == [], "a warning, never a verdict by itself"


def test_two_hosts_that_lose_are_both_named() -> None:
    assert culprits(mesh(touching("node1", "node4"), hosts=8)) == [
        Culprit(host="node1"),
        Culprit(host="node4"),
    ]


@pytest.mark.parametrize(
    "loss",
    [
        lambda *_: 0.1,
        lambda source, target: 0.2 * ((source < "node3") != (target < "node3")),
        lambda source, target: 0.5 * ({source, target} == {"node1", "node2"}),
        touching("node0", "node1", "node2"),
    ],
    ids=["everywhere", "between two halves", "one pair", "half of the hosts"],
)
def test_what_no_end_explains_is_the_rails_and_accuses_no_host(loss: Loss) -> None:
    (found,) = detect(mesh(loss))
    assert found.culprit == Culprit()
    assert RAIL in found.evidence[0].text


def leaf(*hosts: str, share: float = 0.1) -> Loss:
    """All that passes the uplink of these hosts' leaf is lost alike, and nothing below it."""
    return lambda source, target: share * ((source in hosts) != (target in hosts))


@pytest.mark.parametrize("size", [6, 8, 12])
def test_an_uplink_with_two_hosts_behind_it_is_no_hosts_end(size: int) -> None:
    """Both are bad with all but each other: what they share explains all of it."""
    (found,) = detect(mesh(leaf("node1", "node4"), hosts=size))
    assert found.culprit == Culprit()
    assert all("unknown: one of node1, node4 and what they share" in e.text for e in found.evidence)


def test_a_slow_uplink_with_two_hosts_behind_it_is_no_hosts_end() -> None:
    slow: Loss = lambda *ends: 2e-3 if leaf("node1", "node4")(*ends) else FAST_S  # noqa: E731
    (found,) = detect(mesh(lambda *_: 0.0, slow, hosts=8))
    assert (found.cause, found.culprit) == (Cause.SLOW_LINK, Culprit())


def pairs_of(loss: Loss, hosts: int, *, known: Loss = lambda *_: 1.0) -> list[Pair]:
    names = [f"node{place}" for place in range(hosts)]
    return [
        Pair(one, other, 120.0, 120.0 * loss(one, other), FAST_S)
        for one, other in itertools.permutations(names, 2)
        if known(one, other)
    ]


def test_two_ends_that_do_not_probe_each_other_may_share_what_is_bad() -> None:
    """Nothing tells two bad cables from the one uplink of both."""
    apart: Loss = lambda *ends: {*ends} != {"node1", "node4"}  # noqa: E731
    (bad,) = localise(RAIL, pairs_of(leaf("node1", "node4"), 8, known=apart), {})
    assert (list(bad.ends), list(bad.groups)) == ([], [("node1", "node4")])


def test_an_end_with_a_good_neighbour_is_not_accused_alone() -> None:
    """Its few neighbours below the leaf answer; its many peers beyond an uplink do not."""
    beyond: Loss = lambda *ends: 0.2 * ("node0" in ends and "node1" not in ends)  # noqa: E731
    (bad,) = localise(RAIL, pairs_of(beyond, 12), {})
    assert (list(bad.ends), list(bad.groups)) == ([], [("node0",)])


@settings(max_examples=40, deadline=None)
@given(st.integers(6, 14), st.integers(2, 4), st.floats(0.03, 1.0), st.data())
def test_no_host_behind_a_bad_uplink_is_ever_accused(
    hosts: int, behind: int, share: float, data: st.DataObject
) -> None:
    """Whichever pairs are probed: what is lost is lost between the leaf and the others."""
    names = [f"node{place}" for place in range(behind)]
    everyone = list(itertools.permutations([f"node{place}" for place in range(hosts)], 2))
    near = [pair for pair in everyone if pair[0] in names and pair[1] in names]
    chosen = set(data.draw(st.lists(st.sampled_from(everyone), min_size=len(everyone) // 2)))
    pairs = pairs_of(leaf(*names, share=share), hosts, known=lambda *e: e in chosen or e in near)
    for bad in localise(RAIL, pairs, {}):
        assert not set(bad.ends) & set(names)


def on_leaves(*sizes: int) -> Callable[[int], str]:
    """Hosts in order, so many on each leaf."""
    names = [f"leaf-{place}" for place, size in enumerate(sizes) for _ in range(size)]
    return names.__getitem__


def test_the_only_host_of_a_leaf_is_not_told_from_the_leafs_uplinks() -> None:
    """Its end, its leaf and the leaf's uplinks lose alike with everyone: none of them is named."""
    (found,) = detect(mesh(touching("node5"), leaf_of=on_leaves(5, 1)))
    assert found.culprit == Culprit()
    text = found.evidence[0].text
    assert "unknown: one of node5 and its leaf leaf-1" in text
    assert "what decides: probes from another host at leaf-1" in text


def test_a_host_whose_neighbours_of_the_leaf_are_silent_is_not_told_from_it() -> None:
    """Node4 hangs on the leaf as well, and has no agent."""
    (found,) = detect(mesh(touching("node5"), leaf_of=on_leaves(4, 2), mute="node4"))
    assert found.culprit == Culprit()
    assert "probes from another host at leaf-1 (node4: silent)" in found.evidence[0].text


def test_a_neighbour_that_is_heard_tells_a_host_from_its_leaf() -> None:
    """It is bad with its neighbour, too, who is good beyond the leaf."""
    assert culprits(mesh(touching("node5"), leaf_of=on_leaves(4, 2))) == [Culprit(host="node5")]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_leaf_that_loses_all_that_passes_it_accuses_none_of_its_hosts(size: int) -> None:
    """Also what its hosts send to each other: each looks like a bad end, and none is one."""
    behind = [f"node{11 - place}" for place in range(size)]
    found = detect(mesh(touching(*behind), hosts=12, leaf_of=on_leaves(12 - size, size)))
    assert {one.culprit for one in found} == {Culprit()}
    assert all(f"{', '.join(sorted(behind))} and " in one.evidence[0].text for one in found)


def test_neighbours_known_to_each_other_alone_are_no_witnesses_of_the_uplinks() -> None:
    """Node4 and node5 are good with each other; nothing is known of them beyond the leaf."""
    near = {"node4", "node5"}
    known: Loss = lambda *ends: not near & {*ends} or near == {*ends}  # noqa: E731
    leaves = leaves_of(cabled([on_leaves(4, 3, 3)(place) for place in range(10)]))
    (bad,) = localise(RAIL, pairs_of(touching("node6"), 10, known=known), leaves)
    assert (list(bad.ends), list(bad.groups)) == ([], [("node6",)])
    (bad,) = localise(RAIL, pairs_of(touching("node6"), 10), leaves)
    assert list(bad.ends) == ["node6"]


def test_where_no_cable_is_known_a_host_is_named_with_the_doubt_said() -> None:
    (found,) = detect(mesh(touching("node2"), leaf_of=lambda _: ""))
    assert found.culprit == Culprit(host="node2")
    assert found.strength < 0.5, "perhaps it is the only one of its leaf"
    assert "its leaf is not known" in found.evidence[0].text


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=6),
    st.floats(0.03, 1.0),
    st.booleans(),
    st.data(),
)
def test_no_host_of_a_bad_leaf_is_ever_accused(
    sizes: list[int],
    share: float,
    is_uplink: bool,  # noqa: FBT001 - drawn
    data: st.DataObject,
) -> None:
    """Whichever hosts have agents, whichever pairs are probed."""
    leaves = [on_leaves(*sizes)(place) for place in range(sum(sizes))]
    names = [f"node{place}" for place in range(len(leaves))]
    behind = {name for name, own in zip(names, leaves, strict=True) if own == "leaf-0"}
    silent = data.draw(st.sets(st.sampled_from(names), max_size=len(names) // 2))
    everyone = [pair for pair in itertools.permutations(names, 2) if not silent & {*pair}]
    chosen = {pair for pair in everyone if data.draw(st.booleans())}
    loss = (leaf if is_uplink else touching)(*behind, share=share)
    pairs = pairs_of(loss, len(names), known=lambda *ends: ends in chosen)
    for bad in localise(RAIL, pairs, leaves_of(cabled(leaves))):
        assert not bad.ends


def test_a_host_without_an_agent_is_not_accused() -> None:
    """It answers no probe; of itself nothing is known."""
    assert detect(mesh(lambda *_: 0.0, mute="node3")) == []


def test_a_host_whose_agent_was_started_anew_is_not_accused() -> None:
    """Nobody answered for it meanwhile, and its own probes have a gap there."""
    window = mesh(lambda *_: 0.0)
    away, lost = slice(10, 14), slice(9, 15)
    for name, readings in window.hosts.readings.items():
        if name == f"probe_lost_total:{far_end('node3', RAIL)}":
            readings.values[:, lost] = PER_SECOND
        if "probe" in name:
            readings.values[readings.row == 3, away] = np.nan
    assert detect(window) == []
    for name, readings in window.hosts.readings.items():
        if "probe" in name:
            readings.values[readings.row == 3, away] = PER_SECOND * (":" in name and "sent" in name)
    assert culprits(window) == [Culprit(host="node3")], "it ran, and was not heard"


def test_a_host_that_sends_and_hears_nothing_is_named() -> None:
    """Its agent runs, and all that it sends and all that is sent to it is lost."""
    assert culprits(mesh(touching("node3", share=1.0))) == [Culprit(host="node3")]


def test_healthy_or_too_little_is_silence() -> None:
    assert detect(machines()) == []
    assert detect(mesh(lambda *_: 0.0)) == []
    assert detect(mesh(lambda *_: 0.005)) == []
    assert culprits(mesh(touching("node1"), hosts=PEERS_LEAST)) == [Culprit()]
    short = mesh(touching("node1"))
    for name, readings in short.hosts.readings.items():
        if "probe" in name:
            readings.values[:, int(SENT_LEAST / PER_SECOND / 5) - 1 :] = np.nan
    assert detect(short) == []


def test_a_host_that_answers_late_on_every_way_is_slow() -> None:
    slow: Loss = lambda source, target: 2e-3 if "node5" in {source, target} else FAST_S  # noqa: E731
    (found,) = detect(mesh(lambda *_: 0.0, slow))
    assert (found.cause, found.culprit) == (Cause.SLOW_LINK, Culprit(host="node5"))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(4, 9),
    st.dictionaries(st.tuples(st.integers(0, 8), st.integers(0, 8)), st.floats(0, 1), max_size=30),
)
def test_only_ends_that_most_peers_lose_with_are_ever_named(
    hosts: int, shares: Mapping[tuple[int, int], float]
) -> None:
    pairs = [
        Pair(str(one), str(other), 100.0, 100.0 * shares.get((one, other), 0.0), FAST_S)
        for one, other in itertools.permutations(range(hosts), 2)
    ]
    for bad in localise(RAIL, pairs, {}):
        assert len(bad.ends) <= hosts / 3
        for end, own in bad.ends.items():
            peers = {each.source if each.target == end else each.target for each in own}
            assert len(peers) >= 0.8 * (hosts - 1)
            assert all(end in {each.source, each.target} for each in own)


def test_the_grid_is_long_enough_for_these_tests() -> None:
    assert PER_SECOND * GRID.step_ns / 1e9 * CELLS >= 2 * SENT_LEAST
