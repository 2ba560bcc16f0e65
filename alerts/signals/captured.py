"""Which of two NICs limits a transfer, by a burst capture: their bytes every few ms. Pure.

A ring's members pass on a chunk at once and then wait, so bytes pass a healthy NIC in bursts. They
pass evenly only where something limits them:

- a NIC that is slow both ways sends and receives evenly, and no other does (`smoothness`);
- a NIC that takes in too slowly receives evenly what its sender gives out in bursts: the bytes wait
  in the buffers between the two. A sender that bursts is not what limits them.

Where a sender's bytes are as even as its receiver's, the sender may be slow, or a receiver that
holds it back at once: bytes cannot tell these apart, and nothing is decided. A third NIC that
bursts must be in the capture: it shows that the cells are short enough to see bursts at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from alerts.finding import Suspect
from alerts.signals.ports import called
from alerts.signals.smoothness import CELLS_MIN, excess
from alerts.window.columns import Ints
from alerts.window.model import Captured, Ports, Window
from collector.contract.figures import share as percentage
from collector.contract.verdict import Evidence

BURSTS_MIN = 0.5
"""How far above its mean the busiest cells of a NIC that bursts are, at least: the yardstick, and
the sender that exonerates itself. Chance moves the busiest of 20 even cells by less than half."""
EVEN_MAX = 0.4
FAR = 1 / 3
"""How far above its mean the busiest cells of the even one are at most, and of what the others
have. Chosen after four measured runs with a slow NIC, so these are no independent check of it. The
slow NIC had 0.09 to 0.38, and 0.04 to 0.28 of the others (0.22 to 0.36 in `half4`, whose fault has
less than a second here). Of two innocent neighbours the evener one mostly had above 0.6; next to
the slow NIC also 0.2 to 0.3, and then 0.4 of the others or more: the buffers behind a slow NIC make
its neighbours evener, too."""
CARRIES_MIN = 0.5
"""Of the mean of the captured NICs that the even one must carry: all of a ring carry the same, and
the trickle of an idle port is even."""
EVEN_WEIGHT = 4.0
"""How much more likely the even one is than the other: two alike become four to one. It is the
argument of one measurement, so a fifth of the suspicion stays."""


class Even(msgspec.Struct, frozen=True, kw_only=True):
    """The NIC that bytes pass evenly, though they pass the others in bursts."""

    row: int
    variation: float
    others: float
    """The least of those that burst."""
    cells: int
    from_ns: int
    to_ns: int
    sender: int = -1
    """The row of the NIC whose bursts it takes in; -1: it is even both ways."""


def even_one(
    captured: Captured | None,
    suspects: Collection[int],
    edge: tuple[int, int] | None,
    since_ns: int,
    last_ns: int,
) -> Even | None:
    """Of these ports, the one that the capture accuses; None: it decides nothing.

    ``edge``: the sender's and the receiver's port of the slow direction, if one alone is slow.
    """
    if captured is None:
        return None
    grid = captured.grid
    first, last = max(0, grid.cell_of(since_ns)), min(grid.cells, grid.cell_of(last_ns) + 1)
    if last - first < CELLS_MIN or not set(suspects) <= set(captured.row.tolist()):
        return None
    out, into = measured(captured, first, last)
    beside = [max(out[row].above, into[row].above) for row in out if row not in suspects]
    bursts = min((one for one in beside if np.isfinite(one)), default=0.0)
    if bursts < BURSTS_MIN:
        return None
    found = of_both_ways(suspects, out, into, bursts)
    if found is None and edge is not None and set(edge) <= set(suspects):
        found = of_receiver(edge, out, into, bursts)
    if found is None:
        return None
    row, variation, others, sender = found
    return Even(
        row=row,
        variation=variation,
        others=others,
        cells=last - first,
        from_ns=grid.start_ns + first * grid.step_ns,
        to_ns=grid.start_ns + last * grid.step_ns,
        sender=sender,
    )


class Flow(msgspec.Struct, frozen=True):
    """One direction of a port, over the cells in which any captured port moves bytes."""

    above: float
    """How far its busiest cells are above its mean; infinite: not known, and so not even."""
    carries: float
    """Its mean, of the mean of all captured ports in that direction."""


def measured(captured: Captured, first: int, last: int) -> tuple[dict[int, Flow], dict[int, Flow]]:
    """What each port sends and receives.

    Both directions at once: NICs that burst in the same cells are not even there, as long as bytes
    still arrive at one of them in the cells between.
    """
    count = len(captured.row)
    rates = np.concatenate([captured.transmit, captured.receive])[:, first:last]
    above = np.nan_to_num(excess(rates), nan=np.inf)
    means = np.nan_to_num(rates).mean(axis=1)
    flows = []
    for way in (slice(0, count), slice(count, None)):
        usual = max(float(means[way].mean()), 1e-9)
        parts = zip(captured.row.tolist(), above[way].tolist(), means[way].tolist(), strict=True)
        flows.append({row: Flow(high, mean / usual) for row, high, mean in parts})
    return flows[0], flows[1]


def is_even(variation: float, others: float) -> bool:
    return variation <= EVEN_MAX and variation < FAR * others


def of_both_ways(
    suspects: Collection[int], out: dict[int, Flow], into: dict[int, Flow], bursts: float
) -> tuple[int, float, float, int] | None:
    """The suspect that sends and receives evenly, its variation, and that of the others."""
    worst = {row: max(out[row].above, into[row].above) for row in suspects}
    row = min(suspects, key=lambda one: (worst[one], one))
    others = min([bursts, *(worst[one] for one in suspects if one != row)])
    carries = min(out[row].carries, into[row].carries)
    if carries < CARRIES_MIN or not is_even(worst[row], others):
        return None
    return row, worst[row], others, -1


def of_receiver(
    edge: tuple[int, int], out: dict[int, Flow], into: dict[int, Flow], bursts: float
) -> tuple[int, float, float, int] | None:
    """The receiver of the slow direction, if it takes in evenly what its sender bursts."""
    sender, row = edge
    others = min(bursts, out[sender].above)
    taken = into[row]
    if not BURSTS_MIN <= out[sender].above < np.inf or taken.carries < CARRIES_MIN:
        return None
    return (row, taken.above, others, sender) if is_even(taken.above, others) else None


def by_capture(even: Even | None, ports: Ports, suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects, with the even one believed more; the order of others stays."""
    if even is None:
        return list(suspects)
    name = ports.culprit(even.row)
    weights = [one.share * (EVEN_WEIGHT if one.culprit == name else 1.0) for one in suspects]
    total = sum(weights) or 1.0
    changed = [
        msgspec.structs.replace(one, share=weight / total)
        for one, weight in zip(suspects, weights, strict=True)
    ]
    return sorted(changed, key=lambda one: -one.share)


def rows_alike(ports: Ports, suspects: Sequence[Suspect], lead: float) -> Ints | None:
    """The ports of the suspects that are alike; None where one of these is no NIC of this window.

    Alike: none has ``lead`` times less than the first. A capture decides between these only, so
    that it overrules no ladder.
    """
    alike = [one for one in suspects if lead * one.share >= suspects[0].share]
    rows = [
        ports.row_of.get((one.culprit.host, one.culprit.device, one.culprit.port), -1)
        for one in alike
    ]
    return None if len(rows) < 2 or -1 in rows else np.array(rows)  # noqa: PLR2004 - two alike


def even_evidence(window: Window, even: Even) -> Evidence:
    ports = window.ports
    who = called(ports, even.row)
    if even.sender >= 0:
        text = (
            f"{called(ports, even.sender)} sends in bursts (by {percentage(even.others)} and more "
            f"above their mean) what {who} takes in evenly (by {percentage(even.variation)}): "
            f"bytes wait in front of {who}."
        )
    else:
        text = (
            f"Bytes pass {who} evenly both ways (at most {percentage(even.variation)} above their "
            f"mean), and the other captured NICs in bursts (by {percentage(even.others)} and more):"
            " it works without a pause, and the others wait for it."
        )
    return Evidence(
        metric="captured_rates",
        text=text,
        value=even.variation,
        baseline=even.others,
        unit="ratio",
        from_ns=even.from_ns,
        to_ns=even.to_ns,
        labels=ports.labels(even.row),
        samples=even.cells,
    )
