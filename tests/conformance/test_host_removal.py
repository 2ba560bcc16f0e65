"""Hosts that are gone leave: by a verb, or by age; what belongs to them follows."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.health.model import HealthState, Hold, Target
from alerts.policy.record import said_by
from api.base.operating_limits import HOST_QUIET_SECONDS
from api.data.backup.rows import facts_of
from api.data.inventory.batches import BatchRun
from api.data.inventory.health import unix_ns
from api.data.inventory.records import DeviceKind
from api.data.inventory.repository import Inventory
from api.data.inventory.rollout_model import AgentConfiguration
from api.data.inventory.sightings import LinkEnd, Observation, Sighting
from collector.cli import main
from tests.stands.service import InProcess, in_process

NOW = dt.datetime.now(dt.UTC)
OLD = NOW - dt.timedelta(hours=5)


def see(inventory: Inventory, name: str, at: dt.datetime) -> None:
    """For an hour before, so that it is no ghost; with a port, a cable and an agent."""
    port = Sighting(host=name, kind=DeviceKind.RDMA, device="mlx5_0", port="1")
    inventory.observe([Observation(port, at - dt.timedelta(hours=1), at)])
    run = BatchRun(agent=f"{name}-agent", boot="b", first=1, last=1, received_at=at, host=name)
    inventory.note_batches([run])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[InProcess]:
    def prepare(inventory: Inventory) -> None:
        see(inventory, "gone", OLD)
        see(inventory, "here", dt.datetime.now(dt.UTC))  # a run may take longer than it is quiet

    with in_process(tmp_path, prepare=prepare) as service:
        yield service


def hosts(running: InProcess, *words: str) -> int:
    return main(["hosts", *words, "--service", str(running.client.base_url)])


def test_a_host_is_removed_with_what_belongs_to_it_and_a_record(
    running: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = {"state": "out", "reason": "broken", "by": "ann"}
    assert running.client.put("/v1/hosts/gone/hold", json=hold).status_code == 200
    assert hosts(running, "list", "--silent", "2") == 0
    listed = capsys.readouterr().out
    assert "gone" in listed
    assert "here" not in listed
    assert hosts(running, "remove", "gone", "--by", "ann") == 0
    assert "gone is removed; it was last seen" in capsys.readouterr().out
    assert running.client.get("/v1/hosts/gone").status_code == 404
    assert [port["host"] for port in running.client.get("/v1/ports").json()["items"]] == ["here"]
    assert running.client.get("/v1/holds").json()["items"] == []
    assert running.inventory.hosts.agent("gone-agent") is None
    assert running.inventory.hosts.agent("here-agent") is not None
    [event] = running.client.get("/v1/events", params={"kind": "host_removed"}).json()["items"]
    assert event["labels"] == {"host": "gone"}
    assert event["attributes"] == {"by": "ann"}
    fleet = running.client.get("/v1/health").json()
    assert "gone" not in str(fleet)
    see(running.inventory, "gone", NOW)
    assert running.client.get("/v1/hosts/gone").status_code == 200, "it may come back"


def test_one_that_sends_or_is_not_there_is_refused_and_hinders_no_other(
    running: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hosts(running, "remove", "here", "goner", "gone", "--by", "ann") == 1
    out, err = capsys.readouterr()
    assert f"HOST_QUIET_SECONDS = {HOST_QUIET_SECONDS:g} s" in err
    assert "goner" in err
    assert "gone is removed" in out
    assert [host["host"] for host in running.client.get("/v1/hosts").json()["items"]] == ["here"]
    assert hosts(running, "list", "--silent", "-1") == 2
    assert running.client.delete("/v1/hosts/here").status_code == 422, "who does it must be said"


def test_by_age_they_leave_unless_they_are_held(inventory: Inventory) -> None:
    days = 90
    for name, age in (("old", days + 1), ("young", days - 1), ("other", days + 2)):
        see(inventory, name, NOW - dt.timedelta(days=age))
    see(inventory, "held", NOW - dt.timedelta(days=days + 2))
    hold = Hold(
        target=Target.of_host("held"),
        state=HealthState.OUT,
        reason="sent to its maker",
        by="ann",
        since_ns=unix_ns(NOW),
        until_ns=None,
    )
    inventory.actions.take_host(said_by(hold, "1"))
    assert inventory.hosts.forget_gone(NOW, days + 3) == []
    assert inventory.hosts.forget_gone(NOW, days) == ["other", "old"]
    assert [host.host for host in inventory.hosts.page()] == ["held", "young"]
    assert [port.host for port in inventory.hosts.ports()] == ["held", "young"]
    assert inventory.hosts.agent("old-agent") is None
    assert not inventory.hosts.remove("old")
    assert not inventory.hosts.remove("\0")
    assert inventory.hosts.remove("young")


def test_an_agent_that_reports_for_another_host_stays(inventory: Inventory) -> None:
    for name in ("a", "b"):
        inventory.note_batches(
            [BatchRun(agent="poller", boot="b", first=1, last=1, received_at=NOW, host=name)]
        )
    report = AgentConfiguration(agent="poller", at=NOW, heard_at=NOW)
    inventory.rollouts.write_reports([report])
    assert inventory.hosts.remove("a")
    assert inventory.hosts.agent("poller") is not None
    assert inventory.rollouts.reports() == [report]
    assert inventory.hosts.remove("b")
    assert inventory.hosts.agent("poller") is None
    assert inventory.rollouts.reports() == []


def test_cables_go_with_their_host(inventory: Inventory, url: str) -> None:
    end = LinkEnd(device="mlx5_0", port="1", method="lldp", peer_name="leaf1", peer_port="swp1")
    inventory.observe([Observation.at(Sighting(host="gone", link=end), OLD)])
    assert facts_of(url)[1]["cablings"].rows == 1
    assert inventory.hosts.remove("gone")
    assert facts_of(url)[1]["cablings"].rows == 0
