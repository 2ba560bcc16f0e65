"""The door to NCCL's RAS socket, against processes that answer well, badly or not at all."""

import socket
import time
from pathlib import Path

import pytest

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.doors import ras
from collector.doors.host import Host
from collector.doors.ras import ask_status
from tests.doubles.ras_server import Manner, RasServer

JSON, TEXT = b'{"nccl_version": "2.28.9"}\n' * 100, b"NCCL version 2.24.3\n" * 100


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short where a test needs them to pass, and long where an answer comes."""
    monkeypatch.setattr(ras, "GRACE_SECONDS", 0.2)


def refused(server: RasServer, seconds: float = 1.0) -> HostError:
    with pytest.raises(HostError) as refusal:
        ask_status(server.address, seconds)
    return refusal.value


def test_a_new_one_answers_as_json() -> None:
    with RasServer(JSON, TEXT) as server:
        assert ask_status(server.address, 30.0) == JSON
    assert server.asked == ["CLIENT PROTOCOL 2", "TIMEOUT 30", "SET FORMAT json", "VERBOSE STATUS"]


def test_an_old_one_refuses_json_and_answers_as_text() -> None:
    with RasServer(JSON, TEXT, Manner.OLD) as server:
        assert ask_status(server.address, 30.0) == TEXT
    assert server.connections == 1


def test_where_nothing_listens_it_is_absent_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(HostError) as refusal:
        ask_status(address, 30.0)
    assert refusal.value.reason is UnreadReason.ABSENT


@pytest.mark.parametrize("address", ["localhost", "localhost:0", "localhost:70000", "", ":1"])
def test_an_address_that_is_none_is_absent(address: str) -> None:
    with pytest.raises(HostError) as refusal:
        ask_status(address, 1.0)
    assert refusal.value.reason is UnreadReason.ABSENT


def test_a_process_that_is_stopped_is_given_up_after_some_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ras, "GREETING_SECONDS", 0.05)
    with RasServer(JSON, TEXT, Manner.STOPPED) as server:
        began = time.monotonic()
        error = refused(server, seconds=60.0)
    assert error.reason is UnreadReason.TIMEOUT
    assert f"{ras.ATTEMPTS} connections" in error.detail
    assert time.monotonic() - began < 30.0


def test_a_status_that_never_comes_is_a_timeout() -> None:
    with RasServer(JSON, TEXT, Manner.SILENT) as server:
        error = refused(server, seconds=0.1)
    assert error.reason is UnreadReason.TIMEOUT
    assert "VERBOSE STATUS is not answered in time" in error.detail


@pytest.mark.parametrize(
    ("manner", "said"),
    [(Manner.GARBAGE, "which RAS does not"), (Manner.LONG_LINE, "is answered with over")],
)
def test_another_program_at_the_port_is_told_apart(manner: Manner, said: str) -> None:
    with RasServer(JSON, TEXT, manner) as server:
        error = refused(server)
    assert error.reason is UnreadReason.TIMEOUT
    assert said in error.detail


def test_an_answer_without_an_end_is_not_read_to_its_end() -> None:
    with RasServer(JSON, TEXT, Manner.ENDLESS) as server:
        error = refused(server, seconds=60.0)
    assert error.reason is UnreadReason.UNPARSEABLE
    assert "ANSWER_BYTES_MAX" in error.detail
    # Once as JSON and once as text; what the kernel holds on its way is sent as well.
    assert server.sent_bytes < 2 * (ras.ANSWER_BYTES_MAX + (16 << 20))


def test_of_a_job_that_is_too_large_the_text_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "ANSWER_BYTES_MAX", len(TEXT))
    with RasServer(JSON, TEXT) as server:
        assert ask_status(server.address, 30.0) == TEXT
    assert server.connections == 2


def test_a_captured_tree_has_the_answer_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ras/localhost%3A28028"
    file.parent.mkdir()
    file.write_bytes(JSON)
    assert Host(tmp_path).ras_status("localhost:28028", 1.0) == JSON
