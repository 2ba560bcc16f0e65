"""How many hosts each rule and each query of a board can be asked of before a bound ends it.

A model, without data: how many series a host has of each metric, how often they are read, and how
far back each query looks. A query past a bound does not answer slowly, it stops working.

    python -m tests.tools.query_costs
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
import numpy as np

from alerts.rulebook.file import parse_rules
from alerts.rulebook.knobs import fill_pack
from alerts.rulebook.model import Group, Rule
from api.base.limits import (
    QUERY_POINTS_MAX,
    QUERY_SAMPLES_MAX,
    QUERY_SECONDS_DEFAULT,
)
from api.promql.evaluate import FROM_EDGES, REDUCE_FROM, REDUCED_BY_ENGINE
from api.promql.find import series_max
from api.promql.fixed import is_fixed
from api.promql.moved import with_moved
from api.promql.narrow import is_chosen_by_right, is_few, left_for, right_for
from api.promql.parse import parse_query
from api.promql.plan import (
    Aggregate,
    Binary,
    Call,
    Node,
    Paren,
    RangeSelect,
    Select,
    Subquery,
    children_of,
)
from api.promql.quiet import COMPARISONS, bare, is_number
from api.promql.values import Vector
from collector.contract.catalog import load_catalog
from dashboards.grafana import boards
from dashboards.grafana.substitute import ALL, substituted

MEMORY_BYTES = 24 << 30
"""Of the machine: QUERY_SERIES_MAX grows with it."""
READ_SECONDS = 5
"""How often agents read."""
LOOKBACK_MS = 300_000
BOARD_STEP_MS = 15_000
BOARD_STEPS = 240
"""A panel of an hour, as `dashboards.grafana.substitute` has it."""

RAW_NS = 170
REDUCED_NS = 270
MOVED_NS = 56
"""CPU of one core for a sample that is loaded, for one that the store reduces, and for one of a
series of which it tells whether it moved (3.6 million samples of 20,000 series: `Reader.raw`,
`edges` and `moved`, on two slow cores)."""

THINGS = {"port": 40, "nic": 10, "gpu": 8, "rank": 8, "step": 8, "communicator": 4, "burst": 8}
"""Of each target, those of one host with eight GPUs and NICs: a NIC's port has four ports of
switches with it, in two tiers of a fabric without oversubscription. The fast sampler looks at the
host's own ports. One of others."""
OF_HOST = "fabric_burst_sampler_"
"""Metrics of a target that each host has once."""
EACH = {
    "priority": 8,
    "queue": 8,
    "lane": 4,
    "link": 18,
    "cast": 3,
    "ip_version": 2,
    "direction": 2,
    "le": 8,
}
"""Series of one thing by the values of a label; one of others."""
PER_HOST_LABELS = {"device": 8, "port": 1, "gpu": 8, "rank": 8, "communicator": 4}
"""The same for what rules record, by the labels that they keep."""
SPARSE_LABELS = {("fabric_agent_reading_missing", "reason", "saturated")}
"""Values of a label that only few series have: a counter stands at its end until it is reset."""
CONSTANT = {"service", "incident", "job", "finding", "setting"}
"""Targets whose series do not grow with hosts, or hardly."""
ONE_OF = ("host", "job", "rank", "communicator", "instance", "peer_name")
"""Labels of which a board asks for one value: then its series do not grow with hosts."""
ROW = dict.fromkeys(
    (
        *("cluster", "host", "device", "port", "queue", "cast", "priority", "lane", "gpu", "link"),
        *("peer_name", "peer_port", "through"),
    ),
    "x",
)
"""One series of a side with few of them."""
FEW = Vector([ROW], np.ones((1, 1)), np.ones((1, 1), np.bool_))


class Recorded(msgspec.Struct, frozen=True):
    """A series that the pack records: how often, and how many a host."""

    every_s: float
    per_host: float


class Reach(msgspec.Struct, frozen=True, order=True):
    """At how many hosts a query ends, and by which bound."""

    hosts: float
    bound: str
    name: str = ""


class Read(msgspec.Struct, frozen=True):
    """A selector in its place: the function around it, and the moments that it is asked for."""

    select: Select
    range_ms: int
    function: str
    steps: int
    span_ms: int


@cache
def pack() -> Sequence[tuple[Group, Rule]]:
    """Read once: every query asks it which of its series are recorded."""
    return [
        (group, rule)
        for name, text in fill_pack({}).items()
        for group in parse_rules(text, name)
        for rule in group.rules
    ]


@cache
def recorded() -> Mapping[str, Recorded]:
    """What the pack records; rules read what stands before them, or themselves."""
    found: dict[str, Recorded] = {}
    waiting = [(group, rule) for group, rule in pack() if not rule.is_alert]
    for group, rule in waiting:
        plan = parse_query(rule.expression)
        per_host = 0.0 if is_sparse(plan) else per_host_of(plan, found)
        found[rule.name] = Recorded(group.interval_s or 30.0, per_host)
    return found


def per_host_of(node: Node, known: Mapping[str, Recorded]) -> float:
    """How many series of a result there are for each host."""
    node = bare(node)
    match node:
        case Select(selector=selector):
            return series_of(selector.metric or "", known)[0]
        case Aggregate(labels=labels, without=False, expression=inner):
            return min(by_labels(labels), per_host_of(inner, known))
        case Binary(operator="and" | "unless", left=left):
            return per_host_of(left, known)
        case Binary(left=left, right=right):
            sides = [per_host_of(one, known) for one in (left, right) if not is_number(one)]
            joined = node.operator != "or" and not node.matching.group
            return min(sides) if joined else max(sides)
    return max((per_host_of(child, known) for child in children_of(node)), default=0.0)


def by_labels(labels: tuple[str, ...]) -> float:
    per_host = 1.0 if "host" in labels else 0.0
    for label in labels:
        per_host *= PER_HOST_LABELS.get(label, EACH.get(label, 1))
    if {"device", "port"} <= set(labels):
        per_host *= THINGS["port"] / PER_HOST_LABELS["device"]
    return per_host


def series_of(metric: str, known: Mapping[str, Recorded] | None = None) -> tuple[float, float]:
    """How many series of a metric a host has, and the seconds between two of their samples."""
    rules = recorded() if known is None else known
    if metric in rules:
        return rules[metric].per_host, rules[metric].every_s
    catalog = load_catalog()
    target = catalog.target_of(metric)
    if target is None or target.name in CONSTANT:
        return 0.0, READ_SECONDS
    per_host = 1.0 if metric.startswith(OF_HOST) else float(THINGS.get(target.name, 1))
    for label in catalog.labels_of(metric):
        per_host *= EACH.get(label, 1)
    return per_host, READ_SECONDS


def is_sparse(node: Node) -> bool:  # noqa: PLR0911 - a table
    """Whether few series pass: those beyond a threshold, or whose counter is another than it was.

    That few pass is what makes a threshold of an alert; `x > 0` of a gauge is none.
    """
    node = bare(node)
    match node:
        case Binary(operator="and", left=left, right=right) if is_few(right):
            return True
        case Binary(operator="and" | "unless", left=left):
            return is_sparse(left)
        case Binary(operator="or", left=left, right=right):
            return is_sparse(left) and is_sparse(right)
        case Binary(operator="!=", left=left, right=right) if not is_number(right):
            return metric_of(left) is not None and metric_of(left) == metric_of(right)
        case Binary(operator=operator, left=left, right=right) if is_number(right):
            passes = operator in COMPARISONS and not node.return_bool
            return is_sparse(left) or (passes and not is_any_gauge(node))
        case Binary(left=left, right=right):
            return is_sparse(left) or is_sparse(right)
        case Select(selector=selector):
            return is_recorded_sparse(selector.metric or "")
        case Aggregate() if is_few(node):
            return True
    inner = children_of(node)
    return bool(inner) and isinstance(inner[0], Node) and is_sparse(inner[0])


def is_any_gauge(node: Binary) -> bool:
    """`x > 0`, unless x counts something that hardly ever happens."""
    counted = ("increase", "changes", "resets", "rate", "downs", "recoveries")
    over = repr(node.left)
    return (
        node.operator == ">"
        and "value=0.0" in repr(node.right)
        and not any(f"'{word}'" in over for word in counted)
    )


@cache
def is_recorded_sparse(metric: str) -> bool:
    for _, rule in pack():
        if rule.name == metric and not rule.is_alert:
            plan = parse_query(rule.expression)
            names = {one.select.selector.metric for one in reads(plan)}
            return metric in names or is_sparse(plan)
    return False


def metric_of(node: Node) -> str | None:
    node = bare(node)
    return node.selector.metric if isinstance(node, Select) else None


def reads(node: Node, function: str = "", steps: int = 1, span_ms: int = 0) -> Iterator[Read]:
    """Every selector that is evaluated, sides of few series narrowed as the evaluation does it."""
    if steps > 1 and is_fixed(node):
        steps, span_ms = 1, 0
    match node:
        case Select():
            yield Read(node, LOOKBACK_MS, "last", steps, span_ms)
        case RangeSelect(select=select, range_ms=range_ms):
            yield Read(select, range_ms, function, steps, span_ms)
        case Subquery(expression=inner, range_ms=range_ms, step_ms=step_ms):
            inside = steps + range_ms // (step_ms or 60_000)
            yield from reads(inner, "", inside, span_ms + range_ms)
        case Binary(right=right) if is_chosen_by_right(node):
            yield from reads(right, "", steps, span_ms)
            yield from reads(left_for(node, FEW), "", steps, span_ms)
        case Binary(left=left):
            yield from reads(left, "", steps, span_ms)
            yield from reads(evaluated_right(node), "", steps, span_ms)
        case Call() | Aggregate() | Paren():
            name = node.function if isinstance(node, Call) else ""
            for child in children_of(node):
                yield from reads(child, name, steps, span_ms)
        case _:
            for child in children_of(node):
                yield from reads(child, function, steps, span_ms)


def evaluated_right(node: Binary) -> Node:
    if not is_sparse(node.left):
        return node.right
    return right_for(node, FEW)


def share_of(read: Read) -> float:
    """Which part of a metric's series a selector finds; 0: it does not grow with hosts."""
    if read.select.moved or any(label == "host" for label, _ in read.select.among):
        return 0.0
    share, selector = 1.0, read.select.selector
    for one in selector.matchers:
        if (selector.metric, one.label, one.value) in SPARSE_LABELS:
            return 0.0
        is_named = one.operator == "=" or (
            one.operator == "=~" and one.value.replace("|", "").replace(" ", "").isalnum()
        )
        if is_named and one.label in ONE_OF and one.value:
            return 0.0
        if is_named:
            values = [value for value in one.value.split("|") if value]
            share *= min(1.0, len(values) / EACH.get(one.label, 1))
    return share


def reach(text: str, *, steps: int = 1, step_ms: int = BOARD_STEP_MS, name: str = "") -> Reach:
    """How many hosts a query can be asked of, and the bound that ends it."""
    loaded, cpu_ns, most, cells = 0.0, 0.0, 0.0, 0.0
    for read in reads(with_moved(parse_query(text)), "", steps, (steps - 1) * step_ms):
        per_host, every_s = series_of(read.select.selector.metric or "")
        samples = (read.span_ms + read.range_ms) / 1_000 / every_s
        if read.select.moved and not read.select.among:
            # Of all of the metric's series, whatever else the selector says.
            cpu_ns += per_host * samples * MOVED_NS
        per_host *= share_of(read)
        is_reduced = read.function in {"last", *REDUCED_BY_ENGINE} and (
            samples >= REDUCE_FROM * read.steps
        )
        is_edges = read.function in FROM_EDGES and read.steps == 1
        kept = read.steps if is_reduced else 2 if is_edges else samples
        loaded += per_host * min(kept, samples)
        cpu_ns += per_host * samples * (REDUCED_NS if is_reduced or is_edges else RAW_NS)
        most = max(most, per_host)
        cells = max(cells, per_host * read.steps)
    bounds = {
        "QUERY_SERIES_MAX": (series_max(MEMORY_BYTES), most),
        "QUERY_SAMPLES_MAX": (QUERY_SAMPLES_MAX, loaded),
        "QUERY_POINTS_MAX": (QUERY_POINTS_MAX, cells),
        "QUERY_SECONDS_DEFAULT": (QUERY_SECONDS_DEFAULT * 1e9, cpu_ns),
    }
    return min(
        Reach(bound / cost if cost else float("inf"), which, name)
        for which, (bound, cost) in bounds.items()
    )


def rule_reaches() -> list[Reach]:
    return sorted(reach(rule.expression, name=rule.name) for _, rule in pack())


def board_reaches() -> list[Reach]:
    """Each query of each board: an hour, every cluster, and one of what has no choice of all."""
    found = []
    for board_name, board in boards.discover().items():
        chosen = {
            one.name: ALL if one.is_all_default else f"one{one.name}" for one in board.variables
        }
        for row in board.rows:
            for panel in row.panels:
                found += [
                    reach(
                        substituted(query.expr, chosen),
                        steps=1 if query.is_instant else BOARD_STEPS,
                        name=f"{board_name}: {panel.title}",
                    )
                    for query in panel.queries
                ]
    return sorted(found)


def shown(hosts: float) -> str:
    return "any number" if hosts == float("inf") else f"{hosts:,.0f}"


def table_rows(reaches: list[Reach]) -> list[list[str]]:
    """Those that end at the same number, by the same bound, in one row; the least first."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for one in reaches:
        bound = one.bound if one.hosts < float("inf") else ""
        rows.setdefault((shown(one.hosts), bound), {})[one.name] = None
    return [
        [hosts, f"`{bound}`" * bool(bound), ", ".join(f"`{name}`" for name in names)]
        for (hosts, bound), names in rows.items()
    ]


def least_of_each(reaches: list[Reach]) -> list[Reach]:
    """A panel ends with the first of its queries."""
    least: dict[str, Reach] = {}
    for one in sorted(reaches):
        least.setdefault(one.name, one)
    return list(least.values())


if __name__ == "__main__":
    for each in [*rule_reaches(), *board_reaches()]:
        print(f"{shown(each.hosts):>12}  {each.bound:22} {each.name}")
