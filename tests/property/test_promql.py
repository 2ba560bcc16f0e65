"""Whatever one asks of whatever series, we answer as a running Prometheus does.

A run asks two parts of ten thousand questions in turn (`tests.tools.cut`), `make test-all` all of
them. PROMQL_SEED asks others. By hand, with a summary:
`python -m tests.oracles.promql_oracle --count 10000 --seed 7`.
"""

import os
from pathlib import Path

import pytest

from tests.oracles import promql_oracle, promql_random
from tests.oracles.promql_oracle import QUESTIONS_PER_DATA_SET
from tests.oracles.promql_random import Level
from tests.tools.cut import CUT

DATA_SETS, PARTS_PER_DATA_SET = 40, 2
SEED = int(os.environ.get("PROMQL_SEED", "1"))

EXPLAINED_MAX = 10
"""Differences that are cut down and shown: the next ones are mostly the same mistake."""


@pytest.mark.slow
@pytest.mark.peer("prometheus")
def test_random_questions_have_the_answers_of_prometheus(tmp_path: Path) -> None:
    size = QUESTIONS_PER_DATA_SET // PARTS_PER_DATA_SET
    parts = CUT.parts(DATA_SETS * PARTS_PER_DATA_SET)
    numbers = [number for part in parts for number in range(part * size, (part + 1) * size)]
    with promql_oracle.running_pair(tmp_path) as pair:
        score = promql_oracle.ask_at_random(pair, numbers, SEED)
        shown = [
            pair.explain(question, found) for question, found in score.differences[:EXPLAINED_MAX]
        ]
    assert not shown, "\n".join([f"PROMQL_SEED={SEED}", *shown, score.table()])
    # Questions that find nothing prove little; the random ones must not become such.
    assert score.agreed - score.empty > len(numbers) / 2, score.table()


def test_a_seed_says_everything() -> None:
    first, again = (promql_random.make_world(SEED, 3) for _ in range(2))
    assert repr(first.series) == repr(again.series)
    questions = [
        [promql_random.make_question(world, SEED, number) for number in range(50)]
        for world in (first, again)
    ]
    assert questions[0] == questions[1]


def test_random_series_are_of_every_kind() -> None:
    """What makes PromQL hard is in every data set: else the questions would be easy."""
    for number in range(5):
        samples = [
            sample for each in promql_random.make_world(1, number).series for sample in each.samples
        ]
        shown = {repr(value) for value, _ in samples}
        assert {"nan", "inf", "-inf", "-0.0"} <= shown
        assert any(at % 15_000 == 0 for _, at in samples)
        assert any(at % 1000 != 0 for _, at in samples)


def test_only_well_determined_values_are_put_in_order() -> None:
    """`load` never has the same value in two series at any time: no order by value is a tie."""
    world = promql_random.make_world(SEED, 0)
    values = [
        {value % 1 for value, _ in each.samples if value == value}  # noqa: PLR0124 - no NaN
        for each in world.series
        if ("__name__", world.metric("load")) in each.labels
    ]
    assert all(len(fractions) == 1 for fractions in values)
    assert len(set.union(*values)) == len(values)
    assert Level.DYADIC < Level.EXACT < Level.LOOSE < Level.WILD
