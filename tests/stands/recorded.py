"""What the rule pack records, computed by the service's own PromQL and put into its store.

Boards read it. Rules that no given board reads are left out: most of the pack.
"""

from collections.abc import Iterable, Iterator

from alerts.rulebook.file import parse_rules
from alerts.rulebook.knobs import fill_pack
from alerts.rulebook.model import Rule
from api.promql.parse import parse_query
from api.promql.plan import Select, nodes_of
from dashboards.grafana.model import Board
from dashboards.grafana.substitute import ALL, substituted
from tests.stands.own import write_own
from tests.stands.service import InProcess
from tests.worlds.remote_write import TimeSeries

EVERY_S = 60


def write_recorded(service: InProcess, boards: Iterable[Board], start_s: int, end_s: int) -> None:
    """In the order of the pack, because rules read what others have recorded."""
    for rule in read_by(boards):
        span = {"start": str(start_s), "end": str(end_s), "step": str(EVERY_S)}
        answer = service.client.post("/api/v1/query_range", data={"query": rule.expression, **span})
        assert answer.status_code == 200, (rule.name, answer.text)
        found = [
            TimeSeries(
                tuple(sorted({**one["metric"], "__name__": rule.name}.items())),
                [(float(value), round(at * 1_000)) for at, value in one["values"]],
            )
            for one in answer.json()["data"]["result"]
        ]
        if found:
            write_own(service.store, found)


def read_by(boards: Iterable[Board]) -> list[Rule]:
    """Recording rules that these boards read, and those that these read in turn."""
    rules = [
        rule
        for name, text in fill_pack({}).items()
        for group in parse_rules(text, name)
        for rule in group.rules
        if not rule.is_alert
    ]
    wanted = {name for board in boards for name in metrics_of(board)}
    for rule in reversed(rules):
        if rule.name in wanted:
            wanted |= set(metrics_in(rule.expression))
    return [rule for rule in rules if rule.name in wanted]


def metrics_of(board: Board) -> Iterator[str]:
    chosen = {one.name: ALL for one in board.variables}
    for row in board.rows:
        for panel in row.panels:
            for query in panel.queries:
                yield from metrics_in(substituted(query.expr, chosen))


def metrics_in(expression: str) -> Iterator[str]:
    for node in nodes_of(parse_query(expression)):
        if isinstance(node, Select):
            yield node.selector.metric or ""
