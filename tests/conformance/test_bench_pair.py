"""`fabricscope bench-pair`: both ends, refusals, what is parsed and where the result is kept."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.oncall.evaluate import lead, task
from api.remote.bench_pair import ends
from api.remote.bench_pair.cli import measured
from collector.cli import main
from collector.contract.errors import ParseError, SettingsError
from collector.contract.units import NS
from collector.doors.commands import Output
from collector.parsing.iperf import parse_iperf
from collector.parsing.perftest import parse_perftest
from tests.doubles import perftest
from tests.stands.ports import free_port
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.incidents import Teller, slow_link

PAIR = ("node-1=127.0.0.1", "node-2=127.0.0.1")
NCCL = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong
   268435456      67108864     float     sum      -1   3051.2   87.98   87.98      0   3040.0
""".replace("3040.0", "3040.0   88.30   88.30      0")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(tmp_path_factory.mktemp("service")) as service,
    ):
        now_ns = int(time.time()) * NS
        Teller(service.inventory, service.store).say(now_ns, slow_link(now_ns - 60 * NS))
        job = {"id": "trains", "hosts": ["busy-1"], "ranks": [{"rank": 0, "host": "busy-1"}]}
        assert service.client.post("/v1/jobs", json=job).status_code < 300
        yield service


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs of perftest on this machine, at a port of their own; what `start` started."""
    log = perftest.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ends, "PORT", free_port())
    monkeypatch.setattr(ends, "RETRY_SECONDS", 0.05)
    return log


def bench(service: InProcess, *words: str) -> int:
    return main(["bench-pair", *words, "--service", str(service.client.base_url)])


def test_both_ways_are_measured_and_noted_in_the_incident(
    service: InProcess, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (incident,) = service.client.get("/v1/incidents").json()["items"]
    words = ("--start", "start", "--incident", incident["id"], "--by", "ann", "--device", "mlx5_0")
    assert bench(service, *PAIR, *words) == 0
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first == "ib_write_bw, 65536 bytes: 181.4 Gb/s from node-2 to node-1"
    assert second.endswith("from node-1 to node-2")
    assert f"noted in {incident['id']}" in err
    started = log.read_text().splitlines()
    assert {line.split(":")[0] for line in started} == {"node-1", "node-2"}
    assert all("timeout 20 ib_write_bw -F -p" in line for line in started)
    assert any(line.endswith("-D 5 127.0.0.1") for line in started)
    shown = service.client.get(f"/v1/incidents/{incident['id']}.md").text
    assert "181.4 Gb/s from node-2 to node-1" in shown.replace("\\", "")
    assert "ann" in shown


def test_latency_is_printed_as_json(
    service: InProcess, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del log
    assert bench(service, *PAIR, "--tool", "latency", "--start", "start", "--json") == 0
    one, other = json.loads(capsys.readouterr().out)
    assert one["measured"]["seconds_typical"] == pytest.approx(1.08e-6)
    assert other["measured"]["seconds_99"] == pytest.approx(1.31e-6)


def test_hosts_on_which_a_job_runs_are_left_alone(
    service: InProcess, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rdma = ("--start", "start", "--tool", "bandwidth")
    pair = ("node-1=127.0.0.1", "busy-1=127.0.0.1", *rdma)
    assert bench(service, *pair) == 1
    assert "on busy-1 runs trains" in capsys.readouterr().err
    assert not log.exists(), "nothing was started"
    assert bench(service, *pair, "--beside-jobs") == 0
    away = ["bench-pair", *PAIR, "--start", "start", "--service", f"http://127.0.0.1:{free_port()}"]
    assert main(away) == 1
    assert "cannot tell whether a job runs" in capsys.readouterr().err


def test_an_end_that_fails_says_why(
    service: InProcess, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del log
    assert bench(service, *PAIR, "--start", "start", "--device", "broken") == 1
    assert "Unable to find the Infiniband/RoCE device" in capsys.readouterr().err
    assert bench(service, *PAIR, "--start", "no-such-program-here") == 1
    assert "there is no such program" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "give --start COMMAND"),
        (["--start", "ssh", "--only", "client"], "give --start COMMAND"),
        (["--start", "ssh", "--seconds", "61"], "from 1 to 60"),
        (["--start", "ssh", "--device", "a b"], "no name of a device"),
        (["--start", "ssh '"], "No closing quotation"),
        (["--tool", "nccl", "--start", "ssh"], "mpirun starts both ends"),
        (["--tool", "tcp", "--start", "ssh", "--device", "mlx5_0"], "say which interface"),
        (["--tool", "tcp", "--start", "ssh", "--bytes", "1048577"], "from 1 to 1048576"),
    ],
)
def test_wrong_usage_is_named(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench-pair", *PAIR, *words]) == 2
    assert why in capsys.readouterr().err


def test_each_end_by_hand(log: Path) -> None:
    """Where nothing starts programs elsewhere: one call on each host."""
    one, other = (ends.End.parse(text) for text in PAIR)
    wanted = ends.Wanted(tool=ends.Tool.BANDWIDTH, seconds=5, bytes=65_536)
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(measured, "server", wanted, one, other)
        # By hand the server comes first; here it may be late by a moment.
        eventually(lambda: bool(attempt(wanted, one, other)), "the client's end")
        assert server.result() == []
    assert not log.exists(), "nothing was started elsewhere"


def attempt(wanted: ends.Wanted, one: ends.End, other: ends.End) -> list[ends.Result]:
    try:
        return measured("client", wanted, one, other)
    except ParseError:
        return []


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "$(x)", "", "a;b", "a=b;c"])
def test_a_host_is_no_option_and_no_shells_word(host: str) -> None:
    with pytest.raises(SettingsError, match="no name of a host"):
        ends.End.parse(host)


def test_nccl_tests_are_started_by_mpirun_and_their_last_row_counts() -> None:
    asked: list[list[str]] = []

    def run(words: object, seconds: float) -> Output:
        assert seconds > 5
        asked.append(list(words))  # type: ignore[call-overload]
        return Output(NCCL.encode())

    wanted = ends.Wanted(tool=ends.Tool.NCCL, seconds=5, bytes=256 << 20, gpus=8)
    one, other = ends.End.parse("a"), ends.End.parse("b")
    result = ends.measure(run, wanted, one, other)
    assert result.words.startswith("all_reduce_perf, 268435456 bytes: 703.8 Gb/s between b and a")
    assert asked[0][:7] == ["timeout", "20", "mpirun", "-np", "16", "-H", "b:8,a:8"]


HERE = Output(b"mlx5_0\nmlx5_1\n")
NONE = Output(b"", b"ls: cannot access '/sys/class/infiniband': No such file or directory\n", 2)


@pytest.mark.parametrize(
    ("answers", "tool", "why"),
    [
        ((HERE, HERE), ends.Tool.BANDWIDTH, "both hosts have RDMA devices: ib_write_bw"),
        ((HERE, NONE), ends.Tool.TCP, "no RDMA device on node-2: TCP by iperf3"),
        ((Output(b""), NONE), ends.Tool.TCP, "no RDMA device on node-1 and node-2: TCP by iperf3"),
    ],
)
def test_rdma_is_measured_where_both_hosts_have_it(
    answers: tuple[Output, Output], tool: ends.Tool, why: str
) -> None:
    given_ = iter(answers)
    wanted = ends.Wanted(tool=ends.Tool.BANDWIDTH, seconds=5, bytes=65_536, start=("ssh",))
    pair = [ends.End.parse(text) for text in PAIR]
    assert ends.choose(lambda *_: next(given_), wanted, pair) == (tool, why)


@pytest.mark.parametrize(
    "answer",
    [
        Output(b"", b"ssh: connect to host node-1 port 22: No route to host\n", 255),
        Output(b"", b"bash: /opt/tools/ls: No such file or directory\n", 127),
        Output(b"mlx5", is_cut=True),
    ],
)
def test_a_host_that_does_not_say_what_it_has_decides_nothing(answer: Output) -> None:
    wanted = ends.Wanted(tool=ends.Tool.BANDWIDTH, seconds=5, bytes=65_536, start=("ssh",))
    pair = [ends.End.parse(text) for text in PAIR]
    with pytest.raises(ParseError, match="cannot tell whether node-1 has an RDMA device"):
        ends.choose(lambda *_: answer, wanted, pair)


@given(st.binary(max_size=400))
def test_any_report_of_iperf_is_a_result_or_a_refusal(text: bytes) -> None:
    for head in (b"", b'{"end": {"sum_received": {"bits_per_second": '):
        try:
            found = parse_iperf(head + text)
        except ParseError:
            continue
        assert (found.bits_per_second or 0.0) >= 0


@given(st.binary(max_size=400))
def test_any_output_is_a_result_or_a_refusal(text: bytes) -> None:
    for head in (b"", perftest.BANDWIDTH.encode(), perftest.LATENCY.splitlines()[0].encode()):
        try:
            found = parse_perftest(head + b"\n" + text)
        except ParseError:
            assert not head.startswith(perftest.BANDWIDTH.encode())
        else:
            assert found.bytes >= 0
