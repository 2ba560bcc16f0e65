"""Pairs of ranks of a job: who sends to whom, which pairs are slow, and who waits for whom.

The same matrix as the service answers at `/v1/jobs/JOB/matrix`, as series of one minute each. Small
jobs are shown by rank, all by host; of more than 1,024 pairs the slowest and largest.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from dashboards.grafana.expressions import HERE_OR_NOWHERE
from dashboards.grafana.limits import colours, fine_until
from dashboards.grafana.model import Colour, Column, Jump, Matrix, Panel, Unit
from dashboards.grafana.shapes import Shape, board, heat, lines, number, table
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
TIMES_AS_LONG = fine_until(look=SLOWER, bad=SLOW)
WAIT_SHARE = fine_until(Unit.RATIO, look=WAITED_FOR / 2, bad=WAITED_FOR)
TO_SOURCE = Jump(title="The host that sends", to="host", variables={"host": "source"})
TO_TARGET = Jump(title="The host that receives", to="host", variables={"host": "target"})
MANY_RANKS = (
    "More than 1,024 pairs of ranks, which are shown by host only; or no collectives are seen."
)
NOBODY_WAITS = "No rank waits for another for a hundredth of the time."


def pairs(metric: str, by: str) -> str:
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
CARRYING = f"({BETWEEN} > 0.01 * scalar(max({BETWEEN})))"
"""Without barriers and losses: a hundredth of the busiest pair is next to nothing."""
INSIDE = f"({BY_HOST} and on ({PAIR}) {WITHIN})"
UNPLACED_BYTES = f"max(fabric_pair_unplaced_bytes_per_second{{{MINE}}})"


def matrix(
    text: str, expr: str, *, is_numeric: bool = True, silence: str = "", empty_text: str = ""
) -> Panel:
    """A picture of pairs: who sends or waits is a row, to or for whom a column."""
    panel = table(text, (), {}, expr, silence=silence, empty_text=empty_text)
    pairs = Matrix(rows="source", columns="target", is_numeric=is_numeric)
    return replace(panel, matrix=pairs)


by_host = Shape(partial(matrix, is_numeric=False), height=12)
by_rank = Shape(matrix, height=12)

NO_TRAFFIC = "Nothing goes from host to host, or no collectives are seen."

GLANCE = {
    "Ranks": number.of(Unit.NONE)(
        "Ranks of the job whose place is known.", f"max(fabric_job_ranks{{{MINE}}})"
    ),
    "Between hosts": number.of(Unit.BYTES_PER_SECOND, decimals=1)(
        "What the job sends from host to host, all pairs together, in the mean of the last minute "
        "and without headers.",
        f"sum({BETWEEN})",
    ),
    "Within hosts": number.of(Unit.BYTES_PER_SECOND, decimals=1)(
        "What stays inside of hosts: NVLink, or PCIe where there is none.", f"sum({INSIDE})"
    ),
    "Slowest pair": number.of(TIMES_AS_LONG, decimals=2)(
        "How long the operations of the slowest pair take, by the median of those like them: 1 is "
        f"as long. From {SLOWER} on look (collectives_regression, after SuperBench); red from "
        f"{SLOW} on (a policy of ours). A job of a single group has nothing to compare: always 1.",
        f"max({pairs('transfer_ratio', 'host')})",
    ),
    "Longest wait": number.of(WAIT_SHARE, decimals=1)(
        "Share of the last minute that one host's ranks waited for those of another. From "
        f"{WAITED_FOR:.0%} on one rank is a straggler (stragglers_waited_for, after ByteDance's "
        "what-if study). 0: no rank waits for a hundredth of the time.",
        f"max({pairs('wait_ratio', 'host')}) or 0 * {UNPLACED_BYTES}",
    ),
    "Not in the pictures": number.of(fine_until(Unit.RATIO, warn=UNPLACED), decimals=1)(
        "Share of the job's bytes that are of no pair: no record has the members of their group, "
        "or it has too many pairs to be looked at every minute. `/v1/jobs/JOB/matrix` looks at "
        "more. Usual: 0.",
        f"{UNPLACED_BYTES} / ({UNPLACED_BYTES} + sum({BY_HOST}) > 0) or {UNPLACED_BYTES}",
    ),
}

HOSTS = {
    "Who talks to whom: hosts": by_host.of(
        colours({None: Colour.GREY, MUCH: Colour.FINE, UNEVEN: Colour.WARN}),
        decimals=2,
        silence=NO_TRAFFIC,
    )(
        "Bytes from the host of the row to that of the column, by the mean of all pairs of hosts "
        "that carry more than next to nothing: 1 is as much as the others. Rings make a line "
        f"beside the diagonal, all-to-alls fill it. Orange from {UNEVEN} on: more than its share "
        "(capacity_imbalance, a policy of ours). Not shown: what stays in a host.",
        f"{BETWEEN} / scalar(avg({CARRYING}))",
    ),
    "Where transfers take long: hosts": by_host.of(TIMES_AS_LONG, decimals=2)(
        "How long the operations between these hosts take, by the median of the job's operations "
        "of the same kind, size, ranks and hosts. One link that is slow slows its whole ring: a "
        "ring's cells light up together. One row that is brighter is a sender, one column a "
        f"receiver, one cell a cable. Yellow from {SLOWER} (SuperBench), red from {SLOW} (a policy "
        "of ours).",
        pairs("transfer_ratio", "host"),
        empty_text="No collectives with times are seen.",
    ),
}

RANKS = {
    "Who talks to whom: ranks": by_rank.of(
        colours({None: Colour.GREY, LITTLE: Colour.PLAIN, MUCH: Colour.FINE}, Unit.RATIO),
        decimals=0,
        silence=MANY_RANKS,
    )(
        "Bytes from the rank of the row to that of the column, by those of the busiest pair: green "
        f"from {MUCH:.0%} on, blue from {LITTLE:.0%} on, grey below. Squares along the diagonal "
        "are groups within a host (tensor parallel), lines far from it groups between hosts (data "
        "or pipeline parallel).",
        f"{pairs('bytes_per_second', 'rank')} / scalar(max({pairs('bytes_per_second', 'rank')}))",
    ),
    "Who waits for whom: ranks": by_rank.of(WAIT_SHARE, decimals=0, silence=NOBODY_WAITS)(
        "Share of the last minute that the rank of the row was inside collectives and waited for "
        "that of the column, which came last. A red column is a straggler; its row is empty, "
        f"because it never waits. From {WAITED_FOR:.0%} on (stragglers_waited_for, after "
        "ByteDance's what-if study); waits below a hundredth of the time are left out.",
        pairs("wait_ratio", "rank"),
    ),
    "Where transfers take long: ranks": by_rank.of(TIMES_AS_LONG, decimals=2, silence=MANY_RANKS)(
        "The same as of hosts, by rank: which of the rings between two hosts is the slow one, and "
        "so which of their NICs. All pairs of a ring light up together, because each waits for the "
        "slowest.",
        pairs("transfer_ratio", "rank"),
    ),
    "Who waits for whom: hosts": by_host.of(WAIT_SHARE, decimals=0, silence=NOBODY_WAITS)(
        "The same as of ranks, in the mean of the ranks of the row's host. A red column is a host "
        "with a straggler; a red diagonal alone are ranks of one host that wait for each other.",
        pairs("wait_ratio", "host"),
    ),
}

SLOWEST = f"topk({PAIRS_SHOWN}, {pairs('transfer_ratio', 'host')})"
TIME = {
    "Slow pairs over time": heat.of(least=1.0, decimals=2, height=10)(
        "The same of transfers, over time: the pairs of hosts that were slowest within the range, "
        "one row each. 1 is as long as others take. A row that is bright from some moment on is a "
        "link that went bad then: look at its ports at that moment.",
        {"{{source}} → {{target}}": worst("transfer_ratio", "host")},
    ),
    "Waiting over time": heat.of(Unit.RATIO, height=10, silence=NOBODY_WAITS)(
        "Which host's ranks waited for which other's, the longest within the range. Many rows with "
        "one target: that target is late.",
        {"{{source}} → {{target}}": worst("wait_ratio", "host")},
    ),
    "Slowest pairs of hosts": table(
        "The pairs whose operations take longest by the median of those like them, what they "
        "carry, and how long the sender's ranks wait for the receiver's. Both names lead to their "
        "hosts: compare their ports at this moment.",
        (
            Column(label="source", title="From", jump=TO_SOURCE),
            Column(label="target", title="To", jump=TO_TARGET),
        ),
        {
            ("Times as long", TIMES_AS_LONG): SLOWEST,
            ("Bytes", Unit.BYTES_PER_SECOND): f"{BY_HOST} and on ({PAIR}) {SLOWEST}",
            ("Waits", WAIT_SHARE): f"{pairs('wait_ratio', 'host')} and on ({PAIR}) {SLOWEST}",
        },
    ),
    "How evenly hosts send": lines.of(fine_until(warn=UNEVEN), silence=NO_TRAFFIC)(
        "What each host sends to others, by the mean of all: a ring has 1 everywhere. From "
        f"{UNEVEN} on one carries more than its share (capacity_imbalance, a policy of ours).",
        {"{{source}}": f"sum by (source) ({BETWEEN}) / scalar(avg(sum by (source) ({BETWEEN})))"},
    ),
}

BOARD = board(
    title="Rank × rank",  # noqa: RUF001 - what a matrix is called
    question="Who talks to whom in this job, which pairs are slow, and who waits for whom?",
    tags=("job",),
    variables=(CLUSTER, JOB),
    rows={"At a glance": GLANCE, "Host to host": HOSTS, "Rank to rank": RANKS, "Since when?": TIME},
)
