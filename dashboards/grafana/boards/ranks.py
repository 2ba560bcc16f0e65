"""Pairs of ranks of a job: who sends to whom, which pairs are slow, and who waits for whom.

The same matrix as the service answers at `/v1/jobs/JOB/matrix`, as series of one minute each. Small
jobs are shown by rank, all by host; of more than 1,024 pairs the slowest and largest.
"""

from __future__ import annotations

from typing import Any

from dashboards.grafana.expressions import HERE_OR_NOWHERE
from dashboards.grafana.limits import PLAIN, fine_until
from dashboards.grafana.model import (
    Board,
    Colour,
    Column,
    Draw,
    Jump,
    Matrix,
    Panel,
    Row,
    Step,
    Unit,
)
from dashboards.grafana.shapes import asked, lines, number, over_time, table, value
from dashboards.grafana.variables import CLUSTER, JOB

SLOWER = 1.05
"""Knob collectives_regression: SuperBench calls 5 % below the baseline defective."""
SLOW = 1.5
"""From here on a pair is red: a policy of ours, half as long again."""
WAITED_FOR = 0.1
"""Knob stragglers_waited_for, after ByteDance's what-if study."""
UNEVEN = 1.5
"""Knob capacity_imbalance: a policy of ours."""
UNPLACED = 0.05
"""From this share of the bytes on the pictures miss something: a policy of ours."""
MUCH = 0.5
LITTLE = 0.1
"""Shares of the busiest pair's bytes that have a colour of their own, to make a picture."""
PAIRS_SHOWN = 20
"""Rows of a table or a heat map of pairs: as many as a person reads."""

MINE = f'job="$job", {HERE_OR_NOWHERE}'
PAIR = "source, target"
SLOW_STEPS = fine_until(look=SLOWER, bad=SLOW)
WAIT_STEPS = fine_until(look=WAITED_FOR / 2, bad=WAITED_FOR)
TO_SOURCE = Jump(title="The host that sends", to="host", variables={"host": "source"})
TO_TARGET = Jump(title="The host that receives", to="host", variables={"host": "target"})
MANY_RANKS = (
    "More than 1,024 pairs of ranks, which are shown by host only; or no collectives are seen."
)
NOBODY_WAITS = "No rank waits for another for a hundredth of the time."


def pairs(metric: str, by: str) -> str:
    """A gauge of pairs of ranks or of hosts, one number each."""
    return f'max by ({PAIR}) (fabric_pair_{metric}{{{MINE}, by="{by}"}})'


def worst(metric: str, by: str) -> str:
    """The same over time, of the pairs that had the most within the range shown."""
    most = f'max_over_time(fabric_pair_{metric}{{{MINE}, by="{by}"}}[$__range] @ end())'
    return f"{pairs(metric, by)} and on ({PAIR}) topk({PAIRS_SHOWN}, max by ({PAIR}) ({most}))"


BY_HOST = pairs("bytes_per_second", "host")
WITHIN = (
    f'label_join(max by (source) (fabric_pair_bytes_per_second{{{MINE}, by="host"}}),'
    ' "target", "", "source")'
)
"""A host to itself, for every host that sends: PromQL cannot compare two labels."""
BETWEEN = f"({BY_HOST} unless on ({PAIR}) {WITHIN})"
"""What leaves a host."""
CARRYING = f"({BETWEEN} > 0.01 * scalar(max({BETWEEN})))"
"""Without barriers and losses: a hundredth of the busiest pair is next to nothing."""
INSIDE = f"({BY_HOST} and on ({PAIR}) {WITHIN})"
UNPLACED_BYTES = f"max(fabric_pair_unplaced_bytes_per_second{{{MINE}}})"


def matrix(title: str, text: str, expr: str, by: str, **more: Any) -> Panel:  # noqa: ANN401
    """A picture of pairs: who sends or waits is a row, to or for whom a column."""
    return Panel(
        title=title,
        text=text,
        draw=Draw.TABLE,
        queries=asked(expr),
        matrix=Matrix(rows="source", columns="target", is_numeric=by == "rank"),
        height=12,
        **more,
    )


GLANCE = Row(
    title="At a glance",
    panels=(
        number(
            "Ranks",
            "Ranks of the job whose place is known.",
            f"max(fabric_job_ranks{{{MINE}}})",
            PLAIN,
        ),
        number(
            "Between hosts",
            "What the job sends from host to host, all pairs together, in the mean of the last "
            "minute and without headers.",
            f"sum({BETWEEN})",
            PLAIN,
            Unit.BYTES_PER_SECOND,
            1,
        ),
        number(
            "Within hosts",
            "What stays inside of hosts: NVLink, or PCIe where there is none.",
            f"sum({INSIDE})",
            PLAIN,
            Unit.BYTES_PER_SECOND,
            1,
        ),
        number(
            "Slowest pair",
            "How long the operations of the slowest pair take, by the median of those like them: "
            f"1 is as long. From {SLOWER} on look (collectives_regression, after SuperBench); red "
            f"from {SLOW} on (a policy of ours). A job of a single group has nothing to compare: "
            "always 1.",
            f"max({pairs('transfer_ratio', 'host')})",
            SLOW_STEPS,
            Unit.NONE,
            2,
        ),
        number(
            "Longest wait",
            "Share of the last minute that one host's ranks waited for those of another. From "
            f"{WAITED_FOR:.0%} on one rank is a straggler (stragglers_waited_for, after "
            "ByteDance's what-if study). 0: no rank waits for a hundredth of the time.",
            f"max({pairs('wait_ratio', 'host')}) or 0 * {UNPLACED_BYTES}",
            WAIT_STEPS,
            Unit.RATIO,
            1,
        ),
        number(
            "Not in the pictures",
            "Share of the job's bytes that are of no pair: no record has the members of their "
            "group, or it has too many pairs to be looked at every minute. "
            "`/v1/jobs/JOB/matrix` looks at more. Usual: 0.",
            f"{UNPLACED_BYTES} / ({UNPLACED_BYTES} + sum({BY_HOST}) > 0) or {UNPLACED_BYTES}",
            fine_until(warn=UNPLACED),
            Unit.RATIO,
            1,
        ),
    ),
)

HOSTS = Row(
    title="Host to host",
    panels=(
        matrix(
            "Who talks to whom: hosts",
            "Bytes from the host of the row to that of the column, by the mean of all pairs of "
            "hosts that carry more than next to nothing: 1 is as much as the others. Rings make a "
            f"line beside the diagonal, all-to-alls fill it. Orange from {UNEVEN} on: more than "
            "its share (capacity_imbalance, a policy of ours). Not shown: what stays in a host.",
            f"{BETWEEN} / scalar(avg({CARRYING}))",
            "host",
            steps=(Step(None, Colour.GREY), Step(MUCH, Colour.FINE), Step(UNEVEN, Colour.WARN)),
            decimals=2,
            is_empty_fine=True,
            empty_text="Nothing goes from host to host, or no collectives are seen.",
        ),
        matrix(
            "Where transfers take long: hosts",
            "How long the operations between these hosts take, by the median of the job's "
            "operations of the same kind, size, ranks and hosts. One link that is slow slows its "
            "whole ring: a ring's cells light up together. One row that is brighter is a sender, "
            f"one column a receiver, one cell a cable. Yellow from {SLOWER} (SuperBench), red "
            f"from {SLOW} (a policy of ours).",
            pairs("transfer_ratio", "host"),
            "host",
            steps=SLOW_STEPS,
            decimals=2,
            empty_text="No collectives with times are seen.",
        ),
    ),
)

RANKS = Row(
    title="Rank to rank",
    panels=(
        matrix(
            "Who talks to whom: ranks",
            "Bytes from the rank of the row to that of the column, by those of the busiest pair: "
            f"green from {MUCH:.0%} on, blue from {LITTLE:.0%} on, grey below. Squares along the "
            "diagonal are groups within a host (tensor parallel), lines far from it groups "
            "between hosts (data or pipeline parallel).",
            f"{pairs('bytes_per_second', 'rank')}"
            f" / scalar(max({pairs('bytes_per_second', 'rank')}))",
            "rank",
            unit=Unit.RATIO,
            decimals=0,
            steps=(Step(None, Colour.GREY), Step(LITTLE, Colour.PLAIN), Step(MUCH, Colour.FINE)),
            is_empty_fine=True,
            empty_text=MANY_RANKS,
        ),
        matrix(
            "Who waits for whom: ranks",
            "Share of the last minute that the rank of the row was inside collectives and waited "
            "for that of the column, which came last. A red column is a straggler; its row is "
            f"empty, because it never waits. From {WAITED_FOR:.0%} on (stragglers_waited_for, "
            "after ByteDance's what-if study); waits below a hundredth of the time are left out.",
            pairs("wait_ratio", "rank"),
            "rank",
            unit=Unit.RATIO,
            decimals=0,
            steps=WAIT_STEPS,
            is_empty_fine=True,
            empty_text=NOBODY_WAITS,
        ),
        matrix(
            "Where transfers take long: ranks",
            "The same as of hosts, by rank: which of the rings between two hosts is the slow one, "
            "and so which of their NICs. All pairs of a ring light up together, because each waits "
            "for the slowest.",
            pairs("transfer_ratio", "rank"),
            "rank",
            decimals=2,
            steps=SLOW_STEPS,
            is_empty_fine=True,
            empty_text=MANY_RANKS,
        ),
        matrix(
            "Who waits for whom: hosts",
            "The same as of ranks, in the mean of the ranks of the row's host. A red column is a "
            "host with a straggler; a red diagonal alone are ranks of one host that wait for each "
            "other.",
            pairs("wait_ratio", "host"),
            "host",
            unit=Unit.RATIO,
            decimals=0,
            steps=WAIT_STEPS,
            is_empty_fine=True,
            empty_text=NOBODY_WAITS,
        ),
    ),
)

SLOWEST = f"topk({PAIRS_SHOWN}, {pairs('transfer_ratio', 'host')})"
TIME = Row(
    title="Since when?",
    panels=(
        over_time(
            Draw.HEAT,
            "Slow pairs over time",
            "The same of transfers, over time: the pairs of hosts that were slowest within "
            "the range, one row each. 1 is as long as others take. A row that is bright from some "
            "moment on is a link that went bad then: look at its ports at that moment.",
            {"{{source}} → {{target}}": worst("transfer_ratio", "host")},
            least=1.0,
            decimals=2,
            height=10,
        ),
        over_time(
            Draw.HEAT,
            "Waiting over time",
            "Which host's ranks waited for which other's, the longest within the range. Many "
            "rows with one target: that target is late.",
            {"{{source}} → {{target}}": worst("wait_ratio", "host")},
            Unit.RATIO,
            height=10,
            silence=NOBODY_WAITS,
        ),
        table(
            "Slowest pairs of hosts",
            "The pairs whose operations take longest by the median of those like them, what "
            "they carry, and how long the sender's ranks wait for the receiver's. Both names lead "
            "to their hosts: compare their ports at this moment.",
            asked(
                SLOWEST,
                f"{BY_HOST} and on ({PAIR}) {SLOWEST}",
                f"{pairs('wait_ratio', 'host')} and on ({PAIR}) {SLOWEST}",
            ),
            (
                Column(label="source", title="From", jump=TO_SOURCE),
                Column(label="target", title="To", jump=TO_TARGET),
                value("Times as long", steps=SLOW_STEPS),
                value("Bytes", Unit.BYTES_PER_SECOND, of="B"),
                value("Waits", Unit.RATIO, WAIT_STEPS, of="C"),
            ),
            sort_by="Times as long",
        ),
        lines(
            "How evenly hosts send",
            "What each host sends to others, by the mean of all: a ring has 1 everywhere. From "
            f"{UNEVEN} on one carries more than its share (capacity_imbalance, a policy of ours).",
            {
                "{{source}}": f"sum by (source) ({BETWEEN})"
                f" / scalar(avg(sum by (source) ({BETWEEN})))"
            },
            steps=fine_until(warn=UNEVEN),
            silence="Nothing goes from host to host, or no collectives are seen.",
        ),
    ),
)

BOARD = Board(
    title="Rank × rank",  # noqa: RUF001 - what a matrix is called
    question="Who talks to whom in this job, which pairs are slow, and who waits for whom?",
    tags=("job",),
    variables=(CLUSTER, JOB),
    rows=(GLANCE, HOSTS, RANKS, TIME),
)
