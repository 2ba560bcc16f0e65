"""Probe targets from the service: who gets a list, how it reaches a source, and who may ask."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from api.http.context import Context
from api.http.settings import ServiceSettings
from collector.agent.meter import Meter
from collector.agent.probe_lists import PAUSE_SECONDS, ProbeLists
from collector.contract import wire
from collector.contract.model import Sample, Series
from collector.contract.probes import LOST, RAIL, SENT, decode_targets, digest_of
from collector.contract.units import NS, NS_PER_MS
from collector.doors.host import Host
from collector.sources.probes import SOURCE, Probes, Settings
from tests.stands.ports import free_port
from tests.stands.service import InProcess, in_process

HOSTS = 5
FIRST, EVERY = "first-token-of-a-test", "every-token-of-a-test"
TOKENS = f"{FIRST} ingest hosts=host-1\n{EVERY} admin\n"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InProcess]:
    settings = ServiceSettings(
        data=str(tmp_path), rules_pack=False, own_numbers=False, probe_mesh=True
    )
    with in_process(tmp_path, settings=settings, wired=look_when_told) as service:
        yield service


def look_when_told(parts: Context) -> None:
    """The service would look once a minute, at a moment of its own."""
    vars(parts.probe_targets)["is_due"] = lambda: False


def send(service: InProcess, agent: str, samples: list[Sample], sequence: int = 0) -> wire.Receipt:
    batch = wire.pack_batch(
        samples,
        agent=agent,
        boot="b",
        sequence=sequence,
        sent_ms=int(service.context.clock() * 1e3),
        common={"host": agent},
    )
    answer = service.client.post(
        "/v1/ingest",
        content=wire.encode_batch(batch),
        headers={"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"},
    )
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=wire.Receipt)


def rail(service: InProcess, host: int, address: str = "") -> list[Sample]:
    labels = {"rail": "r", "address": address or f"127.0.0.{10 + host}"}
    time_ns = int(service.context.clock() * 1e3) * NS_PER_MS
    return [Sample(Series(RAIL, labels), 1.0, time_ns)]


class Agent:
    """A real source whose list comes from the service by a real client; its clock is set."""

    def __init__(self, service: InProcess, number: int, port: int) -> None:
        self.name, self.number, self.service = f"host-{number}", number, service
        rails = (f"r 127.0.0.{10 + number}",)
        self.source: Probes = SOURCE(
            Settings(rails=rails, networks=("127.0.0.0/28",), port=port, flows=1)
        )
        self.host, self.meter, self.now_ns, self.sequence = Host(), Meter(), 0, 0
        self.asked: list[str] = []
        self.lists = ProbeLists(
            self.name, self.fetch, self.source.take_targets, self.meter, lambda: self.now_ns
        )

    def fetch(self, path: str, bytes_max: int) -> tuple[int, bytes]:
        self.asked.append(path)
        answer = self.service.client.get(path)
        return answer.status_code, answer.content[:bytes_max]

    def round(self) -> dict[str, float]:
        """A read, its batch, and what the receipt brings; sums over targets by metric."""
        samples = [each for each in self.source.read(self.host) if isinstance(each, Sample)]
        receipt = send(self.service, self.name, samples, self.sequence)
        self.sequence += 1
        if receipt.probe_targets:
            self.lists.offer(receipt.probe_targets)
        found: dict[str, float] = {}
        for each in samples:
            found[each.series.metric] = found.get(each.series.metric, 0) + each.value
        return found


def test_agents_probe_whom_the_service_names_over_real_sockets(service: InProcess) -> None:
    port = free_port()
    agents = [Agent(service, number, port) for number in range(HOSTS)]
    try:
        for agent in agents:
            assert agent.round()[RAIL] == 1
            assert not agent.asked, "the service knows of no mesh yet"
        service.context.probe_targets.look()
        for agent in agents:
            agent.round()
            assert agent.asked == [f"/v1/agents/{agent.name}/probe-targets"]
        totals = [agent.round() for agent in agents]
        assert [one[SENT] for one in totals] == [HOSTS - 1] * HOSTS
        assert [one[LOST] for one in totals] == [0] * HOSTS
        assert all(len(agent.asked) == 1 for agent in agents), "the same list is not fetched again"
        # One more: the lists change, and each agent asks once more, but not within a minute.
        send(service, "host-9", rail(service, 9, "127.0.0.200"))
        service.context.probe_targets.look()
        one = agents[0]
        one.round()
        assert len(one.asked) == 1
        one.now_ns += int(PAUSE_SECONDS * NS)
        one.round()
        sent = one.round()[SENT]
        assert len(one.asked) == 2
        assert sent == 3 * (HOSTS - 1), "an address outside of `networks` is not probed"
        kept = one.source.save_state()
    finally:
        for agent in agents:
            agent.source.close()
    again = Agent(service, 0, port)
    try:
        again.source.load_state(kept)
        again.round()
        assert again.source.save_state() == kept, "a start without the service goes on probing"
    finally:
        again.source.close()


def test_only_who_asks_for_a_list_has_one(service: InProcess) -> None:
    """Agents of before, and those that allow it nowhere, are told nothing."""
    targets = service.context.probe_targets
    for number in range(HOSTS):
        send(service, f"host-{number}", rail(service, number))
    send(service, "odd", rail(service, 9, "no-address"))
    targets.look()
    assert send(service, "silent", []).probe_targets is msgspec.UNSET
    assert send(service, "odd", [], 1).probe_targets is msgspec.UNSET
    receipt = send(service, "host-1", [], 1)
    answer = service.client.get("/v1/agents/host-1/probe-targets")
    assert answer.headers["ETag"] == f'"{receipt.probe_targets}"'
    assert digest_of(answer.content) == receipt.probe_targets
    found = decode_targets(answer.content)
    assert {one.host for one in found} == {f"host-{number}" for number in range(HOSTS)} - {"host-1"}
    assert service.client.get("/v1/agents/silent/probe-targets").status_code == 404
    shown = service.client.get("/metrics").text
    assert f'fabric_service_probe_mesh_rails{{leaf="unknown"}} {HOSTS}.0' in shown
    assert "fabric_service_probe_mesh_left_out 1.0" in shown


def test_a_service_that_hands_out_nothing_asks_nothing(tmp_path: Path) -> None:
    with in_process(tmp_path) as service:
        send(service, "host-1", rail(service, 1))
        assert not service.context.probe_targets.is_due()
        assert send(service, "host-1", rail(service, 1), 1).probe_targets is msgspec.UNSET
        assert "probe_mesh" not in service.client.get("/metrics").text


def test_a_hosts_token_has_its_own_list_alone(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    settings = ServiceSettings(
        data=str(tmp_path),
        rules_pack=False,
        own_numbers=False,
        probe_mesh=True,
        token_file=str(tmp_path / "tokens"),
    )
    with in_process(tmp_path, settings=settings) as service:

        def status(agent: str, token: str) -> int:
            asked = {"Authorization": f"Bearer {token}"}
            path = f"/v1/agents/{agent}/probe-targets"
            return service.client.get(path, headers=asked).status_code

        assert (status("host-1", FIRST), status("host-2", FIRST)) == (404, 403)
        assert status("host-2", EVERY) == 404


def test_a_list_that_cannot_be_had_or_read_is_counted(service: InProcess) -> None:
    del service
    meter, taken = Meter(), list[object]()
    answers: list[tuple[int, bytes]] = [(503, b""), (200, b"{"), (200, b'{"targets":[]}')]
    now_ns = [0]

    def fetch(path: str, bytes_max: int) -> tuple[int, bytes]:
        del path, bytes_max
        if not answers:
            raise httpx.ConnectError("away")
        return answers.pop(0)

    lists = ProbeLists("a", fetch, taken.append, meter, lambda: now_ns[0])
    for digest in ("one", "one", "two", "three"):
        lists.offer(digest)
        lists.offer(digest)
        now_ns[0] += int(PAUSE_SECONDS * NS)
    counts = {
        dict(sample.series.labels)["result"]: sample.value
        for sample in meter.samples(0)
        if sample.series.metric == "fabric_agent_probe_lists_total"
    }
    assert counts == {"taken": 1, "failed": 2, "refused": 1}
    assert taken == [[]]
