"""`top`'s screens with fixed data: every view, every state, narrow and wide; nothing raw."""

import datetime as dt
import io
import itertools

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console, Group

from api.remote.top.ask import Series, tabulate
from api.remote.top.layout import Cell, Column, fit, table, wrap
from api.remote.top.model import (
    Detail,
    Fleet,
    HostRow,
    Incident,
    JobRow,
    Judgement,
    LinkRow,
    Order,
    Picture,
    Turn,
    View,
)
from api.remote.top.plain import as_lines
from api.remote.top.rows import BAD, of_job, paused_cell
from api.remote.top.screen import LISTS, Screen
from api.remote.top.views import Stage, draw
from api.remote.top.watch import Latest, Phase
from api.remote.top.words import NOTHING
from collector.contract.units import NS
from collector.contract.verdict import Cost, Culprit, Evidence, RuledOut
from tests.conftest import Golden
from tests.stands.terminals import golden_path

NOW = 1_794_837_725.0
"""A moment in November 2026."""
URL = "http://127.0.0.1:9700"
SIZES = ((80, 24), (150, 40))
NIC = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf0", switch_port="swp3")
LATE = Culprit(job="other", rank=7, host="node9", gpu=1)


def ns(seconds_ago: float) -> int:
    return int((NOW - seconds_ago) * NS)


SLOW_LINK = Incident(
    id="20261116-000000-lusab-babad",
    state="open",
    cause="slow_link",
    culprit=NIC,
    confidence=0.93,
    since_ns=ns(130),
    lasted_seconds=130.0,
    last_seen_ns=ns(0),
    summary="node3's NIC mlx5_0 moves bytes too slowly: the link runs below its rate. Steps of "
    "llama-70b take 1.4 times as long as usual, because every ring crosses this link.",
    action="Drain node3, then reseat the cable between mlx5_0 and leaf0 swp3",
    jobs=("llama-70b", "mixtral"),
    victims=2,
    lost_seconds=52.0,
    gpu_hours=3.7,
)
STRAGGLER = Incident(
    id="20261116-000100-kabod-rufin",
    state="open",
    cause="straggler",
    culprit=LATE,
    confidence=0.8,
    since_ns=ns(7_300),
    lasted_seconds=7000.0,
    last_seen_ns=ns(300),
    summary="GPU 1 of node9 comes late to its collectives: the GPU is throttled.",
    action="Look at the cooling of node9",
    jobs=("other",),
    gpu_hours=0.4,
    lost_seconds=40.0,
)
OVER = Incident(
    id="20261115-233000-mobim-zatol",
    state="closed",
    cause="link_flap",
    culprit=Culprit(switch="leaf1", switch_port="swp7"),
    confidence=0.99,
    since_ns=ns(1_900),
    until_ns=ns(1_300),
    last_seen_ns=ns(1_300),
    lasted_seconds=600.0,
    closed_ns=ns(1_240),
)
DETAIL = Detail(
    id=SLOW_LINK.id,
    state="open",
    jobs=SLOW_LINK.jobs,
    lasted_seconds=SLOW_LINK.lasted_seconds,
    last_seen_ns=SLOW_LINK.last_seen_ns,
    verdict=Judgement(
        cause="slow_link",
        culprit=NIC,
        since_ns=SLOW_LINK.since_ns,
        confidence=0.93,
        reason="rate_downgrade",
        layer="network",
        summary=SLOW_LINK.summary,
        action=SLOW_LINK.action,
        victims=(Culprit(job="llama-70b", rank=4, host="node4"),),
        evidence=(
            Evidence(
                metric="fabric_port_rate_bits_per_second",
                text="The link runs at 100 Gb/s, its peers at 400 Gb/s",
                value=100e9,
                unit="bits/s",
            ),
        ),
        ruled_out=(RuledOut(what="straggler", why="all ranks enter within 2 ms"),),
        costs=(
            Cost(
                job="llama-70b",
                lost_seconds=52.0,
                step_seconds=1.4,
                step_seconds_without=1.0,
                lost_share=0.29,
                gpu_hours=3.7,
            ),
        ),
    ),
    history=(
        Turn(time_ns=ns(120), news="opened", cause="slow_link", culprit=NIC, confidence=0.7),
        Turn(time_ns=ns(60), news="updated", cause="slow_link", culprit=NIC, confidence=0.93),
    ),
)
JOBS = (
    JobRow(
        job="llama-70b",
        ranks=128.0,
        step_s=1.4,
        network=0.42,
        waits=0.03,
        steps_s=(*[1.0] * 30, 1.1, 1.3, *[1.4] * 8),
    ),
    JobRow(job="mixtral", ranks=112.0, step_s=0.812, network=0.2, waits=0.12, steps_s=(0.8,) * 40),
    JobRow(job="just-started"),
)
LINKS = (
    LinkRow(host="leaf1/leaf1/swp7", peer="spine0/spine0/swp1", is_down=True),
    LinkRow(
        host="node3", device="mlx5_0", port="1", peer="leaf0 swp3", rate=100e9, sends=0.97,
        receives=0.91, errors=0.0, paused=0.002,
    ),
    LinkRow(host="leaf0", device="leaf0", port="swp9", rate=400e9, sends=0.4, errors=12.0),
    LinkRow(host="node7", device="eth0"),
)  # fmt: skip
HOSTS = (
    HostRow(host="node1", silent_s=3.0, gpus=8.0, busy=0.97, throttled=0.0, sends=1.2e12,
            receives=1.1e12),
    HostRow(host="node3", silent_s=2.0, gpus=8.0, busy=0.9, throttled=0.0, sends=9e11,
            receives=9e11),
    HostRow(host="node5", silent_s=400.0),
    HostRow(host="node9", silent_s=1.0, gpus=8.0, busy=0.99, throttled=1.0),
)  # fmt: skip
PICTURE = Picture(
    time_s=NOW,
    incidents=(SLOW_LINK, STRAGGLER),
    closed=(OVER,),
    fleet=Fleet(agents=32.0, gpus=256.0, gpus_busy=0.934, jobs=2.0, links_down=1),
    jobs=JOBS,
    links=LINKS,
    hosts=HOSTS,
    detail=DETAIL,
)
ANSWERS = Latest(phase=Phase.ANSWERS, picture=PICTURE, is_live=True)
QUIET = msgspec.structs.replace(
    PICTURE, incidents=(), closed=(), fleet=Fleet(agents=32.0, jobs=2.0, links_down=0), detail=None
)
AWAY = msgspec.structs.replace(
    ANSWERS,
    phase=Phase.AWAY,
    is_live=False,
    why="cannot reach http://127.0.0.1:9700: Connection refused",
    away_since_s=1_000.0,
    retry_at_s=1_064.0,
)
TOKEN = "http://127.0.0.1:9700 asks for a token: start with --token-file FILE"  # noqa: S105
STATES = {
    "connecting": Latest(),
    "empty-no-agent": Latest(phase=Phase.ANSWERS, picture=Picture(time_s=NOW, jobs=())),
    "empty-no-job": Latest(
        phase=Phase.ANSWERS, picture=Picture(time_s=NOW, fleet=Fleet(agents=3.0))
    ),
    "all-is-well": Latest(phase=Phase.ANSWERS, picture=QUIET, is_live=True),
    "stale": AWAY,
    "away-from-the-start": msgspec.structs.replace(AWAY, picture=None),
    "refused": Latest(phase=Phase.REFUSED, why=TOKEN, away_since_s=1_050.0, retry_at_s=1_062.0),
    "partly-answered": msgspec.structs.replace(
        ANSWERS,
        is_live=False,
        picture=msgspec.structs.replace(PICTURE, problems={"links": "HTTP 503 busy"}),
        news="opened: node3's NIC mlx5_0 moves bytes too slowly",
        news_s=NOW - 5,
    ),
}


def stage(width: int = 80, height: int = 24) -> Stage:
    return Stage(width=width, height=height, url=URL, now_s=NOW, monotonic_s=1_060.0, zone=dt.UTC)


def text(screen: Screen, latest: Latest, width: int = 80, height: int = 24) -> str:
    """The screen as a terminal without colours would show it."""
    output = io.StringIO()
    console = Console(file=output, width=width, color_system=None, highlight=False)
    console.print(Group(*draw(screen, latest, stage(width, height))))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", View)
def test_every_view_looks_as_it_did(view: View, size: tuple[int, int], golden: Golden) -> None:
    screen = Screen(view=view, incident=SLOW_LINK.id)
    golden(golden_path(f"{view}-{size[0]}"), text(screen, ANSWERS, *size))


@pytest.mark.parametrize("state", STATES)
def test_every_state_looks_as_it_did(state: str, golden: Golden) -> None:
    golden(golden_path(f"state-{state}"), text(Screen(), STATES[state]))


def test_help_looks_as_it_did(golden: Golden) -> None:
    golden(golden_path("help"), text(Screen(is_helping=True), ANSWERS))


def test_everything_once_looks_as_it_did(golden: Golden) -> None:
    lines = as_lines(PICTURE, frozenset(LISTS), Order.UTILISATION, url=URL, width=100, zone=dt.UTC)
    golden(golden_path("once"), "".join(f"{line.plain}\n" for line in lines))


@pytest.mark.parametrize("width", [1, 5, 39, 40, 41, 60, 80, 100, 121, 300])
@pytest.mark.parametrize("height", [1, 4, 8, 9, 24, 90])
def test_a_screen_fills_the_terminal_and_no_more(width: int, height: int) -> None:
    states = (*STATES.values(), ANSWERS)
    for view, latest, helps in itertools.product(View, states, (False, True)):
        screen = Screen(view=view, incident=SLOW_LINK.id, is_helping=helps, filter="node")
        lines = draw(screen, latest, stage(width, height))
        assert len(lines) == height
        assert all(line.cell_len <= width for line in lines), (view, latest.phase)


@pytest.mark.parametrize("width", [40, 46, 60, 80])
@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("kept", ["", "node", "a name that is longer than the terminal is wide"])
def test_the_way_out_is_readable_at_any_width(view: View, kept: str, width: int) -> None:
    def bottom(screen: Screen) -> str:
        return draw(screen, ANSWERS, stage(width, 24))[-1].plain

    said = bottom(Screen(view=view, incident=SLOW_LINK.id, filter=kept))
    assert "  q quit" in said or said == " q quit"
    assert ("(Esc: all)" in said) == (bool(kept) and view is not View.INCIDENT)
    typed = bottom(Screen(view=view, filter=kept, is_typing=True))
    assert typed.endswith(f"{kept[-10:]}▏  (Esc: all)"), "where one types, and the way out"


def test_beside_an_incident_usual_is_what_the_verdict_says() -> None:
    """Ten minutes after the fault's beginning all steps on screen have it: their median, too."""
    row = JobRow(job="llama-70b", step_s=1.4, steps_s=(1.4,) * 40)
    judged = msgspec.structs.replace(SLOW_LINK, costs=DETAIL.verdict.costs)
    assert of_job(row, ()).cells[3].text == "+0%"
    assert of_job(row, (SLOW_LINK, judged)).cells[3] == Cell("+40%", BAD)
    assert of_job(msgspec.structs.replace(row, job="mixtral"), (judged,)).cells[3].text == "+0%"


def test_a_stale_screen_is_dimmed_and_keeps_what_was_known() -> None:
    lines = draw(Screen(), AWAY, stage())
    body = [line for line in lines if "moves bytes too slowly" in line.plain]
    assert body
    assert all(any(span.style == "dim" for span in line.spans) for line in body)
    assert not any(
        span.style == "dim" for line in draw(Screen(), ANSWERS, stage())[2:4] for span in line.spans
    )


def test_the_selected_entry_is_seen_wherever_it_is_in_a_long_list() -> None:
    rows = tuple(HostRow(host=f"node{number:04}", silent_s=1.0) for number in range(500))
    many = tuple(
        msgspec.structs.replace(SLOW_LINK, id=f"i{number:03}", summary=f"trouble {number:03}")
        for number in range(60)
    )
    picture = msgspec.structs.replace(PICTURE, hosts=rows, incidents=many, closed=())
    latest = msgspec.structs.replace(ANSWERS, picture=picture)
    for place in (0, 1, 250, 498, 499):
        screen = Screen(view=View.HOSTS, chosen={View.HOSTS: f"node{place:04}"})
        assert f"▸ node{place:04}" in text(screen, latest)
    for place in (0, 1, 30, 59):
        screen = Screen(chosen={View.NOW: f"i{place:03}"})
        shown = text(screen, latest)
        assert f"trouble {place:03}" in shown
        selected = [line for line in shown.splitlines() if line.startswith("▸")]
        assert len(selected) == 1


@pytest.mark.parametrize("view", View)
def test_markup_in_names_is_shown_and_not_obeyed(view: View) -> None:
    name = "[red]x[/red][link=http://evil]"
    picture = Picture(
        time_s=NOW,
        incidents=(msgspec.structs.replace(SLOW_LINK, summary=name, action=name),),
        fleet=Fleet(agents=1.0, jobs=1.0),
        jobs=(JobRow(job=name),),
        links=(LinkRow(host=name),),
        hosts=(HostRow(host=name),),
        detail=msgspec.structs.replace(
            DETAIL, verdict=msgspec.structs.replace(DETAIL.verdict, summary=name)
        ),
    )
    latest = Latest(phase=Phase.ANSWERS, picture=picture)
    shown = text(Screen(view=view, incident=SLOW_LINK.id), latest, 150, 40)
    assert name in shown


def test_wide_signs_take_two_columns_and_are_never_cut_in_half() -> None:
    for room in range(1, 12):
        assert fit(Cell("漢字かな交じり"), room).cell_len == room
    columns = (Column("name"), Column("n", 4, is_right=True))
    for width in range(10, 40):
        head, rows = table(columns, [(Cell("漢字かな交じり文"), Cell("12"))], width, 0)
        assert {cell_len(line.plain) for line in (head, *rows)} == {width}


def test_long_words_are_cut_after_so_many_lines() -> None:
    lines = wrap("word " * 100, 20, lines_max=2)
    assert len(lines) == 2
    assert lines[1].plain.endswith("…")
    assert all(line.cell_len <= 20 for line in lines)


def test_what_is_no_number_makes_no_column() -> None:

    found = tabulate(
        [
            Series({"what": "a", "job": "x"}, (0.0, "1.5")),
            Series({"what": "b", "job": "x"}, (0.0, "NaN")),
            Series({"what": "c", "job": "y"}, (0.0, "+Inf")),
        ],
        ("job",),
    )
    assert found == {("x",): {"a": 1.5}}


def test_a_pause_that_nobody_timed_is_a_bound_and_rings_no_bell() -> None:
    timed = paused_cell(LinkRow(host="a", paused=0.4, paused_at_most=1.0))
    assert timed.text == "40%"
    assert timed.style
    bound = paused_cell(LinkRow(host="a", paused_at_most=1.0))
    assert (bound.text, bound.style) == ("≤100%", "")
    assert paused_cell(LinkRow(host="a")).text == NOTHING
