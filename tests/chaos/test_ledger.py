"""The ledger itself: it sees what is lost, what is too much, a second page and an innocent."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.judge.incident import Incident, IncidentState
from collector.contract import wire
from collector.contract.model import Sample, Series
from collector.contract.verdict import Cause, Culprit, Verdict
from simulator.scenario import Truth
from tests.chaos.ledger import Ledger, Tally, check_verdicts
from tests.stands.alerting import Call
from tests.stands.service import InProcess, in_process

GUILTY, INNOCENT = Culprit(host="node1", device="mlx5_0"), Culprit(host="node2", device="mlx5_0")
NOTHING_REFUSED = wire.Receipt(boot="b", sequence=0, stored=1)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InProcess]:
    with in_process(tmp_path) as running:
        yield running


def batch(value: float) -> bytes:
    now_ns = time.time_ns() // 10**9 * 10**9
    sample = Sample(Series("chaos_test", {"port": "1"}), value, now_ns)
    made = wire.pack_batch(
        [sample],
        agent="node1",
        boot="b",
        sequence=0,
        sent_ms=now_ns // 10**6,
        common={"host": "node1"},
    )
    return wire.encode_batch(made)


def send(service: InProcess, body: bytes) -> None:
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    assert service.client.post("/v1/ingest", content=body, headers=headers).status_code == 200


def test_rows(service: InProcess) -> None:
    ledger, body = Ledger(), batch(1.0)
    ledger.acknowledge(body, NOTHING_REFUSED)
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        ledger.check_rows(service.store, Tally())
    for _ in range(2):  # a resend
        send(service, body)
    tally = Tally()
    ledger.check_rows(service.store, tally)
    assert (tally.acknowledged, tally.stored) == (1, 1)
    ledger.acknowledge(batch(2.0), NOTHING_REFUSED)
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        ledger.check_rows(service.store, Tally())


def incident(culprit: Culprit, state: IncidentState = IncidentState.OPEN) -> Incident:
    verdict = Verdict(cause=Cause.SLOW_LINK, culprit=culprit, since_ns=1)
    return Incident(
        id="one", state=state, verdict=verdict, first_said_ns=1, last_seen_ns=1, confirmed_ns=1
    )


def page(status: str, notice: str) -> Call:
    body: dict[str, Any] = {
        "status": status,
        "alerts": [{"labels": {"incident": "one"}}],
        "fabricscope": {"id": notice},
    }
    call = Call("/", {}, b"")
    call.body = body
    return call


def test_pages() -> None:
    ledger, standing = Ledger(), [incident(GUILTY)]
    with pytest.raises(AssertionError, match="0 pages"):
        ledger.check_pages(standing, Tally())
    ledger.calls = [page("firing", "a"), page("firing", "a")]  # the same notice again
    ledger.check_pages(standing, Tally())
    ledger.calls.append(page("firing", "b"))
    with pytest.raises(AssertionError, match="2 pages"):
        ledger.check_pages(standing, Tally())
    ledger.calls = [page("firing", "a"), page("resolved", "c")]
    with pytest.raises(AssertionError, match="ended 1x"):
        ledger.check_pages(standing, Tally())
    ledger.check_pages([incident(GUILTY, IncidentState.CLOSED)], Tally())


def test_verdicts() -> None:
    truth = Truth(
        fault="slow_nic",
        title="",
        causes=(Cause.SLOW_LINK,),
        reason=Verdict(cause=Cause.SLOW_LINK, culprit=GUILTY, since_ns=1).reason,
        culprits=(GUILTY,),
        strength=1.0,
        start_ns=0,
        end_ns=1,
    )
    check_verdicts([incident(GUILTY)], truth, Tally())
    closed = incident(INNOCENT, IncidentState.CLOSED)
    with pytest.raises(AssertionError, match="named an innocent"):
        check_verdicts([incident(GUILTY), closed], truth, Tally())
    with pytest.raises(AssertionError, match="open: "):
        check_verdicts([], truth, Tally())
