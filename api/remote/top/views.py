"""The screen as lines of text, for any size of terminal and any state of the service. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from api.remote.top import words
from api.remote.top.details import details
from api.remote.top.layout import MARK, NO_MARK, SELECTED, Column, indent, table, window, wrap
from api.remote.top.model import Fleet, Incident, Order, Picture, View
from api.remote.top.rows import (
    BAD,
    GOOD,
    HOST_COLUMNS,
    LINK_COLUMNS,
    QUIET,
    WARN,
    Entry,
    cause_words,
    entries,
    job_columns,
)
from api.remote.top.screen import VIEW_KEYS, Screen
from api.remote.top.watch import Latest, Phase
from collector.contract.units import NS

COLUMNS_MIN, LINES_MIN = 40, 8
"""A terminal that is smaller shows nothing that could be read."""
CHROME_LINES = 3
"""Of the bar, the line of numbers and the line of keys."""
BAR_COLUMNS = 76
"""Of the names of all views, the clock and the longest state; on less, only the shown one's."""
WORDS_LINES_MAX = 2
"""Of a summary or an action in the list; the details have all of it."""
PROBLEM_LINES_MAX = 3
LINKS_DOWN_ASKED = 100
"""Links that are down are counted up to this; more are shown as more."""

WAY_OUT = ("q quit",)
"""Of the keys in the bottom line, the one that stands there at any width."""
ALL_AGAIN = "(Esc: all)"
"""The way out of a filter."""

ORDER_WORDS = {
    Order.UTILISATION: "the busiest",
    Order.ERRORS: "most damaged and dropped packets",
    Order.PAUSE: "longest stopped by pause or without credit",
}
HELP = (
    ("1 2 3 4", "what is wrong now, jobs, links, hosts; Tab goes round"),
    ("5, Enter", "the incident behind the selected line; Esc goes back"),
    ("j k ↓ ↑", "select, or scroll; Space, Page Up and Down: further; g G: first, last"),
    ("/", "show only lines with a text; Enter keeps it, Esc removes it"),
    ("s", "links: busiest, most errors, longest stopped"),
    ("r", "ask now"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("slower", "the job's step against the median of its last ten minutes"),
    ("network", "share of the time in transfers; above 25% the network limits the job"),
    ("waits", "share of the time that ranks wait for one that comes late"),
    ("slowed", "GPUs whose clock heat or the power supply holds down"),
    ("-", "not known"),
)


@dataclass(frozen=True)
class Stage:
    """Size and time of the drawing."""

    width: int
    height: int
    url: str
    now_s: float
    """By the service's clock: an incident's age must not depend on this machine's."""
    monotonic_s: float = 0.0
    zone: dt.tzinfo | None = None
    """None: that of this machine."""


def draw(screen: Screen, latest: Latest, stage: Stage) -> list[Text]:
    """Exactly as many lines as the terminal has, none longer than it is wide."""
    if stage.width < COLUMNS_MIN or stage.height < LINES_MIN:
        lines = wrap(f"needs {COLUMNS_MIN} columns, {LINES_MIN} lines", stage.width)
        return settle(lines, stage.height, stage.width)
    top = [bar(screen, latest, stage), *status(latest, stage)]
    room = stage.height - len(top) - 1
    body = settle(content(screen, latest, stage, room), room, stage.width)
    if latest.phase in {Phase.AWAY, Phase.REFUSED} and latest.picture is not None:
        for line in body:
            line.stylize(QUIET)
    return settle([*top, *body, foot(screen, latest, stage)], stage.height, stage.width)


def content(screen: Screen, latest: Latest, stage: Stage, room: int) -> list[Text]:
    if screen.is_helping:
        return helping(stage.width)
    picture = latest.picture
    if picture is None:
        return waiting(latest, stage)
    if screen.view is View.INCIDENT:
        lines = details(screen.incident, picture, stage.width, stage.zone)
        screen.scroll = max(0, min(screen.scroll, len(lines) - room))
        return lines[screen.scroll : screen.scroll + room]
    shown = screen.listed(picture)
    selected = screen.selected(shown)
    if screen.view is View.NOW:
        return now(picture, shown, selected, stage, room)
    return listing(screen, picture, shown, selected, stage, room)


def settle(lines: Sequence[Text], height: int, width: int) -> list[Text]:
    found = list(lines[:height])
    for line in found:
        line.truncate(width, overflow="ellipsis")
    return [*found, *(Text("") for _ in range(height - len(found)))]


# --- the frame ------------------------------------------------------------------------------------


def bar(screen: Screen, latest: Latest, stage: Stage) -> Text:
    words_of = {
        Phase.CONNECTING: ("connecting", WARN),
        Phase.ANSWERS: ("live", GOOD) if latest.is_live else ("polled", WARN),
        Phase.AWAY: ("away", BAD),
        Phase.REFUSED: ("refused", BAD),
    }
    state, style = words_of[latest.phase]
    clock = words.moment(stage.now_s, stage.now_s, stage.zone)
    right = Text.assemble(f"{clock} ", (state, style), " ")
    line = Text(" Fabricscope ", "bold reverse")
    has_room = stage.width >= BAR_COLUMNS
    for key, view in VIEW_KEYS.items():
        is_shown = view is screen.view
        name = f"{key} {view.title()}" if has_room or is_shown else key
        line.append(" ").append(name, "bold underline" if is_shown else "")
    line.append(" " * max(1, stage.width - line.cell_len - right.cell_len))
    return line.append_text(right)


def status(latest: Latest, stage: Stage) -> list[Text]:
    """The cluster in numbers; while the service is unavailable: since when, why, next try."""
    picture = latest.picture
    if latest.phase in {Phase.AWAY, Phase.REFUSED} and picture is not None:
        return indent(wrap(away(latest, stage), stage.width - 2, BAD, PROBLEM_LINES_MAX), " ")
    if picture is None:
        return [Text("")]
    lines = [Text(f" {numbers(picture.fleet, picture.incidents)}")]
    if picture.problems:
        failed = "; ".join(f"{part}: {why}" for part, why in picture.problems.items())
        lines += indent(
            wrap(f"not answered: {failed}", stage.width - 2, WARN, WORDS_LINES_MAX), " "
        )
    return lines


def away(latest: Latest, stage: Stage) -> str:
    since_s = stage.monotonic_s - (latest.away_since_s or stage.monotonic_s)
    begun = words.moment(stage.now_s - since_s, stage.now_s, stage.zone)
    text = f"No answer since {begun} ({words.span(since_s)}): {latest.why}."
    if latest.phase is Phase.REFUSED:
        text = f"Refused since {begun}: {latest.why}."
    if latest.picture is not None:
        seen = words.moment(latest.picture.time_s, stage.now_s, stage.zone)
        text += f" What you see is of {seen}."
    if latest.retry_at_s is not None:
        left_s = max(0.0, latest.retry_at_s - stage.monotonic_s)
        text += f" Next try in {words.span(left_s)}."
    return text


def numbers(fleet: Fleet, incidents: Sequence[Incident]) -> str:
    shown = []
    if incidents:
        hours = sum(one.gpu_hours for one in incidents)
        shown.append(f"{counted(len(incidents), 'incident')} open, {hours:.1f} GPU hours lost")
    else:
        shown.append("no incident open")
    if fleet.links_down:
        more = "+" if fleet.links_down >= LINKS_DOWN_ASKED else ""
        shown.append(f"{counted(fleet.links_down, 'link')}{more} down")
    if fleet.jobs:
        shown.append(counted(int(fleet.jobs), "job"))
    if fleet.gpus:
        shown.append(f"{counted(int(fleet.gpus), 'GPU')} {words.share(fleet.gpus_busy)} busy")
    if fleet.agents:
        shown.append(counted(int(fleet.agents), "agent"))
    return " · ".join(shown)


def counted(number: int, name: str) -> str:
    """How many of something.

    >>> counted(1, "job"), counted(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {name}" + ("" if number == 1 else "s")


def foot(screen: Screen, latest: Latest, stage: Stage) -> Text:
    """The line at the bottom: the filter while it is typed, else the keys, and the last news."""
    if screen.is_typing:
        return typing_words(screen.filter, stage.width)
    line = Text("")
    if screen.filter and screen.view is not View.INCIDENT:
        line = filter_words(screen.filter, stage.width - cell_len(fitting(WAY_OUT, 0)))
    line.append(fitting(keys_of(screen.view), stage.width - line.cell_len), QUIET)
    if latest.news:
        when = words.moment(latest.news_s, stage.now_s, stage.zone)
        line.append(f"  {when} {latest.news}")
    return line


def keys_of(view: View) -> tuple[str, ...]:
    """What is of most use comes last: on a narrow terminal the first ones are left out."""
    if view is View.INCIDENT:
        return ("↑↓ scroll", "Esc back", "? help", *WAY_OUT)
    order = ("s order",) if view is View.LINKS else ()
    return ("↑↓ select", *order, "Enter why", "/ filter", "? help", *WAY_OUT)


def fitting(keys: Sequence[str], room: int) -> str:
    """As many of the last keys as there is room for; the last one always.

    >>> fitting(("Esc back", "? help", "q quit"), 16)
    ' ? help  q quit'
    """
    left = list(keys)
    while len(left) > 1 and cell_len(f" {'  '.join(left)}") > room:
        del left[0]
    return f" {'  '.join(left)}"


def filter_words(kept: str, room: int) -> Text:
    """Which lines alone are shown; of a long text as much as there is room for."""
    before, after = ' only "', f" {ALL_AGAIN} "
    shown = Text(kept)
    shown.truncate(max(1, room - len(f'{before}"{after}')), overflow="ellipsis")
    return Text.assemble((f'{before}{shown.plain}"', "bold"), (after, QUIET))


def typing_words(typed: str, room: int) -> Text:
    """The filter while it is typed; of a long one the end, which is where one types."""
    before, after = " show only: ", f"  {ALL_AGAIN}"
    while typed and cell_len(f"{before}{typed}▏{after}") > room:
        typed = typed[1:]
    return Text.assemble((before, "bold"), typed, ("▏", "bold"), (after, QUIET))


# --- states without a list ------------------------------------------------------------------------


def waiting(latest: Latest, stage: Stage) -> list[Text]:
    """Before the first answer."""
    if latest.phase is Phase.CONNECTING:
        return indent(wrap(f"Asking {stage.url} …", stage.width - 4))
    lines = indent(wrap(away(latest, stage), stage.width - 4, BAD))
    if latest.phase is Phase.AWAY:
        hint = "Does the service run there (fabricscope serve)? Another address: --service URL"
        lines += [Text(""), *indent(wrap(hint, stage.width - 4))]
    return lines


def empty(picture: Picture) -> str:
    """What an empty list means: whether the service evaluates, and what."""
    fleet = picture.fleet
    if not (fleet.agents or fleet.gpus or fleet.jobs):
        return (
            "No agent reports yet. On each host: fabricscope agent --service URL,"
            " with this service's address."
        )
    if not fleet.jobs:
        return (
            "Nothing is known to be wrong. But no job is measured: ports and GPUs are read, and"
            " whether they slow a job down is known once NCCL Inspector writes."
        )
    return "Nothing is wrong, as far as is measured."


def helping(width: int) -> list[Text]:
    lines = []
    for key, text in HELP:
        first = f"  {key:<10}"
        lines += indent(wrap(text or " ", width - len(first) - 1), " " * len(first), first)
    return lines


# --- lists ----------------------------------------------------------------------------------------


def now(
    picture: Picture, shown: Sequence[Entry], selected: int, stage: Stage, room: int
) -> list[Text]:
    """Open incidents as blocks, then past ones; scrolled so that the selected one is visible."""
    known = {one.id: one for one in (*picture.incidents, *picture.closed)}
    blocks: list[list[Text]] = []
    if not picture.incidents:
        is_well = bool(picture.fleet.agents)
        lines_empty = wrap(empty(picture), stage.width - 4, GOOD if is_well else WARN)
        blocks.append([Text(""), *indent(lines_empty), Text("")])
    has_title = False
    places = []
    for place, entry in enumerate(shown):
        one = known[entry.id]
        lines = block(one, stage, is_selected=place == selected)
        if not one.is_open and not has_title:
            has_title = True
            lines = [Text("  over within the last hour", "bold"), *lines]
        places.append(len(blocks))
        blocks.append(lines)
    if not shown and (picture.incidents or picture.closed):
        blocks.append([Text("  nothing matches the filter", QUIET)])
    return scrolled(blocks, places[selected] if places else 0, room)


def scrolled(blocks: Sequence[Sequence[Text]], selected: int, room: int) -> list[Text]:
    """Lines from the first block on from which the selected one still fits."""
    first = 0
    while first < selected and sum(map(len, blocks[first : selected + 1])) > room - 1:
        first += 1
    lines = [line for each in blocks[first:] for line in each]
    if len(lines) > room:
        hidden = 0
        end = 0
        for each in blocks[first:]:
            end += len(each)
            hidden += end > room - 1
        lines = [*lines[: room - 1], Text(f"  … {hidden} more below", QUIET)]
    return lines


def block(one: Incident, stage: Stage, *, is_selected: bool) -> list[Text]:
    """One incident: cause, culprit, confidence; summary; since when and what it costs; advice."""
    if not one.is_open:
        return [over(one, stage, is_selected=is_selected)]
    width = stage.width - 4
    style = SELECTED if is_selected else ""
    head = Text(MARK if is_selected else NO_MARK, style)
    head.append(cause_words(one.cause).upper(), BAD)
    head.append(f"  {words.culprit(one.culprit)}", "bold")
    head.append(f"  {words.share(one.confidence)} sure")
    since_s = one.since_ns / NS
    lasts = words.lasts(one.lasted_seconds, one.last_seen_ns, stage.now_s)
    text = f"since {words.moment(since_s, stage.now_s, stage.zone)} ({lasts})"
    if one.gpu_hours:
        text += f" · lost {words.span(one.lost_seconds)}, {one.gpu_hours:.1f} GPU hours"
    if one.jobs:
        text += f" · {jobs_of(one)}"
    return [
        head,
        *indent(wrap(one.summary, width, lines_max=WORDS_LINES_MAX), "    "),
        *indent(wrap(text, width, QUIET, 1), "    "),
        *indent(wrap(one.action, width - 2, "cyan", WORDS_LINES_MAX), "      ", "    → "),
        Text(""),
    ]


def over(one: Incident, stage: Stage, *, is_selected: bool) -> Text:
    end_s = (one.until_ns or one.closed_ns or one.since_ns) / NS
    lasted = words.span(one.lasted_seconds)
    line = Text(MARK if is_selected else NO_MARK, SELECTED if is_selected else "")
    line.append(f"{words.moment(end_s, stage.now_s, stage.zone)}  {cause_words(one.cause)}  ")
    return line.append(f"{words.culprit(one.culprit)}  lasted {lasted}{became(one)}")


def became(one: Incident) -> str:
    return f", became {one.became.incident}" if one.became is not None else ""


def jobs_of(one: Incident) -> str:
    more = len(one.jobs) - 1
    return one.jobs[0] + (f" and {counted(more, 'more job')}" if more else "")


def listing(
    screen: Screen, picture: Picture, shown: Sequence[Entry], selected: int, stage: Stage, room: int
) -> list[Text]:
    """A table with its title, scrolled so that the selected line is seen."""
    title, columns, is_known = heading(screen.view, screen.order, picture, stage.width)
    if not is_known:
        return indent([Text("asking …", QUIET)])
    lines = [Text(f"  {title}", QUIET)]
    head, rows = table(columns, [entry.cells for entry in shown], stage.width, selected)
    lines.append(head)
    if not rows:
        everything = entries(screen.view, picture)
        why = "nothing matches the filter" if everything else nothing(screen.view, screen.order)
        return [*lines, *indent(wrap(why, stage.width - 4, QUIET))]
    left = room - len(lines)
    seen = window(len(rows), selected, left)
    lines += [rows[place] for place in seen]
    if len(seen) < len(rows):
        place = f"  {seen.start + 1}-{seen.stop} of {len(rows)}"
        lines[0].append(place)
    return lines


def heading(
    view: View, order: Order, picture: Picture, width: int
) -> tuple[str, Sequence[Column], bool]:
    """A table's title, its columns, and whether it was requested yet."""
    if view is View.JOBS:
        title = "as measured from their collectives, half a minute behind"
        return title, job_columns(width), picture.jobs is not None
    if view is View.LINKS:
        return f"down, then {ORDER_WORDS[order]}", LINK_COLUMNS, picture.links is not None
    return "troubled first, then by name", HOST_COLUMNS, picture.hosts is not None


def nothing(view: View, order: Order) -> str:
    if view is View.JOBS:
        return "No running job is known: see NCCL Inspector, or POST /v1/jobs"
    if view is View.LINKS and order is not Order.UTILISATION:
        return "No port has any."
    return "No host has sent samples yet: fabricscope agent --service URL, on each host"
