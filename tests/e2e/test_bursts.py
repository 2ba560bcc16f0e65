"""Bursts from the wire to the service: found where they were sent, none where there were none."""

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.bursts.plan import NS_PER_MS
from tests.stands import shaped_link
from tests.stands.service import ServiceProcess, eventually, launch

BURSTS, SMOOTH_SECONDS = 60, 2.0
FAIR_MIN = 10
"""Fewer bursts in which sender, shaper and sampler were on time prove nothing."""


@pytest.mark.slow
def test_shaped_bursts_are_found_where_they_were_sent_and_none_is_invented() -> None:
    """A burst counts if sender, shaper and sampler were on time, as `Trial.is_fair` knows.

    On a machine that is too busy for that, there is nothing to judge.
    """
    if why := shaped_link.why_not():
        pytest.skip(why)
    trial = shaped_link.measure(BURSTS, SMOOTH_SECONDS)
    assert trial.invented == []
    means = [report["counters"][0]["mean"] or 0.0 for report in trial.reports]
    assert max(means[-4:]) > 0.2 * shaped_link.LINE_BYTES, "the smooth flow did not flow"
    fair = [sent for sent in trial.sent if trial.is_fair(sent)]
    if len(fair) < FAIR_MIN:
        pytest.skip(f"this machine is too busy: only {len(fair)} of {BURSTS} bursts were on time")
    off = [trial.starts_off_ns(sent) for sent in fair]
    found = [each for each in off if each is not None and abs(each) <= shaped_link.START_NS]
    assert len(found) >= 0.99 * len(fair)


@pytest.mark.parametrize(
    ("idle_ms", "is_fair"), [(range(0), True), (range(1, 4), False), (range(3), False)]
)
def test_a_burst_that_the_shaper_delayed_proves_nothing(idle_ms: range, *, is_fair: bool) -> None:
    """Half the line in the first four milliseconds is a late start that nobody reported wrongly."""
    counted, values = 0, []
    for ms in range(-5, 10):
        values.append(counted)
        if ms >= 0 and ms not in idle_ms:
            counted += shaped_link.LINE_BYTES // 1000
    trial = shaped_link.Trial(
        sent=[],
        found=[],
        invented=[],
        times=[ms * NS_PER_MS for ms in range(-5, 10)],
        values=values,
        reports=[],
        smooth_seconds=0.0,
    )
    assert trial.is_fair(shaped_link.Sent(0, NS_PER_MS // 2, 8 * NS_PER_MS)) is is_fair


CONFIG = """\
host = "burst-host"
service_url = "{service}"
spool_dir = "{spool}"
listen = ""
flush_seconds = 0.2
[sources.bursts]
interfaces = ["lo"]
line_rates = {{ lo = 80e6 }}
interval_seconds = 0.2
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path / "service") as service:
        yield service


def send_burst(seconds: float) -> None:
    """Load loopback for a while, well above the line rate that the settings give it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
    ):
        sink.bind(("127.0.0.1", 0))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            source.sendto(b"x" * 8_000, sink.getsockname())


@pytest.mark.rotating(3, turn=1)
@pytest.mark.slow
def test_an_agent_tells_bursts_and_sends_raw_samples_when_the_service_asks(
    service: ServiceProcess, tmp_path: Path
) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(CONFIG.format(service=service.url, spool=tmp_path / "spool"))
    agent = launch(["agent", "--config", str(config)], tmp_path / "agent.log")
    try:
        match = 'fabric_burst_mean_bytes_per_second{device="lo",host="burst-host"}'
        eventually(lambda: bool(service.samples(match)), "the sampler's numbers in the service")

        def has_burst() -> bool:
            send_burst(0.1)
            answer = service.client.get("/v1/bursts", params={"host": "burst-host", "min_ms": 20})
            return bool(answer.json()["items"])

        eventually(has_burst, "a burst in the service")
        asked = service.client.post(
            "/v1/agents/burst-host/capture", json={"seconds_before": 5, "seconds_after": 0.1}
        )
        assert asked.status_code == 202, asked.text
        capture = asked.json()["id"]

        def is_finished() -> bool:
            answer = service.client.get("/v1/agents/burst-host/captures").json()["items"]
            assert answer[0]["state"] in {"waiting", "handed", "finished"}, answer
            return bool(answer[0]["state"] == "finished" and answer[0]["samples"])

        eventually(is_finished, "the capture")
        raw = f'fabric_burst_raw_bytes_total{{capture="{capture}"}}'
        series = service.samples(raw)
        assert {each["labels"]["direction"] for each in series} == {"receive", "transmit"}
        assert all(len(each["values"]) > 10 for each in series)
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
