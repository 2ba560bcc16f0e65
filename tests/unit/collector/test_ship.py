"""The shipper against a service that answers by recipe; nothing sleeps, nothing listens."""

import email.utils
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import msgspec
import pytest

from collector.agent.meter import Meter
from collector.agent.ship import (
    ANSWER_BYTES_MAX,
    PAUSE_SECONDS_MIN,
    RETRY_AFTER_SECONDS_MAX,
    Answer,
    News,
    Shipper,
    classify_status,
    make_client,
    parse_retry_after,
    pause_seconds,
    retry_seconds,
)
from collector.agent.spool import Spool
from collector.contract import wire
from collector.contract.errors import SettingsError
from collector.contract.units import NS
from tests.doubles.fakes import HandClock, sample

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Recipe = Callable[[wire.Batch], httpx.Response]


def accept(batch: wire.Batch, refused: dict[str, int] | None = None) -> httpx.Response:
    receipt = wire.Receipt(
        boot=batch.boot,
        sequence=batch.sequence,
        stored=batch.sample_count,
        refused=refused or {},
        any_order=True,
    )
    return httpx.Response(200, content=msgspec.json.encode(receipt))


def accept_as_of_old(batch: wire.Batch) -> httpx.Response:
    receipt = wire.Receipt(boot=batch.boot, sequence=batch.sequence, stored=batch.sample_count)
    return httpx.Response(200, content=msgspec.json.encode(receipt))


def numbers(batch: wire.Batch) -> tuple[int, int]:
    """The first and the last of the batches that a request holds."""
    first = batch.backlog_first
    return batch.sequence if first is None else first, batch.sequence


class Bench:
    """A spool, a shipper and a service."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.meter = Meter()
        self.spool = Spool(
            folder,
            bytes_max=1 << 20,
            host_boot_id="b",
            now_ns=lambda: self.clock.wall_ns,
            meter=self.meter,
        )
        self.recipe: Recipe = accept
        self.requests: list[httpx.Request] = []
        self.delivered: list[int] = []
        self.runs: list[tuple[int, int]] = []
        self.readings: list[tuple[str, float, int]] = []
        self.token = "secret"  # noqa: S105 - of a test
        self.shipper = Shipper(
            self.spool,
            httpx.Client(base_url="http://service", transport=httpx.MockTransport(self.handle)),
            token=lambda: self.token,
            meter=self.meter,
            monotonic_ns=lambda: self.clock.steady_ns,
            now_ns=lambda: self.clock.wall_ns,
            pause_seconds_max=30.0,
            random=Random(1),
        )

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        batch = wire.decode_batch(request.content)
        response = self.recipe(batch)
        if response.status_code == 200:
            self.runs.append(numbers(batch))
            self.delivered += range(self.runs[-1][0], self.runs[-1][1] + 1)
            self.readings += readings_of(batch)
        return response

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            at_ns = self.spool.next_sequence * 5 * NS
            batch = wire.pack_batch(
                [sample("m", 1, at_ns), sample("n", 2, at_ns)],
                agent="a",
                boot=self.spool.boot,
                sequence=self.spool.next_sequence,
                sent_ms=0,
                common={},
            )
            self.spool.put(wire.encode_batch(batch), samples=2)

    def value(self, metric: str, **labels: str) -> float | None:
        return self.meter.value(f"fabric_agent_{metric}", **labels)


def readings_of(batch: wire.Batch) -> list[tuple[str, float, int]]:
    rows = batch.series_rows()
    index, value = memoryview(batch.index).cast("I"), memoryview(batch.value).cast("d")
    times = memoryview(batch.time_ms).cast("q")
    return [(rows[i][0], v, t) for i, v, t in zip(index, value, times, strict=True)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "spool")


def test_the_clock_is_compared_with_the_date_of_answers(bench: Bench) -> None:
    def dated(batch: wire.Batch, date: str) -> httpx.Response:
        answer = accept(batch)
        answer.headers["Date"] = date
        return answer

    bench.put(3)
    bench.shipper.step()
    assert bench.value("clock_offset_seconds") is None, "this answer has no date"
    theirs = email.utils.formatdate(bench.clock.wall_ns / NS + 240, usegmt=True)
    bench.recipe = lambda batch: dated(batch, theirs)
    bench.shipper.step()
    assert bench.value("clock_offset_seconds") == pytest.approx(-240, abs=1)
    bench.recipe = lambda batch: dated(batch, "yesterday")
    bench.shipper.step()
    assert bench.value("clock_offset_seconds") == pytest.approx(-240, abs=1), "no date, no news"


def test_a_batch_is_removed_when_it_is_acknowledged(bench: Bench) -> None:
    for _ in range(3):
        bench.put()
        assert [bench.shipper.step() for _ in range(2)] == [0.0, None]
    assert bench.runs == [(0, 0), (1, 1), (2, 2)]
    assert all(b"first" not in zstd.decompress(each.content) for each in bench.requests)
    assert len(bench.spool) == 0
    assert bench.value("shipped_batches_total") == 3
    assert bench.value("shipped_samples_total") == 6
    assert bench.value("shipped_coalesced_batches_total") == 0
    assert bench.value("service_up") == 1
    request = bench.requests[0]
    assert request.url == "http://service/v1/ingest"
    assert request.headers["Content-Type"] == wire.CONTENT_TYPE
    assert request.headers["Content-Encoding"] == "zstd"
    assert request.headers["Authorization"] == "Bearer secret"


# --- a backlog ---------------------------------------------------------------------------------


def after_an_outage(bench: Bench, batches: int) -> None:
    """The service has answered once, then it was away while so many batches were written."""
    bench.put()
    bench.shipper.step()
    bench.recipe = lambda _: httpx.Response(503)
    bench.put(batches)
    assert bench.shipper.step()
    bench.recipe = accept


def test_the_newest_go_first_and_the_backlog_follows_coalesced(bench: Bench) -> None:
    after_an_outage(bench, 150)
    bench.shipper.step()
    assert bench.runs == [(0, 0), (150, 150)], "a service in trouble is asked with one batch"
    bench.put()
    bench.shipper.step()
    bench.shipper.step()
    bench.put()
    assert [bench.shipper.step() for _ in range(4)][-1] is None
    assert bench.runs[2:] == [(151, 151), (90, 149), (152, 152), (30, 89), (1, 29)]
    assert sorted(bench.delivered) == list(range(153)), "each once"
    assert len(bench.spool) == 0
    assert sorted(bench.readings, key=lambda one: (one[2], one[0])) == [
        (name, value, number * 5_000)
        for number in range(153)
        for name, value in (("m", 1.0), ("n", 2.0))
    ]
    assert bench.value("shipped_batches_total") == 153
    assert bench.value("shipped_samples_total") == 306
    assert bench.value("shipped_coalesced_batches_total") == 149


def test_a_service_of_before_gets_the_oldest_first_one_by_one(bench: Bench) -> None:
    bench.recipe = accept_as_of_old
    bench.put(3)
    assert [bench.shipper.step() for _ in range(4)] == [0.0, 0.0, 0.0, None]
    assert bench.runs == [(0, 0), (1, 1), (2, 2)]
    bench.put(3)
    bench.recipe = accept
    bench.shipper.step()
    bench.recipe = accept_as_of_old
    assert [bench.shipper.step() for _ in range(2)] == [0.0, None]
    bench.put(2)
    bench.shipper.step()
    assert bench.runs[3:] == [(3, 3), (4, 5), (6, 6)], "what the last receipt said counts"


def test_a_receipt_that_is_lost_makes_a_resend_of_the_same_rows(bench: Bench) -> None:
    after_an_outage(bench, 20)
    bench.shipper.step()
    arrived: list[wire.Batch] = []

    def lose(batch: wire.Batch) -> httpx.Response:
        arrived.append(batch)
        raise httpx.ReadTimeout("the answer is lost")

    bench.recipe = lose
    bench.shipper.step()
    assert len(bench.spool) == 19
    bench.recipe = accept
    bench.put()
    while bench.shipper.step() is not None:
        pass
    assert bench.runs[2:] == [(21, 21), (1, 19)]
    resent = {one for one in bench.readings if 5_000 <= one[2] <= 19 * 5_000}
    assert resent == set(readings_of(arrived[0]))


def test_of_batches_that_are_refused_together_only_the_bad_one_steps_aside(bench: Bench) -> None:
    after_an_outage(bench, 9)
    bad = 4

    def refuse(batch: wire.Batch) -> httpx.Response:
        first, last = numbers(batch)
        return httpx.Response(422) if first <= bad <= last else accept(batch)

    bench.recipe = refuse
    while bench.shipper.step() is not None:
        pass
    assert sorted(bench.delivered) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert len(bench.requests) == 2 + 1 + 1 + 8, "the newest, all together, each alone"
    [rejected] = (bench.spool.directory / "rejected").iterdir()
    assert int(rejected.name.partition(".")[0]) == bad
    assert bench.value("rejected_batches_total", status="422") == 1


def test_batches_that_are_too_much_together_go_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "SAMPLES_MAX", 5)
    after_an_outage(bench, 4)
    while bench.shipper.step() is not None:
        pass
    assert bench.runs == [(0, 0), (4, 4), (3, 3), (2, 2), (1, 1)]


def test_an_agent_that_was_started_again_asks_with_the_oldest_first(bench: Bench) -> None:
    """It does not know the service yet."""
    bench.put(4)
    while bench.shipper.step() is not None:
        pass
    assert bench.runs == [(0, 0), (1, 3)]


def test_stopping_delivers_the_newest_first(bench: Bench) -> None:
    after_an_outage(bench, 100)
    bench.shipper.step()
    requests = len(bench.requests)

    def slow(batch: wire.Batch) -> httpx.Response:
        bench.clock.advance(3)
        return accept(batch)

    bench.recipe = slow
    bench.shipper.stop(2.0)
    bench.shipper.run()
    assert len(bench.requests) == requests + 1
    assert bench.runs[-1] == (40, 99)
    assert len(bench.spool) == 39


def test_without_a_token_no_authorization_is_sent(bench: Bench) -> None:
    bench.token = ""
    bench.put()
    bench.shipper.step()
    assert "Authorization" not in bench.requests[0].headers


def test_refused_samples_are_counted_by_rule_and_rules_are_bounded(bench: Bench) -> None:
    bench.recipe = lambda batch: accept(batch, {"too_old": 2})
    bench.put()
    bench.shipper.step()
    assert bench.value("refused_samples_total", rule="too_old") == 2
    bench.recipe = lambda batch: accept(batch, {f"rule-{i:02}": 1 for i in range(50)})
    bench.put()
    bench.shipper.step()
    assert bench.value("refused_samples_total", rule="other") == 50 - 31


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_service_in_trouble_is_asked_again(bench: Bench, status: int) -> None:
    bench.recipe = lambda _: httpx.Response(status)
    bench.put(2)
    pause = bench.shipper.step()
    assert pause is not None
    assert PAUSE_SECONDS_MIN <= pause <= 0.5
    assert len(bench.spool) == 2
    bench.recipe = accept
    bench.shipper.step()
    assert bench.delivered == [0]
    bench.shipper.step()
    assert bench.delivered == [0, 1]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405])
def test_a_service_that_refuses_us_loses_nothing_and_is_logged_once(
    bench: Bench, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench.recipe = lambda _: httpx.Response(status, content=b"no  entry\n")
    bench.put(2)
    for _ in range(5):
        assert bench.shipper.step()
    assert len(bench.spool) == 2
    assert bench.value("send_failures_total", error=str(status)) == 5
    assert bench.value("service_up") == 0
    [line] = [record.getMessage() for record in caplog.records]
    assert f"HTTP {status}: no entry; 2 batches waiting" in line


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_batch_that_can_never_be_accepted_steps_aside(bench: Bench, status: int) -> None:
    bench.recipe = lambda batch: (
        httpx.Response(status, content=b"bad") if batch.sequence == 0 else accept(batch)
    )
    bench.put(2)
    assert [bench.shipper.step() for _ in range(3)] == [0.0, 0.0, None]
    assert bench.delivered == [1]
    assert bench.value("rejected_batches_total", status=str(status)) == 1
    assert bench.value("rejected_samples_total", status=str(status)) == 2
    assert len(list((bench.spool.directory / "rejected").iterdir())) == 1


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.ReadError("")]
)
def test_an_absent_service_is_waited_for(bench: Bench, error: httpx.HTTPError) -> None:
    def fail(_: wire.Batch) -> httpx.Response:
        raise error

    bench.recipe = fail
    bench.put()
    assert bench.shipper.step()
    assert bench.value("send_failures_total", error=type(error).__name__) == 1
    assert len(bench.spool) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>welcome to the airport</html>",
        b'{"boot": "other", "sequence": 0, "stored": 2}',
        b'{"sequence": 0, "stored": 2}',
        b"x" * (3 * ANSWER_BYTES_MAX),
    ],
)
def test_a_200_that_is_no_receipt_for_this_batch_deletes_nothing(
    bench: Bench, content: bytes
) -> None:
    bench.recipe = lambda _: httpx.Response(200, content=content)
    bench.put()
    assert bench.shipper.step()
    assert len(bench.spool) == 1
    assert bench.value("send_failures_total", error="receipt") == 1


def test_a_receipt_for_another_sequence_deletes_nothing(bench: Bench) -> None:
    bench.recipe = lambda batch: accept(msgspec.structs.replace(batch, sequence=7))
    bench.put()
    assert bench.shipper.step()
    assert len(bench.spool) == 1


def test_retry_after_is_honoured(bench: Bench) -> None:
    bench.recipe = lambda _: httpx.Response(429, headers={"Retry-After": "17"})
    bench.put()
    pause = bench.shipper.step()
    assert pause is not None
    assert 17.0 <= pause <= 34.0


def test_after_a_long_outage_a_busy_service_is_asked_again_soon(bench: Bench) -> None:
    def away(_: wire.Batch) -> httpx.Response:
        raise httpx.ConnectError("refused")

    bench.recipe = away
    bench.put()
    for _ in range(20):
        bench.shipper.step()
    bench.recipe = lambda _: httpx.Response(503, headers={"Retry-After": "2"})
    pauses = [bench.shipper.step() or 0.0 for _ in range(3)]
    assert all(2.0 <= pause <= 4.0 for pause in pauses)


def test_agents_that_were_told_the_same_pause_do_not_come_back_together() -> None:
    random = Random(5)
    for failures, longest in ((1, 4.0), (3, 4.0), (5, 10.0), (50, 32.0)):
        pauses = [retry_seconds(failures, 2.0, 30.0, random) for _ in range(1000)]
        assert min(pauses) >= 2.0, "never before it was asked to"
        assert 0.9 * longest < max(pauses) <= longest
        together = max(Counter(round(pause, 1) for pause in pauses).values())
        assert together < 100, "a tenth of them in a tenth of a second, at most"


def test_a_backlog_leaves_a_busy_service_time_for_others(bench: Bench) -> None:
    after_an_outage(bench, 200)
    bench.shipper.step()

    for seconds, least, most in ((1.0, 0.5, 1.5), (20.0, 2.0, 2.0)):

        def slow(batch: wire.Batch, seconds: float = seconds) -> httpx.Response:
            bench.clock.advance(seconds)
            return accept(batch)

        bench.recipe = slow
        pause = bench.shipper.step()
        assert pause is not None
        assert least <= pause <= most
    bench.put()
    assert bench.shipper.step() == 0.0, "a batch that is fresh makes nobody wait"


def test_retry_after_reads_seconds_and_dates_and_is_capped() -> None:
    assert parse_retry_after("Tue, 14 Nov 2023 22:13:30 GMT", 1_700_000_000.0) == 10.0
    assert parse_retry_after("Tue, 14 Nov 2023 22:13:10 GMT", 1_700_000_000.0) == 0.0
    assert parse_retry_after("99999999999999999999", 0.0) == RETRY_AFTER_SECONDS_MAX
    assert parse_retry_after(None, 0.0) is None
    for text in ("", "-1", "soon", "1.5", "Tue, 99 Nov 2023", "²"):
        assert parse_retry_after(text, 0.0) is None


def test_pauses_double_up_to_their_bound_with_full_jitter() -> None:
    random = Random(3)
    for attempt, bound in ((1, 0.5), (2, 1.0), (5, 8.0), (7, 30.0), (5000, 30.0)):
        pauses = [pause_seconds(attempt, 30.0, random) for _ in range(500)]
        assert min(pauses) >= PAUSE_SECONDS_MIN
        assert 0.9 * bound < max(pauses) <= bound
        assert sum(pauses) / 500 == pytest.approx(bound / 2, rel=0.15)


def test_every_status_means_something() -> None:
    assert {classify_status(status) for status in range(100, 1000)} == set(Answer)


def test_trouble_and_its_end_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    news = News("http://service")
    news.failed(kind="ConnectError", detail="refused", now_ns=0, waiting=1)
    assert not caplog.records
    for waiting in range(2, 133):
        news.failed(kind="ConnectError", detail="refused", now_ns=10**9, waiting=waiting)
    for waiting in range(131, -1, -1):
        news.delivered(now_ns=600 * 10**9 + (131 - waiting) * 5 * 10**7, waiting=waiting)
    news.delivered(now_ns=700 * 10**9, waiting=0)
    assert [record.getMessage() for record in caplog.records] == [
        (
            "service http://service does not take batches: refused; 2 batches waiting; "
            "readings are kept in the spool"
        ),
        "service http://service takes batches again after 10 min 0 s; 131 batches waiting",
        "delivered backlog of 132 batches in 6.5 s",
    ]


def test_one_hiccup_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    news = News("http://service")
    news.failed(kind="ReadError", detail="closed", now_ns=0, waiting=1)
    news.delivered(now_ns=1, waiting=0)
    assert not caplog.records


def test_stopping_delivers_what_waits_and_returns(bench: Bench) -> None:
    bench.put(5)
    bench.shipper.stop(5.0)
    bench.shipper.run()
    assert bench.delivered == [0, 1, 2, 3, 4]


def test_stopping_gives_up_at_its_deadline_and_leaves_the_rest(bench: Bench) -> None:
    def fail(_: wire.Batch) -> httpx.Response:
        bench.clock.advance(2)
        return httpx.Response(503, headers={"Retry-After": "0"})

    bench.recipe = fail
    bench.put(2)
    bench.shipper.stop(5.0)
    bench.shipper.run()
    assert len(bench.requests) == 3
    assert len(bench.spool) == 2


def test_stop_ends_a_pause_and_a_wait_of_a_running_shipper(bench: Bench) -> None:
    bench.recipe = lambda _: httpx.Response(503, headers={"Retry-After": "300"})
    tried = threading.Event()
    bench.put()
    original = bench.recipe

    def recipe(batch: wire.Batch) -> httpx.Response:
        tried.set()
        return original(batch)

    bench.recipe = recipe
    thread = threading.Thread(target=bench.shipper.run)
    thread.start()
    assert tried.wait(30)
    bench.recipe = accept
    bench.shipper.stop(5.0)
    thread.join(30)
    assert not thread.is_alive()
    assert bench.delivered == [0]


def test_the_client_takes_no_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    with make_client("http://127.0.0.1:9700", "") as client:
        assert not client.trust_env
    with make_client("https://service", "") as client:
        assert client.base_url == "https://service"


def test_certificates_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("absent.pem", "empty.pem"):
        with pytest.raises(SettingsError, match=f"ca_file = '{tmp_path}/{name}': "):
            make_client("https://service", str(tmp_path / name))
    with pytest.raises(SettingsError, match="service_url"):
        make_client("http://[::1", "")
