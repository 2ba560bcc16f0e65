"""`bursts`: the choice of counters, the sampler's messages as readings, and requests."""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.bursts.plan import COUNTERS_MAX, NS_PER_MS, Plan
from collector.bursts.process import FastSampler, Message
from collector.bursts.replay import replay
from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.contract.wire import CaptureRequest
from collector.doors.host import Host
from collector.sources.bursts import CAPTURE_SECONDS_MAX, DISCOVER_SECONDS, Bursts, Settings
from tests.fixtures.trees import write_files


class FakeSampler:
    """Returns the messages that the test sets."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.restarts = 0
        self.is_up = True
        self.takes_requests = True
        self.is_closed = False
        self.messages: list[Message] = []
        self.requests: list[Mapping[str, Any]] = []

    def poll(self) -> Sequence[Message]:
        messages, self.messages = self.messages, []
        return messages

    def capture(self, request: Mapping[str, Any]) -> bool:
        self.requests.append(request)
        return self.takes_requests

    def close(self) -> None:
        self.is_closed = True


class FakeHost(Host):
    """A captured tree with a fake sampler and a clock that the test moves."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.samplers: list[FakeSampler] = []
        self.moment_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.moment_ns

    def sampler(self, plan: Plan) -> FastSampler:
        self.samplers.append(FakeSampler(plan))
        return self.samplers[-1]


def write_port(tree: Path, device: str, rate: str = "400 Gb/sec (4X NDR)") -> None:
    port = f"sys/class/infiniband/{device}/ports/1"
    files = (f"{port}/counters/port_rcv_data", f"{port}/counters/port_xmit_data")
    write_files(tree, {f"{port}/rate": rate} | dict.fromkeys(files, "1"))


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    write_port(tmp_path, "mlx5_0")
    return FakeHost(tmp_path)


def report_of(plan: Plan) -> Message:
    """A sampler's report of two milliseconds in which nothing happened."""
    rows = [" ".join([str(at), *["1000"] * len(plan.counters)]) for at in (10**9, 10**9 + 10**6)]
    (report,) = replay("\n".join(rows), plan)
    return report


def events(readings: list[Reading]) -> list[Event]:
    return [each for each in readings if isinstance(each, Event)]


def metrics(readings: list[Reading]) -> set[str]:
    return {each.series.metric for each in readings if isinstance(each, Sample)}


def request(number: str = "c1", after: float = 1.0) -> CaptureRequest:
    return CaptureRequest(id=number, seconds_before=2.0, seconds_after=after, devices=["mlx5_0"])


# --- what is sampled -----------------------------------------------------------------------------


def test_without_fabric_ports_nothing_runs_and_interfaces_must_be_named(tmp_path: Path) -> None:
    write_files(tmp_path, {"sys/class/net/eth0/speed": "1000"})
    host = FakeHost(tmp_path)
    assert list(Bursts(Settings()).read(host)) == []
    assert host.samplers == []
    list(Bursts(Settings(interfaces=("eth*",), line_rates={"eth0": 8e9})).read(host))
    assert [each.line_rate for each in host.samplers[0].plan.counters] == [1e9, 1e9]


def test_hardware_counters_are_taken_where_they_are_and_not_faster_than_they_live(
    host: FakeHost,
) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1/hw_counters"
    write_files(host.root, {f"{port}/{name}": "12" for name in ("rx_bytes", "lifespan")})
    list(Bursts(Settings()).read(host))
    receive, transmit = host.samplers[0].plan.counters
    assert (receive.path, receive.factor) == (f"{port}/rx_bytes", 1)
    assert receive.floor_ns == 12 * NS_PER_MS
    assert (transmit.path.rpartition("/")[2], transmit.factor, transmit.floor_ns) == (
        "port_xmit_data",
        4,
        0,
    )


def test_counters_beyond_the_bound_are_named(tmp_path: Path) -> None:
    for number in range(COUNTERS_MAX // 2 + 1):
        write_port(tmp_path, f"mlx5_{number}")
    host = FakeHost(tmp_path)
    readings = list(Bursts(Settings()).read(host))
    assert len(host.samplers[0].plan.counters) == COUNTERS_MAX
    left_out = [each for each in readings if isinstance(each, Missing)]
    assert [each.reason for each in left_out] == [UnreadReason.NOT_SUPPORTED] * 2


def test_a_slower_rate_keeps_the_sampler_and_a_new_port_replaces_it(host: FakeHost) -> None:
    """A link that flaps comes up slower now and then; the ring must not be lost for that."""
    source = Bursts(Settings())
    list(source.read(host))
    write_port(host.root, "mlx5_0", rate="10 Gb/sec (4X SDR)")
    host.moment_ns += DISCOVER_SECONDS * 10**9
    list(source.read(host))
    assert len(host.samplers) == 1
    host.samplers[0].restarts = 3
    write_port(host.root, "mlx5_1")
    host.moment_ns += DISCOVER_SECONDS * 10**9
    readings = list(source.read(host))
    assert [each.is_closed for each in host.samplers] == [True, False]
    restarts = [
        each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric.endswith("restarts_total")
    ]
    assert restarts == [3]
    source.close()
    assert host.samplers[1].is_closed


def test_a_captured_tree_without_a_recording_gives_nothing(host: FakeHost) -> None:
    assert list(Bursts(Settings()).read(Host(host.root))) == []


def test_a_recording_that_cannot_be_read_is_an_error_of_the_source(host: FakeHost) -> None:
    (host.root / "bursts/samples").mkdir(parents=True)
    with pytest.raises(HostError):
        list(Bursts(Settings()).read(Host(host.root)))


# --- messages ------------------------------------------------------------------------------------


def test_a_read_between_two_summaries_shows_the_last_one_for_a_while(host: FakeHost) -> None:
    source = Bursts(Settings())
    assert metrics(list(source.read(host))) == {
        "fabric_burst_sampler_up",
        "fabric_burst_sampler_restarts_total",
    }
    sampler = host.samplers[0]
    sampler.messages = [report_of(sampler.plan)]
    shown = metrics(list(source.read(host)))
    assert "fabric_burst_mean_bytes_per_second" in shown
    host.moment_ns += 10**9
    assert metrics(list(source.read(host))) == shown
    host.moment_ns += 10**10
    assert "fabric_burst_mean_bytes_per_second" not in metrics(list(source.read(host)))


# --- captures ------------------------------------------------------------------------------------


def piece(times: list[int], values: list[int]) -> Message:
    return {
        "capture": "c1",
        "counter": 0,
        "offset": 5,
        "times": array("q", times).tobytes().hex(),
        "values": array("Q", values).tobytes().hex(),
    }


def test_a_capture_becomes_samples_of_its_own_series_and_an_event(host: FakeHost) -> None:
    source = Bursts(Settings())
    list(source.read(host))
    source.capture(request())
    source.capture(request())
    list(source.read(host))
    sampler = host.samplers[0]
    assert sampler.requests == [{"id": "c1", "before": 2.0, "after": 1.0, "devices": ["mlx5_0"]}]
    sampler.messages = [
        piece([10**6, 10**6 + 10, 2 * 10**6], [7, 8, 9]),
        {"capture": "c1", "end": True, "samples": 3},
    ]
    readings = list(source.read(host))
    raw = [
        (each.time_ns, each.value, dict(each.series.labels))
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_burst_raw_bytes_total"
    ]
    labels = {"device": "mlx5_0", "port": "1", "direction": "receive", "capture": "c1"}
    # Of two samples in one millisecond the later one.
    assert raw == [(10**6 + 15, 8, labels), (2 * 10**6 + 5, 9, labels)]
    (event,) = events(readings)
    assert (event.kind, event.attributes["result"], event.attributes["samples"]) == (
        "capture",
        "finished",
        "3",
    )
    source.capture(request())
    list(source.read(host))
    assert len(sampler.requests) == 1


@pytest.mark.parametrize(
    ("trouble", "result"),
    [("restart", "lost"), ("silence", "lost"), ("refusal", "refused"), ("no pipe", "refused")],
)
def test_a_capture_that_does_not_come_is_reported_as_lost_or_refused(
    host: FakeHost, trouble: str, result: str
) -> None:
    source = Bursts(Settings())
    list(source.read(host))
    sampler = host.samplers[0]
    source.capture(request())
    sampler.takes_requests = trouble != "no pipe"
    readings = list(source.read(host))
    if trouble == "restart":
        original = sampler.poll

        def die() -> Sequence[Message]:
            sampler.restarts += 1
            return original()

        sampler.poll = die  # type: ignore[method-assign]
    if trouble == "silence":
        host.moment_ns += int((CAPTURE_SECONDS_MAX + 2) * 1e9)
    if trouble == "refusal":
        sampler.messages = [{"capture": "c1", "end": True, "refusal": "too many"}]
    readings += list(source.read(host))
    assert [each.attributes["result"] for each in events(readings)] == [result]
    assert not events(list(source.read(host)))


def test_a_host_without_a_sampler_refuses(tmp_path: Path) -> None:
    source = Bursts(Settings())
    source.capture(request())
    (event,) = events(list(source.read(Host(tmp_path))))
    assert event.attributes["result"] == "refused"


def test_more_requests_than_can_wait_push_out_the_oldest(host: FakeHost) -> None:
    source = Bursts(Settings())
    list(source.read(host))
    for number in range(1_000):
        source.capture(request(str(number)))
    list(source.read(host))
    assert len(host.samplers[0].requests) <= 16
