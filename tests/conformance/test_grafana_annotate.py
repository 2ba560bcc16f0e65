"""`fabricscope dashboards annotate` against a Grafana (`GRAFANA_URL`: a real one) and a service."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from alerts.judge.incident import Incident, IncidentState, advance
from api.http.routes.incidents import IncidentsOut
from api.http.routes.shared.shown import IncidentOut
from collector.contract.units import NS
from collector.contract.verdict import Culprit
from dashboards.grafana.annotations import (
    FAILURES_MAX,
    IncidentSeen,
    Marked,
    follow,
    mark_of,
)
from dashboards.grafana.failures import Unreachable
from tests.conftest import Golden
from tests.doubles.grafana_double import VIEWER, Fault
from tests.stands.grafana_stand import ROOT, Done, Stand, run, stand
from tests.worlds.incidents import slow_link

BEGAN_NS = 1_763_000_000 * NS
HOST = "grafana-test"
CALLS = ROOT / "tests/fixtures/grafana/annotate_calls.txt"


def incident(number: int = 0) -> Incident:
    """An open one, as the service has it."""
    verdict = msgspec.structs.replace(
        slow_link(BEGAN_NS + number * 3_600 * NS),
        culprit=Culprit(host=HOST, device="mlx5_0", port="1"),
        summary="grafana-test's NIC <b>is</b> slow & \x1b[31mred",
    )
    found = advance((), [verdict], verdict.since_ns + 10 * NS).incidents[0]
    return msgspec.structs.replace(found, id=f"2026-11-16-test-{number:04}")


def ended(one: Incident, seconds: int) -> Incident:
    """The same, over."""
    until_ns = one.verdict.since_ns + seconds * NS
    return msgspec.structs.replace(
        one,
        state=IncidentState.CLOSED,
        closed_ns=until_ns + 60 * NS,
        verdict=msgspec.structs.replace(one.verdict, until_ns=until_ns),
    )


class FakeService:
    """`GET /v1/incidents` as the service answers it, page by page."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self.status = 200
        self.asked: list[dict[str, list[str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = outer.answer(self.path)
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, target: str) -> bytes:
        parts = urlsplit(target)
        assert parts.path == "/v1/incidents"
        asked = parse_qs(parts.query)
        self.asked.append(asked)
        limit, after = int(asked["limit"][0]), asked.get("after", [""])[0]
        ids = [one.id for one in self.incidents]
        start = ids.index(after) + 1 if after else 0
        items = [IncidentOut.of(one) for one in self.incidents[start : start + limit]]
        more = items[-1].id if len(items) == limit else None
        return msgspec.json.encode(IncidentsOut(items=items, next=more))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def service() -> Iterator[FakeService]:
    made = FakeService()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def grafana() -> Iterator[Stand]:
    with stand() as made:
        yield made


def annotate(grafana: Stand, service: FakeService, *words: str) -> Done:
    return grafana.run("annotate", "--service", service.url, *words)


def ours(grafana: Stand) -> list[dict[str, Any]]:
    """The annotations of the test's incidents, the oldest first."""
    path = f"/annotations?tags=fabricscope&tags=host:{HOST}&limit=1000"
    rows: list[dict[str, Any]] = grafana.hand("GET", path)
    return sorted(rows, key=lambda row: (row["time"], row["id"]))


def test_an_incident_is_marked_once_and_becomes_a_region_when_it_ends(
    grafana: Stand, service: FakeService
) -> None:
    service.incidents = [incident()]
    first = annotate(grafana, service)
    assert first.status == 0, first.text
    assert "1 new" in first.text
    (row,) = ours(grafana)
    assert row["time"] == BEGAN_NS // 10**6
    assert (row.get("timeEnd") or row["time"]) == row["time"]
    assert {"fabricscope", "slow_link", f"host:{HOST}", "device:mlx5_0"} <= set(row["tags"])
    assert "incident:2026-11-16-test-0000" in row["tags"]
    assert "&lt;b&gt;is&lt;/b&gt; slow &amp;" in row["text"]
    assert f"{service.url}/v1/incidents/2026-11-16-test-0000" in row["text"]
    assert "\x1b" not in row["text"]

    second = annotate(grafana, service)
    assert "0 new, 0 changed, 1 as they should be" in second.text
    service.incidents = [ended(incident(), 600)]
    third = annotate(grafana, service)
    assert "1 changed" in third.text
    (row,) = ours(grafana)
    assert row["timeEnd"] - row["time"] == 600_000
    assert "1 as they should be" in annotate(grafana, service).text


def test_a_dry_run_says_and_writes_nothing(grafana: Stand, service: FakeService) -> None:
    service.incidents = [incident()]
    done = annotate(grafana, service, "--dry-run")
    assert (done.status, "1 new" in done.text) == (3, True)
    assert ours(grafana) == []


def test_an_incident_whose_beginning_moves_keeps_its_annotation(
    grafana: Stand, service: FakeService
) -> None:
    service.incidents = [incident()]
    annotate(grafana, service)
    later = msgspec.structs.replace(incident().verdict, since_ns=BEGAN_NS + 3_600 * NS)
    service.incidents = [msgspec.structs.replace(incident(), verdict=later)]
    assert "1 changed" in annotate(grafana, service).text
    assert len(ours(grafana)) == 1


def test_more_than_a_page_of_incidents_and_not_more_than_a_run_takes(
    grafana: Stand, service: FakeService
) -> None:
    double = grafana.double
    service.incidents = [ended(incident(number), 60) for number in range(101)]
    done = annotate(grafana, service)
    assert "101 new" in done.text, done.text
    assert len(double.annotations) == 101
    since = float(service.asked[0]["since"][0])
    assert since < time.time() - 86_000, "a day back by default"
    double.calls.clear()
    assert "101 as they should be" in annotate(grafana, service).text
    assert sum(call[1].startswith("/annotations") for call in double.calls) == 1


def test_the_calls_are_those_that_were_agreed(
    grafana: Stand, service: FakeService, golden: Golden
) -> None:
    double = grafana.double
    written = []
    for title, now in (
        ("an incident is open", [incident()]),
        ("the same once more", [incident()]),
        ("it is over", [ended(incident(), 600)]),
    ):
        service.incidents = now
        double.calls.clear()
        annotate(grafana, service, "--public-url", "https://fabricscope.example")
        written.append(f"# {title}\n")
        for method, address, body in double.calls:
            text = f" {json.dumps(body, sort_keys=True)}" if body is not None else ""
            written.append(f"{method} {address}{text}\n")
    golden(CALLS, "".join(written))


def test_an_answer_that_is_lost_makes_no_double_in_the_end(
    grafana: Stand, service: FakeService
) -> None:
    double = grafana.double
    service.incidents = [incident()]
    double.faults.append(Fault("POST /annotations", 502, b"bad gateway", is_done=True))
    lost = annotate(grafana, service)
    assert (lost.status, "502" in lost.text) == (2, True)
    assert "1 as they should be" in annotate(grafana, service).text
    number = next(iter(double.annotations))
    double.annotations[99] = {**double.annotations[number], "id": 99}
    assert "1 doubles removed" in annotate(grafana, service).text
    assert set(double.annotations) == {number}


def test_who_may_not_annotate_is_told(grafana: Stand, service: FakeService) -> None:
    service.incidents = [incident()]
    done = annotate(Stand(grafana.url, VIEWER, grafana.double), service)
    assert done.status == 2
    assert "annotations:create" in done.text


def test_a_service_that_does_not_answer_as_ours_is_named(
    grafana: Stand, service: FakeService
) -> None:
    service.status = 401
    refused = annotate(grafana, service)
    assert refused.status == 2
    assert "--service-token-file" in refused.text
    told = run(
        *["dashboards", "annotate", "--grafana", grafana.url, "--service", grafana.url],
        GRAFANA_TOKEN=grafana.token,
    )
    assert told.status == 2
    assert "/v1/incidents" in told.text
    bad = annotate(grafana, service, "--since", "soon")
    assert "--since 'soon'" in bad.text


# --- without a Grafana ---------------------------------------------------------------------------


def test_following_bears_with_outages_and_gives_up_in_the_end() -> None:
    told: list[Marked | str] = []
    answers = iter([Marked(created=("a",)), None, None, Marked(kept=1), Marked(kept=1)])

    def run_once() -> Marked:
        answer = next(answers, None)
        if answer is None:
            raise Unreachable("nobody there")
        return answer

    naps: list[float] = []
    with pytest.raises(Unreachable):
        follow(run_once, told.append, naps.append)
    assert told == [Marked(created=("a",)), "nobody there", Marked(kept=1), "nobody there"]
    assert len(naps) == 5 + FAILURES_MAX


def test_hostile_names_are_bounded() -> None:
    seen = IncidentSeen(
        id="x" * 500,
        state="open",
        cause="hang",
        culprit={"host": "h" * 500 + "\x1b", "rank": 3, "gpu": None},
        confidence=0.5,
        summary="s" * 5_000,
        action='"><script>',
        since_ns=5,
        last_seen_ns=5,
    )
    mark = mark_of(seen, "https://fabricscope.example")
    assert all(len(tag) <= 100 and tag.isprintable() for tag in mark.tags)
    assert "rank:3" in mark.tags
    assert len(mark.text) <= 1_000
    assert "<script>" not in mark.text
