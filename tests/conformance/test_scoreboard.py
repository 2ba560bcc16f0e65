"""The floors of the scoreboard, on a fixed set of cases and seeds; `make score` runs them all.

One fault of each cause, and what only looks like one, each on a cluster that its seed draws. Nobody
tunes on these seeds.
"""

import pytest

from api.score.marks import Marks, mark
from api.score.run import run_all

TOP_1_MIN = 0.97
PRECISION_MIN = 0.95
DELAY_P90_MAX_S = 15.0
CASES = [
    ("slow_nic", 1001),
    ("bad_cable", 1001),
    ("link_flap", 1001),
    ("slow_receiver", 1001),
    ("storage_neighbour", 1001),
    ("incast", 1001),
    ("host_steal", 1001),
    ("hang_not_launched", 1001),
    ("checkpoints", 1001),
    ("clock_skew", 1001),
]
PROCESSES = 2

pytestmark = pytest.mark.slow(600)


@pytest.fixture(scope="module")
def marks() -> Marks:
    return mark(list(run_all(CASES, PROCESSES)))


def test_every_run_came_to_its_end(marks: Marks) -> None:
    assert marks.broken == []
    assert marks.runs == len(CASES)


def test_the_first_thing_said_of_a_fault_is_right(marks: Marks) -> None:
    assert marks.overall.top_1 is not None
    assert marks.overall.top_1 >= TOP_1_MIN, marks.confusion


def test_hardly_anything_said_is_wrong(marks: Marks) -> None:
    assert marks.overall.precision is not None
    assert marks.overall.precision >= PRECISION_MIN, marks.confusion


def test_faults_are_named_within_seconds(marks: Marks) -> None:
    assert marks.overall.delay_p90_s is not None
    assert marks.overall.delay_p90_s <= DELAY_P90_MAX_S, marks.by_fault


def test_nothing_is_said_of_what_is_no_fault(marks: Marks) -> None:
    assert marks.benign_seconds > 0
    assert marks.false_incidents == 0, marks.confusion
