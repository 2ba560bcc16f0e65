"""The agent's parts put together, in this process: buffer, /metrics, one read, a whole life."""

import contextlib
import logging
import re
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar

import pytest

from collector.agent import buffer as buffer_module
from collector.agent.agent import Agent, read_once
from collector.agent.buffer import Buffer, Flusher
from collector.agent.meter import Meter
from collector.agent.metrics_http import CONNECTIONS_MAX, REQUEST_BYTES_MAX, Latest, MetricsServer
from collector.agent.schedule import Report
from collector.agent.settings import AgentSettings
from collector.agent.spool import Spool
from collector.contract import wire
from collector.contract.collective import Collective, Operation, StepSpan
from collector.contract.errors import SettingsError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import Source, SourceSettings
from tests.doubles.fakes import SECOND_NS, HandClock, sample

PORT = {"device": "mlx5_0", "port": "1"}
SPAN = StepSpan(step=7, start_ns=1, end_ns=2, source="steps")


class SteadySource:
    """A source that always finds one sample and one absence."""

    name: ClassVar[str] = "steady"
    Settings: ClassVar[type[SourceSettings]] = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings

    def read(self, host: Host) -> Iterator[Reading]:
        yield Sample(Series("fabric_port_up", PORT), 1.0, host.now_ns())
        yield Missing(Series("fabric_port_gone", PORT), UnreadReason.ABSENT, "")


class BrokenSource(SteadySource):
    """A source with a bug."""

    name: ClassVar[str] = "broken"

    def read(self, host: Host) -> Iterator[Reading]:
        yield Sample(Series("fabric_port_half"), 2.0, host.now_ns())
        raise KeyError("bug")


SOURCES: dict[str, type[Source]] = {"steady": SteadySource, "broken": BrokenSource}


def collective(sequence: int) -> Collective:
    return Collective(
        communicator="0x1",
        operation=Operation.ALL_REDUCE,
        sequence=sequence,
        rank=0,
        ranks=8,
        source="nccl_inspector",
        time_ns=5 * SECOND_NS,
    )


def report(*readings: Reading, monotonic_ns: int = 0, fresh: int = 0) -> Report:
    return Report("steady", list(readings), fresh, 5 * SECOND_NS, monotonic_ns)


# --- buffer ------------------------------------------------------------------------------------


def test_the_buffer_takes_what_is_new_and_absences_as_samples() -> None:
    buffer = Buffer(Meter())
    event = Event(kind="xid", time_ns=1, labels={})
    missing = Missing(Series("m", PORT), UnreadReason.TIMEOUT, "")
    news = (sample("new", 1), event, missing, collective(3), SPAN)
    buffer.publish(report(sample("old", 0), *news, fresh=1))
    content = buffer.take()
    labels = {**PORT, "metric": "m", "reason": "timeout", "source": "steady"}
    absence = Sample(Series("fabric_agent_reading_missing", labels), 1.0, 5 * SECOND_NS)
    assert content.samples == [sample("new", 1), absence]
    assert content.events == [event]
    assert content.collectives == [collective(3)]
    assert content.steps == [SPAN]
    assert not buffer.take()


def test_a_full_buffer_asks_to_be_flushed_then_drops_and_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffer_module, "BUFFER_SAMPLES_MAX", 10)
    monkeypatch.setattr(buffer_module, "BUFFER_READS", 1)
    monkeypatch.setattr(buffer_module, "BATCH_SAMPLES_MAX", 6)
    meter = Meter()
    buffer = Buffer(meter)
    buffer.add([sample("m", i) for i in range(5)])
    assert not buffer.is_urgent.is_set()
    buffer.add([sample("m", i) for i in range(8)])
    assert buffer.is_urgent.is_set()
    assert meter.value("fabric_agent_dropped_samples_total", reason="buffer_full") == 3
    assert len(buffer.take().samples) == 10
    assert not buffer.is_urgent.is_set()


def test_a_buffer_holds_two_of_the_largest_reads_whatever_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffer_module, "BUFFER_SAMPLES_MAX", 10)
    meter = Meter()
    buffer = Buffer(meter)
    for count in (30, 30, 1):
        buffer.add([sample("m", i) for i in range(count)])
    assert len(buffer.take().samples) == 60
    assert meter.value("fabric_agent_dropped_samples_total", reason="buffer_full") == 1


@pytest.mark.parametrize(("kind", "is_urgent"), [("link_down", True), ("burst", False)])
def test_urgent_events_ask_for_a_flush(kind: str, *, is_urgent: bool) -> None:
    buffer = Buffer(Meter())
    buffer.publish(report(Event(kind=kind, time_ns=1, labels={})))
    assert buffer.is_urgent.is_set() == is_urgent


def test_records_have_bounds_of_their_own_and_fill_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_module, "BUFFER_COLLECTIVES_MAX", 5)
    monkeypatch.setattr(buffer_module, "BATCH_COLLECTIVES_MAX", 3)
    meter = Meter()
    buffer = Buffer(meter)
    buffer.publish(report(*(collective(n) for n in range(2))))
    assert not buffer.is_urgent.is_set()
    buffer.publish(report(*(collective(n) for n in range(2, 7))))
    assert buffer.is_urgent.is_set()
    assert meter.value("fabric_agent_dropped_samples_total", reason="buffer_full") == 2
    content = buffer.take()
    assert [each.sequence for each in content.split().collectives] == [0, 1, 2]
    assert [each.sequence for each in content.split().collectives] == [3, 4]
    assert not content


def test_a_flush_writes_batches_within_their_bound_with_the_agent_s_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer_module, "BATCH_SAMPLES_MAX", 4)
    clock, meter = HandClock(), Meter()
    spool = Spool(
        tmp_path, bytes_max=1 << 20, host_boot_id="b", now_ns=lambda: clock.wall_ns, meter=Meter()
    )
    buffer = Buffer(Meter())
    meter.add("fabric_agent_scrapes_total", 3)
    flusher = Flusher(
        buffer,
        spool,
        agent="node-0",
        common={"host": "node-0"},
        meter=meter,
        now_ns=lambda: clock.wall_ns,
    )
    buffer.add([sample("m", i) for i in range(9)])
    flusher.flush()
    found = []
    while (oldest := spool.oldest()) is not None:
        found.append(oldest.batch)
        spool.remove(oldest.entry)
    assert [batch.sample_count for batch in found] == [4, 4, 2]
    assert [batch.sequence for batch in found] == [0, 1, 2]
    assert {(batch.agent, batch.boot) for batch in found} == {("node-0", spool.boot)}
    assert ("fabric_agent_scrapes_total", {}) in found[2].series_rows()
    assert isinstance(found[0], wire.Batch)


# --- /metrics ----------------------------------------------------------------------------------


class Scrape:
    """A /metrics server on a free port."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.meter = Meter()
        self.latest = Latest(
            intervals_ns={"steady": 5 * SECOND_NS},
            common={"host": "n"},
            meter=self.meter,
            monotonic_ns=lambda: self.clock.steady_ns,
        )
        self.server = MetricsServer(("127.0.0.1", 0), self.latest, self.meter)
        self.port = self.server.server_address[1]
        self.server.start()

    def get(self, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def scrape() -> Iterator[Scrape]:
    made = Scrape()
    yield made
    made.server.stop()


def test_a_scrape_shows_the_last_reading_until_it_is_stale(scrape: Scrape) -> None:
    at = scrape.clock.steady_ns
    scrape.latest.publish(report(sample("m", 1), monotonic_ns=at))
    scrape.latest.publish(report(sample("m", 2), monotonic_ns=at))
    assert 'm{host="n"} 2\n' in scrape.get()[1]
    scrape.clock.advance(15)
    status, text = scrape.get()
    assert status == 200
    assert 'm{host="n"} 2\n' in text
    assert 'fabric_agent_scrapes_total{host="n"} 2\n' in text
    assert "\nprocess_resident_memory_bytes " in text
    scrape.clock.advance(0.001)
    text = scrape.get()[1]
    assert "m{" not in text.replace("fabric_agent_scrapes_total{", "")


def test_other_paths_and_methods_get_an_explanation(scrape: Scrape) -> None:
    assert scrape.get("/metrics?name=x")[0] == 200
    assert scrape.get("/")[0] == 200
    assert scrape.get("/metricss")[0] == 404
    assert scrape.get(method="HEAD") == (200, "")
    assert scrape.get(method="POST")[0] == 405


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"GET / HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n", [200, 200]),
        (b"GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n", [200]),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n", [200]),
        (b"PUT / HTTP/1.1\r\n\r\n", [405]),
        (b"GET /\r\n\r\n", [400]),
        (b"\x16\x03\x01\x02\x00 tls?\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX + b"x" * 100, [400]),
    ],
)
def test_requests_good_and_bad(scrape: Scrape, sent: bytes, statuses: list[int]) -> None:
    """Each is answered, and the connection closed when no other request can follow."""
    with socket.create_connection(("127.0.0.1", scrape.port), timeout=10) as connection:
        connection.sendall(sent)
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # unread bytes make the kernel reset
            while more := connection.recv(1 << 16):
                answer += more
    assert [int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", answer)] == statuses


def test_connections_are_bounded(scrape: Scrape) -> None:
    address = ("127.0.0.1", scrape.port)
    held = [socket.create_connection(address, timeout=10) for _ in range(CONNECTIONS_MAX)]
    for each in held:
        each.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert each.recv(100).startswith(b"HTTP/1.1 200")
    with socket.create_connection(address, timeout=10) as turned_away:
        assert turned_away.recv(100) == b""
    for each in held:
        each.close()


def test_a_port_in_use_is_an_error_that_names_it(scrape: Scrape) -> None:
    with pytest.raises(SettingsError, match=f"listen = 127.0.0.1:{scrape.port}: Address already"):
        MetricsServer(("127.0.0.1", scrape.port), scrape.latest, scrape.meter)


# --- one read ----------------------------------------------------------------------------------


def source_settings() -> dict[str, SourceSettings]:
    return {"steady": SourceSettings(), "broken": SourceSettings()}


def test_one_read_names_the_sources_that_broke_and_shows_the_rest(tmp_path: Path) -> None:
    settings = AgentSettings(host="n", cluster="c", sources=source_settings())
    text, broken = read_once(settings, SOURCES, Host(tmp_path))
    assert broken == ["broken"]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert 'fabric_agent_source_up{cluster="c",host="n",source="broken"} 0' in lines
    assert 'fabric_agent_source_up{cluster="c",host="n",source="steady"} 1' in lines
    assert 'fabric_port_half{cluster="c",host="n"} 2' in lines
    assert 'fabric_port_up{cluster="c",device="mlx5_0",host="n",port="1"} 1' in lines
    assert text == read_once(settings, SOURCES, Host(tmp_path))[0]


def test_a_disabled_source_is_not_read(tmp_path: Path) -> None:
    sources = {**source_settings(), "broken": SourceSettings(enabled=False)}
    text, broken = read_once(AgentSettings(sources=sources), SOURCES, Host(tmp_path))
    assert broken == []
    assert "broken" not in text


# --- a whole life --------------------------------------------------------------------------------


class Life:
    """An agent that runs in this test's thread, controlled by another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        # Signals belong to the process: here they only arrive in the inbox.
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(threading, "excepthook", threading.excepthook)
        self.root = root
        self.answers: list[Callable[[], AgentSettings]] = []
        self.agent = Agent(self.load, {"steady": SteadySource}, Host(root))
        self.inbox: SimpleQueue[int] = self.agent._inbox

    def load(self) -> AgentSettings:
        return self.answers.pop(0)()

    def settings(self, **changes: object) -> AgentSettings:
        chosen: dict[str, object] = {
            "host": "n",
            "service_url": "http://127.0.0.1:1",
            "spool_dir": str(self.root / "spool"),
            "listen": "127.0.0.1:0",
            "flush_seconds": 0.05,
            "stop_seconds": 0.1,
            "sources": {"steady": SourceSettings(interval_seconds=0.02)},
        }
        return AgentSettings(**{**chosen, **changes})  # type: ignore[arg-type]

    def reloads(self, result: str) -> float | None:
        return self.agent._meter.value("fabric_agent_reloads_total", result=result)


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Life:
    return Life(monkeypatch, tmp_path)


def refuse() -> AgentSettings:
    raise SettingsError("agent.toml: unknown setting 'x'")


def test_a_stop_leaves_everything_in_the_spool(life: Life) -> None:
    life.answers = [life.settings]
    life.inbox.put(signal.SIGTERM)
    assert life.agent.run() == 0
    assert list((life.root / "spool" / "batches").iterdir())
    assert (life.root / "spool" / "state.msgpack").exists()


def test_reloads_good_bad_and_impossible(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    impossible = life.root / "file"
    impossible.write_text("")
    life.answers = [
        life.settings,
        lambda: life.settings(cluster="blue"),
        refuse,
        lambda: life.settings(spool_dir=str(impossible / "spool")),
        lambda: life.settings(service_url="", listen=""),
    ]
    for _ in range(4):
        life.inbox.put(signal.SIGHUP)
    life.inbox.put(signal.SIGINT)
    assert life.agent.run() == 0
    assert (life.reloads("ok"), life.reloads("refused")) == (2, 2)
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert lines == [
        "settings not read again, the old ones stay in force: agent.toml: unknown setting 'x'",
        (
            "settings not read again, the old ones stay in force: "
            f"spool {impossible}/spool: Not a directory; set spool_dir to a folder that can be"
            " written"
        ),
    ]
    # Nothing of the spool that is no longer used is shown as if it were.
    assert life.agent._meter.value("fabric_agent_spool_batches") is None


def test_a_thread_that_dies_ends_the_agent_with_status_1(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    life.answers = [life.settings]
    error = RuntimeError("bug")
    args = threading.ExceptHookArgs((RuntimeError, error, None, threading.current_thread()))
    life.agent._note_death(args)
    assert life.agent.run() == 1
    assert any("died; the agent ends" in record.getMessage() for record in caplog.records)


def test_settings_that_cannot_work_stop_the_start(life: Life) -> None:
    life.answers = [refuse]
    with pytest.raises(SettingsError):
        life.agent.run()
