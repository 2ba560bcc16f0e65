"""The inventory learns ports' state and rate from samples, and only what changed is written."""

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from api.data.refresh import OVERLAP, WRITE_ALL, PortRefresh
from collector.contract.catalog import load_catalog
from collector.contract.errors import InventoryError
from tests.stands.service import InProcess, in_process
from tests.worlds import remote_write as rw

STATE, RATE = "fabric_port_state", "fabric_port_rate_bits_per_second"
ACTIVE, DOWN = 4.0, 1.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InProcess]:
    with in_process(tmp_path) as running:
        yield running


@pytest.fixture
def refresh(service: InProcess) -> PortRefresh:
    return PortRefresh(service.store, service.inventory, load_catalog())


def send(service: InProcess, name: str, value: float, *, port: str = "1", age_s: float = 0) -> None:
    labels = {"__name__": name, "device": "mlx5_0", "host": "node-a", "port": port}
    at_ms = int((time.time() - age_s) * 1000)
    body = rw.snappy(rw.request_v1([rw.TimeSeries(sorted(labels.items()), [(value, at_ms)])]))
    answer = service.client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
    assert answer.status_code == 204, answer.text


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def values(service: InProcess) -> dict[str, tuple[str | None, int | None]]:
    ports = service.client.get("/v1/ports").json()["items"]
    return {one["port"]: (one["state"], one["rate_bits_per_second"]) for one in ports}


def test_state_and_rate_come_in(service: InProcess, refresh: PortRefresh) -> None:
    send(service, STATE, ACTIVE)
    send(service, RATE, 4e11)
    assert refresh.look(now()) == 1
    assert values(service) == {"1": ("active", 400_000_000_000)}


def test_what_did_not_change_is_not_written(service: InProcess, refresh: PortRefresh) -> None:
    for port in ("1", "2"):
        send(service, STATE, ACTIVE, port=port)
    assert refresh.look(now()) == 2
    with patch.object(service.inventory, "set_port_values") as write:
        assert refresh.look(now()) == 0
        send(service, STATE, ACTIVE)
        assert refresh.look(now()) == 0
        write.assert_not_called()
    send(service, STATE, DOWN, port="2")
    assert refresh.look(now()) == 1
    assert values(service) == {"1": ("active", None), "2": ("down", None)}


def test_everything_is_written_again_after_a_while(
    service: InProcess, refresh: PortRefresh
) -> None:
    send(service, STATE, ACTIVE)
    assert refresh.look(now()) == 1
    assert refresh.look(now() + WRITE_ALL) == 1


def test_the_meaning_of_a_series_is_read_once(service: InProcess) -> None:
    # Its own way to the store: the service's threads ask questions beside it.
    asked = Mock(wraps=service.store)
    refresh = PortRefresh(asked, service.inventory, load_catalog())
    send(service, STATE, ACTIVE)
    refresh.look(now())
    asked.query.reset_mock()
    send(service, STATE, DOWN)
    refresh.look(now())
    assert asked.query.call_count == 1


def test_a_late_sample_does_not_bring_an_old_state_back(
    service: InProcess, refresh: PortRefresh
) -> None:
    send(service, STATE, DOWN)
    refresh.look(now())
    later = now() + OVERLAP + OVERLAP
    send(service, STATE, ACTIVE, age_s=30)
    refresh.look(later - OVERLAP)
    assert values(service) == {"1": ("down", None)}


def test_what_a_failed_write_did_not_keep_is_written_next_time(
    service: InProcess, refresh: PortRefresh
) -> None:
    send(service, STATE, ACTIVE)
    refresh.look(now())
    send(service, STATE, DOWN)
    away = InventoryError("away")
    with (
        patch.object(service.inventory, "set_port_values", side_effect=away),
        pytest.raises(InventoryError),
    ):
        refresh.look(now())
    assert refresh.look(now()) == 1
    assert values(service) == {"1": ("down", None)}
