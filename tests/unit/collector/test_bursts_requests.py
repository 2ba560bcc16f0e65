"""A receipt's requests on their way to the sources that serve them."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import httpx
import msgspec

from collector.agent.meter import Meter
from collector.agent.schedule import Runner
from collector.agent.ship import Shipper
from collector.agent.spool import Spool
from collector.contract import wire
from collector.contract.model import Reading
from collector.contract.wire import CAPTURES_MAX, CaptureRequest
from collector.doors.host import Host
from collector.sources import SourceSettings


def requests(count: int) -> list[CaptureRequest]:
    return [
        CaptureRequest(id=str(number), seconds_before=1.0, seconds_after=1.0)
        for number in range(count)
    ]


def ship(folder: Path, receipt: wire.Receipt, taken: list[CaptureRequest]) -> None:
    """Send one batch to a service that answers with this receipt."""
    spool = Spool(folder, bytes_max=1 << 20, host_boot_id="b", now_ns=lambda: 0, meter=Meter())
    batch = wire.pack_batch(
        [], agent="a", boot=spool.boot, sequence=spool.next_sequence, sent_ms=0, common={}
    )
    spool.put(wire.encode_batch(batch), samples=0)
    answer = msgspec.structs.replace(receipt, boot=spool.boot)
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, content=msgspec.json.encode(answer))
    )
    shipper = Shipper(
        spool,
        httpx.Client(base_url="http://service", transport=transport),
        token=lambda: "",
        meter=Meter(),
        monotonic_ns=lambda: 0,
        now_ns=lambda: 0,
        pause_seconds_max=1.0,
    )
    shipper.take_request = taken.append
    assert shipper.step() == 0.0
    assert len(spool) == 0
    spool.close()


def test_requests_in_a_receipt_are_taken_and_bounded(tmp_path: Path) -> None:
    taken: list[CaptureRequest] = []
    asked = requests(CAPTURES_MAX + 3)
    ship(tmp_path, wire.Receipt(boot="", sequence=0, stored=0, captures=asked), taken)
    assert taken == asked[:CAPTURES_MAX]


def test_a_receipt_without_requests_looks_as_it_always_did(tmp_path: Path) -> None:
    receipt = wire.Receipt(boot="b", sequence=0, stored=0)
    assert msgspec.json.decode(msgspec.json.encode(receipt)) == {
        "boot": "b",
        "sequence": 0,
        "stored": 0,
        "refused": {},
    }
    taken: list[CaptureRequest] = []
    ship(tmp_path, receipt, taken)
    assert taken == []


class Plain:
    """A source that serves no requests and holds nothing."""

    name: ClassVar[str] = "plain"
    Settings: ClassVar[type[SourceSettings]] = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings

    def read(self, host: Host) -> Iterator[Reading]:  # noqa: ARG002 - the seam's shape
        yield from ()


class Serving(Plain):
    """One that does both."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self.taken: list[CaptureRequest] = []
        self.is_closed = False

    def capture(self, request: CaptureRequest) -> None:
        self.taken.append(request)

    def close(self) -> None:
        self.is_closed = True


def test_a_runner_passes_on_what_its_source_understands(tmp_path: Path) -> None:
    settings = SourceSettings()
    serving = Serving(settings)
    (asked,) = requests(1)
    for source in (Plain(settings), serving):
        runner = Runner(
            source, settings, host=Host(tmp_path), meter=Meter(), publish=lambda _: None
        )
        runner.capture(asked)
        runner.close()
    assert serving.taken == [asked]
    assert serving.is_closed
