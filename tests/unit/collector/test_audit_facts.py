"""How facts are read: hostile configuration spaces, odd programs, secrets, and bounds."""

from pathlib import Path

import pytest

from collector.audit import facts as facts_module
from collector.audit.facts import FACTS_MAX, Facts
from collector.audit.partitions import ENTRIES_MAX, parse_table
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.reading.configuration import gather as gather_module
from collector.reading.configuration.gather import Gatherer
from collector.reading.configuration.nics import (
    KEYS_MAX,
    LITTLE,
    read_other_traffic,
    read_partitions,
)
from collector.reading.configuration.pci import access_control, device_control
from collector.reading.configuration.processes import HIDDEN, check_file, parse_variables
from collector.reading.configuration.qos import read_dcb, read_mlnx_qos
from collector.reading.configuration.reader import ConfigurationReader
from collector.sources.configuration import Configuration, Settings
from tests.fixtures.trees import write_files


def gather(tree: Path) -> Gatherer:
    return Gatherer(Host(tree))


def value(found: Facts, device: str, setting: str) -> str:
    return found.value(device, setting)


# --- PCI configuration ---------------------------------------------------------------------------


def space(size: int = 512, **words: int) -> bytes:
    """A configuration space with a status that has capabilities, and words at places."""
    content = bytearray(size)
    content[6] = 0x10
    for place, word in words.items():
        at = int(place[1:], 16)
        content[at : at + 2] = word.to_bytes(2, "little")
    return bytes(content)


def test_the_device_control_register_is_found() -> None:
    assert device_control(space(x34=0x40, x40=0x6005, x60=0x0010, x68=0x5850)) == 0x5850


@pytest.mark.parametrize(
    "content",
    [
        bytes(512),  # no capabilities
        space(x34=0x40, x40=0x4001),  # a list that leads to itself
        space(x34=0xFC, xFC=0x0010),  # the register would be beyond the first 256 bytes
        space(x34=0x08),  # into the header
        space(64, x34=0x40),
        b"\xff" * 512,  # a device that fell off the bus
    ],
)
def test_a_broken_list_of_capabilities_ends(content: bytes) -> None:
    assert device_control(content) is None


def test_access_control_is_found_behind_another_capability() -> None:
    content = bytearray(space())
    content[0x100:0x104] = (0x1480_0001).to_bytes(4, "little")
    content[0x148:0x14C] = (0x0001_000D).to_bytes(4, "little")
    content[0x14E:0x150] = (0x001D).to_bytes(2, "little")
    assert access_control(bytes(content)) == 0x1D


@pytest.mark.parametrize("header", [0x1000_0001, 0x0000_0001, 0xFFFF_FFFF, 0])
def test_a_broken_list_of_extended_capabilities_ends(header: int) -> None:
    content = bytearray(space())
    content[0x100:0x104] = header.to_bytes(4, "little")
    assert access_control(bytes(content)) is None


# --- programs ------------------------------------------------------------------------------------


def test_dcb_is_asked_where_there_is_no_mlnx_qos(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "commands/dcb pfc show dev eth2": "pfc-cap 8 macsec-bypass off delay 0\n"
            "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:on",
            "commands/dcb app show dev eth2 dscp-prio": "dscp-prio AF31:3 CS6:6 0:0",
        },
    )
    gatherer = gather(tmp_path)
    assert not read_mlnx_qos(gatherer, "mlx5_0", "eth2")
    read_dcb(gatherer, "mlx5_0", "eth2")
    found = gatherer.finish()
    assert value(found, "mlx5_0", "pfc_priorities") == "3,7"
    assert value(found, "mlx5_0", "dscp_priorities") == "0:0 3:26 6:48"
    assert value(found, "mlx5_0", "qos_trust") == "dscp"
    assert found.unread == ()  # dcb gave what mlnx_qos did not


@pytest.mark.parametrize("text", ["", "\0\0", "enabled 1 1", "Priority trust state:", "é" * 9000])
def test_an_odd_answer_of_mlnx_qos_gives_no_facts(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, {"commands/mlnx_qos -i eth2": text})
    gatherer = gather(tmp_path)
    read_mlnx_qos(gatherer, "mlx5_0", "eth2")
    assert list(gatherer.finish().all()) == []


# --- environments --------------------------------------------------------------------------------


def test_only_nccl_s_variables_are_kept_and_no_secret_of_those() -> None:
    block = [
        b"NCCL_ALGO=Ring",
        b"HF_TOKEN=abc",
        b"NCCL_AUTH_SECRET=abc",
        b"NCCL_NET_PLUGIN=ghp_0123456789abcdefghijABCDEFGHIJ0123",
        b"NCCL_lower=1",
        b"NCCL_BAD NAME=1",
        b"NCCL_EMPTY=",
        b"NCCL_NOTHING",
        b"NCCL_TOPO_FILE=/etc/nccl/topology-0123456789-abcdefghij.xml",
        b"NCCL_IB_HCA=mlx5_0\x1b[2J",
    ]
    assert parse_variables(block) == {
        "NCCL_ALGO": "Ring",
        "NCCL_AUTH_SECRET": HIDDEN,
        "NCCL_NET_PLUGIN": HIDDEN,
        "NCCL_TOPO_FILE": "/etc/nccl/topology-0123456789-abcdefghij.xml",
        "NCCL_IB_HCA": "mlx5_0\ufffd[2J",
    }


def test_an_endless_environment_is_bounded() -> None:
    assert len(parse_variables([f"NCCL_V{n}=1".encode() for n in range(10_000)])) == 64


@pytest.mark.parametrize("path", ["relative", "/../../etc/shadow", "/a/../b", "/nul\0"])
def test_a_path_of_a_user_leads_nowhere_else(tmp_path: Path, path: str) -> None:
    write_files(tmp_path / "proc/7/root", {"etc/there": "x"})
    gatherer = gather(tmp_path)
    check_file(gatherer, "job 1", 7, "NCCL_TOPO_FILE", path)
    found = gatherer.finish()
    assert list(found.all()) == []
    assert found.unread == ()


def test_a_file_that_is_not_there_is_a_fact(tmp_path: Path) -> None:
    write_files(tmp_path / "proc/7/root", {"etc/there": "x"})
    gatherer = gather(tmp_path)
    check_file(gatherer, "job 1", 7, "NCCL_TOPO_FILE", "/etc/there")
    check_file(gatherer, "job 1", 7, "NCCL_GRAPH_FILE", "/etc/gone")
    found = gatherer.finish()
    assert [fact.value for fact in found.all()] == ["NCCL_GRAPH_FILE=/etc/gone"]


# --- traffic -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rdma_words", "kernel_bytes", "share"),
    [
        (10**12, 10**9, LITTLE),
        (10**12, 10**12, "10 to 50 %"),
        (10**9, 10**12, "over 50 %"),
        (1000, 10**6, ""),  # too little to judge
        (-1, 10**12, ""),
    ],
)
def test_the_share_of_other_traffic(
    tmp_path: Path, rdma_words: int, kernel_bytes: int, share: str
) -> None:
    files = {f"p/counters/port_{way}_data": str(rdma_words) for way in ("xmit", "rcv")}
    net = "sys/class/net/eth2/statistics"
    files |= {f"{net}/{way}_bytes": str(kernel_bytes) for way in ("tx", "rx")}
    write_files(tmp_path, files)
    gatherer = gather(tmp_path)
    read_other_traffic(gatherer, "mlx5_0", "p", "eth2")
    assert value(gatherer.finish(), "mlx5_0", "other_traffic_share") == share


# --- partitions ----------------------------------------------------------------------------------

PORT = "sys/class/infiniband/mlx5_0/ports/1"


def partitions_of(tree: Path, keys: dict[str, str]) -> Facts:
    write_files(tree, {f"{PORT}/pkeys/{index}": f"{key}\n" for index, key in keys.items()})
    gatherer = gather(tree)
    read_partitions(gatherer, "mlx5_0", PORT)
    return gatherer.finish()


def test_entries_of_a_table_keep_their_index(tmp_path: Path) -> None:
    found = partitions_of(tmp_path, {"0": "0x7fff", "2": "0x0000", "10": "0x8001", "3": "0x8000"})
    assert value(found, "mlx5_0", "partitions") == "0:0x7fff 10:0x8001"
    assert not found.unread


def test_a_table_without_keys_is_read_and_empty(tmp_path: Path) -> None:
    assert value(partitions_of(tmp_path, {"0": "0x0000"}), "mlx5_0", "partitions") == "none"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"0": "0xffff", "1": "0x12345"}, UnreadReason.UNPARSEABLE),
        (dict.fromkeys(map(str, range(KEYS_MAX + 1)), "0x0000"), UnreadReason.NOT_SUPPORTED),
        ({str(n): f"0x{n + 1:04x}" for n in range(ENTRIES_MAX + 1)}, UnreadReason.NOT_SUPPORTED),
    ],
)
def test_half_a_table_is_none(tmp_path: Path, keys: dict[str, str], reason: UnreadReason) -> None:
    found = partitions_of(tmp_path, keys)
    assert value(found, "mlx5_0", "partitions") == ""
    assert [(one.setting, one.reason) for one in found.unread] == [("partitions", reason)]


def test_a_full_table_fits_into_a_fact(tmp_path: Path) -> None:
    keys = {str(100 + n): f"0x{0x8001 + n:04x}" for n in range(ENTRIES_MAX)}
    found = partitions_of(tmp_path, keys)
    assert len(parse_table(value(found, "mlx5_0", "partitions"))) == ENTRIES_MAX


# --- bounds --------------------------------------------------------------------------------------


def test_facts_beyond_the_bound_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather_module, "FACTS_MAX", 3)
    gatherer = gather(tmp_path)
    for number in range(5):
        gatherer.add("", f"setting_{number}", "x", "a test")
    assert len(list(gatherer.finish().all())) == 3
    assert gatherer.left_out == 2


def test_long_and_unprintable_values_are_cut() -> None:
    gatherer = Gatherer(Host(Path("/nowhere")))
    gatherer.add("d" * 999, "setting", "v\x1b" + "v" * 999, "o" * 999)
    (fact,) = gatherer.finish().all()
    assert "\x1b" not in fact.value
    assert len(fact.value) == facts_module.VALUE_CHARACTERS_MAX
    assert len(fact.device) == facts_module.DEVICE_CHARACTERS_MAX
    assert FACTS_MAX > 1000


def test_what_several_devices_refuse_alike_is_reported_once(tmp_path: Path) -> None:
    gatherer = gather(tmp_path)
    for number in range(6):
        gatherer.miss(f"mlx5_{number}", "setting", UnreadReason.UNREADABLE, "only root")
    (unread,) = gatherer.finish().unread
    assert unread.device == ""
    assert unread.detail == "mlx5_0, mlx5_1, mlx5_2, mlx5_3 and 2 more: only root"


def test_programs_have_a_deadline_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_module, "COMMANDS_SECONDS", 0)
    write_files(tmp_path, {"commands/ibv_devinfo": "hca_id: mlx5_0"})
    gatherer = gather(tmp_path)
    assert gatherer.run("active_mtu", "ibv_devinfo") == ""
    (unread,) = gatherer.finish().unread
    assert unread.reason is UnreadReason.TIMEOUT


def test_a_machine_without_nics_and_gpus_has_no_facts(tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/sys/kernel/osrelease": "6.8"})
    assert ConfigurationReader().read(Host(tmp_path)) is None
    assert list(Configuration(Settings()).read(Host(tmp_path))) == []


def test_a_gpu_is_found_by_its_class_where_the_driver_lists_none(tmp_path: Path) -> None:
    address = "0000:19:00.0"
    base = f"sys/bus/pci/devices/{address}"
    write_files(tmp_path, {f"{base}/vendor": "0x10de", f"{base}/class": "0x030200"})
    found = ConfigurationReader().read(Host(tmp_path))
    assert found is not None
    assert found.gpus == ["gpu0"]
