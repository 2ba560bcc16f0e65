"""`links`: changes are reported as they happen, and what falls between two looks is counted."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from collector.agent.schedule import Looks
from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.netlink import LinkMessage, LinkNews
from collector.sources import links as links_module
from collector.sources.links import Links, Settings
from tests.doubles.fakes import HandHost
from tests.fixtures.trees import write_files, write_link

PORT = "sys/class/infiniband/mlx5_0/ports/1"
NDR, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"


class KernelHost(HandHost):
    """A host whose kernel sends the messages that the test sets."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.news: list[LinkNews] = []
        self.is_silent = False

    def link_news(self) -> LinkNews:
        if self.is_silent:
            raise HostError(UnreadReason.ABSENT, "rtnetlink", "no such socket")
        return self.news.pop(0) if self.news else LinkNews([])


@pytest.fixture
def host(tmp_path: Path) -> KernelHost:
    write_files(
        tmp_path,
        {
            f"{PORT}/state": "4: ACTIVE",
            f"{PORT}/rate": NDR,
            f"{PORT}/link_layer": "InfiniBand",
            f"{PORT}/counters/link_downed": "2",
            "sys/class/net/eth0/operstate": "up",
            "sys/class/net/eth0/carrier_down_count": "1",
            "sys/class/net/lo/operstate": "unknown",
        },
    )
    write_link(tmp_path, "sys/class/net/eth0/device", "../../../devices/pci0000:00/0000:00:03.0")
    return KernelHost(tmp_path)


@pytest.fixture
def source(host: KernelHost) -> Links:
    """Has read once: what there was is its baseline."""
    made = Links(Settings())
    assert not events(made.read(host))
    return made


def events(readings: Iterable[Reading]) -> list[Event]:
    return [each for each in readings if isinstance(each, Event)]


def events_of(readings: Iterable[Reading]) -> list[tuple[str, str, str, str]]:
    return [
        (e.kind, e.labels["device"], e.attributes.get("from", ""), e.attributes.get("to", ""))
        for e in events(readings)
    ]


def downs(readings: Iterable[Reading]) -> dict[str, float]:
    return {
        dict(each.series.labels)["device"]: each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric.endswith("_downs_seen_total")
    }


def set_port(host: KernelHost, **files: str) -> None:
    write_files(host.root, {f"{PORT}/{name}": text for name, text in files.items()})


def message(name: str = "eth0", *, up: bool, downs: int | None = 1, **more: bool) -> LinkMessage:
    enabled = more.get("enabled", True)
    return LinkMessage(name, enabled, up, more.get("gone", False), downs, downs)


def test_it_looks_between_its_reads(source: Links) -> None:
    assert isinstance(source, Looks)
    assert source.look_seconds == 0.1


def test_a_quiet_look_yields_nothing(source: Links, host: KernelHost) -> None:
    assert list(source.look(host)) == []


def test_a_port_that_goes_down_and_comes_back_is_reported_twice(
    source: Links, host: KernelHost
) -> None:
    set_port(host, state="1: DOWN")
    assert events_of(source.look(host)) == [("link_down", "mlx5_0", "ACTIVE", "DOWN")]
    set_port(host, state="2: INIT")
    assert events_of(source.look(host)) == []
    set_port(host, state="4: ACTIVE")
    assert events_of(source.look(host)) == [("link_up", "mlx5_0", "INIT", "ACTIVE")]
    assert downs(source.read(host)) == {"mlx5_0": 1, "eth0": 0}


def test_a_rate_that_changed_while_the_link_was_down_is_reported(
    source: Links, host: KernelHost
) -> None:
    set_port(host, state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    assert [kind for kind, *_ in events_of(source.look(host))] == ["link_down"]
    set_port(host, state="4: ACTIVE", rate=HDR)
    assert events_of(source.look(host)) == [
        ("link_up", "mlx5_0", "DOWN", "ACTIVE"),
        ("link_rate", "mlx5_0", NDR, HDR),
    ]


def test_flaps_between_two_looks_are_counted_by_the_port(source: Links, host: KernelHost) -> None:
    set_port(host, **{"counters/link_downed": "5"})
    readings = list(source.read(host))
    (event,) = events(readings)
    assert event.kind == "link_flap"
    assert event.attributes["flaps"] == "3"
    assert downs(readings)["mlx5_0"] == 3


@pytest.mark.parametrize("counts_late", [False, True])
def test_a_down_that_was_seen_is_not_counted_again(
    source: Links, host: KernelHost, *, counts_late: bool
) -> None:
    set_port(host, state="1: DOWN")
    assert [kind for kind, *_ in events_of(source.look(host))] == ["link_down"]
    if counts_late:
        assert not events(source.read(host))
    set_port(host, **{"counters/link_downed": "3"})
    readings = list(source.read(host))
    assert not events(readings)
    assert downs(readings)["mlx5_0"] == 1


def test_what_a_count_never_confirmed_does_not_hide_a_later_flap(
    source: Links, host: KernelHost
) -> None:
    """A port that loses its subnet manager is not active, and its link_downed stays."""
    set_port(host, state="2: INIT")
    list(source.look(host))
    set_port(host, state="4: ACTIVE")
    list(source.look(host))
    for _ in range(2):
        assert not events(source.read(host))
    set_port(host, **{"counters/link_downed": "3"})
    assert [kind for kind, *_ in events_of(source.read(host))] == ["link_flap"]


def test_kernel_messages_are_reported_in_their_order(source: Links, host: KernelHost) -> None:
    host.news = [LinkNews([message(up=False, downs=2), message(up=True, downs=2)])]
    found = events(source.look(host))
    assert [each.kind for each in found] == ["link_down", "link_up"]
    assert {each.attributes["seen_by"] for each in found} == {"rtnetlink"}
    assert downs(source.read(host))["eth0"] == 1


def test_an_interface_that_was_switched_off_is_marked(source: Links, host: KernelHost) -> None:
    host.news = [LinkNews([message(up=False, downs=2, enabled=False)])]
    assert events_of(source.look(host)) == [("link_down", "eth0", "up", "switched off")]


def test_what_was_lost_on_the_way_is_a_flap(source: Links, host: KernelHost) -> None:
    host.news = [LinkNews([message(up=True, downs=4)], lost=True)]
    (event,) = events(source.look(host))
    assert (event.kind, event.attributes["flaps"]) == ("link_flap", "3")
    lost = [
        each.value
        for each in source.read(host)
        if isinstance(each, Sample) and each.series.metric.endswith("messages_lost_total")
    ]
    assert lost == [1]


def test_interfaces_without_hardware_are_not_watched(source: Links, host: KernelHost) -> None:
    host.news = [LinkNews([message("docker0", up=False), message("lo", up=True)])]
    assert not events(source.look(host))


def test_a_roce_port_and_its_interface_are_one_link(host: KernelHost) -> None:
    write_files(host.root, {f"{PORT}/link_layer": "Ethernet", f"{PORT}/gid_attrs/ndevs/0": "eth0"})
    source = Links(Settings())
    list(source.read(host))
    set_port(host, state="1: DOWN")
    host.news = [LinkNews([message(up=False, downs=2)])]
    (event,) = events(source.look(host))
    assert event.labels == {"device": "mlx5_0", "port": "1", "netdev": "eth0"}
    write_files(host.root, {"sys/class/net/eth0/carrier_down_count": "4"})
    readings = list(source.read(host))
    assert [each.attributes.get("flaps") for each in events(readings)] == ["2"]
    assert downs(readings) == {"mlx5_0": 3}


def test_without_netlink_sysfs_is_looked_at(source: Links, host: KernelHost) -> None:
    host.is_silent = True
    assert not events(source.look(host))
    write_files(host.root, {"sys/class/net/eth0/operstate": "down"})
    assert events_of(source.look(host)) == [("link_down", "eth0", "up", "down")]


def test_a_device_that_vanishes_has_gone_down(source: Links, host: KernelHost) -> None:
    (host.root / "sys/class/net/eth0").rename(host.root / "eth0")
    assert events_of(source.read(host)) == [("link_down", "eth0", "up", "gone")]


def test_a_port_whose_state_cannot_be_read_is_missing_and_the_others_are_not(
    source: Links, host: KernelHost
) -> None:
    other = "sys/class/infiniband/mlx5_1/ports/1"
    write_files(host.root, {f"{other}/link_layer": "InfiniBand", f"{other}/rate": NDR})
    missing = [each for each in source.read(host) if isinstance(each, Missing)]
    assert [dict(each.series.labels)["device"] for each in missing] == ["mlx5_1"]
    set_port(host, state="1: DOWN")
    assert [kind for kind, *_ in events_of(source.look(host))] == ["link_down"]


def test_more_interfaces_than_the_bound_are_reported_as_left_out(
    host: KernelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "PORTS_MAX", 1)
    missing = [each for each in Links(Settings()).read(host) if isinstance(each, Missing)]
    assert [each.detail for each in missing] == ["1 more are not watched; PORTS_MAX is 1"]


def test_what_is_excluded_is_left_alone(host: KernelHost) -> None:
    source = Links(Settings(exclude=("mlx5_*", "eth0")))
    assert not downs(source.read(host))
