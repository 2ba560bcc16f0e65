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
from typing import Any
from unittest.mock import patch

import pytest

from api.data.store.known import Known
from api.data.store.store import Store, StoreUrl
from api.promql import engine, evaluate, fetch, find
from api.promql.engine import Answer, Engine, Question, Running
from api.promql.errors import QueryError
from api.promql.values import Dialect, Grid, Scalar, Vector, drop_absent
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


class RuleAuthor:
    """Writes what rules look like: few series on the left, and on the right what cannot fail."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng

    def rule(self) -> str:
        """Some of the series, and an operator between them and others."""
        pick = self._rng.choice
        few = pick(
            ('{host="h1"}', '{port="p0",host=~"h[12]"}', '{host="nobody"}', '{reason="crc"}')
        )
        left = f"{self._world.metric(pick(('load', 'temp', 'drops_total')))}{few}"
        if pick((True, False, False)):
            return self.grown()
        left = pick(
            (left, f"{left} > 2", f"sum by (host, port) ({left})", f"max by (host) ({left})")
        )
        operator = pick(("and", "unless", "and", "unless", "*", ">", "- on (host) group_left ()"))
        lists = ("host", "port", "host, port", "host, port, reason", "host, reason")
        on = "" if "on" in operator else pick(("", "ignoring (port)", f"on ({pick(lists)})"))
        return f"({left}) {operator} {on} ({self.quiet(3)})"

    def worst(self) -> str:
        """What boards look like: those of many that were worst, at one moment or over the range."""
        pick = self._rng.choice
        name = self._world.metric(pick(("load", "temp", "sent_total")))
        most = pick(
            (
                f"max_over_time({name}[5m] @ end())",
                f"max by (host, port) (avg_over_time({name}[5m] @ end()))",
                f"sum by (host) (increase({name}[5m]))",
                f"max_over_time((sum by (host) ({name}))[5m:1m] @ start())",
                f"{name} @ end()",
            )
        )
        chosen = pick((f"topk(2, {most})", f"bottomk(1, {most} > 2)", f"topk(3, {most}) > 5"))
        on = pick(("", "on (host)", "on (host, port)", "ignoring (port)"))
        shown = f"{pick(('', '8 * ', 'clamp_max'))}({self.quiet(2)})".replace(
            "clamp_max(", "clamp_max(0.5 * "
        )
        shown = f"{shown[:-1]}, 40)" if "clamp_max" in shown else shown
        nought = pick(("", f" or on () 0 * max({most})"))
        return f"({shown} and {on} {chosen}){nought}"

    def named(self) -> str:
        """What the page asks about a job: everyone's, of those whom the right side names."""
        pick = self._rng.choice
        where = pick(('{host="h1"}', '{port="p0"}', '{host="nobody"}', '{host="h2",port!="p1"}'))
        some, other = (
            f"max by (host) ({self._world.metric(pick(('load', 'temp', 'drops_total')))}{where})"
            for _ in range(2)
        )
        chosen = pick(
            (
                some,
                f"({some} or {other})",
                f'label_join({some}, "port", "", "host")',
                f"(host_info_w0 and on (host) {some})",
            )
        )
        shown, more = self.quiet(2), self.quiet(1)
        labelled = [
            f'label_replace(sum by (host, port) ({one}), "what", "{name}", "", "")'
            for name, one in (("a", shown), ("b", more))
        ]
        shown = pick((shown, f"sum by (host) ({' or '.join(labelled)})", f"({shown} or {more})"))
        on = pick(("on (host)", "on (host)", "on (host, port)", "ignoring (port)"))
        return pick(
            (
                f"({shown}) and {on} {chosen}",
                f"quantile(0.5, ({shown}) and {on} {chosen}) or max(({shown}) and {on} {chosen})",
            )
        )

    def grown(self) -> str:
        """What passes a threshold of growth; some counters of the world hardly ever move."""
        pick = self._rng.choice
        name = self._world.metric(pick(("drops_total", "sent_total", "lat_bucket")))
        where = pick(("", '{host="h1"}', '{port!="p0"}'))
        read = f"{name}{where}[{pick(('15s', '1m', '5m'))}]{pick(('', ' offset 2m'))}"
        grown = f"{pick(('increase', 'rate', 'changes', 'resets', 'irate'))}({read})"
        grown = pick((grown, f"({grown} and {name} offset 5m)", f"{grown} * 60"))
        by = pick(("", " by (host)", " by (host, port)", " without (le)"))
        summed = pick(
            (grown, f"sum{by} ({grown})", f"max{by} ({grown})", f"sum(sum{by} ({grown}))")
        )
        return f"{summed} {pick(('> 0', '> 3 - 0.5', '>= 1', '> -1', '>= 0', '< 3'))}"

    def quiet(self, depth: int) -> str:
        pick = self._rng.choice
        name = self._world.metric(pick(("load", "temp", "sent_total", "drops_total", "host_info")))
        if depth == 0:
            name += pick(("", "", '{host="h2"}', '{port="p1"}', '{reason=""}'))
            return pick((name, f"max_over_time({name}[5m])", f"{name} > 1", f"{name} offset 1m"))
        inner, other = self.quiet(depth - 1), self.quiet(depth - 1)
        labels = pick(("host", "host, port", "port", ""))
        grouped = f"sum by ({labels}) ({inner})", f"max by ({labels}) ({other})"
        on = pick(("", "on (host)", "on (port)", "on (host, port)", "ignoring (port)"))
        many, one = f"sum by (host, port) ({inner})", f"max by (host) ({other})"
        return pick(
            (
                f"({inner}) {pick(('and', 'or', 'unless'))} {on} ({other})",
                f"{grouped[0]} / on ({labels}) {grouped[1]}",
                f"{many} * on (host) group_left ({pick(('rack', ''))}) {one}",
                f"sum by (host) ({inner}) * on (host) group_left (port) {one}",
                f"max by (port) ({inner}) - on (port) group_right () sum by (host, port) ({other})",
                grouped[0],
                f"sum without ({labels}) ({inner})",
                f"max_over_time(({grouped[0]})[5m:1m])",
            )
        )


def ruled(world: World, number: int) -> promql_random.Question:
    rng = random.Random(f"{SEED} ruled {number}")
    start = promql_random.START_MS + promql_random.random_moment(rng)
    steps = 5 if number % 3 == 1 else rng.choice((0, 0, 0, 5))
    author = RuleAuthor(world, rng)
    text = (author.worst, author.named, author.rule)[number % 3]()
    return promql_random.Question(text, start, start + steps * 30_000, 30_000 if steps else 0)


def questions(number: int) -> Iterator[promql_random.Question]:
    world = promql_random.make_world(SEED, number)
    for one in range(QUESTIONS // 3):
        yield joined(world, one)
        yield ruled(world, 2 * one)
        yield ruled(world, 2 * one + 1)
        yield promql_random.make_question(world, SEED, one)


def shown(answer: Answer) -> object:
    """All that a client could see of an answer; NaNs by their bits."""
    value, notes = answer.value, (answer.notes.warnings, answer.notes.infos)
    if isinstance(value, Vector):
        value = drop_absent(value)
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
    with (
        patch.object(evaluate, "is_decided_by_empty_left", lambda _: False),
        patch.object(evaluate, "right_for", lambda node, _: node.right),
        patch.object(evaluate, "is_chosen_by_right", lambda _: False),
        patch.object(evaluate, "is_named_by_right", lambda _: False),
        patch.object(evaluate, "is_fixed", lambda _: False),
        patch.object(engine, "with_moved", lambda plan: plan),
    ):
        yield


@contextmanager
def all_left_out(*, asked_for: bool) -> Iterator[None]:
    """However few samples there are; ``asked_for``: the store finds only what is of use."""
    with ExitStack() as stack:
        for bound in ("NARROW_SAMPLES_FROM", "EDGES_FROM"):
            stack.enter_context(patch.object(evaluate, bound, 0))
        if asked_for:
            stack.enter_context(patch.object(find, "LARGE_FROM", 0))
            stack.enter_context(patch.object(fetch, "MOVED_FROM", 1))
            stack.enter_context(patch.object(Known, "series_version", lambda *_: None))
        yield


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("number", range(WORLDS))
def test_what_is_left_out_changes_no_answer(
    engines: dict[Dialect, Engine],
    dialect: Dialect,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Sums of the store's own differ from ours in the last bit: both ways take them.
    monkeypatch.setattr(evaluate, "REDUCE_SAMPLES_FROM", 0)
    fewer = 0
    for asked in questions(number):
        with all_evaluated():
            whole, read = ask(engines[dialect], asked)
        with all_left_out(asked_for=number % 2 == 1):
            part, touched = ask(engines[dialect], asked)
        assert part == whole, asked
        fewer += touched < read
    assert fewer > QUESTIONS / 10, "too few of the questions leave anything out"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        # Three hosts' infos never change, six temperatures are of three hosts.
        (
            "sum by (rack) (changes(host_info_w0[5m])) > 0",
            "sum by (rack) (changes(host_info_w0[5m]))",
        ),
        (
            'load_w0{host="h1"} and on (host) max by (host) (temp_w0)',
            'load_w0{host="h1"} and on (rack) max by (host) (temp_w0)',
        ),
    ],
)
def test_more_series_than_a_bound_allows_need_not_be_looked_at(
    engines: dict[Dialect, Engine], monkeypatch: pytest.MonkeyPatch, text: str, refused: str
) -> None:
    at_ms = promql_random.START_MS + 20 * 60_000
    monkeypatch.setattr(Known, "series_version", lambda *_: None)
    asked = promql_random.Question(text, at_ms, at_ms)
    whole, _ = ask(engines[Dialect.PROMETHEUS_3], asked)
    monkeypatch.setattr(find, "SERIES_MAX", 2)
    monkeypatch.setattr(fetch, "MOVED_FROM", 1)
    assert ask(engines[Dialect.PROMETHEUS_3], asked)[0] == whole
    answer, _ = ask(engines[Dialect.PROMETHEUS_3], asked.about(refused))
    assert "QUERY_SERIES_MAX" in str(answer)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements that read samples, as they are asked."""
    found: list[str] = []
    ask = Store.query

    def asked(store: Store, sql: str, *words: Any, **more: Any) -> Any:  # noqa: ANN401 - passed on
        found.extend([sql] if sql.startswith("SELECT series, time, value") else [])
        return ask(store, sql, *words, **more)

    monkeypatch.setattr(Store, "query", asked)
    return found


def test_what_the_other_side_chose_is_read_by_one_statement(
    engines: dict[Dialect, Engine], monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    """As the page asks for all counters of errors of a job's hosts."""
    world = promql_random.make_world(SEED, 0)
    sent, drops, load = (world.metric(name) for name in ("sent_total", "drops_total", "load"))
    text = (
        f"(sum by (host) (avg_over_time({sent}[2m])) or sum by (host) (avg_over_time({drops}[2m])))"
        f' and on (host) max by (host) ({load}{{host="h1"}})'
    )
    end_ms = promql_random.START_MS + 1_200_000
    asked = promql_random.Question(text, end_ms - 600_000, end_ms, 30_000)
    with all_left_out(asked_for=False):
        together, touched = ask(engines[Dialect.PROMETHEUS_3], asked)
        assert len(reads) == 2, "of the hosts, and of both counters"
        monkeypatch.setattr(fetch, "GROUP_MS_MAX", 0)
        alone, read = ask(engines[Dialect.PROMETHEUS_3], asked)
        assert len(reads) == 2 + 3
    assert together == alone
    assert touched == read > 0


def test_questions_that_arrive_together_read_their_samples_once(
    engines: dict[Dialect, Engine], reads: list[str]
) -> None:
    """A view asks several of the same series; one that comes later may see later samples."""
    metric = promql_random.make_world(SEED, 0).metric("sent_total")
    texts = [f"rate({metric}[2m])", f"max({metric}) + sum(rate({metric}[2m]))", metric]
    grid = Grid(promql_random.START_MS + 600_000, 30_000, 20)
    engine = engines[Dialect.PROMETHEUS_3]

    def start() -> list[Running]:
        return [engine.start(Question(text=text, grid=grid, is_range=True)) for text in texts]

    together = [running.answer() for running in start()]
    assert len(reads) == 2, "one of the range, and one of the look-back"
    for text, answer in zip(texts, together, strict=True):
        alone = engine.start(Question(text=text, grid=grid, is_range=True)).answer()
        assert isinstance(answer.value, Vector)
        assert isinstance(alone.value, Vector)
        assert answer.value.labels == alone.value.labels
        assert answer.value.values.tobytes() == alone.value.values.tobytes()
        assert answer.samples == alone.samples > 0
    assert len(reads) == 2 + 1 + 2 + 1
