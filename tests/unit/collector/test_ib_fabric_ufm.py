"""UFM's page as input of `ib_fabric`: the same series, whatever names UFM uses."""

from pathlib import Path
from urllib.parse import quote

import pytest

from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.reading.ufm import meaning_of
from collector.sources.ib_fabric import IbFabric, Settings
from tests.doubles.fakes import HandHost

URL = "http://ufm:9001/metrics"
LABELS = 'node_guid="0xa1",port_num="1",node_desc="MF0;leaf-0:MQM9700/U1",node_type="2"'


def read(root: Path, page: str, **settings: object) -> list[Reading]:
    path = root / "http" / quote(URL, safe="")
    path.parent.mkdir(exist_ok=True)
    path.write_text(page)
    source = IbFabric(Settings(enabled=True, ufm_url=URL, **settings))  # type: ignore[arg-type]
    return list(source.read(HandHost(root)))


def numbers(readings: list[Reading], target: str = "fabric_port_") -> dict[str, float]:
    """Values by series, without those about the page."""
    samples = (each for each in readings if isinstance(each, Sample))
    return {
        repr(each.series): each.value
        for each in samples
        if each.series.metric.startswith(target) and not each.series.metric.endswith("_info")
    }


@pytest.mark.parametrize(
    ("name", "metric", "is_wide"),
    [
        ("PortXmitDataExtended", "fabric_port_transmit_bytes_total", True),
        ("PortXmitData", "fabric_port_transmit_bytes_total", False),
        ("PortXmitWaitExt", "fabric_port_transmit_wait_ticks_total", True),
        ("infiniband_LinkDownedCounter_total", "fabric_port_link_downed_total", False),
        ("PortUniCastRcvPktsExtended", "fabric_port_receive_unicast_packets_total", True),
        ("port_rcv_errors", "fabric_port_receive_errors_total", False),
    ],
)
def test_names_of_ufm_are_understood(name: str, metric: str, *, is_wide: bool) -> None:
    meaning = meaning_of(name)
    assert meaning is not None
    assert (meaning[0].metric, meaning[1]) == (metric, is_wide)


@pytest.mark.parametrize("name", ["infiniband_CBW", "Chip_Temp", "", "Extended", "PortXmit"])
def test_names_that_mean_nothing_here_are_passed_over(name: str) -> None:
    assert meaning_of(name) is None


def test_text_and_csv_give_the_same(tmp_path: Path) -> None:
    text = f"PortXmitDataExtended{{{LABELS}}} 10\nLinkDownedCounter{{{LABELS}}} 7\n"
    csv = (
        "timestamp,node_guid,port_num,node_desc,node_type,PortXmitDataExtended,LinkDownedCounter\n"
        "1794700000000000,0xa1,1,MF0;leaf-0:MQM9700/U1,2,10,7\n"
    )
    place = '{device="leaf-0",host="leaf-0",port="1"}'
    wanted = {
        f"fabric_port_transmit_bytes_total{place}": 40,
        f"fabric_port_link_downed_total{place}": 7,
    }
    assert numbers(read(tmp_path, text)) == wanted
    assert numbers(read(tmp_path, csv)) == wanted


def test_times_are_those_of_the_page(tmp_path: Path) -> None:
    page = f"PortXmitDataExtended{{{LABELS}}} 10 1794700000123\n"
    times = [
        each.time_ns
        for each in read(tmp_path, page)
        if isinstance(each, Sample) and each.series.metric.startswith("fabric_port_")
    ]
    assert times == [1_794_700_000_123_000_000]


@pytest.mark.parametrize("order", [1, -1])
def test_the_wide_counter_wins_wherever_it_stands(tmp_path: Path, order: int) -> None:
    lines = [f"PortXmitData{{{LABELS}}} 4294967295\n", f"PortXmitDataExtended{{{LABELS}}} 10\n"]
    readings = read(tmp_path, "".join(lines[::order]))
    assert list(numbers(readings).values()) == [40]
    assert numbers(readings, "fabric_subnet_left_out") == {"fabric_subnet_left_out{}": 1}


def test_a_counter_at_its_end_is_saturated(tmp_path: Path) -> None:
    page = f"LinkDownedCounter{{{LABELS}}} 255\nPortXmitWaitExtended{{{LABELS}}} {(1 << 64) - 1}\n"
    missing = [each for each in read(tmp_path, page) if isinstance(each, Missing)]
    assert {each.reason for each in missing} == {UnreadReason.SATURATED}
    assert len(missing) == 2


def test_hcas_only_when_they_are_wanted(tmp_path: Path) -> None:
    labels = 'node_guid="0xb1",port_num="1",node_desc="node-7 mlx5_0",node_type="1"'
    page = f"PortXmitDataExtended{{{labels}}} 10\n"
    assert numbers(read(tmp_path, page)) == {}
    assert numbers(read(tmp_path, page, hcas=True)) == {
        'fabric_port_transmit_bytes_total{device="mlx5_0",host="node-7",port="1"}': 40
    }


def test_an_hca_is_known_by_its_description_where_ufm_lacks_the_kind(tmp_path: Path) -> None:
    labels = 'node_guid="0xb1",port_num="1",node_desc="node-7 mlx5_0"'
    assert numbers(read(tmp_path, f"PortXmitDataExtended{{{labels}}} 10\n")) == {}


@pytest.mark.parametrize(
    "labels",
    [
        'port_num="1"',
        'node_guid="",port_num="1"',
        'node_guid="0x-1",port_num="1"',
        'node_guid="0x1_0",port_num="1"',
        'node_guid="0x11112222333344445",port_num="1"',
        'node_guid="0xa1",port_num="-1"',
        'node_guid="0xa1",port_num="0"',
        'node_guid="0xa1",port_num="255"',
        'node_guid="0xa1",port_num="\u0661"',
    ],
)
def test_places_that_are_none_are_left_out(tmp_path: Path, labels: str) -> None:
    readings = read(tmp_path, f"PortXmitDataExtended{{{labels}}} 10\n")
    assert numbers(readings) == {}
    assert numbers(readings, "fabric_subnet_left_out") == {"fabric_subnet_left_out{}": 1}


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300"])
def test_what_is_no_count_is_named(tmp_path: Path, value: str) -> None:
    readings = read(tmp_path, f"PortXmitDataExtended{{{LABELS}}} {value}\n")
    missing = [each for each in readings if isinstance(each, Missing)]
    assert [each.reason for each in missing] == [UnreadReason.UNPARSEABLE]


def test_a_page_that_cannot_be_fetched_is_reported(tmp_path: Path) -> None:
    source = IbFabric(Settings(enabled=True, ufm_url=URL))
    (absence,) = source.read(Host(tmp_path))
    assert isinstance(absence, Missing)
    assert (absence.series.metric, absence.reason) == (
        "fabric_subnet_switches",
        UnreadReason.ABSENT,
    )
    assert absence.detail.startswith(URL)


def test_no_program_is_run_where_ufm_is_asked(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/iblinkinfo -t 200 -l --switches-only").write_text("nonsense")
    readings = read(tmp_path, f"PortXmitDataExtended{{{LABELS}}} 10\n")
    assert numbers(readings, "fabric_subnet_programs") == {}
