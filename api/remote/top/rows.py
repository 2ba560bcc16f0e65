"""The lists: one entry for each incident, job, link and host, filtered. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from api.remote.top import words
from api.remote.top.layout import Cell, Column
from api.remote.top.model import HostRow, Incident, JobRow, LinkRow, Picture, View
from collector.contract.verdict import Culprit

GOOD, WARN, BAD, QUIET = "green", "yellow", "bold red", "dim"

SLOWER_WARN, SLOWER_BAD = 1.05, 1.2
"""A step that takes so many times the usual one."""
NETWORK_WARN, NETWORK_BAD = 0.25, 0.5
"""Share of the time in transfers: above a quarter the network is what limits the job."""
WAITS_WARN, WAITS_BAD = 0.1, 0.3
BUSY_WARN, BUSY_BAD = 0.8, 0.95
"""Share of a link's rate: queues grow from 0.8 on."""
PAUSED_WARN, PAUSED_BAD = 0.05, 0.3
SILENT_WARN_S, SILENT_BAD_S = 30.0, 120.0
"""Agents send every 5 s."""
SPARK_WIDTH, SPARK_WIDTH_WIDE = 12, 40
WIDE = 120
"""Columns from which on there is room for more."""

LINK_COLUMNS = (
    Column("port"),
    Column("sends", 6, is_right=True),
    Column("receives", 8, is_right=True),
    Column("errors", 8, is_right=True),
    Column("may not send", 12, is_right=True),
    Column("rate", 9, is_right=True),
    Column("other end", 28, from_width=WIDE),
)
HOST_COLUMNS = (
    Column("host"),
    Column("GPUs", 4, is_right=True),
    Column("busy", 5, is_right=True),
    Column("slowed", 6, is_right=True),
    Column("sends", 9, is_right=True),
    Column("receives", 9, is_right=True),
    Column("heard", 9, is_right=True),
    Column("trouble", 11),
)


def job_columns(width: int) -> tuple[Column, ...]:
    """The table of jobs; a wide terminal shows more of each job's past."""
    return (
        Column("job"),
        Column("ranks", 5, is_right=True),
        Column("step", 6, is_right=True),
        Column("slower", 6, is_right=True),
        Column("network", 7, is_right=True),
        Column("waits", 5, is_right=True),
        Column("10 min", SPARK_WIDTH_WIDE if width >= WIDE else SPARK_WIDTH),
        Column("trouble", 11),
    )


@dataclass(frozen=True)
class Entry:
    """One entry of a list."""

    id: str
    cells: tuple[Cell, ...]
    incident: str = ""
    """The incident that Enter opens; empty: none."""

    def matches(self, text: str) -> bool:
        return any(text in cell.text.casefold() for cell in self.cells)


def entries(view: View, picture: Picture | None, wanted: str = "") -> list[Entry]:
    """A view's entries that contain the text; empty where the view has no list."""
    if picture is None:
        return []
    found: list[Entry] = []
    if view is View.NOW:
        found = [of_incident(one) for one in (*picture.incidents, *picture.closed)]
    elif view is View.JOBS:
        found = [of_job(row, picture.incidents) for row in picture.jobs or ()]
        found.sort(key=lambda entry: not entry.incident)
    elif view is View.LINKS:
        found = [of_link(row, picture.incidents) for row in picture.links or ()]
    elif view is View.HOSTS:
        rows = sorted(picture.hosts or (), key=trouble_of_host)
        found = [of_host(row, picture.incidents) for row in rows]
        found.sort(key=lambda entry: not entry.incident)
    text = wanted.casefold()
    return [entry for entry in distinct(found) if not text or entry.matches(text)]


def distinct(found: Sequence[Entry]) -> Iterator[Entry]:
    """An id for each: two clusters may have ports of one name, and the selection must move on."""
    seen: Counter[str] = Counter()
    for entry in found:
        seen[entry.id] += 1
        count = seen[entry.id]
        yield entry if count == 1 else replace(entry, id=f"{entry.id} ({count})")


def of_incident(one: Incident) -> Entry:
    """An incident; the view draws it as a block, the filter searches all its texts."""
    texts = (one.cause, words.culprit(one.culprit), one.summary, " ".join(one.jobs), one.id)
    return entry(one.id, one, *(Cell(text) for text in texts))


def of_job(row: JobRow, incidents: Sequence[Incident]) -> Entry:
    about = next((one for one in incidents if row.job in one.jobs), None)
    usual = usual_step(row, incidents)
    ratio = row.step_s / usual if row.step_s and usual else None
    return entry(
        row.job,
        about,
        Cell(row.job),
        Cell(words.whole(row.ranks)),
        Cell(words.step(row.step_s)),
        Cell(slower(ratio), level(ratio, SLOWER_WARN, SLOWER_BAD)),
        Cell(words.share(row.network), level(row.network, NETWORK_WARN, NETWORK_BAD)),
        Cell(words.share(row.waits), level(row.waits, WAITS_WARN, WAITS_BAD)),
        Cell(words.sparkline(row.steps_s, SPARK_WIDTH_WIDE), "cyan", is_tail=True),
        trouble(about),
    )


def usual_step(row: JobRow, incidents: Sequence[Incident]) -> float | None:
    """A step without what is wrong now, by the verdicts; else the median of the last minutes.

    The median alone would soon be a step with the fault, and call it usual beside the incident.
    """
    costs = (cost for one in incidents for cost in one.costs if cost.job == row.job)
    judged = [cost.step_seconds_without for cost in costs if cost.step_seconds_without is not None]
    return min(judged, default=words.median(row.steps_s))


def of_link(row: LinkRow, incidents: Sequence[Incident]) -> Entry:
    """A port, or a cable that is down."""
    about = next((one for one in incidents if is_about_port(one.culprit, row)), None)
    if row.is_down:
        ends = f"{short(row.name)} ↔ {short(row.peer)}"
        return entry(f"down {ends}", about, Cell(ends), Cell("down", BAD), *[Cell("")] * 5)
    return entry(
        row.name,
        about,
        Cell(short(row.name), BAD if about else ""),
        Cell(words.share(row.sends), level(row.sends, BUSY_WARN, BUSY_BAD)),
        Cell(words.share(row.receives), level(row.receives, BUSY_WARN, BUSY_BAD)),
        Cell(words.per_second(row.errors), BAD if row.errors else ""),
        paused_cell(row),
        Cell(words.scaled(row.rate, "b/s")),
        Cell(row.peer),
    )


def paused_cell(row: LinkRow) -> Cell:
    if row.paused is None and row.paused_at_most is not None:
        return Cell(f"≤{words.share(row.paused_at_most)}")
    return Cell(words.share(row.paused), level(row.paused, PAUSED_WARN, PAUSED_BAD))


def of_host(row: HostRow, incidents: Sequence[Incident]) -> Entry:
    about = next((one for one in incidents if one.culprit.host == row.host), None)
    heard = words.NOTHING if row.silent_s is None else words.brief(row.silent_s)
    return entry(
        row.host,
        about,
        Cell(row.host),
        Cell(words.whole(row.gpus)),
        Cell(words.share(row.busy)),
        Cell(words.whole(row.throttled), BAD if row.throttled else ""),
        Cell(words.scaled(row.sends, "b/s")),
        Cell(words.scaled(row.receives, "b/s")),
        Cell(heard, level(row.silent_s, SILENT_WARN_S, SILENT_BAD_S)),
        trouble(about),
    )


def entry(name: str, about: Incident | None, *cells: Cell) -> Entry:
    return Entry(name, cells, about.id if about else "")


def trouble(about: Incident | None) -> Cell:
    return Cell(cause_words(about.cause), BAD) if about else Cell("")


def cause_words(cause: str) -> str:
    """A cause as text.

    >>> cause_words("slow_link")
    'slow link'
    """
    return cause.replace("_", " ")


def trouble_of_host(row: HostRow) -> tuple[bool, bool, str]:
    """Sort key: silent hosts first, then those with slowed GPUs, then by name."""
    is_silent = (row.silent_s or 0.0) > SILENT_BAD_S
    return not is_silent, not row.throttled, row.host


def is_about_port(culprit: Culprit, row: LinkRow) -> bool:
    if culprit.device and (culprit.host, culprit.device) == (row.host, row.device):
        return True
    at_switch = (culprit.switch, culprit.switch_port) == (row.host, row.port)
    return bool(culprit.switch_port) and at_switch


def short(end: str) -> str:
    """An end of a cable; a switch's ports have its name twice, as host and as device.

    >>> short("leaf1/leaf1/swp7"), short("node3/mlx5_0/1")
    ('leaf1/swp7', 'node3/mlx5_0/1')
    """
    host, _, rest = end.partition("/")
    return rest if rest.startswith(f"{host}/") else end


def slower(ratio: float | None) -> str:
    """How much longer than usual, in per cent.

    >>> slower(1.256), slower(0.999), slower(None)
    ('+26%', '+0%', '-')
    """
    return words.NOTHING if ratio is None else f"{round(ratio - 1, 2) + 0.0:+.0%}"


def level(value: float | None, warn: float, bad: float) -> str:
    if value is None:
        return QUIET
    return BAD if value >= bad else WARN if value >= warn else ""
