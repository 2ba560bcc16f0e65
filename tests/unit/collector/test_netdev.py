"""`netdev`: which interfaces, and what the golden cases cannot show in one read."""

from pathlib import Path

from collector.contract.model import Missing, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources.netdev import NetDev, Settings
from tests.fixtures.trees import write_files, write_link

NET = "sys/class/net"


def write_interface(tree: Path, name: str, operstate: str = "up") -> None:
    write_files(tree, {f"{NET}/{name}/operstate": operstate, f"{NET}/{name}/speed": "100000"})


def devices(source: NetDev, host: Host) -> set[str]:
    return {
        dict(each.series.labels)["device"] for each in source.read(host) if isinstance(each, Sample)
    }


def test_physical_interfaces_and_those_asked_for(tmp_path: Path) -> None:
    for name in ("eth0", "bond0", "lo"):
        write_interface(tmp_path, name)
    write_link(tmp_path, f"{NET}/eth0/device", "../../../0000:01:00.0")
    host = Host(tmp_path)
    assert devices(NetDev(Settings()), host) == {"eth0"}
    assert devices(NetDev(Settings(include=("bond*",))), host) == {"bond0", "eth0"}
    assert devices(NetDev(Settings(include=("*",), exclude=("eth*",))), host) == {"bond0", "lo"}


def test_the_speed_comes_back_with_the_link(tmp_path: Path) -> None:
    """While a link is down its speed is not asked for: the EINVAL would be believed too long."""
    write_interface(tmp_path, "eth0", operstate="down")
    write_link(tmp_path, f"{NET}/eth0/device", "../../../0000:01:00.0")
    source, host = NetDev(Settings()), Host(tmp_path)
    speeds = [each for each in source.read(host) if is_speed(each)]
    assert [type(each) for each in speeds] == [Missing]
    assert isinstance(speeds[0], Missing)
    assert speeds[0].reason is UnreadReason.NOT_SUPPORTED
    write_interface(tmp_path, "eth0")
    speeds = [each for each in source.read(host) if is_speed(each)]
    assert [each.value for each in speeds if isinstance(each, Sample)] == [100_000_000_000]
    host.close()


def is_speed(reading: object) -> bool:
    return (
        isinstance(reading, Sample | Missing)
        and reading.series.metric == "fabric_nic_speed_bits_per_second"
    )
