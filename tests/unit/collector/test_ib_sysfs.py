"""`ib_sysfs`: units, wrap, clamp, reset, restart; what the golden cases cannot show in one read."""

from pathlib import Path

import msgspec
import pytest

from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources.ib_sysfs import (
    IbSysfs,
    Settings,
    parse_lid,
    parse_physical_state,
    parse_rate,
    parse_speed,
    parse_state,
)
from collector.tables.rdma import driver_of
from tests.fixtures.trees import bump, write_files, write_rdma_tree

PORT = "sys/class/infiniband/mlx5_0/ports/1"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_rdma_tree(tmp_path, devices=1)
    return tmp_path


def find(readings: list[Reading], metric: str) -> Reading:
    found = [
        each
        for each in readings
        if isinstance(each, Sample | Missing) and each.series.metric == metric
    ]
    assert len(found) == 1, f"{metric}: {found}"
    return found[0]


def value(source: IbSysfs, host: Host, metric: str) -> float:
    reading = find(list(source.read(host)), metric)
    assert isinstance(reading, Sample), reading
    return reading.value


def put(tree: Path, file: str, number: object) -> None:
    write_files(tree, {f"{PORT}/{file}": str(number)})


def test_port_xmit_data_is_words_and_becomes_bytes(tree: Path) -> None:
    put(tree, "counters/port_xmit_data", 1000)
    assert value(IbSysfs(Settings()), Host(tree), "fabric_port_transmit_bytes_total") == 4000


def test_lifespan_is_a_fraction_of_a_second(tree: Path) -> None:
    """The bug of another exporter: 12 ms, divided as integers, are 0 s."""
    put(tree, "hw_counters/lifespan", 12)
    metric = "fabric_port_hw_counters_lifespan_seconds"
    assert value(IbSysfs(Settings()), Host(tree), metric) == pytest.approx(0.012)


# --- wrap, reset, restart ------------------------------------------------------------------------

WRAPPING = "fabric_port_receive_out_of_sequence_total"
FILE = "hw_counters/out_of_sequence"


def test_a_32_bit_counter_goes_on_over_its_end(tree: Path) -> None:
    source, host = IbSysfs(Settings()), Host(tree)
    put(tree, FILE, 2**32 - 6)
    assert value(source, host, WRAPPING) == 2**32 - 6
    put(tree, FILE, 4)
    assert value(source, host, WRAPPING) == 2**32 + 4


def test_a_reset_is_a_fall(tree: Path) -> None:
    source, host = IbSysfs(Settings()), Host(tree)
    put(tree, FILE, 70_000)
    assert value(source, host, WRAPPING) == 70_000
    put(tree, FILE, 4)
    assert value(source, host, WRAPPING) == 4


def test_extended_counters_go_on_after_a_restart_of_the_agent(tree: Path) -> None:
    source, host = IbSysfs(Settings()), Host(tree)
    put(tree, FILE, 2**32 - 6)
    value(source, host, WRAPPING)
    put(tree, FILE, 4)
    value(source, host, WRAPPING)
    # As the agent keeps it: through msgpack, where tuples become lists.
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(source.save_state()))

    restarted = IbSysfs(Settings())
    restarted.load_state(state)
    put(tree, FILE, 9)
    assert value(restarted, host, WRAPPING) == 2**32 + 9


def test_a_counter_that_wraps_while_the_agent_is_down(tree: Path) -> None:
    source, host = IbSysfs(Settings()), Host(tree)
    put(tree, FILE, 2**32 - 6)
    value(source, host, WRAPPING)
    restarted = IbSysfs(Settings())
    restarted.load_state(source.save_state())
    put(tree, FILE, 4)
    assert value(restarted, host, WRAPPING) == 2**32 + 4


def test_state_is_kept_while_its_device_is_away(tree: Path) -> None:
    source = IbSysfs(Settings())
    state = {'fabric_x{device="mlx5_9"}': [5, 2**32 + 5]}
    source.load_state(state)
    list(source.read(Host(tree)))
    assert source.save_state()['fabric_x{device="mlx5_9"}'] == (5, 2**32 + 5)


@pytest.mark.parametrize("entry", [None, 5, [1], [1, "2"], [9, 3], [-1, 3], {"raw": 1}])
def test_a_state_that_is_not_understood_is_ignored(tree: Path, entry: object) -> None:
    source = IbSysfs(Settings())
    source.load_state({f'{WRAPPING}{{device="mlx5_0",port="1"}}': entry})
    put(tree, FILE, 4)
    assert value(source, Host(tree), WRAPPING) == 4


# --- clamp ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "bits", "metric"),
    [
        ("local_link_integrity_errors", 4, "fabric_port_local_link_integrity_errors_total"),
        ("link_downed", 8, "fabric_port_link_downed_total"),
        ("symbol_error", 16, "fabric_port_symbol_errors_total"),
        ("port_xmit_wait", 32, "fabric_port_transmit_wait_ticks_total"),
    ],
)
def test_a_clamped_counter_is_an_absence(tree: Path, file: str, bits: int, metric: str) -> None:
    source, host = IbSysfs(Settings()), Host(tree)
    put(tree, f"counters/{file}", 2**bits - 2)
    assert value(source, host, metric) == 2**bits - 2
    put(tree, f"counters/{file}", 2**bits - 1)
    reading = find(list(source.read(host)), metric)
    assert isinstance(reading, Missing)
    assert reading.reason is UnreadReason.SATURATED
    put(tree, f"counters/{file}", 0)
    assert value(source, host, metric) == 0


def test_a_number_beyond_the_end_is_of_a_wider_counter(tree: Path) -> None:
    put(tree, "counters/link_downed", 300)
    assert value(IbSysfs(Settings()), Host(tree), "fabric_port_link_downed_total") == 300


# --- coming and going ----------------------------------------------------------------------------


def test_a_new_device_is_seen_at_once(tmp_path: Path) -> None:
    write_rdma_tree(tmp_path, devices=1)
    source, host = IbSysfs(Settings()), Host(tmp_path)
    before = len(list(source.read(host)))
    other = tmp_path / "other"
    write_rdma_tree(other, devices=2)
    base = "sys/class/infiniband/mlx5_1"
    (other / base).rename(tmp_path / base)
    assert len(list(source.read(host))) == 2 * before


def test_an_excluded_device_is_left_alone(tmp_path: Path) -> None:
    write_rdma_tree(tmp_path, devices=2)
    source = IbSysfs(Settings(exclude=("mlx5_1",)))
    devices = {
        dict(each.series.labels)["device"]
        for each in source.read(Host(tmp_path))
        if isinstance(each, Sample)
    }
    assert devices == {"mlx5_0"}


def test_unknown_counters_are_passed_on_within_a_bound(tree: Path) -> None:
    for number in range(5):
        put(tree, f"hw_counters/mystery_{number}", number)
    readings = list(IbSysfs(Settings(driver_values_max=3)).read(Host(tree)))
    passed = [
        each
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_port_driver_value"
    ]
    left = find(readings, "fabric_port_driver_values_left_out")
    assert isinstance(left, Sample)
    assert (len(passed), left.value) == (3, 5 + unnamed_of(tree) - 3)


def unnamed_of(tree: Path) -> int:
    return len(list((tree / PORT / "hw_counters").glob("vport_*")))


def test_the_first_file_of_a_series_wins(tmp_path: Path) -> None:
    """bnxt_re counts bytes in hw_counters; the classic file is a copy in words."""
    port = "sys/class/infiniband/bnxt_re0/ports/1"
    write_files(
        tmp_path,
        {f"{port}/hw_counters/rx_bytes": "4000", f"{port}/counters/port_rcv_data": "1000"},
    )
    readings = list(IbSysfs(Settings()).read(Host(tmp_path)))
    reading = find(readings, "fabric_port_receive_bytes_total")
    assert isinstance(reading, Sample)
    assert reading.value == 4000


def test_a_bumped_tree_moves(tree: Path) -> None:
    source, host = IbSysfs(Settings()), Host(tree)
    before = value(source, host, "fabric_port_receive_bytes_total")
    bump(tree, seed=1)
    assert value(source, host, "fabric_port_receive_bytes_total") > before


def test_readings_of_a_directory_share_one_time(tree: Path) -> None:
    readings = [each for each in IbSysfs(Settings()).read(Host(tree)) if isinstance(each, Sample)]
    assert len({each.time_ns for each in readings}) <= 3  # the port, hw_counters, counters


# --- parsing -------------------------------------------------------------------------------------


def test_parse_state() -> None:
    assert parse_state(b"4: ACTIVE\n") == (4,)
    assert parse_state(b"1: DOWN") == (1,)
    for text in (b"", b"ACTIVE", b"9: HUH", b"4: LinkUp"):
        with pytest.raises(ValueError, match=r"^"):
            parse_state(text)


def test_a_logical_state_in_phys_state_is_not_training() -> None:
    assert parse_physical_state(b"4: PortConfigurationTraining") == (4,)
    assert parse_physical_state(b"7: Phy Test") == (7,)
    with pytest.raises(ValueError, match=r"^"):
        parse_physical_state(b"4: ACTIVE\n")


def test_parse_rate() -> None:
    assert parse_rate(b"400 Gb/sec (4X NDR)\n") == (400_000_000_000, 4)
    assert parse_rate(b"2.5 Gb/sec (1X)") == (2_500_000_000, 1)
    assert parse_speed("200 Gb/sec (2X NDR)") == "NDR"


def test_parse_lid() -> None:
    assert parse_lid(b"0x1a\n") == (26,)
    with pytest.raises(ValueError, match=r"^"):
        parse_lid(b"26")


@pytest.mark.parametrize(
    ("kernel_name", "device", "driver"),
    [
        ("mlx5_core", "rocep1s0f0", "mlx5"),
        ("ice", "rdmap1s0", "irdma"),
        ("bnxt_en", "bnxt_re_bond0", "bnxt_re"),
        ("mana", "mana_0", "mana"),
        ("", "mlx4_0", "mlx4"),
        ("", "hfi1_0", "hfi1"),
        ("", "rdmap0s31", "efa"),
        ("", "something", ""),
    ],
)
def test_the_driver_is_found_by_its_link_or_by_the_device(
    kernel_name: str, device: str, driver: str
) -> None:
    assert driver_of(kernel_name, device).name == driver
