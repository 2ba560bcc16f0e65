"""The inventory on PostgreSQL: it goes and comes back; of two services the leader dies."""

import contextlib
import time
from pathlib import Path

import httpx
import pytest

from tests.chaos.conftest import PARTS, Report
from tests.chaos.ledger import Ledger
from tests.chaos.stand import opened, paged, standing, write_settings
from tests.doubles import clickhouse_http
from tests.stands import postgres
from tests.stands.service import ServiceProcess, eventually

pytestmark = [pytest.mark.slow, pytest.mark.peer("initdb", "postgres")]

AWAY_SECONDS = 25.0
"""Longer than a lease lasts (`api.oncall.evaluate.lead.LEASE_SECONDS`)."""
TAKEOVER_SECONDS = 60.0


@pytest.mark.rotating(PARTS)
def test_postgresql_away_while_an_incident_opens(tmp_path: Path, report: Report) -> None:
    ledger = Ledger()
    data = tmp_path / "data"
    with postgres.stoppable() as server, paged(ledger) as pager:
        inventory = postgres.new_database(server.url)
        settings = write_settings(tmp_path, pager)
        service = ServiceProcess(data, "--config", str(settings), "--inventory", inventory)
        with service, standing([service], ledger, seed=3, fault="slow_nic") as stand:
            stand.until(4.0)
            server.stop()
            time.sleep(AWAY_SECONDS)
            server.start()
            stand.until_paged()
            server.stop()
            server.start()
            stand.settle()
            assert service.stop() == 0
        with opened(f"chdb://{data / 'telemetry'}", inventory) as (store, read):
            report(stand.check(store, read))


@pytest.mark.rotating(PARTS)
def test_leader_killed_while_an_incident_is_open(tmp_path: Path, report: Report) -> None:
    ledger = Ledger()
    folder = tmp_path / "clickhouse"
    folder.mkdir()
    with (
        postgres.stoppable() as server,
        clickhouse_http.server(folder) as store_url,
        paged(ledger) as pager,
        contextlib.ExitStack() as running,
    ):
        inventory = postgres.new_database(server.url)
        settings = write_settings(tmp_path, pager)
        words = ("--config", str(settings), "--inventory", inventory, "--store", store_url)
        services = [ServiceProcess(tmp_path / name, *words) for name in ("one", "two")]
        for service in services:
            running.enter_context(service)
        stand = running.enter_context(standing(services, ledger, seed=4, fault="slow_nic"))
        stand.until_paged()
        [leader] = [service for service in services if leads(service)]
        [heir] = [service for service in services if service is not leader]
        leader.kill()
        eventually(lambda: leads(heir), "the other service leads", TAKEOVER_SECONDS)
        stand.settle()
        assert heir.stop() == 0
        with opened(store_url, inventory) as (store, read):
            report(stand.check(store, read))


def leads(service: ServiceProcess) -> bool:
    with contextlib.suppress(httpx.TransportError):
        text = service.client.get("/metrics").text
        return "\nfabric_service_evaluation_leads 1.0" in text
    return False
