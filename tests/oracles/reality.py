"""Tables and drawings of the real ring and the simulated one (`tests.oracles.reality_runs`).

    python -m tests.oracles.reality record CAPTURES
    python -m tests.oracles.reality write

`record` reads real captures into the file of figures, once. `write` simulates and makes
`docs/simulator-against-reality.md` and its drawings anew.

Drawings bring their own background and follow the reader's light or dark style, so that they can be
read wherever the page is shown. Everything is made from rounded figures: the same run gives the
same bytes.
"""

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.oracles.reality_runs import (
    RANKS,
    ROOT,
    RUNS,
    Figures,
    figures_of,
    record,
    recorded,
    simulate,
)
from tests.tools.docs_tables import table
from tests.tools.svg import Scale, at, safe, short

PAGE = ROOT / "docs/simulator-against-reality.md"
IMAGES = ROOT / "docs/images"
PART = re.compile(r"(<!-- reality: ([a-z0-9]+) -->\n).*?(<!-- end -->)", re.DOTALL)

WIDTH = 1240
"""In units of a drawing, as the report's: at 1366 pixels letters keep their size."""
PANEL = 600
"""Width of one of two panels side by side."""
LEFT, TOP = 62, 40
RATE_TOP_MBPS = 1700.0
"""Of the rows of rates: two chunks in one bin; single bins of the capture go beyond."""
AGAINST_THE_RING = (2, 1, 0, 7, 6, 5, 4, 3)
"""Ranks in the order in which they should leave when host 3 is slow, and host 3 itself."""

STYLE = """
:root { --card: #ffffff; --ink: #1c2430; --soft: #5b6675; --rule: #dfe3e8; --real: #2f7fd1;
  --ours: #c9730a; --wait: #e8b765; }
@media (prefers-color-scheme: dark) { :root { --card: #1a2028; --ink: #e4e9f0; --soft: #a3afbf;
  --rule: #343f4d; --real: #5aa5ee; --ours: #e99a3c; --wait: #8a6a35; } }
text { font: 13px system-ui, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
.head { font-size: 15px; fill: var(--ink); } .hot { font-weight: 700; fill: var(--ink); }
.card { fill: var(--card); } .grid { stroke: var(--rule); }
.real { fill: var(--real); } .ours { fill: var(--ours); } .wait { fill: var(--wait); }
"""
SIDES = (("real", "real"), ("ours", "simulated"))
"""CSS class and words of both sides."""


@cache
def both(run: str) -> dict[str, Figures]:
    """Figures of the real and of the simulated run."""
    return {"real": recorded()[run], "ours": figures_of(simulate(run))}


def write() -> None:
    """Make page and drawings anew."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for path, text in drawings().items():
        path.write_text(text, "utf-8")
    PAGE.write_text(refreshed(PAGE.read_text("utf-8")), "utf-8")


def refreshed(text: str) -> str:
    """The page with every generated part made anew."""
    return PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}{part[3]}", text)


def drawings() -> dict[Path, str]:
    """Every drawing by its file."""
    return {
        IMAGES / "reality-ladder.svg": ladder(),
        IMAGES / "reality-rates.svg": rates(),
        IMAGES / "reality-collective.svg": collectives(),
    }


# --- tables --------------------------------------------------------------------------------------


def share(counts: list[int], rank: int) -> str:
    """How often it was this rank.

    >>> share([1, 27], 1)
    'rank 1 in 27 of 28'
    """
    return f"rank {rank} in {counts[rank]} of {sum(counts)}"


def spread(values: list[float], digits: int = 0) -> str:
    """The least and the most.

    >>> spread([268.4, 275.8])
    '268 to 276'
    """
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


Row = tuple[str, Callable[[Figures], str]]

TIMES: list[Row] = [
    ("all-reduces looked at", lambda one: str(one.collectives)),
    ("transfer (last exit after last entry), ms", lambda one: f"{one.transfer_ms:.1f}"),
    ("skew (last entry after first), ms", lambda one: f"{one.skew_ms:.1f}"),
]


def compared(run: str, rows: list[Row]) -> str:
    """A table of both sides."""
    real, ours = both(run)["real"], both(run)["ours"]
    cells = [[what, figure(real), figure(ours)] for what, figure in TIMES + rows]
    return table(["median of a run", "real", "simulated"], cells)


def healthy() -> str:
    """Of the run that everything is calibrated with."""
    rows: list[Row] = [
        ("exits after the first, ms", lambda one: spread(one.exit_ms, 1)),
        ("mean rate of NICs, Mb/s", lambda one: spread(one.rate_mbps)),
        ("variation of NICs at 10 ms", lambda one: spread(one.variation, 2)),
    ]
    return compared("healthy", rows)


def net3() -> str:
    """Of the slow NIC."""
    rows: list[Row] = [
        ("enters last", lambda one: share(one.last_in, 4)),
        ("spends the least time inside", lambda one: share(one.least_inside, 2)),
        ("mean rate of NICs, Mb/s", lambda one: spread(one.rate_mbps)),
        ("variation at 10 ms, host 3", lambda one: f"{one.variation[3]:.2f}"),
        (
            "variation at 10 ms, the others",
            lambda one: spread([one.variation[rank] for rank in range(RANKS) if rank != 3], 2),
        ),
        ("95th percentile at 10 ms, host 3, Mb/s", lambda one: f"{one.peak_mbps[3]:.0f}"),
        (
            "the same, the others, Mb/s",
            lambda one: spread([one.peak_mbps[rank] for rank in range(RANKS) if rank != 3]),
        ),
    ]
    exits = [
        [f"rank {rank}", *(f"{both('net3')[side].exit_ms[rank]:.0f}" for side, _ in SIDES)]
        for rank in AGAINST_THE_RING
    ]
    head = ["exit after the first, ms", "real", "simulated"]
    return compared("net3", rows) + "\n" + table(head, exits)


def compute5() -> str:
    """Of the late rank."""
    rows: list[Row] = [
        ("enters last", lambda one: share(one.last_in, 5)),
        ("spends the least time inside", lambda one: share(one.least_inside, 5)),
        ("mean rate of NICs, Mb/s", lambda one: spread(one.rate_mbps)),
    ]
    return compared("compute5", rows)


PARTS: dict[str, Callable[[], str]] = {"healthy": healthy, "net3": net3, "compute5": compute5}
assert tuple(PARTS) == RUNS


# --- drawings ------------------------------------------------------------------------------------


def drawing(height: float, label: str, parts: Iterator[str]) -> str:
    """A file of its own: background, style, and a description for those who cannot see it."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {short(height)}" '
        f'role="img" aria-label="{safe(label)}">\n<style>{STYLE}</style>\n'
        f'<rect class="card" width="{WIDTH}" {at(height=height)} rx="8"/>\n{body}\n</svg>\n'
    )


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    return f'<text class="{kind}" {at(x=x, y=y)} text-anchor="{anchor}">{safe(text)}</text>'


def axis(scale: Scale, top: float, bottom: float, unit: str) -> Iterator[str]:
    """Upright lines at round numbers, and the numbers below."""
    for tick in scale.ticks():
        x = scale.at(tick)
        yield f'<line class="grid" {at(x1=x, x2=x, y1=top, y2=bottom)}/>'
        yield words(x, bottom + 18, f"{tick:,.10g} {unit}", anchor="middle")


def bar(scale: Scale, span: tuple[float, float], y: float, height: float, kind: str) -> str:
    """From one number to another."""
    start, end = scale.at(span[0]), scale.at(span[1])
    size = at(x=start, y=y, width=max(1.0, end - start), height=height)
    return f'<rect class="{kind}" {size}/>'


def ladder() -> str:
    """When each rank leaves, real above simulated."""
    row, bottom = 40, TOP + 40 * RANKS
    figures = both("net3")

    def parts() -> Iterator[str]:
        scale = Scale(0.0, 180.0, LEFT, WIDTH - 60)
        yield words(LEFT, 24, "net3: exits after the first one, medians", "head")
        for place, (kind, name) in enumerate(SIDES):
            x = WIDTH - 240 + 100 * place
            yield f'<rect class="{kind}" {at(x=x, y=14, width=12, height=12)}/>'
            yield words(x + 18, 25, name)
        yield from axis(scale, TOP, bottom, "ms")
        for place, rank in enumerate(AGAINST_THE_RING):
            y = TOP + place * row
            yield words(LEFT - 10, y + 24, f"rank {rank}", "hot" if rank == 3 else "", "end")
            for below, (kind, _) in enumerate(SIDES):
                exit_ms = figures[kind].exit_ms[rank]
                yield bar(scale, (0.0, exit_ms), y + 5 + 15 * below, 13, kind)
                yield words(scale.at(exit_ms) + 6, y + 16 + 15 * below, f"{exit_ms:.0f}")

    return drawing(bottom + 30, "Exits of a ring with one slow NIC, real and simulated", parts())


def rates() -> str:
    """What each NIC sent in a second, in bins of 10 ms: real left, simulated right."""
    row, bottom = 46, TOP + 46 * RANKS
    figures = both("net3")

    def parts() -> Iterator[str]:
        for side, (kind, name) in enumerate(SIDES):
            left = side * (WIDTH - PANEL)
            scale = Scale(0.0, 1000.0, left + LEFT, left + PANEL - 40)
            yield words(left + LEFT, 24, f"net3, {name}: sent in each 10 ms", "head")
            yield from axis(scale, TOP, bottom, "ms")
            for host, sent in enumerate(figures[kind].drawn_mbps):
                base = TOP + (host + 1) * row - 4
                yield words(
                    left + LEFT - 8, base - 14, f"host {host}", "hot" if host == 3 else "", "end"
                )
                height = Scale(0.0, RATE_TOP_MBPS, base, base - row + 6)
                yield f'<path class="{kind}" d="{area(scale, height, sent)}"/>'

    return drawing(bottom + 30, "Rates of eight NICs for a second, real and simulated", parts())


def area(across: Scale, up: Scale, values: list[float]) -> str:
    """The path of a step function over bins, filled down to zero."""
    width = (across.high - across.low) / len(values)
    moves = [f"M{short(across.at(0.0))} {short(up.at(0.0))}"]
    for place, value in enumerate(values):
        moves.append(f"V{short(up.at(value))}H{short(across.at((place + 1) * width))}")
    return "".join(moves) + f"V{short(up.at(0.0))}Z"


def collectives() -> str:
    """One all-reduce of each faulty run: who is inside from when to when."""
    row, block = 22, 22 * RANKS + 74

    def parts() -> Iterator[str]:
        for place, run in enumerate(("net3", "compute5")):
            for side, (kind, name) in enumerate(SIDES):
                left, top = side * (WIDTH - PANEL), place * block + TOP
                title = f"{run}, {name}: one all-reduce"
                yield words(left + LEFT, top - 16, title, "head")
                yield from inside(both(run)[kind], kind, (left, top), row)
                for rank in range(RANKS):
                    is_culprit = rank == int(run[-1])
                    y = top + rank * row + 15
                    style = "hot" if is_culprit else ""
                    yield words(left + LEFT - 8, y, f"rank {rank}", style, "end")
        yield bar(Scale(0, 1, LEFT, LEFT + 12), (0, 1), 2 * block, 12, "wait")
        yield words(LEFT + 20, 2 * block + 11, "has entered and waits for the last one to enter")

    return drawing(2 * block + 24, "Entries and exits of two all-reduces", parts())


def inside(figures: Figures, kind: str, corner: tuple[int, int], row: int) -> Iterator[str]:
    """Bars from entry to exit; what lies before the last entry is waiting."""
    left, top = corner
    entries, exits = figures.drawn_entry_ms, figures.drawn_exit_ms
    started = max(entries)
    scale = Scale(0.0, round_up(max(exits)), left + LEFT, left + PANEL - 40)
    yield from axis(scale, top, top + row * RANKS, "ms")
    for rank, (entry, left_at) in enumerate(zip(entries, exits, strict=True)):
        y = top + rank * row + 3
        if entry < started:
            yield bar(scale, (entry, started), y, row - 6, "wait")
        yield bar(scale, (started, left_at), y, row - 6, kind)


def round_up(milliseconds: float) -> float:
    """The end of an axis: real and simulated runs then mostly share it.

    >>> round_up(476.6), round_up(437.5), round_up(56.7)
    (500.0, 500.0, 60.0)
    """
    step = 100.0 if milliseconds > 100 else 10.0
    return -(-milliseconds // step) * step


def main(arguments: list[str]) -> None:
    """Record real runs, or write the page."""
    match arguments:
        case ["record", captures]:
            record(Path(captures))
        case ["write"]:
            write()
        case _:
            sys.exit("usage: python -m tests.oracles.reality record CAPTURES | write")


if __name__ == "__main__":
    main(sys.argv[1:])
