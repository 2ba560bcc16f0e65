"""A captured tree's fast samples: the recording `bursts/samples`, reported as by a sampler.

Each line is a tick: its time in nanoseconds, then what each counter's file held, in the order of
the plan (ports by device and number, received before sent); `-` where it could not be read. Lines
that begin with # describe it.
"""

from __future__ import annotations

from typing import Any

from collector.bursts.detect import Burst
from collector.bursts.plan import Plan
from collector.bursts.ring import Ring
from collector.bursts.track import Track

RECORDING = "bursts/samples"
TICKS_MAX = 100_000
"""Of one recording; longer ones are cut."""
TIME_DIGITS_MAX = 19
"""Of a time in nanoseconds."""


def is_tick(words: list[str]) -> bool:
    """Whether a line of a recording is a tick, and no comment or scrap."""
    return (
        bool(words)
        and words[0].isascii()
        and words[0].isdigit()
        and len(words[0]) <= TIME_DIGITS_MAX
    )


def replay(recorded: str, plan: Plan) -> list[dict[str, Any]]:
    """One report about all of it; nothing if it holds no tick."""
    tracks = [Track(counter, plan, every=1, ring=Ring(2)) for counter in plan.counters]
    texts: list[str] = [""] * len(tracks)
    seen_ns = [0] * len(tracks)
    bursts: list[tuple[int, Burst]] = []
    times: list[int] = []
    lines = [words for line in recorded.splitlines() if is_tick(words := line.split())]
    for first, *row in lines[:TICKS_MAX]:
        now_ns = int(first)
        times.append(now_ns)
        for place, (track, text) in enumerate(zip(tracks, row, strict=False)):
            if text == "-":
                track.trouble = "Input/output error"
                continue
            if text != texts[place]:
                texts[place] = text
                track.pending.befores.append(seen_ns[place])
                track.pending.times.append(now_ns)
                track.pending.texts.append(text.encode())
            seen_ns[place] = now_ns
    if not times:
        return []
    for place, track in enumerate(tracks):
        if not seen_ns[place] and not track.trouble:
            track.trouble = "the recording has no such counter"
        bursts += [(place, burst) for burst in track.digest(seen_ns[place])]
    spacing_ns = (times[-1] - times[0]) / max(1, len(times) - 1)
    return [
        {
            "time": times[-1],
            "monotonic": times[-1],
            "ticks": len(times),
            "late": [0, 0, 0],
            "missed": 0,
            "interrupted": 0,
            "cpu": 0.0,
            "dropped": 0,
            "dropped_reports": 0,
            "counters": [track.summary(spacing_ns) for track in tracks],
            "bursts": bursts,
        }
    ]
