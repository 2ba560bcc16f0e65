"""Runs PromQL queries: a `Question` in, an `Answer` out. It blocks; `Gate` does not."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from concurrent.futures import Executor

import msgspec

from api.base.limits import QUERY_SECONDS_DEFAULT
from api.base.threads import Threads
from api.data.store.store import Store
from api.promql.ahead import LargeMetrics, ReadAhead, ranges_of
from api.promql.errors import bad_data
from api.promql.evaluate import Evaluation, Frame, Value
from api.promql.fetch import Reader
from api.promql.find import SeriesMemory
from api.promql.moved import with_moved
from api.promql.parse import kind_of, parse_query
from api.promql.plan import Aggregate, Binary, Call, Kind, Negate, Node, Paren
from api.promql.reads import Reads
from api.promql.rolled import RolledAnswers
from api.promql.rollup_rows import Horizons, RollupReader
from api.promql.values import Dialect, Grid, Notes, Windows
from collector.contract.catalog import Catalog

LOOKBACK_MS_DEFAULT = 300_000
"""How old the newest sample of a series may be: Prometheus' five minutes."""

HELPERS = 2
"""Threads that all queries share for reading and computing large parts side by side."""

ORDERING = frozenset(
    {"sort", "sort_desc", "sort_by_label", "sort_by_label_desc", "topk", "bottomk"}
)

RANGE_KINDS = {Kind.MATRIX: "range vector", Kind.STRING: "string"}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A query's plan and the moments at which it is evaluated."""

    text: str
    grid: Grid
    is_range: bool
    """A range query: answered by a matrix, at every step. Otherwise the grid has one step."""
    lookback_ms: int | None = None
    timeout_s: float | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A query's result. An instant query for a range selector gives its windows of one step."""

    kind: Kind
    value: Value | Windows
    grid: Grid
    notes: Notes
    samples: int
    peak_samples: int
    ordered: bool
    """The rows are in an order that the query sets (`sort`, `topk`)."""
    seconds: float
    waited_seconds: float = 0.0


class Running:
    """A query in progress. `stop` may be called from any thread."""

    def __init__(
        self,
        question: Question,
        plan: Node,
        reader: Reader,
        frame: Frame,
        helpers: Executor,
        rollups: RollupReader,
    ) -> None:
        self._rollups = rollups
        self._question = question
        self._helpers = helpers
        self._plan = plan
        self._reader = reader
        self._frame = frame

    def answer(self) -> Answer:
        """Evaluate; raises QueryError."""
        started = time.perf_counter()
        notes = Notes()
        grid = self._question.grid
        rolled = RolledAnswers(self._rollups, self._frame.dialect, notes)
        evaluation = Evaluation(self._reader, self._frame, notes, self._helpers, rolled)
        kind = kind_of(self._plan)
        value: Value | Windows
        if kind is Kind.MATRIX:
            value = evaluation.windows(self._plan, grid)
        else:
            value = evaluation.whole(self._plan, grid)
        return Answer(
            kind=kind,
            value=value,
            grid=grid,
            notes=notes,
            samples=self._reader.samples,
            peak_samples=self._reader.peak_samples,
            ordered=not self._question.is_range and orders(self._plan),
            seconds=time.perf_counter() - started,
        )

    def stop(self) -> None:
        """The client is gone: end the query, also inside the store."""
        self._reader.stop()


class Engine:
    """Answers queries from one store."""

    def __init__(self, store: Store, dialect: Dialect, catalog: Catalog | None) -> None:
        self._store = store
        self._dialect = dialect
        self._catalog = catalog
        self._memory = SeriesMemory()
        self._reads = Reads()
        self._large = LargeMetrics()
        self._horizons = Horizons()
        self._helpers = Threads(HELPERS)

    def read_ahead(self, texts: Iterable[str], at_ms: int, but: Collection[str]) -> ReadAhead:
        """For instant queries of one moment; ``but``: metrics that others write meanwhile."""
        ranges: dict[str, int] = {}
        for text in texts:
            for metric, range_ms in ranges_of(text, LOOKBACK_MS_DEFAULT).items():
                if metric not in but:
                    ranges[metric] = max(ranges.get(metric, 0), range_ms)
        return ReadAhead(self._store, ranges, at_ms, self._large)

    def start(self, question: Question, ahead: ReadAhead | None = None) -> Running:
        """Parse the query without evaluating it; raises QueryError."""
        plan = parse_query(question.text)
        kind = kind_of(plan)
        if question.is_range and kind in RANGE_KINDS:
            raise bad_data(
                f'invalid expression type "{RANGE_KINDS[kind]}" for range query, '
                "must be Scalar or instant Vector"
            )
        seconds = min(question.timeout_s or QUERY_SECONDS_DEFAULT, QUERY_SECONDS_DEFAULT)
        frame = Frame(
            grid=question.grid,
            lookback_ms=question.lookback_ms or LOOKBACK_MS_DEFAULT,
            dialect=self._dialect,
            catalog=self._catalog,
        )
        reader = Reader(self._store, self._memory, time.monotonic() + seconds, ahead, self._reads)
        rollups = RollupReader(reader, self._store, self._horizons)
        return Running(question, with_moved(plan), reader, frame, self._helpers, rollups)

    def close(self) -> None:
        self._helpers.shutdown(wait=False, cancel_futures=True)


def orders(node: Node) -> bool:
    waiting = [node]
    while waiting:
        match waiting.pop():
            case Call(function=function, arguments=arguments):
                if function in ORDERING:
                    return True
                waiting.extend(arguments)
            case Aggregate(operator=operator, expression=expression):
                if operator in ORDERING:
                    return True
                waiting.append(expression)
            case Binary(left=left, right=right):
                waiting += [left, right]
            case Paren(expression=expression) | Negate(expression=expression):
                waiting.append(expression)
    return False
