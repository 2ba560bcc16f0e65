"""An agent's backlog in the real service: newest first and coalesced, it leaves the same rows.

The same batches are delivered twice, each time to an empty service: one by one in the order in
which they were written, as agents did before, and by the shipper after an outage, with an answer
that is lost on the way. What is stored and what is answered must be the same.
"""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from api.data.ingest import commit
from collector.agent.meter import Meter
from collector.agent.ship import INGEST_PATH, Shipper
from collector.agent.spool import Spool
from collector.contract import wire
from collector.contract.collective import Collective, Operation, State, StepSpan
from collector.contract.model import Event, Sample, Series
from collector.contract.units import NS
from tests.stands.service import InProcess, eventually, in_process

BATCHES, APART_SECONDS = 100, 3
"""Five minutes, within what the service holds in memory."""
FIRMWARE_CHANGES, COUNTER_RESETS, HANGS, HANG_ENDS = 60, 50, 30, 70
OUTAGE_SECONDS = 40
"""Longer than the inventory takes what it has seen for known."""
HEADERS = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
FIRMWARE = ("2.0", "1.9")
PORT = {"device": "mlx5_0", "port": "1"}
SENT, INFO, STATE = "fabric_port_transmit_bytes_total", "fabric_port_info", "fabric_port_state"

TABLES = {
    "samples": "metric, series, time, value",
    "series": "day, metric_name, series, labels",
    "events": "kind, time, id, labels, message",
    "collectives": "communicator, operation, sequence, rank, host, time, exit, state",
    "steps": "job, step, rank, phase, start, end",
}


def record(number: int, at_ns: int, state: State = State.COMPLETED) -> Collective:
    return Collective(
        communicator="c",
        operation=Operation.ALL_REDUCE,
        sequence=number,
        rank=0,
        ranks=8,
        source="flight_recorder",
        time_ns=at_ns,
        exit_ns=at_ns if state is State.COMPLETED else None,
        state=state,
    )


def fill(spool: Spool, number: int, at_ns: int) -> None:
    """Write the agent's batch of this number: what was read in some seconds until then."""
    firmware = FIRMWARE[number >= FIRMWARE_CHANGES]
    samples = [
        Sample(Series(SENT, PORT), 1000.0 * (number % COUNTER_RESETS), at_ns),
        Sample(Series(INFO, {**PORT, "firmware": firmware}), 1, at_ns),
    ]
    if number % 4 == 0:  # a source that is read seldom: the tables differ
        samples.append(Sample(Series(STATE, {**PORT, "state": "ACTIVE"}), 1, at_ns))
    events = [Event(kind="xid", time_ns=at_ns, labels={"gpu": "0"}, message=str(number))]
    hang = {HANGS: State.STARTED, HANG_ENDS: State.COMPLETED}
    collectives = [record(number, at_ns)]
    if number in hang:
        collectives.append(record(10_000, at_ns, hang[number]))
    batch = wire.pack_batch(
        samples,
        events if number % 10 == 0 else [],
        collectives,
        [StepSpan(step=number, start_ns=at_ns - NS, end_ns=at_ns, source="steps", job="j", rank=0)],
        agent="node-0",
        boot=spool.boot,
        sequence=spool.next_sequence,
        sent_ms=at_ns // 1_000_000,
        common={"host": "node-0"},
    )
    spool.put(wire.encode_batch(batch), samples=batch.reading_count)


def write_batches(folder: Path, start_s: int) -> list[bytes]:
    spool = open_spool(folder)
    for number in range(BATCHES):
        fill(spool, number, (start_s + number * APART_SECONDS) * NS)
    spool.close()
    return [path.read_bytes() for path in sorted((folder / "batches").iterdir())]


def open_spool(folder: Path) -> Spool:
    return Spool(folder, bytes_max=1 << 24, host_boot_id="b", now_ns=time.time_ns, meter=Meter())


class LossyTransport(httpx.HTTPTransport):
    """Loses an answer now and then: the service has the batch, the agent does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[wire.Batch] = []
        self.is_down = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("away")
        self.requests.append(wire.decode_batch(request.read()))
        response = super().handle_request(request)
        if len(self.requests) == 3:
            response.read()
            response.close()
            raise httpx.ReadTimeout("the answer is lost")
        return response


def in_order(service: InProcess, bodies: list[bytes]) -> None:
    for body in bodies:
        answer = service.client.post(INGEST_PATH, content=body, headers=HEADERS)
        assert answer.status_code == 200, answer.text


class Clock:
    """The service's: it may be ahead, so that an outage need not be waited for."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


def newest_first(
    service: InProcess, clock: Clock, bodies: list[bytes], folder: Path
) -> list[wire.Batch]:
    """As the shipper does: the first batch, an outage, and all others at its end."""
    for path in sorted((folder / "batches").iterdir())[1:]:
        path.unlink()
    transport = LossyTransport()
    meter = Meter()
    spool = open_spool(folder)
    client = httpx.Client(base_url=service.client.base_url, transport=transport)
    shipper = Shipper(
        spool,
        client,
        token=str,
        meter=meter,
        monotonic_ns=time.monotonic_ns,
        now_ns=time.time_ns,
        pause_seconds_max=30.0,
    )
    while shipper.step() is not None:
        pass
    for body in bodies[1:]:
        spool.put(body, samples=wire.decode_batch(body).reading_count)
    transport.is_down = True
    assert shipper.step()
    transport.is_down = False
    clock.ahead_s = OUTAGE_SECONDS
    ask(service)
    ask(service)
    while shipper.step() is not None:
        pass
    assert not len(spool)
    spool.close()
    client.close()
    assert meter.value("fabric_agent_shipped_batches_total") == len(bodies)
    return transport.requests


def ask(service: InProcess, start_s: float | None = None) -> Any:  # noqa: ANN401 - an answer
    """The counter's rate and the last value, over all of it; asked twice it is held in memory."""
    now = time.time()
    found = {}
    for query in (f"rate({SENT}[1m])", SENT, f"resets({SENT}[5m])", STATE):
        answer = service.client.get(
            "/api/v1/query_range",
            params={
                "query": query,
                "start": start_s if start_s is not None else now - 300,
                "end": (start_s if start_s is not None else now - 300) + BATCHES * APART_SECONDS,
                "step": APART_SECONDS,
            },
        ).json()
        assert answer["status"] == "success", answer
        found[query] = answer["data"]["result"]
    return found


def look(service: InProcess, start_s: int) -> dict[str, Any]:
    """Everything that the service stored of it, and what it answers.

    Not what the service itself says meanwhile of a job that it judges: on a slow machine that is
    more, and at other times.

    The inventory must show every batch, and what the last one said of the device.
    """
    rows = {
        table: service.rows(f"SELECT {names} FROM {table} FINAL ORDER BY ALL")  # noqa: S608 - ours
        for table, names in TABLES.items()
    }
    rows["series"] = [row for row in rows["series"] if row["metric_name"] in (SENT, INFO, STATE)]
    sent = {row["series"] for row in rows["series"]}
    rows["samples"] = [row for row in rows["samples"] if row["series"] in sent]
    assert len(rows["samples"]) == 2 * BATCHES + BATCHES / 4

    def about() -> tuple[int, int, str | None] | None:
        """The agent's batches and the device's firmware, as the inventory has them."""
        answer = service.client.get("/v1/hosts/node-0")
        if answer.status_code != 200 or not answer.json()["devices"]:
            return None
        host = answer.json()
        return host["last_sequence"], host["batches_missing"], host["devices"][0]["firmware"]

    eventually(lambda: about() == (BATCHES - 1, 0, FIRMWARE[1]), "all is noted in the inventory")
    return {**rows, "answers": ask(service, start_s)}


@pytest.fixture(scope="module")
def start_s() -> int:
    return int(time.time()) - BATCHES * APART_SECONDS - 5


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, start_s: int) -> dict[str, Any]:
    spool = tmp_path_factory.mktemp("agent") / "spool"
    bodies = write_batches(spool, start_s)
    found: dict[str, Any] = {}
    with in_process(tmp_path_factory.mktemp("in-order")) as service:
        in_order(service, bodies)
        found["in order"] = look(service, start_s)
    clock = Clock()
    with in_process(tmp_path_factory.mktemp("newest-first"), clock=clock) as service:
        found["requests"] = newest_first(service, clock, bodies, spool)
        found["newest first"] = look(service, start_s)
    return found


def test_the_newest_came_first_and_the_rest_in_few_requests(both: dict[str, Any]) -> None:
    numbers = [(batch.backlog_first, batch.sequence) for batch in both["requests"]]
    lost = (39, 98)
    assert numbers == [(None, 0), (None, 99), lost, (98, 98), (38, 97), (1, 37)]


@pytest.mark.parametrize("table", [*TABLES, "answers"])
def test_what_is_stored_does_not_depend_on_the_order(both: dict[str, Any], table: str) -> None:
    assert both["newest first"][table] == both["in order"][table]


def test_the_operation_that_hung_is_stored_as_ended(both: dict[str, Any]) -> None:
    [row] = [row for row in both["newest first"]["collectives"] if row["sequence"] == 10_000]
    assert row["state"] == "completed"


def test_an_older_agent_and_an_older_service_understand_what_is_new() -> None:
    """Unknown fields are ignored, in a batch as in a receipt."""

    class OldReceipt(msgspec.Struct):
        boot: str
        sequence: int
        stored: int

    receipt = wire.Receipt(boot="b", sequence=3, stored=1, any_order=True)
    assert msgspec.json.decode(msgspec.json.encode(receipt), type=OldReceipt).sequence == 3

    class OldBatch(msgspec.Struct):
        version: int
        sequence: int
        index: bytes

    batch = wire.pack_batch([], agent="a", boot="b", sequence=9, sent_ms=0, common={})
    new = msgspec.msgpack.encode(msgspec.structs.replace(batch, first=4))
    assert msgspec.msgpack.decode(new, type=OldBatch).sequence == 9


# --- many agents at once -----------------------------------------------------------------------

AGENTS, EACH = 100, 6
PENDING_ROWS = 100
"""So few that the service refuses most of what comes at once."""


def come_back(folder: Path, url: str, name: str, start_s: int) -> Counter[str]:
    """An agent with a backlog, until all of it is delivered; its counts by metric."""
    meter = Meter()
    spool = Spool(
        folder / name, bytes_max=1 << 24, host_boot_id="b", now_ns=time.time_ns, meter=meter
    )
    for number in range(EACH):
        samples = [Sample(Series(SENT, PORT), number, (start_s + number) * NS)]
        batch = wire.pack_batch(
            samples,
            agent=name,
            boot=spool.boot,
            sequence=number,
            sent_ms=0,
            common={"host": name},
        )
        spool.put(wire.encode_batch(batch), samples=1)
    with httpx.Client(base_url=url, timeout=60) as client:
        shipper = Shipper(
            spool,
            client,
            token=str,
            meter=meter,
            monotonic_ns=time.monotonic_ns,
            now_ns=time.time_ns,
            pause_seconds_max=30.0,
        )
        while shipper.step() is not None:
            pass  # the pauses are the simulated herd's (tests/unit/collector/test_herd.py)
    spool.close()
    names = ("shipped_batches_total", "shipped_coalesced_batches_total")
    counts = {each: meter.value(f"fabric_agent_{each}") or 0 for each in names}
    busy = meter.value("fabric_agent_send_failures_total", error="503") or 0
    return Counter({**{each: int(count) for each, count in counts.items()}, "503": int(busy)})


def test_many_agents_that_come_back_at_once_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_s = int(time.time()) - 60
    monkeypatch.setattr(commit, "PENDING_ROWS_MAX", PENDING_ROWS)
    with (
        in_process(tmp_path) as service,
        ThreadPoolExecutor(AGENTS) as threads,
    ):
        url = str(service.client.base_url)
        done = [
            threads.submit(come_back, tmp_path / "spools", url, f"node-{number}", start_s)
            for number in range(AGENTS)
        ]
        total = sum((each.result() for each in done), Counter[str]())
        rows = service.rows("SELECT count() AS n, uniqExact(series) AS s FROM samples FINAL")
    assert rows == [{"n": AGENTS * EACH, "s": AGENTS}]
    assert total["shipped_batches_total"] == AGENTS * EACH
    assert total["503"], "the service had to refuse some"
    assert total["shipped_coalesced_batches_total"], "a backlog is coalesced"
