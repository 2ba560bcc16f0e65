"""Where samples are past retention, roll-ups answer, and say where they are coarser than asked."""

from collections.abc import Iterator

import msgspec
import pytest

from api.data.store.rollups import MS_PER_HOUR
from api.promql.engine import Answer
from api.promql.values import Grid
from tests.stands.rollups import BEGIN_MS, DAY_MS, Stand, counter, grid_of, rows_of, samples_alone
from tests.stands.samples import write_series

DAYS = 12
KEPT_DAYS = {"samples": 3, "rollup_5m": 7}


QUESTIONS = {
    # Windows of whole hours are exact.
    "increase(x_total[1d])": (DAY_MS, True),
    "max_over_time(x_total[1h])": (6 * MS_PER_HOUR, True),
    "rate(x_total[5m])": (6 * MS_PER_HOUR, False),
    "sum_over_time(x_total[90m])": (6 * MS_PER_HOUR, False),
    "x_total": (6 * MS_PER_HOUR, False),
}


class Past(msgspec.Struct, frozen=True):
    """A store whose samples are gone, and what it answered when they were there."""

    stand: Stand
    answers: dict[str, Answer]


def asked_grid(step_ms: int) -> Grid:
    return grid_of(step_ms, BEGIN_MS + DAY_MS, BEGIN_MS + DAYS * DAY_MS)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    stand = Stand(tmp_path_factory.mktemp("past"))
    end_ms = BEGIN_MS + DAYS * DAY_MS
    stand.now_s = end_ms / 1000 + 900
    write_series(stand.store, [counter("x_total", BEGIN_MS, end_ms, 150_000)])
    stand.settle()
    with samples_alone():
        answers = {text: stand.ask(text, asked_grid(step)) for text, (step, _) in QUESTIONS.items()}
    with stand.store.holding_writes("expire") as client:
        for table, days in KEPT_DAYS.items():
            parts = stand.store.query(
                "SELECT partition_id AS id FROM system.parts WHERE active "
                "AND database = currentDatabase() AND table = {table:String} "
                "GROUP BY id HAVING max(max_time) < toDateTime({before:Int64})",
                {"table": table, "before": end_ms // 1000 - days * 86_400},
            )["id"].to_pylist()
            assert parts
            for part in parts:
                client.command(f"ALTER TABLE {table} DROP PARTITION ID '{part}'")
    yield Past(stand, answers)
    stand.store.close()


@pytest.mark.parametrize("text", QUESTIONS)
def test_old_times_are_answered_when_samples_are_gone(past: Past, text: str) -> None:
    step_ms, is_exact = QUESTIONS[text]
    ours = past.stand.ask(text, asked_grid(step_ms))
    [(present, values)] = rows_of(ours).values()
    [(there, expected)] = rows_of(past.answers[text]).values()
    assert present == there
    assert all(present)
    if is_exact:
        assert values == expected
        assert not ours.notes.warnings
    else:
        assert values == pytest.approx(expected, rel=0.1), "coarser, and near it"
        [warning] = ours.notes.warnings
        assert "past retention: one-hour roll-ups answer in their place" in warning
    assert not past.answers[text].notes.warnings


def test_what_needs_samples_says_that_they_are_gone(past: Past) -> None:
    answer = past.stand.ask("stddev_over_time(x_total[1h])", asked_grid(DAY_MS))
    [(present, _)] = rows_of(answer).values()
    assert present[-1]
    assert not present[0]
    assert any("stddev_over_time needs samples" in one for one in answer.notes.warnings)
