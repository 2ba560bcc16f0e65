"""A comparison of steps in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.compare.blame import Excess
from alerts.compare.model import Accused, KindCompared, RankCompared, Role, SideSummary, Without
from alerts.judge.words import compared
from alerts.signals.late import LateStretch
from alerts.signals.transfer import shown_size
from collector.contract.cause_facts import Layer
from collector.contract.figures import duration, shown
from collector.contract.units import NS

NAMED_MAX = 3
"""Ranks that a sentence names."""


def rank_words(rank: int, host: str) -> str:
    """A rank and where it runs.

    >>> rank_words(5, "node5"), rank_words(5, "")
    ('rank 5 (node5)', 'rank 5')
    """
    return f"rank {rank} ({shown(host)})" if host else f"rank {rank}"


def several(names: Sequence[str]) -> str:
    """Some names, and how many more.

    >>> several(["a", "b", "c", "d", "e"]), several(["a", "b"])
    ('a, b, c and 2 more', 'a and b')
    """
    if len(names) > NAMED_MAX:
        return f"{', '.join(names[:NAMED_MAX])} and {len(names) - NAMED_MAX:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def side_words(side: SideSummary) -> str:
    return "The step" if side.steps == 1 else f"A step ({side.steps:,} of them)"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a sentence is made of."""

    excess: Excess
    slow: SideSummary
    normal: SideSummary
    ranks: Sequence[RankCompared]
    kinds: Sequence[KindCompared]
    accused: Sequence[Accused]
    without: Sequence[Without]
    unknown: Sequence[str]


def sentence(told: Told) -> str:
    slow, normal = ((side.step_ns or 0) / NS for side in (told.slow, told.normal))
    if not told.excess.is_slower:
        both = f"{duration(slow)} and {duration(normal)}"
        late = [one for one in told.ranks if one.role is Role.LATE]
        still = f" Still {late_words(late, told.ranks)}.{caution(told)}" if late else ""
        return f"These steps took no longer than the others: {both}.{still}"
    took = f"{side_words(told.slow)} took {compared(slow, normal)}"
    return f"{took}: {because(told)}.{saved(told.without, told.accused)}{caution(told)}"


def because(told: Told) -> str:
    """Where the excess is: ranks that were late by themselves, or transfers, or neither."""
    late = [one for one in told.ranks if one.role is Role.LATE]
    if late:
        return late_words(late, told.ranks)
    network = [one for one in told.accused if one.cause.facts.layer is Layer.NETWORK]
    if told.unknown and not network:
        return f"why is not known. {first_up(told.unknown[0])}"
    slower = [one for one in told.kinds if one.excess_ns >= told.excess.notable_ns]
    if not slower:
        return "no rank and no kind of collective explains a fifth of it; the excess is spread"
    over = f" over {culprit_words(network[0])}" if network else ""
    first = slower[0]
    size = shown_size(first.size_bytes) if first.size_bytes is not None else ""
    kind = f"{first.operation} of {size}" if size else first.operation
    took = compared(first.slow_ns / NS, first.normal_ns / NS)
    return f"no rank came late by itself; {kind}{over} took {took} after all ranks had come"


def late_words(late: Sequence[RankCompared], ranks: Sequence[RankCompared]) -> str:
    waiting = sum(1 for one in ranks if one.role in (Role.WAITED, Role.PASSED_ON))
    names = several([rank_words(one.rank, one.host) for one in late])
    most = max(one.beyond_peers_ns or 0 for one in late) / NS
    was = "was" if len(late) == 1 else "were"
    others = f", and {waiting:,} {'rank' if waiting == 1 else 'ranks'} waited" if waiting else ""
    return f"{names} {was} outside of collectives for {duration(most)} longer{others}"


def first_up(text: str) -> str:
    return text[:1].upper() + text[1:]


def culprit_words(one: Accused) -> str:
    culprit = one.culprit
    if culprit.device:
        return f"{shown(culprit.device)} of {shown(culprit.host)}"
    if culprit.host:
        return shown(culprit.host)
    if culprit.switch:
        return f"{shown(culprit.switch)} {shown(culprit.switch_port)}".strip()
    return f"rank {culprit.rank}" if culprit.rank is not None else "a link that is not known"


def saved(without: Sequence[Without], accused: Sequence[Accused]) -> str:
    """What the accused costs; nothing where none is: a replay of an innocent would accuse it."""
    named = {rank for one in accused for rank in one.ranks}
    own = [one for one in without if named and {*one.ranks} == named]
    if not own:
        return ""
    best = max(own, key=lambda one: one.saved_ns)
    return f" Without that it would take about {duration(best.step_ns / NS)}."


def caution(told: Told) -> str:
    if told.accused:
        return ""
    if told.slow.steps < LateStretch.STEPS_MIN and any(one.role is Role.LATE for one in told.ranks):
        few = "One step accuses" if told.slow.steps == 1 else f"{told.slow.steps} steps accuse"
        return f" {few} no rank."
    return " No verdict accuses a rank or a link here."
