"""`fabricscope top` against the real service: numbers, incidents, the stream, away and back."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api.oncall.evaluate import changes, lead, task
from collector.cli import main
from collector.contract.catalog import load_catalog
from collector.contract.units import NS
from tests.stands.own import write_own
from tests.stands.service import InProcess, ServiceProcess, in_process
from tests.stands.terminals import in_terminal
from tests.worlds import remote_write as rw
from tests.worlds.incidents import Teller, slow_link, straggler

TOKEN = "a-token-of-decent-length"  # noqa: S105 - of a service that lives for a minute
CLUSTER = ("cluster", "here")
STEP_SECONDS, STEPS_BEFORE, STEPS_AFTER = 10, 9, 50
"""Samples reach into the future, as far as a sender's clock may be ahead: a test that takes minutes
on a slow machine still finds fresh ones."""
NODE1 = (("host", "node1"), ("device", "mlx5_0"), ("port", "1"))
LEAF0 = (("host", "leaf0"), ("device", "leaf0"), ("port", "swp3"))
Labels = tuple[tuple[str, str], ...]


def nic(host: str, device: str) -> Labels:
    return (("host", host), ("device", device))


def gpu(number: int) -> Labels:
    return (("host", "node1"), ("gpu", str(number)))


GAUGES: tuple[tuple[str, Labels, float], ...] = (
    ("fabric_agent_start_time_seconds", (("host", "node1"),), 1e9),
    ("fabric_agent_start_time_seconds", (("host", "node2"),), 1e9),
    ("fabric_switch_info", (("host", "leaf0"),), 1.0),
    ("fabric_port_rate_bits_per_second", NODE1, 400e9),
    ("fabric_port_rate_bits_per_second", LEAF0, 400e9),
    ("fabric_port_info", (*NODE1, ("netdev", "eth0")), 1.0),
    ("fabric_link_info", (*NODE1, ("peer_name", "leaf0"), ("peer_port", "swp3")), 1.0),
    ("fabric_nic_speed_bits_per_second", nic("node2", "eth1"), 100e9),
    ("fabric_gpu_utilization_ratio", gpu(0), 1.0),
    ("fabric_gpu_utilization_ratio", gpu(1), 0.5),
    ("fabric_gpu_clock_event_reasons", gpu(0), 0x4),
    ("fabric_gpu_clock_event_reasons", gpu(1), 0x40 | 0x20),
    ("fabric_job_step_seconds", (("job", "train"),), 0.5),
    ("fabric_job_network_share_ratio", (("job", "train"),), 0.3),
    ("fabric_job_wait_share_ratio", (("job", "train"),), 0.1),
    ("fabric_job_ranks", (("job", "train"),), 64.0),
)
RATES: tuple[tuple[str, Labels, float], ...] = (
    # Two kinds of traffic, which a driver may count apart.
    ("fabric_port_transmit_bytes_total", (*NODE1, ("ip_version", "4")), 30e9),
    ("fabric_port_transmit_bytes_total", (*NODE1, ("ip_version", "6")), 10e9),
    ("fabric_port_receive_bytes_total", NODE1, 5e9),
    ("fabric_port_transmit_bytes_total", LEAF0, 25e9),
    ("fabric_port_receive_discards_total", LEAF0, 2.0),
    ("fabric_port_receive_crc_errors_total", LEAF0, 1.0),
    ("fabric_nic_phy_receive_crc_errors_total", nic("node1", "eth0"), 5.0),
    ("fabric_nic_receive_pause_seconds_total", (*nic("node1", "eth0"), ("priority", "3")), 0.1),
    ("fabric_nic_transmit_bytes_total", nic("node2", "eth1"), 3.125e9),
    # Each of them stops it for 65,535 times 512 bits at most.
    ("fabric_port_receive_pause_frames_total", LEAF0, 0.4 * 400e9 / (65_535 * 512)),
)


def make_series() -> dict[bool, list[rw.TimeSeries]]:
    """A small cluster before and after now; True: what the service itself writes."""
    now_ms = int(time.time() * 1000)
    times = [now_ms + STEP_SECONDS * 1000 * at for at in range(-STEPS_BEFORE, STEPS_AFTER)]
    made: dict[bool, list[rw.TimeSeries]] = {True: [], False: []}
    for rows, slope in ((GAUGES, 0.0), (RATES, float(STEP_SECONDS))):
        for name, labels, number in rows:
            first = 1.0 if slope else number
            samples = [(first + number * slope * place, at) for place, at in enumerate(times)]
            series = rw.TimeSeries(tuple(sorted((("__name__", name), CLUSTER, *labels))), samples)
            made[load_catalog().is_reserved(name)].append(series)
    return made


def write_samples(client: httpx.Client, *, is_well: bool = False) -> None:
    """What senders send of it; ``is_well``: without errors, which an evaluator would find."""
    sent = [
        each
        for each in make_series()[False]
        if not (is_well and any("errors" in value for _, value in each.labels))
    ]
    body = rw.snappy(rw.request_v1(sent))
    answer = client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
    assert answer.status_code == 204, answer.text


class Stage:
    """A service with samples, and a `Teller` that gives it verdicts."""

    def __init__(self, service: InProcess) -> None:
        self.url = str(service.client.base_url)
        self._teller = Teller(service.inventory, service.store)

    def say(self, *, with_straggler: bool) -> None:
        """What is wrong now."""
        now_ns = int(time.time() * NS)
        since_ns = now_ns - 100 * NS
        verdicts = [slow_link(since_ns)]
        if with_straggler:
            verdicts.append(straggler(now_ns - NS))
        self._teller.say(now_ns, *verdicts)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (task, "EVALUATE_SECONDS", 1e6),
            (lead, "RENEW_SECONDS", 1e6),
            (changes, "FOLLOW_SECONDS", 0.02),
        ):
            stack.enter_context(patch.object(place, name, value))
        service = stack.enter_context(in_process(tmp_path_factory.mktemp("service")))
        write_samples(service.client)
        write_own(service.store, make_series()[True])
        found = Stage(service)
        found.say(with_straggler=False)
        yield found


def ask(stage: Stage, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """What `top --json` prints."""
    assert main(["top", "--json", "--service", stage.url, *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["problems"] == {}
    return found


def test_the_numbers_are_those_that_were_sent(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask(stage, capsys)
    assert found["fleet"] == {
        "agents": 2.0, "gpus": 2.0, "gpus_busy": 0.75, "jobs": 1.0, "links_down": 0,
    }  # fmt: skip
    [job] = found["jobs"]
    assert (job["job"], job["ranks"], job["step_s"]) == ("train", 64.0, 0.5)
    assert (job["network"], job["waits"]) == (0.3, 0.1)
    assert set(job["steps_s"]) == {0.5}
    hosts = {row["host"]: row for row in found["hosts"]}
    assert set(hosts) == {"node1", "node2"}, "a switch is no host"
    node1 = hosts["node1"]
    assert (node1["gpus"], node1["busy"], node1["throttled"]) == (2.0, 0.75, 1.0)
    assert node1["sends"] == pytest.approx(320e9)
    assert node1["receives"] == pytest.approx(40e9)
    assert hosts["node2"]["sends"] == pytest.approx(25e9)


def test_links_have_their_numbers_in_every_order(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    busiest = ask(stage, capsys, "--view", "links")["links"]
    assert [row["host"] for row in busiest] == ["node1", "leaf0", "node2"]
    first, second, third = busiest
    assert first["sends"] == pytest.approx(0.8)
    assert first["receives"] == pytest.approx(0.1)
    assert first["errors"] == pytest.approx(5.0), "its interface counts them"
    assert first["paused"] == pytest.approx(0.1), "the same"
    assert (first["rate"], first["peer"]) == (400e9, "leaf0 swp3")
    assert second["sends"] == pytest.approx(0.5)
    assert second["errors"] == pytest.approx(3.0)
    assert third["device"] == "eth1"
    assert third["sends"] == pytest.approx(0.25)
    errors = ask(stage, capsys, "--view", "links", "--order", "errors")["links"]
    assert [row["host"] for row in errors] == ["node1", "leaf0"]
    assert errors[1]["sends"] == pytest.approx(0.5), "all columns, whatever the order"
    paused = ask(stage, capsys, "--view", "links", "--order", "pause")["links"]
    assert [row["host"] for row in paused] == ["node1", "leaf0"], "what is known comes first"
    assert paused[1]["paused"] is None, "nobody counted for how long"
    assert paused[1]["paused_at_most"] == pytest.approx(0.4)


def test_incidents_come_by_the_stream_and_tell_all_that_is_known(stage: Stage) -> None:
    # Asked once an hour: what comes sooner came by the stream.
    with in_terminal(
        "top", "--service", stage.url, "--interval", "3600", columns=110, lines=40
    ) as program:
        program.shows("node3's NIC is slow")
        program.shows("SLOW LINK  node3 mlx5_0/1 ↔ leaf0 swp3  90% sure")
        program.shows("1 incident open, 0.2 GPU hours lost · 1 job · 2 GPUs 75% busy")
        program.shows(" live")
        stage.say(with_straggler=True)
        program.shows("STRAGGLER  node9 gpu 1 (rank 7 of other)")
        program.type("g\r")
        program.shows("0.3 s, 0.01 s before")
        program.shows("victims, who only look guilty")
        program.shows("node4 (rank 4 of train)")
        # 12 s of the 100 s before it opened, and 30 % of those since: 12 to 19 %.
        program.shows("a step takes 1.4 s, without it 1.0 s (1")
        program.shows("opened: slow link")
        program.type("2")
        program.shows("500 ms")
        program.type("3")
        program.shows("node1/mlx5_0/1")
        program.type("4")
        program.shows("320 Gb/s")
        program.type("q")
        assert program.end() == 0


@pytest.mark.rotating(3, turn=0)
@pytest.mark.slow
def test_a_service_that_is_killed_and_comes_back_is_seen_again(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    flags = ("--token-file", str(tmp_path / "tokens"))
    with ServiceProcess(tmp_path / "data", *flags) as service:
        service.client.headers["Authorization"] = f"Bearer {TOKEN}"
        write_samples(service.client, is_well=True)
        words = ("top", "--service", service.url, "--interval", "0.5")
        with in_terminal(*words) as stranger:
            stranger.shows("asks for a token")
        with in_terminal(*words, FABRICSCOPE_TOKEN=TOKEN) as program:
            program.shows("no incident open · 2 GPUs")
            program.shows(" live")
            service.kill()
            program.shows("No answer since")
            program.shows("Nothing is known to be wrong.")
            service.start()
            program.type("r")
            program.shows("no incident open · 2 GPUs")
            program.shows(" live")
