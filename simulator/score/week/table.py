"""A week as a table: losses by cause and arm; means over seeds, least and most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

from simulator.score.week.model import Arm, Outcome, Spec

Figure = Callable[[Outcome], float]

LOSSES: tuple[tuple[str, Figure], ...] = (
    ("**lost in all**", lambda outcome: outcome.losses.lost),
    ("jobs were slow", lambda outcome: outcome.losses.slow),
    ("work done again", lambda outcome: outcome.losses.redone),
    ("jobs hung", lambda outcome: outcome.losses.hung),
    ("jobs moved and begun again", lambda outcome: outcome.losses.restarting),
    ("hosts out that had a fault", lambda outcome: outcome.losses.held),
    ("hosts out that had none", lambda outcome: outcome.losses.held_well),
    ("(useful)", lambda outcome: outcome.losses.useful),
)
COUNTS: tuple[tuple[str, Figure], ...] = (
    ("faults that a job met", lambda outcome: outcome.struck),
    ("jobs that died", lambda outcome: outcome.killed),
    ("jobs that were saved and moved", lambda outcome: outcome.moved),
    ("jobs finished", lambda outcome: outcome.finished),
    ("hosts drained by the policy", lambda outcome: outcome.drains),
    ("of these, without a fault", lambda outcome: outcome.false_drains),
)


def week_markdown(spec: Spec, outcomes: Sequence[Outcome]) -> str:
    seeds = sorted({outcome.seed for outcome in outcomes})
    by_arm = {arm: [each for each in outcomes if each.arm is arm] for arm in Arm}
    gpus = spec.hosts * spec.gpus_per_host
    mean_faults = fmean(each.faults for each in outcomes)
    alone = fmean(each.losses.lost for each in by_arm[Arm.ALONE])
    lines = [
        f"# {spec.days:g} days of {spec.hosts} hosts with {gpus:,} GPUs, {said_seeds(seeds)}",
        "",
        f"{mean_faults:.0f} faults a run; verdicts about nothing: {spec.false_per_day:g} a day.",
        "",
        "| GPU-hours | " + " | ".join(by_arm) + " |",
        "|---|" + "---:|" * len(by_arm),
    ]
    lines += [row(name, figure, by_arm) for name, figure in LOSSES]
    if alone:
        parts = (fmean(each.losses.lost for each in some) / alone for some in by_arm.values())
        saved = " | ".join(f"{1 - part:.0%}" for part in parts)
        lines.append(f"| less than without us | {saved} |")
    lines += ["", "| count | " + " | ".join(by_arm) + " |", "|---|" + "---:|" * len(by_arm)]
    lines += [row(name, figure, by_arm) for name, figure in COUNTS]
    lines += ["", share_sentence(outcomes), refused_sentence(outcomes), ""]
    return "\n".join(lines)


def said_seeds(seeds: Sequence[int]) -> str:
    """Which seeds.

    >>> said_seeds([4]), said_seeds([1, 2, 3])
    ('seed 4', 'seeds 1 to 3')
    """
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def row(name: str, figure: Figure, by_arm: dict[Arm, list[Outcome]]) -> str:
    cells = [spread([figure(each) for each in some]) for some in by_arm.values()]
    return f"| {name} | " + " | ".join(cells) + " |"


def spread(values: Sequence[float]) -> str:
    """The mean, and the least and the most where there are several.

    >>> spread([12.0]), spread([1000.0, 2000.0])
    ('12', '1,500 (1,000 to 2,000)')
    """
    mean = f"{fmean(values):,.0f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):,.0f} to {max(values):,.0f})"


def share_sentence(outcomes: Sequence[Outcome]) -> str:
    most, limit = max(each.share_max for each in outcomes), outcomes[0].share_limit
    return (
        f"When the policy drained a host, at most {most:.1%} of the fleet were out, operators'"
        f" holds included; {limit:.1%} are allowed."
    )


def refused_sentence(outcomes: Sequence[Outcome]) -> str:
    refused = sum((Counter(each.refused) for each in outcomes), Counter[str]())
    counts = ", ".join(f"{count} {why}" for why, count in sorted(refused.items()))
    return f"Drains that it refused, over all runs: {counts or 'none'}."
