"""The figures of a soak as curves: one SVG, a panel for each kind of figure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.bench.report import KIB
from tests.soak.figures import Moment, names_of, values_of
from tests.tools.svg import Scale, at, safe, short

WIDTH, PANEL_HEIGHT, LEFT, RIGHT, GAP, TOP = 900.0, 200.0, 70.0, 240.0, 46.0, 34.0
COLOURS = ("#2b6cb0", "#c53030", "#2f855a", "#b7791f", "#6b46c1", "#0987a0", "#718096")
MIB = KIB * KIB


class Panel(msgspec.Struct, frozen=True):
    """Figures that share a scale."""

    title: str
    names: tuple[str, ...]
    unit: float = 1.0


PANELS = (
    Panel(
        "memory of the process, MiB",
        ("rss_bytes", "pss_bytes", "anonymous_bytes"),
        MIB,
    ),
    Panel(
        "who holds it, MiB",
        (
            "engine_MemoryTracking",
            "malloc_used_bytes",
            "malloc_free_bytes",
            "arrow_bytes",
            "jemalloc_allocated_bytes",
            "jemalloc_resident_bytes",
        ),
        MIB,
    ),
    Panel("blocks of Python's heap, thousands", ("python_blocks",), 1e3),
    Panel("descriptors, threads, parts", ("descriptors", "threads", "parts", "parts_inactive")),
    Panel("bytes on disk, MiB", ("disk_bytes",), MIB),
)


def drawing(moments: list[Moment]) -> str:
    known = set(names_of(moments))
    hours = max(moment.seconds for moment in moments) / 3600
    across = Scale(0.0, hours, LEFT, WIDTH - RIGHT)
    pieces, top = [], TOP
    for panel in PANELS:
        names = [name for name in panel.names if name in known]
        if names:
            pieces += panel_lines(panel, names, moments, across, top)
            top += PANEL_HEIGHT + GAP
    size = at(width=WIDTH, height=top)
    font = 'font-family="sans-serif" font-size="12"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f'<rect {size} fill="#ffffff"/>',
            *pieces,
            "</svg>\n",
        ]
    )


def panel_lines(
    panel: Panel, names: Sequence[str], moments: list[Moment], across: Scale, top: float
) -> list[str]:
    values = {
        name: [(second / 3600, value / panel.unit) for second, value in values_of(moments, name)]
        for name in names
    }
    highest = max(value for points in values.values() for _, value in points)
    up = Scale(0.0, highest * 1.05 or 1.0, top + PANEL_HEIGHT, top)
    lines = [f'<text {at(x=LEFT, y=top - 10)} font-weight="bold">{safe(panel.title)}</text>']
    lines += axes(across, up)
    for number, (name, points) in enumerate(values.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{short(across.at(x))},{short(up.at(y))}" for x, y in points)
        lines.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        label = at(x=WIDTH - RIGHT + 14, y=top + 14 + 17 * number)
        last = points[-1][1]
        lines.append(f'<text {label} fill="{colour}">{safe(name)}: {last:,.0f}</text>')
    return lines


def axes(across: Scale, up: Scale) -> list[str]:
    lines = []
    for tick in up.ticks():
        y = up.at(tick)
        lines.append(f'<line {at(x1=across.start, x2=across.end, y1=y, y2=y)} stroke="#e2e8f0"/>')
        lines.append(f'<text {at(x=across.start - 6, y=y + 4)} text-anchor="end">{tick:,g}</text>')
    for tick in across.ticks():
        label = at(x=across.at(tick), y=up.start + 16)
        lines.append(f'<text {label} text-anchor="middle">{tick:g} h</text>')
    return lines
