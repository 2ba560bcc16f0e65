"""What people send to be placed: any bytes are a question, or a problem that says why not."""

import contextlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from api.base.errors import Problem
from api.base.limits import PLACEMENT_HOSTS_MAX, PLACEMENT_SETS_MAX
from api.fleet.placement.model import CannotPlace
from api.fleet.placement.place import place
from api.http.routes.placement import PlacementAsked, read_ask
from tests.worlds.placements import Stand
from tests.worlds.topologies import simulated_topology

STAND = Stand(
    simulated_topology(topology="rail", hosts=6, nics_per_host=2, hosts_per_leaf=3),
    jobs={"one": ["node0000", "node0004"]},
)
texts = st.text(max_size=12)
names = st.sampled_from([*STAND.entries, "leaf-pod0-rail0", "nobody"])
anything = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | texts | st.lists(texts)
fields = {
    "candidates": st.lists(names, min_size=1),
    "gpus_per_host": st.integers(1, 16),
    "same_leaf": st.booleans(),
    "rail_aligned": st.booleans(),
    "avoid": st.lists(names, max_size=3),
    "sets": st.integers(1, PLACEMENT_SETS_MAX),
}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_question_or_a_problem(body: bytes) -> None:
    with contextlib.suppress(Problem):
        assert 1 <= read_ask(body).size <= PLACEMENT_HOSTS_MAX


@given(st.dictionaries(st.sampled_from(PlacementAsked.__struct_fields__) | texts, anything))
def test_any_fields_are_a_question_or_a_problem(said: dict[str, object]) -> None:
    with contextlib.suppress(Problem, UnicodeEncodeError):
        ask = read_ask(msgspec.json.encode(said))
        assert 1 <= ask.sets <= PLACEMENT_SETS_MAX


@given(st.fixed_dictionaries({"size": st.integers(1, 7)}, optional=fields))
def test_every_question_has_whole_sets_or_a_named_reason(said: dict[str, object]) -> None:
    ask = read_ask(msgspec.json.encode(said))
    try:
        answer = place(STAND.known, STAND.fleet, ask)
    except CannotPlace:
        return  # which cannot be raised without a rule
    wanted = set(STAND.entries if ask.candidates is None else ask.candidates)
    assert bool(answer.sets) != bool(answer.none_because)
    for each in answer.sets:
        assert len(set(each.hosts)) == len(each.hosts) == ask.size
        assert set(each.hosts) <= wanted - set(ask.avoid)
        assert not {refused.host for refused in answer.refused} & set(each.hosts)
    scores = [each.score for each in answer.sets]
    assert scores == sorted(scores, reverse=True)
