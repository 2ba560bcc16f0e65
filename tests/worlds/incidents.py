"""A stand-in for the evaluator: writes verdicts to a service's stores, as a round would."""

import datetime as dt
from collections.abc import Sequence

from alerts.judge.incident import Advance, Incident, advance
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.oncall.evaluate.lead import EVALUATOR
from api.oncall.evaluate.rows import RowWriter, placed
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Layer, Reason, Verdict

HOLDER = "test"


def slow_link(since_ns: int, *, job: str = "train", confidence: float = 0.9) -> Verdict:
    """A NIC that is slow, with all that a verdict can have."""
    return Verdict(
        cause=Cause.SLOW_LINK,
        culprit=Culprit(
            host="node3", device="mlx5_0", port="1", switch="leaf0", switch_port="swp3"
        ),
        since_ns=since_ns,
        reason=Reason.NIC,
        confidence=confidence,
        layer=Layer.NETWORK,
        summary="node3's NIC is slow",
        action="look at it",
        jobs=(job,),
        victims=(Culprit(job=job, rank=4, host="node4"),),
        evidence=(
            Evidence(
                metric="collective_transfer",
                text="0.3 s, 0.01 s before",
                value=0.3,
                unit="seconds",
                baseline=0.01,
                from_ns=since_ns,
                to_ns=since_ns + NS,
                samples=12,
            ),
        ),
        costs=(
            Cost(
                job=job,
                lost_seconds=12.5,
                step_seconds=1.4,
                step_seconds_without=1.0,
                lost_share=0.3,
                gpu_hours=0.2,
            ),
        ),
    )


def straggler(since_ns: int, *, job: str = "other", rank: int = 7) -> Verdict:
    """A rank that comes late."""
    return Verdict(
        cause=Cause.STRAGGLER,
        culprit=Culprit(job=job, rank=rank, host="node9", gpu=1),
        since_ns=since_ns,
        confidence=0.8,
        layer=Layer.COMPUTE,
        jobs=(job,),
    )


class Teller:
    """Writes verdicts, one round after the other; the service's own evaluator must be asleep."""

    def __init__(self, inventory: Inventory, store: Store) -> None:
        self._inventory = inventory
        self._writer = RowWriter(store)
        self._standing: Sequence[Incident] = ()

    def say(self, now_ns: int, *verdicts: Verdict) -> Advance:
        """A round at this moment in which these verdicts are given."""
        found = advance(self._standing, verdicts, now_ns)
        self._standing = found.incidents
        now = dt.datetime.fromtimestamp(now_ns / NS, tz=dt.UTC)
        # By the database's clock, which is not the story's: no service may take it meanwhile.
        until = now + dt.timedelta(days=36_500)
        assert self._inventory.leases.take(EVALUATOR, HOLDER, now, until, by_force=True)
        kept = self._inventory.incidents.keep(
            found.incidents, found.changes, task=EVALUATOR, holder=HOLDER, now=now
        )
        assert kept, "the lease is ours"
        self._writer.write(now_ns, [], placed(verdicts, found.incident_of, found.incidents))
        return found
