"""The front door: strangers' pages, clients that stall, and more connections than there is room."""

import contextlib
import socket
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from api.base import limits
from api.http import connections, patience
from api.http.settings import ServiceSettings
from collector.contract.errors import SettingsError
from collector.contract.wire import CONTENT_TYPE
from tests.stands.service import InProcess, eventually, in_process
from tests.stands.strangers import (
    DECLARED,
    JSON,
    SILENCE,
    is_closed,
    metric,
    raw,
    send,
    stalled,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("front")) as one:
        yield one


# --- other names and other pages ---------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "rebind.evil.example",
        "localhost.evil.example",
        "evil.example:9700",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "[::2]",
        "a b",
    ],
)
def test_a_strangers_name_for_this_machine_makes_no_token(service: InProcess, host: str) -> None:
    wish = {"name": "mine", "scopes": ["admin"]}
    answer = send(service, "POST", "/v1/tokens", wish, Host=host, **JSON)
    assert answer.status_code == 421
    assert answer.json()["rule"] == "host"
    assert service.client.get("/v1/tokens").json()["items"] == []


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:1", "[::1]:9700", "LOCALHOST.", "a.localhost", "127.8.8.8"]
)
def test_this_machines_own_names_are_answered(service: InProcess, host: str) -> None:
    assert send(service, "GET", "/v1/hosts", Host=host).status_code == 200


def test_a_probe_may_call_by_any_name(service: InProcess) -> None:
    assert send(service, "GET", "/healthz", Host="10.1.2.3:9700").status_code == 200


def test_two_names_in_one_request_are_refused(service: InProcess) -> None:
    answer = raw(
        service, b"GET /v1/hosts HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 421")


@pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "a b", "*a.example", "a..b"])
def test_a_name_that_is_none_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(SettingsError, match="allowed_hosts"):
        ServiceSettings(allowed_hosts=name).check()


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "", "file://"]
)
def test_another_page_silences_nothing(service: InProcess, origin: str) -> None:
    answer = send(service, "POST", "/v1/silences", SILENCE, Origin=origin, **JSON)
    assert (answer.status_code, answer.json()["rule"]) == (403, "origin")
    assert service.client.get("/v1/silences").json()["items"] == []


def test_the_services_own_page_may_change_things(service: InProcess) -> None:
    netloc = service.client.base_url.netloc.decode()
    answer = send(
        service, "PUT", "/v1/hosts/none/hold", {}, Origin=f"http://{netloc}", Host=netloc, **JSON
    )
    assert answer.status_code == 404, "it came as far as the host"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_silences_nothing(service: InProcess, kind: str) -> None:
    answer = send(service, "POST", "/v1/silences", SILENCE, Content_Type=kind)
    assert (answer.status_code, answer.json()["rule"]) == (415, "content_type")


def test_reading_takes_what_it_took(service: InProcess) -> None:
    """Prometheus' clients send forms, and Grafana may run in a browser of its own page."""
    answer = service.client.post(
        "/api/v1/query", data={"query": "1"}, headers={"Origin": "https://grafana.example"}
    )
    assert answer.status_code == 200


def test_denials_are_counted(service: InProcess) -> None:
    for reason in ("host", "origin", "content_type"):
        assert metric(service, f'fabric_service_denied_total{{reason="{reason}"}}') >= 1


# --- clients that stall ------------------------------------------------------------------------


@pytest.mark.parametrize("path", [b"/v1/ingest", b"/v1/placement"])
def test_declared_bytes_that_do_not_come_take_no_room(service: InProcess, path: bytes) -> None:
    head = DECLARED.replace(b"/v1/ingest", path)
    with stalled(service, 20, head):
        answer = service.client.post(
            "/v1/ingest",
            content=b"x" * 1000,
            headers={"Content-Type": CONTENT_TYPE, "Content-Encoding": "zstd"},
        )
        assert answer.status_code == 400, "it was read and is no batch: there was room"
        assert metric(service, "fabric_service_inflight_bytes") == 0


def test_a_body_that_never_ends_is_given_up(service: InProcess) -> None:
    with patch.object(patience, "BODY_SECONDS", 0.3):
        answer = raw(service, DECLARED.replace(b"/v1/ingest", b"/v1/placement"), b"[")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"BODY_SECONDS" in answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /v1/hosts HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"G"]
)
def test_half_sent_headers_end(service: InProcess, sent: bytes) -> None:
    with (
        patch.object(connections, "HEADER_SECONDS", 0.3),
        stalled(service, 20, sent) as peers,
    ):
        eventually(lambda: all(is_closed(peer) for peer in peers), "all of them closed", 20)


def test_headers_of_a_second_request_must_come_too(service: InProcess) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with patch.object(connections, "HEADER_SECONDS", 0.3), stalled(service, 1, whole) as (peer,):
        assert b"200" in peer.recv(4096)
        peer.sendall(b"GET /healthz HT")
        eventually(lambda: is_closed(peer), "closed", 20)


def test_headers_without_end_are_refused(service: InProcess) -> None:
    with stalled(service, 1, b"GET / HTTP/1.1\r\n") as (peer,), contextlib.suppress(OSError):
        for _ in range(100):
            peer.sendall(b"X: " + b"y" * 4000 + b"\r\n")
    name = 'fabric_service_connections_refused_total{rule="HEADER_BYTES_MAX"}'
    eventually(lambda: metric(service, name) == 1, "the refusal")


def test_an_idle_connection_between_requests_stays(service: InProcess) -> None:
    """An agent sends every five seconds, and TLS should not be redone for each batch."""
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with patch.object(connections, "HEADER_SECONDS", 0.2), stalled(service, 1, whole) as (peer,):
        assert b"200" in peer.recv(4096)
        gone = time.monotonic() + 0.6
        eventually(lambda: time.monotonic() > gone, "three times the time for headers")
        peer.sendall(whole)
        assert b"200" in peer.recv(4096)


def test_connections_past_the_bound_are_refused_and_the_others_stay(service: InProcess) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        patch.object(connections, "CONNECTIONS_PER_ADDRESS_MAX", 5),
        stalled(service, 12, whole) as peers,
    ):
        answers = [first_line(peer) for peer in peers]
        assert 1 <= sum(b"200" in one for one in answers) <= 5
        assert sum(b"503" in one for one in answers) >= 7
    eventually(lambda: metric(service, "fabric_service_connections") <= 2, "the count falls", 20)


def first_line(peer: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionError):
        return peer.recv(4096).partition(b"\r\n")[0]
    return b"503 by reset"


def test_the_bounds_have_names_and_values() -> None:
    """Those above are patched; these are what operators get."""
    assert limits.INFLIGHT_BYTES_PER_SENDER_MAX < limits.INFLIGHT_BYTES_MAX
    assert limits.CONNECTIONS_PER_ADDRESS_MAX < limits.CONNECTIONS_MAX
