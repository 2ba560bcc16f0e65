"""What labels say of switches and of the ends of cables; and which rail a NIC is on."""

from datetime import UTC, datetime

import pytest

from api.data.inventory.feed import InventoryFeed
from api.data.inventory.records import DeviceKind
from api.data.inventory.sightings import LinkEnd, Observation, PortValues, Sighting, sight
from api.fabric.rails import NicPlace, rails_of
from collector.contract.catalog import load_catalog
from tests.worlds.link_ends import series

CATALOG = load_catalog()
SWITCH = (("role", "switch"),)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_port_whose_device_is_its_host_is_a_switch_s() -> None:
    labels = series("fabric_port_receive_bytes_total", host="leaf-0", device="leaf-0", port="1/1")
    assert sight(labels, CATALOG) == Sighting(
        host="leaf-0",
        kind=DeviceKind.SWITCH,
        device="leaf-0",
        port="1/1",
        host_attributes=SWITCH,
    )


def test_a_gpu_or_interface_of_its_host_s_name_makes_no_switch() -> None:
    found = sight(series("fabric_nic_up", host="node-0", device="node-0"), CATALOG)
    assert found == Sighting(host="node-0", kind=DeviceKind.NIC, device="node-0")


def test_what_a_switch_is_is_said_without_who_asked_it() -> None:
    labels = series("fabric_switch_info", host="leaf-0", method="snmp", model="M1", cluster="c1")
    found = sight(labels, CATALOG)
    assert found == Sighting(
        host="leaf-0", host_attributes=(("cluster", "c1"), ("model", "M1"), ("role", "switch"))
    )


def test_values_of_a_switch_s_port_are_a_switch_s() -> None:
    values = PortValues(host="leaf-0", device="leaf-0", port="1", seen_at=NOW, state=4)
    found = values.sighting()
    assert found is not None
    assert (found.kind, found.host_attributes) == (DeviceKind.SWITCH, SWITCH)


def test_the_end_of_a_cable_at_a_switch_shows_its_port() -> None:
    labels = series(
        "fabric_link_info",
        host="leaf-0",
        device="leaf-0",
        port="Ethernet4",
        method="snmp",
        peer_name="node-0",
        peer_port_id="02:00:00:00:00:01",
    )
    end = LinkEnd(
        device="leaf-0",
        port="Ethernet4",
        method="snmp",
        peer_name="node-0",
        peer_port_id="02:00:00:00:00:01",
    )
    assert sight(labels, CATALOG) == Sighting(
        host="leaf-0",
        kind=DeviceKind.SWITCH,
        device="leaf-0",
        port="Ethernet4",
        host_attributes=SWITCH,
        link=end,
    )
    assert end.peer == ("node-0", "", "", "", "02:00:00:00:00:01")


def test_the_end_of_a_cable_at_a_host_shows_the_host_alone() -> None:
    labels = series(
        "fabric_link_info", host="node-0", device="eno1", port="1", method="lldp", peer_name="m"
    )
    end = LinkEnd(device="eno1", port="1", method="lldp", peer_name="m")
    assert sight(labels, CATALOG) == Sighting(host="node-0", link=end)


@pytest.mark.parametrize(
    "change",
    [
        {"device": ""},
        {"port": ""},
        {"method": ""},
        {"peer_name": ""},
        {"host": "x" * 300},
        {"port": "a\nb"},
    ],
    ids=str,
)
def test_an_end_that_lacks_something_says_nothing(change: dict[str, str]) -> None:
    labels = {"host": "h", "device": "d", "port": "1", "method": "lldp", "peer_name": "p"}
    assert sight(series("fabric_link_info", **(labels | change)), CATALOG) is None


def test_what_a_neighbour_says_is_cut_and_made_printable() -> None:
    labels = {"host": "h", "device": "d", "port": "1", "method": "lldp"}
    found = sight(series("fabric_link_info", **labels, peer_name="a\0b" + "c" * 900), CATALOG)
    assert found is not None
    assert found.link is not None
    assert found.link.peer_name == "a\ufffdb" + "c" * 509


# --- the feed ------------------------------------------------------------------------------------


class Full:
    """An inventory that has room for nothing."""

    def observe(self, observations: list[Observation]) -> int:
        return len(observations)

    def note_batches(self, runs: object) -> None:
        """Take them."""


def test_the_feed_counts_what_the_inventory_left_out() -> None:
    feed = InventoryFeed(Full(), CATALOG, lambda: NOW)  # type: ignore[arg-type]
    ends = [LinkEnd(device="d", port=str(port), method="lldp", peer_name="p") for port in range(3)]
    feed.seen([Sighting(host="h", link=end) for end in ends])
    feed.run_once()
    assert (feed.flushed, feed.dropped, feed.pending) == (3, 3, 0)


# --- rails ---------------------------------------------------------------------------------------


def nic(device: str, pci_path: str = "", board: str = "", *, is_cabled: bool = True) -> NicPlace:
    return NicPlace(device=device, pci_path=pci_path, kind=(board, "", ""), is_cabled=is_cabled)


def test_rails_follow_the_pci_order_and_else_the_names() -> None:
    swapped = [nic("mlx5_0", "pci0000:b0/0000:b1:00.0"), nic("mlx5_1", "pci0000:10/0000:11:00.0")]
    assert rails_of(swapped) == {"mlx5_1": 0, "mlx5_0": 1}
    half_known = [nic("mlx5_10", "pci0000:10/0000:11:00.0"), nic("mlx5_9")]
    assert rails_of(half_known) == {"mlx5_9": 0, "mlx5_10": 1}


def test_a_nic_whose_cable_is_out_keeps_its_rail() -> None:
    nics = [nic(f"mlx5_{number}", is_cabled=number != 1) for number in range(4)]
    assert rails_of(nics) == {f"mlx5_{number}": number for number in range(4)}


def test_nics_of_another_kind_and_hosts_without_cables_have_no_rails() -> None:
    storage = [nic("mlx5_2", board="S"), nic("mlx5_4", board="S", is_cabled=False)]
    compute = [nic(f"mlx5_{number}", board="C") for number in (0, 1, 3, 5)]
    expected = {"mlx5_0": 0, "mlx5_1": 1, "mlx5_3": 2, "mlx5_5": 3}
    assert rails_of([*storage, *compute]) == expected
    assert rails_of([nic("mlx5_0", is_cabled=False)]) == {}
    spare = [nic(f"mlx5_{number}", board="S", is_cabled=False) for number in range(6, 12)]
    assert rails_of([*spare, *compute]) == expected
