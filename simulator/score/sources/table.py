"""The table: which fault is found through which source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.score.marks import false_sayings
from simulator.score.sources.play import Outcome
from simulator.score.sources.readers import SOURCES

NOT_PLAYED = ""


def state(outcome: Outcome) -> str:
    """One cell: found, with its delay; else costs nothing, missed, or not visible."""
    if outcome.run.error:
        return "broke off"
    others = len(false_sayings(outcome.run))
    wrong = f", {others} wrong" if others else ""
    if outcome.is_found:
        return f"found, {outcome.delay_s:.0f} s{wrong}"
    if outcome.is_harmless:
        return f"costs nothing{wrong}"
    return ("missed" if outcome.shows else "not visible") + wrong


def to_markdown(outcomes: Sequence[Outcome], seeds: Iterable[int]) -> str:
    """Faults in rows, sources in columns; several seeds are several lines of a cell."""
    names = [name for name in SOURCES if any(one.trial.source == name for one in outcomes)]
    faults = sorted({one.trial.fault for one in outcomes})
    given = "switches alone" if all(one.trial.is_alone for one in outcomes) else "agents on hosts"
    lines = [
        f"Seeds {', '.join(map(str, seeds))}; {given}.",
        "",
        f"| fault | {' | '.join(SOURCES[name].title for name in names)} | shows in |",
        f"|---|{'---|' * (len(names) + 1)}",
    ]
    for fault in faults:
        cells = []
        for name in names:
            mine = [one for one in outcomes if (one.trial.fault, one.trial.source) == (fault, name)]
            mine.sort(key=lambda one: one.trial.seed)
            cells.append("; ".join(state(one) for one in mine) or NOT_PLAYED)
        shows = sorted({name for one in outcomes if one.trial.fault == fault for name in one.shows})
        words = ", ".join(f"`{name}`" for name in shows) or "nothing at a switch"
        lines.append(f"| {fault} | {' | '.join(cells)} | {words} |")
    return "\n".join(lines) + "\n"
