"""What a query need not evaluate, because its other side decides alone, changes no answer.

Random questions about random series (`tests.oracles.promql_random`), each asked twice: with all
parts evaluated, as Prometheus does, and with those left out that cannot matter. Values to the bit,
labels, their order, refusals and notes must be the same.
"""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from api.data.store.store import Store, StoreUrl
from api.promql import evaluate
from api.promql.engine import Answer, Engine, Question
from api.promql.errors import QueryError
from api.promql.values import Dialect, Grid, Scalar, Vector
from tests.oracles import promql_random
from tests.oracles.promql_random import Author, Level, World
from tests.stands.samples import write_series

SEED = int(os.environ.get("PROMQL_SEED", "1"))
WORLDS = 2
QUESTIONS = int(os.environ.get("PROMQL_QUESTIONS", "150"))


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Dialect, Engine]]:
    folder: Path = tmp_path_factory.mktemp("left_out")
    kept = dict.fromkeys(("samples", "series"), 3_650)  # the random series lie at a fixed time
    store = Store(StoreUrl.parse(f"chdb://{folder / 'data'}"), retention_days=kept)
    with ExitStack() as stack:
        stack.callback(store.close)
        store.migrate()
        for number in range(WORLDS):
            write_series(store, promql_random.make_world(SEED, number).series)
        found = {dialect: Engine(store, dialect, catalog=None) for dialect in Dialect}
        for engine in found.values():
            stack.callback(engine.close)
        yield found


def joined(world: World, number: int) -> promql_random.Question:
    """A question with a match at its top, where most can be left out."""
    rng = random.Random(f"{SEED} joined {number}")
    author = Author(world, rng)
    write = rng.choice((author.set_operation, author.set_operation, author.comparison))
    text = write(3)
    if rng.random() < 0.5:
        text = f"({author.vector(2, Level.EXACT)} > {rng.choice((3, 40, 1000))}) and {text}"
    start = promql_random.START_MS + promql_random.random_moment(rng)
    steps = rng.choice((0, 0, 3, 20))
    return promql_random.Question(text, start, start + steps * 30_000, 30_000 if steps else 0)


def questions(number: int) -> Iterator[promql_random.Question]:
    world = promql_random.make_world(SEED, number)
    for one in range(QUESTIONS // 2):
        yield joined(world, one)
        yield promql_random.make_question(world, SEED, one)


def shown(answer: Answer) -> object:
    """All that a client could see of an answer; NaNs by their bits."""
    value, notes = answer.value, (answer.notes.warnings, answer.notes.infos)
    if isinstance(value, Vector):
        rows = [sorted(labels.items()) for labels in value.labels]
        cells = value.values.copy()
        cells[~value.present] = 0
        return rows, cells.tobytes(), value.present.tobytes(), notes
    return repr(value.values.tobytes() if isinstance(value, Scalar) else value), notes


def ask(engine: Engine, asked: promql_random.Question) -> tuple[object, int]:
    """What is answered or refused, and how many samples were read for it."""
    step_ms = asked.step_ms or 1
    steps = (asked.end_ms - asked.start_ms) // step_ms + 1 if asked.step_ms else 1
    text = asked.text.replace("holt_winters", "double_exponential_smoothing")
    grid = Grid(asked.start_ms, step_ms, steps, asked.end_ms)
    try:
        question = Question(text=text, grid=grid, is_range=asked.step_ms > 0)
        answer = engine.start(question).answer()
    except QueryError as error:
        return str(error), 0
    return shown(answer), answer.samples


@contextmanager
def all_evaluated() -> Iterator[None]:
    with patch.object(evaluate, "is_decided_by_empty_left", lambda _: False):
        yield


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("number", range(WORLDS))
def test_what_is_left_out_changes_no_answer(
    engines: dict[Dialect, Engine], dialect: Dialect, number: int
) -> None:
    fewer = 0
    for asked in questions(number):
        with all_evaluated():
            whole, read = ask(engines[dialect], asked)
        part, touched = ask(engines[dialect], asked)
        assert part == whole, asked
        assert touched <= read, asked
        fewer += touched < read
    assert fewer > QUESTIONS / 75, "too few of the questions leave anything out"
