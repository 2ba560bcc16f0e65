"""Roll-outs over HTTP: pushes and refusals, receipts and reports, orders, the record, the cost."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import event as sql_event

from api.base.rollout_limits import CONFIGURATIONS_KEPT_MAX
from api.data.rollouts.stages import position
from collector.cli import main
from collector.contract import wire
from collector.contract.model import Event
from collector.contract.rollout import DOCUMENT_BYTES_MAX, digest_of, is_signed
from collector.contract.units import NS_PER_MS
from tests.stands.service import InProcess, eventually, in_process

GOOD = "# for all\n[sources.netdev]\ninterval_seconds = 2.0\n"
KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InProcess]:
    with in_process(tmp_path) as service:
        eventually(lambda: bool(service.context.wellbeing.lead.is_held()), "it leads")
        yield service


class Agent:
    """An agent that sends reports and keeps its receipts."""

    def __init__(self, service: InProcess, name: str) -> None:
        self.service = service
        self.name = name
        self.sequence = 0

    def send(self, **report: str) -> wire.Receipt:
        """A batch, with a report if one is given; the receipt."""
        now_ns = int(self.service.context.clock() * 1e9)
        events = [Event(kind="configuration", time_ns=now_ns, labels={}, attributes=report)]
        batch = wire.pack_batch(
            [],
            events if report else [],
            agent=self.name,
            boot="b",
            sequence=self.sequence,
            sent_ms=now_ns // NS_PER_MS,
            common={"host": self.name},
        )
        self.sequence += 1
        answer = self.service.client.post(
            "/v1/ingest",
            content=wire.encode_batch(batch),
            headers={"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"},
        )
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=wire.Receipt)

    def hello(self) -> None:
        """Say that it takes part, and wait until it is known to report."""
        self.send(version="0", good="0", result="running")
        self.service.context.rollouts.look()
        eventually(lambda: self.name in self.service.context.rollouts.reporting(), self.name)

    def told(self) -> int | None:
        """The version in the receipt of an empty batch."""
        notice = self.send().configuration
        return notice.version if notice else None


def push(service: InProcess, document: str = GOOD, status: int = 201, **more: object) -> Any:  # noqa: ANN401 - JSON
    body = {"document": document, "by": "ann", "shares": [100], **more}
    answer = service.client.post("/v1/configurations", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def order(service: InProcess, does: str, status: int = 200, **more: object) -> Any:  # noqa: ANN401 - JSON
    latest = service.inventory.rollouts.latest()
    assert latest is not None
    path = f"/v1/configurations/{latest.version}/{does}"
    answer = service.client.post(path, json={"by": "ann", **more})
    assert answer.status_code == status, answer.text
    return answer.json()


def state_of(service: InProcess) -> tuple[str, float]:
    service.context.rollouts.look()
    (latest,) = service.client.get("/v1/configurations?limit=1").json()["items"]
    rollout = latest["rollout"]
    return rollout["state"], rollout["shares"][rollout["stage"]]


# --- pushes -------------------------------------------------------------------------------------


def test_a_push_is_checked_by_the_agents_own_reader_before_it_is_taken(service: InProcess) -> None:
    for document, words in (
        ("flush_secnods = 1.0", "did you mean 'flush_seconds'?"),
        ("flush_seconds = -1.0", "flush_seconds = -1.0: must be above 0"),
        ("service_url = 'http://evil'", "service_url comes from the agent's own file alone"),
        ("[sources.ib_fabric]\nprograms_dir = '/tmp'", "sources.ib_fabric.programs_dir comes"),
        ("x = ", "not a TOML file"),
    ):
        found = push(service, document, 422)
        assert words in found["detail"]
        assert found["rule"] == "invalid"
    assert push(service, "#" * (DOCUMENT_BYTES_MAX + 1), 413)["rule"] == "DOCUMENT_BYTES_MAX"
    assert push(service, sha256="0" * 64, status=422)["rule"] == "sha256"
    assert push(service, signature="0" * 64, status=422)["rule"] == "version"
    assert push(service, version=2, status=409)["rule"] == "version"
    for shares in ([], [0], [101], [25, 5], [5, 5], list(range(1, 30))):
        push(service, shares=shares, status=422)
    assert service.client.get("/v1/configurations").json()["items"] == []
    metrics = service.client.get("/metrics").text
    assert 'fabric_service_configurations_refused_total{rule="invalid"} 5.0' in metrics


def test_a_version_is_kept_with_who_why_and_its_digest_and_recorded(service: InProcess) -> None:
    made = push(service, why="netdev is cheap")
    assert (made["version"], made["by"], made["why"]) == (1, "ann", "netdev is cheap")
    assert made["sha256"] == digest_of(GOOD.encode())
    document = service.client.get("/v1/configurations/1/document")
    assert document.content == GOOD.encode()
    assert service.client.get("/v1/configurations/1").json()["document"] == GOOD
    push(service, status=409)
    order(service, "stop", why="wait")
    order(service, "stop", 409)
    order(service, "resume")
    order(service, "back", why="no")
    kinds = [
        (row["kind"], dict(row["attributes"])["by"])
        for row in service.rows(
            "SELECT kind, attributes FROM events WHERE startsWith(kind, 'configuration_') "
            "ORDER BY time"
        )
    ]
    assert kinds == [
        ("configuration_pushed", "ann"),
        ("configuration_stopped", "ann"),
        ("configuration_resumed", "ann"),
        ("configuration_taken_back", "ann"),
    ]
    for path in ("/v1/configurations/2", "/v1/configurations/2/document"):
        assert service.client.get(path).status_code == 404
    assert service.client.get("/v1/configurations/0").status_code == 422
    assert service.client.post("/v1/configurations/2/stop", json={"by": "x"}).status_code == 404
    push(service)
    old = service.client.post("/v1/configurations/1/back", json={"by": "x"})
    assert old.status_code == 409
    assert "configuration 2 is the latest" in old.json()["detail"]


def test_old_versions_are_forgotten_and_numbers_never_come_again(service: InProcess) -> None:
    tables = service.inventory.rollouts
    push(service)
    order(service, "back")
    known = tables.latest()
    found = tables.get(1)
    assert known is not None
    assert found is not None
    for number in range(2, CONFIGURATIONS_KEPT_MAX + 4):
        rollout = msgspec.structs.replace(known.rollout, version=number, base=1)
        assert tables.push(msgspec.structs.replace(found, version=number), rollout)
        assert not tables.push(msgspec.structs.replace(found, version=number), rollout)
    numbers = [each.version for each in tables.versions(limit=1_000)]
    assert numbers[0] == CONFIGURATIONS_KEPT_MAX + 3
    assert len(numbers) == CONFIGURATIONS_KEPT_MAX + 1
    assert 1 in numbers, "what agents go back to is kept"
    page = service.client.get("/v1/configurations?limit=2").json()
    after = service.client.get(f"/v1/configurations?limit=2&after={page['next']}").json()
    assert [each["version"] for each in after["items"]] == numbers[2:4]


# --- receipts and reports -----------------------------------------------------------------------


def test_only_agents_that_take_part_are_told_until_they_have_reported(service: InProcess) -> None:
    taker, other = Agent(service, "taker"), Agent(service, "other")
    taker.hello()
    other.send()
    assert taker.told() is None
    push(service, trial_seconds=60)
    notice = taker.send().configuration
    assert notice
    assert notice == wire.ConfigurationNotice(
        version=1, sha256=digest_of(GOOD.encode()), trial_seconds=60.0
    )
    assert other.told() is None
    taker.send(version="1", good="0", result="trying")
    assert state_of(service) == ("rolling", 100)
    taker.send(version="1", good="1", result="good")
    assert taker.told() is None
    assert state_of(service) == ("done", 100)
    order(service, "back")
    back = taker.send().configuration
    assert back == wire.ConfigurationNotice(version=0)
    taker.send(version="0", good="0", result="good")
    assert taker.told() is None


def test_shares_follow_each_other_and_a_failure_stops_them(service: InProcess) -> None:
    names = sorted((f"n{number}" for number in range(6)), key=lambda name: position(name, 1))
    agents = [Agent(service, name) for name in names]
    for agent in agents:
        agent.hello()
    share = round(100 * (position(names[1], 1) + position(names[2], 1)) / 2, 3)
    push(service, shares=[share, 100])
    assert [agent.told() for agent in agents] == [1, 1, None, None, None, None]
    assert state_of(service) == ("rolling", share)
    agents[0].send(version="1", good="1", result="good")
    assert state_of(service) == ("rolling", share), "one of two has not ended it"
    assert "n" in service.client.get("/v1/configurations/1").json()["waits_for"]
    agents[1].send(version="1", good="1", result="good")
    assert state_of(service) == ("rolling", 100)
    assert agents[5].told() == 1
    agents[5].send(version="1", good="0", result="failed", detail="source x fails")
    assert state_of(service) == ("stopped", 100)
    assert [agent.told() for agent in agents] == [None] * 6
    found = service.client.get("/v1/configurations/1").json()
    assert found["hosts"]["failed"] == 1
    assert found["hosts"]["good"] == 2
    assert found["failed"][0]["detail"] == "source x fails"
    assert "fabric_service_rollout_stopped 1.0" in service.client.get("/metrics").text
    order(service, "resume", 409)
    order(service, "resume", failures_max=2)
    assert agents[4].told() == 1
    assert agents[5].told() is None, "one that failed is not told again"


def test_a_process_that_starts_anew_knows_what_agents_run(tmp_path: Path) -> None:
    with in_process(tmp_path) as service:
        Agent(service, "n1").hello()
        push(service)
    with in_process(tmp_path) as service:
        service.context.rollouts.look()
        assert Agent(service, "n1").told() == 1
        assert Agent(service, "n2").told() is None


def test_reports_that_cannot_be_read_are_counted(service: InProcess) -> None:
    Agent(service, "n1").send(version="x", good="0", result="good")
    found = service.client.get("/metrics").text
    assert 'fabric_service_rollout_reports_dropped_total{rule="malformed"} 1.0' in found
    assert service.client.get("/v1/agents/configurations").json()["items"] == []


# --- the cost -----------------------------------------------------------------------------------


def test_with_nothing_to_roll_out_nothing_is_read_for_it_and_a_receipt_is_as_before(
    service: InProcess,
) -> None:
    statements: list[str] = []
    engine, context = service.inventory._database._engine, service.context

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "configurations" in statement:
            statements.append(statement)

    agent = Agent(service, "n1")
    agent.send()
    sql_event.listen(engine, "before_cursor_execute", note)
    for _ in range(20):
        assert agent.send().configuration is msgspec.UNSET
    context.captures.look()
    sql_event.remove(engine, "before_cursor_execute", note)
    assert statements
    assert all("captures" in each for each in statements), "it comes with what is read anyway"
    assert context.captures.configuration is None
    assert not context.rollouts.is_due(None)
    receipt = wire.Receipt(boot="b", sequence=1, stored=0, any_order=True)
    assert b"configuration" not in msgspec.json.encode(receipt)


def test_a_process_looks_when_there_is_another_version_or_another_step(
    service: InProcess,
) -> None:
    captures, rollouts = service.context.captures, service.context.rollouts
    push(service)
    captures.look()
    pushed = captures.configuration
    assert pushed is not None
    rollouts.look()
    assert not rollouts.is_due(pushed), "it has just looked"
    assert rollouts.is_due((pushed[0] + 1, 1))
    order(service, "stop")
    captures.look()
    stopped = captures.configuration
    assert stopped is not None
    assert stopped > pushed
    assert not rollouts.is_due(stopped), "the process that stopped it knows"
    assert rollouts.is_due((stopped[0], stopped[1] + 1)), "another process took a further step"


# --- the verb -----------------------------------------------------------------------------------


def test_the_verb_from_a_push_to_the_way_back(
    service: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, key = tmp_path / "fleet.toml", tmp_path / "key"
    file.write_text(GOOD)
    key.write_text(KEY)
    where = ["--service", str(service.client.base_url).rstrip("/")]
    assert main(["config", "status", *where]) == 0
    assert "no configuration was pushed yet" in capsys.readouterr().out
    agent = Agent(service, "n1")
    agent.hello()
    words = ["--share", "100%", "--key-file", str(key), "--why", "tonight", "--by", "ann"]
    assert main(["config", "push", str(file), *words, *where]) == 0
    assert "configuration 1 is rolling at 100 %" in capsys.readouterr().out
    notice = agent.send().configuration
    assert notice
    assert is_signed(KEY.encode(), 1, digest_of(GOOD.encode()), notice.signature)
    agent.send(version="1", good="0", result="failed", detail="source x fails")
    service.context.rollouts.look()
    assert main(["config", "status", *where]) == 0
    told = capsys.readouterr().out
    assert "configuration 1 is stopped" in told
    assert "failed  n1: source x fails" in told
    assert "(signed)" in told
    assert main(["config", "hosts", "--state", "failed", *where]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["n1", "0", "failed"]
    assert main(["config", "show", "1", *where]) == 0
    assert capsys.readouterr().out == GOOD
    assert main(["config", "back", "--why", "no", *where]) == 0
    assert main(["config", "status", "--json", *where]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown[shown.index("{") :])["version"]["rollout"]["state"] == "back"
    assert main(["config", "stop", *where]) == 1
    assert "back already" in capsys.readouterr().err
    file.write_text("host = 'x'\n")
    assert main(["config", "push", str(file), *where]) == 2
    assert "host comes from the agent's own file alone" in capsys.readouterr().err
