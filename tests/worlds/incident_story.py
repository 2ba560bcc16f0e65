"""Rounds of verdicts one after the other, as the evaluator plays them to incidents."""

import msgspec

from alerts.judge.incident import Advance, Incident, News, advance
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Verdict

START_NS = 1_794_700_000 * NS
NIC = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf1", switch_port="p3")
RANK = Culprit(job="llama", rank=5, host="node5", gpu=5)


def verdict(
    cause: Cause = Cause.SLOW_LINK,
    culprit: Culprit = NIC,
    since: float = 0.0,
    until: float | None = None,
    confidence: float = 0.8,
    jobs: tuple[str, ...] = ("llama",),
    **more: object,
) -> Verdict:
    made = Verdict(
        cause=cause,
        culprit=culprit,
        since_ns=START_NS + round(since * NS),
        until_ns=None if until is None else START_NS + round(until * NS),
        confidence=confidence,
        jobs=jobs,
    )
    return msgspec.structs.replace(made, **more)


class Story:
    """Rounds one after the other, in seconds since the start."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self.news: list[tuple[float, News]] = []
        self.last: Advance | None = None

    def at(
        self,
        second: float,
        *verdicts: Verdict,
        still: tuple[str, ...] = (),
        late: tuple[Culprit, ...] = (),
    ) -> list[Incident]:
        now_ns = START_NS + round(second * NS)
        self.last = advance(
            self.incidents, verdicts, now_ns, seen_from_ns=now_ns - 180 * NS, still=still, late=late
        )
        self.incidents = self.last.incidents
        self.news += [(second, change.news) for change in self.last.changes]
        return self.incidents

    def only(self) -> Incident:
        assert len(self.incidents) == 1
        return self.incidents[0]

    def only_open(self) -> Incident:
        (found,) = [each for each in self.incidents if each.is_open]
        return found


def cost(lost: float, share: float = 0.2) -> Cost:
    return Cost(
        job="llama",
        lost_seconds=lost,
        step_seconds=1.25,
        step_seconds_without=1.0,
        lost_share=share,
        gpu_hours=lost * 16 / 3600,
    )
