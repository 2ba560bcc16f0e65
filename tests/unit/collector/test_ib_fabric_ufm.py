"""UFM's page as input of `ib_fabric`: the same series, whatever names UFM uses."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.fetch import OPEN, Access, Fetcher
from collector.doors.host import Host
from collector.reading.ufm import meaning_of
from collector.reading.ufm_rest import NEWS_MAX
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


# --- REST ----------------------------------------------------------------------------------------

REST = "https://ufm/ufmRestV3"
PORT = {"guid": "a1", "number": 7, "system_name": "leaf-0", "path": "default / Switch: leaf-0 / 7"}


class Asked(HandHost):
    """A host whose UFM answers from a dictionary, and that notes how it was asked."""

    def __init__(self, root: Path, answers: dict[str, bytes]) -> None:
        super().__init__(root)
        (root / "token").write_text("s3cret\n")
        self.answers = answers
        self.asked: list[tuple[str, Access]] = []

    def fetch(self, url: str, seconds: float, access: Access = OPEN) -> bytes:  # noqa: ARG002
        self.asked.append((url, access))
        if (path := url.removeprefix(f"{REST}/")) not in self.answers:
            raise HostError(UnreadReason.UNREADABLE, url, "status 401")
        return self.answers[path]


def rest(root: Path, **answers: object) -> tuple[IbFabric, Asked]:
    """A source that asks UFM's REST interface; paths have `__` for their slash."""
    pages: dict[str, object] = {
        "resources/ports": [PORT],
        "resources/links": [],
        "app/events": [],
        "app/alarms": [],
    }
    pages |= {name.replace("__", "/"): answer for name, answer in answers.items()}
    bodies = {
        path: page if isinstance(page, bytes) else json.dumps(page).encode()
        for path, page in pages.items()
        if page is not None
    }
    settings = Settings(
        enabled=True,
        ufm_rest="https://ufm/",
        ufm_token_file="/token",  # noqa: S106 - where it is
        ufm_ca_file="/ca.pem",
    )
    return IbFabric(settings), Asked(root, bodies)


def test_ufm_is_asked_with_the_token_and_the_certificates(tmp_path: Path) -> None:
    source, host = rest(tmp_path)
    list(source.read(host))
    assert {access for _, access in host.asked} == {Access("Basic s3cret", "/ca.pem")}
    assert [url for url, _ in host.asked] == [
        f"{REST}/{path}"
        for path in ("resources/ports", "resources/links", "app/alarms", "app/events")
    ]
    host.asked.clear()
    list(source.read(host))
    assert len(host.asked) == 2  # news once a minute


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("resources__ports", None, UnreadReason.UNREADABLE),
        ("resources__ports", b"<html>", UnreadReason.UNPARSEABLE),
        ("resources__ports", {"ports": []}, UnreadReason.UNPARSEABLE),
        ("resources__links", b"[" * 100_000, UnreadReason.UNPARSEABLE),
        ("app__alarms", b"\xff\xfe", UnreadReason.UNPARSEABLE),
    ],
)
def test_a_refusal_is_named_and_never_an_empty_fabric(
    tmp_path: Path, name: str, answer: object, reason: UnreadReason
) -> None:
    source, host = rest(tmp_path, **{name: answer})
    readings = list(source.read(host))
    (missing,) = [
        each
        for each in readings
        if isinstance(each, Missing) and each.series.metric.startswith("fabric_subnet_ufm_")
    ]
    assert missing.reason is reason
    assert name.replace("__", "/") in missing.detail
    assert "s3cret" not in missing.detail


def test_an_empty_token_is_named_and_not_sent(tmp_path: Path) -> None:
    source, host = rest(tmp_path)
    (tmp_path / "token").write_text("\n")
    (missing,) = source.read(host)
    assert isinstance(missing, Missing)
    assert "holds no token" in missing.detail
    assert host.asked == []


def test_news_are_passed_on_once_and_old_ones_not_at_all(tmp_path: Path) -> None:
    def event(number: int, severity: str = "Warning") -> dict[str, object]:
        return {"id": number, "severity": severity, "name": "x", "object_name": "00a1_7"}

    source, host = rest(tmp_path, app__events=[event(1), event(2)])
    assert [each for each in source.read(host) if isinstance(each, Event)] == []
    news = [event(2), event(3, "Info"), event(4), event(5, "no such word")]
    host.answers["app/events"] = json.dumps(news).encode()
    host.clock.advance(61)
    (only,) = [each for each in source.read(host) if isinstance(each, Event)]
    assert (only.kind, only.attributes["guid"], only.attributes["port"]) == (
        "ufm_event",
        "0x00000000000000a1",
        "7",
    )
    host.clock.advance(61)
    readings = list(source.read(host))
    assert [each for each in readings if isinstance(each, Event)] == []
    counts = numbers(readings, "fabric_subnet_ufm_events_total")
    assert sum(counts.values()) == 3


def test_a_flood_of_alarms_is_bounded_and_counted(tmp_path: Path) -> None:
    source, host = rest(tmp_path)
    list(source.read(host))
    flood = [{"id": number, "severity": "Critical"} for number in range(1_000)]
    host.answers["app/alarms"] = json.dumps(flood).encode()
    host.clock.advance(61)
    readings = list(source.read(host))
    assert sum(isinstance(each, Event) for each in readings) == NEWS_MAX
    assert numbers(readings, "fabric_subnet_ufm_")["fabric_subnet_ufm_dropped_events_total{}"] == (
        1_000 - NEWS_MAX
    )


def test_a_token_goes_over_https_alone() -> None:
    with pytest.raises(HostError, match="https:// only"):
        Fetcher().fetch("http://127.0.0.1:1/x", 1.0, Access("Basic s3cret"))


def test_a_file_of_certificates_that_is_not_there_is_named() -> None:
    with pytest.raises(HostError, match="no certificates to trust"):
        Fetcher().fetch("https://127.0.0.1:1/x", 1.0, Access("", "/no/such/file.pem"))


def test_error_ratios_of_the_secondary_telemetry_are_read(tmp_path: Path) -> None:
    page = (
        "Node_GUID,Port_Number,node_description,Total_Raw_BER,Effective_BER,Symbol_BER\n"
        "0xa1,1,leaf-0,1.5e-08,1.5e-254,0\n0xa1,2,leaf-0,7,nan,0\n"
    )
    readings = read(tmp_path, page)
    place = 'device="leaf-0",host="leaf-0",port="1"'
    assert numbers(readings) == {
        f"fabric_port_receive_fec_pre_bit_error_ratio{{{place}}}": 1.5e-08,
        f"fabric_port_receive_fec_post_bit_error_ratio{{{place}}}": 1.5e-254,
    }
    missing = [each for each in readings if isinstance(each, Missing)]
    assert [each.reason for each in missing] == [UnreadReason.UNPARSEABLE] * 2
