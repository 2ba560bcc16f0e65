"""dcgm-exporter's page: fetched over HTTP, blanks, XIDs, bounds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors import fetch
from collector.doors.fetch import Fetcher
from collector.doors.host import Host
from collector.sources import dcgm
from collector.sources.dcgm import Dcgm, Settings
from tests.fixtures.trees import write_files

URL = "http://127.0.0.1:9400/metrics"
LABELS = 'gpu="0",UUID="GPU-1",Hostname="box"'


def write_page(root: Path, *lines: str) -> Host:
    write_files(root, {f"http/{quote(URL, safe='')}": "\n".join(lines)})
    return Host(root)


def read(source: Dcgm, host: Host) -> list[Reading]:
    return list(source.read(host))


def values(readings: list[Reading]) -> dict[str, float]:
    return {each.series.metric: each.value for each in readings if isinstance(each, Sample)}


# --- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "blank",
    [
        *("9223372036854775792", "9223372036854775795", "2147483632", "2147483635"),
        *("140737488355328", "140737488355331.0"),
    ],
)
def test_a_blank_is_an_absence(tmp_path: Path, blank: str) -> None:
    host = write_page(tmp_path, f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} {blank}")
    readings = read(Dcgm(Settings(url=URL)), host)
    assert [each.reason for each in readings if isinstance(each, Missing)] == [
        UnreadReason.NOT_SUPPORTED
    ]
    assert "fabric_gpu_temperature_celsius" not in values(readings)


def test_a_new_xid_is_an_event_and_an_old_one_is_not(tmp_path: Path) -> None:
    source = Dcgm(Settings(url=URL))

    def events(xid: str) -> list[str]:
        host = write_page(tmp_path, f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} {xid}")
        return [each.message for each in read(source, host) if isinstance(each, Event)]

    assert events("31") == []  # unknown since when
    assert events("31") == []
    (message,) = events("79")
    assert message.startswith("GPU 0: XID 79: the GPU has fallen off the bus")
    assert events("0") == []
    assert events("+Inf") == []
    assert events("0.5") == []
    assert events("NaN") == []


def test_any_bytes_give_readings(tmp_path: Path) -> None:
    path = tmp_path / "http" / quote(URL, safe="")
    path.parent.mkdir()
    path.write_bytes(b"\xff\x00{\n" * 100 + b"DCGM_FI_DEV_GPU_TEMP{gpu=" + b"x" * 100)
    assert values(read(Dcgm(Settings(url=URL)), Host(tmp_path))) == {
        "fabric_gpu_dcgm_series": 0,
        "fabric_gpu_dcgm_series_left_out": 0,
        "fabric_gpu_dcgm_lines_broken": 101,
    }


def test_labels_that_change_at_every_read_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dcgm, "KNOWN_SERIES_MAX", 100)
    source = Dcgm(Settings(url=URL))
    lines = [f'DCGM_FI_DEV_GPU_TEMP{{gpu="{number}"}} 1' for number in range(250)]
    readings = read(source, write_page(tmp_path, *lines))
    assert values(readings)["fabric_gpu_dcgm_series"] == 250
    assert len(source._known) <= 100


def test_without_an_address_it_is_off(tmp_path: Path) -> None:
    assert read(Dcgm(Settings()), write_page(tmp_path, "x")) == []


# --- HTTP ----------------------------------------------------------------------------------------


class Page(BaseHTTPRequestHandler):
    """Answers by its path."""

    protocol_version = "HTTP/1.1"
    body: ClassVar[bytes] = f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 51\n".encode()
    release: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        match self.path:
            case "/metrics":
                self.answer(200, self.body)
            case "/moved":
                self.answer(302, b"", location="http://127.0.0.1:1/secret")
            case "/large":
                self.answer(200, b"x" * 5000)
            case "/silent":
                self.release.wait(10)
                self.close_connection = True
            case "/drip":
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                for _ in range(200):
                    self.wfile.write(b"x")
                    if self.release.wait(0.05):
                        break
                self.close_connection = True
            case _:
                self.answer(404, b"no")

    def answer(self, status: int, body: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Quiet."""


@contextmanager
def serve() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    Page.release.clear()
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        Page.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    one = Fetcher()
    yield one
    one.close()


def refusal(fetcher: Fetcher, url: str, seconds: float = 5.0) -> HostError:
    with pytest.raises(HostError) as caught:
        fetcher.fetch(url, seconds)
    return caught.value


def test_a_live_host_fetches_the_page() -> None:
    host = Host()
    with serve() as address:
        readings = read(Dcgm(Settings(url=f"{address}/metrics")), host)
    host.close()
    assert values(readings)["fabric_gpu_temperature_celsius"] == 51


def test_redirects_and_errors_are_named_and_not_followed(fetcher: Fetcher) -> None:
    with serve() as address:
        moved = refusal(fetcher, f"{address}/moved")
        assert "127.0.0.1:1/secret" in moved.detail
        assert moved.reason is UnreadReason.UNREADABLE
        assert refusal(fetcher, f"{address}/nothing").detail == "status 404"
    assert refusal(fetcher, f"{address}/metrics").reason is UnreadReason.UNREADABLE  # gone


def test_an_answer_is_bounded_in_size_and_time(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "ANSWER_BYTES_MAX", 4999)
    with serve() as address:
        assert "ANSWER_BYTES_MAX = 4999" in refusal(fetcher, f"{address}/large").detail
        assert refusal(fetcher, f"{address}/silent", 0.1).reason is UnreadReason.TIMEOUT
        assert refusal(fetcher, f"{address}/drip", 0.3).reason is UnreadReason.TIMEOUT


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "", "http://[", "http://"])
def test_only_web_addresses_are_fetched(fetcher: Fetcher, url: str) -> None:
    assert refusal(fetcher, url).reason is UnreadReason.UNREADABLE
