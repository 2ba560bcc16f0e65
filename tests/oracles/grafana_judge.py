"""Runs every query of every board: which answers are empty, and where two servers disagree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dashboards.grafana.queries import metrics_of, parse
from dashboards.grafana.substitute import Value, substituted
from tests.oracles.grafana_ask import (
    VARIABLE,
    AskError,
    Dashboard,
    Series,
    Source,
    Span,
    Target,
    Variable,
    read,
    shown_panels,
    values_of_variable,
)
from tests.oracles.promql_oracle import Key, Reply, compare

FIRST_CHOICES_MAX = 24
"""Values of the first variable with one choice that are tried: every host and switch of ours."""
LATER_CHOICES_MAX = 4
"""Values of those after it, each for every one before."""
CUT = re.compile(r"\b((?:topk|bottomk)(?:\s+(?:by|without)\s*\([^)]*\))?)\s*\(\s*\d+\s*,")
"""`topk(10,` and the like: only the first few of an answer."""
ALL_OF_THEM = 100_000
ABSOLUTE = 1e-9
"""By which values may differ whatever their size: a difference of two large numbers is as far off
as they are."""


class Where(NamedTuple):
    """A question: a panel's, or a variable's (its name with a dollar and no refId)."""

    board: str
    panel: str
    ref: str

    def __str__(self) -> str:
        return f"{self.board} / {self.panel}{f' / {self.ref}' if self.ref else ''}"


@dataclass
class Outcome:
    """What came of asking."""

    answered: set[Where] = field(default_factory=set)
    silent: dict[Where, str] = field(default_factory=dict)
    """Questions without data at any moment and for any choice, with their text."""
    refused: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    compared: int = 0

    def add(self, other: Outcome) -> None:
        """Put another data set's outcome to this one."""
        self.answered |= other.answered
        texts = {**self.silent, **other.silent}
        self.silent = {where: texts[where] for where in texts if where not in self.answered}
        self.refused += other.refused
        self.differences += other.differences
        self.compared += other.compared


def metrics_asked(boards: Mapping[str, dict[str, Any]], span: Span) -> set[str]:
    """The names of all metrics that boards and their variables ask for."""
    found: set[str] = set()
    for classic in boards.values():
        board = read(classic)
        anything = {each.name: ".*" for each in board.templating.variables}
        texts = [target.expr for panel in shown_panels(board) for target in panel.targets]
        texts += [each.expr for each in board.annotations.layers if each.expr]
        for variable in board.templating.variables:
            asked = VARIABLE.fullmatch(variable.query)
            texts += [asked["selector"]] if asked and asked["selector"] else []
        for text in texts:
            found |= metrics_of(parse(substituted(text, anything, span.lengths())))
    return found


# --- choices --------------------------------------------------------------------------------------


def choices(board: Dashboard, source: Source, span: Span) -> Iterator[dict[str, Value]]:
    """Values for all variables, as their own questions give them: one choice after the other."""
    variables = [each for each in board.templating.variables if each.type == "query"]
    return chosen_from(variables, {}, source, span, FIRST_CHOICES_MAX)


def chosen_from(
    variables: Sequence[Variable],
    chosen: dict[str, Value],
    source: Source,
    span: Span,
    limit: int,
) -> Iterator[dict[str, Value]]:
    """Choices for the rest of the variables; the first of each first."""
    if not variables:
        yield chosen
        return
    variable, rest = variables[0], variables[1:]
    if "$__all" in variable.current.value:
        yield from chosen_from(
            rest, {**chosen, variable.name: variable.all_value}, source, span, limit
        )
        return
    found = values_of_variable(variable, source, span, chosen)[:limit]
    branches = [
        chosen_from(rest, {**chosen, variable.name: value}, source, span, LATER_CHOICES_MAX)
        for value in found
    ]
    # The first of every branch before the second of any: hosts differ more than a host's ports.
    for batch in itertools.zip_longest(*branches):
        yield from (each for each in batch if each is not None)


# --- asking ---------------------------------------------------------------------------------------


def answer(target: Target, expr: str, source: Source, span: Span) -> list[Series]:
    """What a question gives; one about the end of the range at other moments, if at none there."""
    if not target.instant:
        return source.range(expr, span)
    return source.instant(expr, span.end_s) or source.range(expr, span)


def judge(
    boards: Mapping[str, dict[str, Any]], ours: Source, theirs: Source | None, span: Span
) -> Outcome:
    """Run every query of every board until it has an answer, and the same on another server."""
    outcome = Outcome()
    for name, classic in boards.items():
        board = read(classic)
        judge_variables(name, board, (ours, theirs), span, outcome)
        waiting: dict[Where, Target] = {
            Where(name, panel.title, target.ref_id): target
            for panel in shown_panels(board)
            for target in panel.targets
        }
        for layer in board.annotations.layers:
            if layer.expr:
                waiting[Where(name, f"annotation {layer.name}", "")] = Target(layer.expr)
        for chosen in choices(board, ours, span):
            if not waiting:
                break
            waiting = judge_once(waiting, chosen, (ours, theirs), span, outcome)
        outcome.silent |= {where: target.expr for where, target in waiting.items()}
    return outcome


def judge_once(
    waiting: Mapping[Where, Target],
    chosen: Mapping[str, Value],
    sources: tuple[Source, Source | None],
    span: Span,
    outcome: Outcome,
) -> dict[Where, Target]:
    """Ask with one choice; what has no answer yet."""
    ours, theirs = sources
    rest: dict[Where, Target] = {}
    for where, target in waiting.items():
        expr = substituted(target.expr, chosen, span.lengths())
        try:
            found = answer(target, expr, ours, span)
            if not found:
                rest[where] = target
                continue
            outcome.answered.add(where)
            if theirs is not None:
                outcome.compared += 1
                outcome.differences += disagreement(where, target, expr, (ours, theirs), span)
        except AskError as error:
            outcome.refused.append(f"{where}: {error}")
    return rest


def disagreement(
    where: Where, target: Target, expr: str, sources: tuple[Source, Source], span: Span
) -> list[str]:
    """How two servers' answers differ.

    PromQL does not define which of several equal values `topk` takes. So where answers differ,
    both are asked for all instead of the first few, and that must be the same.
    """
    ours, theirs = (answer(target, expr, each, span) for each in sources)
    found = difference(where, expr, ours, theirs)
    whole = CUT.sub(rf"\g<1>({ALL_OF_THEM},", expr)
    if not found or whole == expr:
        return found
    ours, theirs = (answer(target, whole, each, span) for each in sources)
    return difference(where, whole, ours, theirs)


def judge_variables(
    name: str,
    board: Dashboard,
    sources: tuple[Source, Source | None],
    span: Span,
    outcome: Outcome,
) -> None:
    """Ask for the values of every variable, the first choice of those before it made."""
    ours, theirs = sources
    chosen: dict[str, Value] = {}
    for variable in board.templating.variables:
        if variable.type != "query":
            continue
        where = Where(name, f"${variable.name}", "")
        try:
            found = values_of_variable(variable, ours, span, chosen)
            if theirs is not None:
                other = values_of_variable(variable, theirs, span, chosen)
                outcome.compared += 1
                if found != other:
                    outcome.differences.append(f"{where}: ours {found[:9]}, theirs {other[:9]}")
        except AskError as error:
            outcome.refused.append(f"{where}: {error}")
            found = []
        if found:
            outcome.answered.add(where)
        else:
            outcome.silent[where] = variable.query
        is_all = "$__all" in variable.current.value
        chosen[variable.name] = variable.all_value if is_all else next(iter(found), "")


def difference(
    where: Where, expr: str, ours: Sequence[Series], theirs: Sequence[Series]
) -> list[str]:
    """Where two answers disagree, in words; nothing if they do not."""
    found = compare(as_reply(theirs), as_reply(ours), absolute=ABSOLUTE, ordered=False)
    return [f"{where}: {found.text}\n    {expr}"] if found else []


def as_reply(series: Sequence[Series]) -> Reply:
    """An answer as the oracle compares it."""
    rows: list[tuple[Key, dict[int, float]]] = [
        (
            tuple(sorted(one.labels.items())),
            {round(at * 1_000): value for at, value in one.points},
        )
        for one in series
    ]
    return Reply(kind="matrix", series=rows)
