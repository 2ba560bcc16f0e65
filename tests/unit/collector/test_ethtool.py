"""`ethtool`: statistics that come and go, and directions."""

from pathlib import Path

from collector.contract.model import Missing, Sample
from collector.doors.host import Host
from collector.sources.ethtool import Ethtool, Settings
from collector.tables.ethtool import BNXT, INTEL, IONIC, MLX5, Row
from tests.fixtures.trees import write_files, write_link


def write_stats(tree: Path, text: str) -> None:
    write_files(tree, {"ethtool/eth0/statistics": f"NIC statistics:\n{text}"})


def read(source: Ethtool, host: Host) -> dict[str, float]:
    return {repr(each.series): each.value for each in source.read(host) if isinstance(each, Sample)}


def test_statistics_that_appear_are_read(tmp_path: Path) -> None:
    """Per-priority pause exists only once flow control is switched on."""
    write_link(tmp_path, "sys/class/net/eth0/device/driver", "../drivers/mlx5_core")
    write_files(tmp_path, {"ethtool/eth0/driver": "driver: mlx5_core"})
    source, host = Ethtool(Settings()), Host(tmp_path)
    write_stats(tmp_path, "     rx_discards_phy: 1")
    paused = 'fabric_nic_receive_pause_frames_total{device="eth0",priority="3"}'
    assert paused not in read(source, host)
    write_stats(tmp_path, "     rx_discards_phy: 1\n     rx_prio3_pause: 7")
    assert read(source, host)[paused] == 7
    write_stats(tmp_path, "     rx_discards_phy: 1")
    assert paused not in read(source, host)


def test_the_driver_is_known_even_if_it_does_not_introduce_itself(tmp_path: Path) -> None:
    write_link(tmp_path, "sys/class/net/eth0/device/driver", "../drivers/bnxt_en")
    write_stats(tmp_path, "     link_down_events: 2")
    readings = read(Ethtool(Settings()), Host(tmp_path))
    assert readings['fabric_nic_link_down_total{device="eth0"}'] == 2


def test_an_excluded_interface_is_left_alone(tmp_path: Path) -> None:
    write_link(tmp_path, "sys/class/net/eth0/device/driver", "../drivers/mlx5_core")
    assert list(Ethtool(Settings(exclude=("eth*",))).read(Host(tmp_path))) == []


def test_one_absence_for_an_interface_without_statistics(tmp_path: Path) -> None:
    write_link(tmp_path, "sys/class/net/eth0/device/driver", "../drivers/gve")
    (reading,) = Ethtool(Settings()).read(Host(tmp_path))
    assert isinstance(reading, Missing)
    assert reading.series.metric == "fabric_nic_statistics"


def test_directions_are_the_same_in_every_driver() -> None:
    """Received: asked to stop. Transmitted: cannot drain. Mixed up, the wrong host is blamed."""
    received = [
        MLX5.find("rx_prio3_pause"),
        BNXT.find("rx_pfc_ena_frames_pri3"),
        INTEL.find("rx_priority_3_xoff.nic"),
        INTEL.find("port.rx_priority_3_xoff"),
    ]
    transmitted = [
        MLX5.find("tx_prio3_pause"),
        BNXT.find("tx_pfc_ena_frames_pri3"),
        INTEL.find("tx_priority_3_xoff.nic"),
    ]
    assert {row and row.metric for row in received} == {"fabric_nic_receive_pause_frames_total"}
    assert {row and row.metric for row in transmitted} == {"fabric_nic_transmit_pause_frames_total"}
    assert {row and row.labels for row in (*received, *transmitted)} == {(("priority", "3"),)}


def test_time_for_which_an_ionic_had_to_stop_or_stopped_its_switch() -> None:
    received = IONIC.find("rx_pripause_3_1us_count")
    transmitted = IONIC.find("tx_pripause_3_1us_count")
    assert received == Row("fabric_nic_receive_pause_seconds_total", 1e-6, (("priority", "3"),))
    assert transmitted == Row("fabric_nic_transmit_pause_seconds_total", 1e-6, (("priority", "3"),))
    assert IONIC.find("rx_pripause_8_1us_count") is None


def test_names_that_only_look_alike_are_not_taken() -> None:
    for name in ("rx_prio8_pause", "rx_prio3_pause_storm", "xrx_prio3_pause", "rx_prio3_bytes"):
        assert MLX5.find(name) is None
