"""`fabricscope bench-pair` with the programs themselves: perftest and iperf3 as Debian has them."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from api.oncall.evaluate import lead, task
from api.remote.bench_pair import ends
from api.remote.bench_pair.cli import measured
from collector.cli import main
from collector.contract.errors import ParseError
from collector.contract.units import NS
from collector.parsing.perftest import parse_perftest
from tests.stands import namespaces
from tests.stands.ports import free_port
from tests.stands.service import InProcess, in_process
from tests.tools import peers
from tests.worlds.incidents import Teller, slow_link

SLOW_BITS = 8_000_000
RDMA_HERE = Path(ends.RDMA_CLASS).is_dir() and any(Path(ends.RDMA_CLASS).iterdir())
START = """#!/bin/sh
# As ssh: a host's name, which is a network namespace here, then one text for its shell.
exec ip netns exec "$1" sh -c "$2"
"""
RESULT = re.compile(r"iperf3, 131072 bytes: (\S+) Gb/s \(TCP sent \d+ segments again\) from (\S+) ")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the programs, first on the path; its `start` enters namespaces."""
    for name in ("ib_write_bw", "ib_send_lat", "iperf3"):
        program = peers.find(name)
        assert program is not None
        (tmp_path / name).symlink_to(program)
    (tmp_path / "start").write_text(START)
    (tmp_path / "start").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ends, "RETRY_SECONDS", 0.2)
    return tmp_path


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(tmp_path_factory.mktemp("service")) as service,
    ):
        now_ns = int(time.time()) * NS
        Teller(service.inventory, service.store).say(now_ns, slow_link(now_ns - 60 * NS))
        yield service


@pytest.fixture
def pair() -> Iterator[namespaces.Joined]:
    """Two hosts; what the first one sends passes a bucket that lets SLOW_BITS through."""
    if why := namespaces.why_not():
        pytest.skip(why)
    with namespaces.joined() as joined:
        bucket = f"root tbf rate {SLOW_BITS}bit burst 16kb limit 64kb"
        words = f"tc qdisc replace dev {joined.interfaces[0]} {bucket}"
        subprocess.run([*joined.inside(0), *words.split()], check=True, capture_output=True)
        yield joined


@pytest.mark.peer("iperf3")
def test_tcp_finds_the_slow_way_and_the_result_is_kept_with_the_incident(
    service: InProcess,
    programs: Path,
    pair: namespaces.Joined,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody says what to measure with: neither host has an RDMA device."""
    (incident,) = service.client.get("/v1/incidents").json()["items"]
    hosts = [f"{name}={at}" for name, at in zip(pair.names, pair.addresses, strict=True)]
    words = ["bench-pair", *hosts, "--start", str(programs / "start"), "--seconds", "2"]
    words += ["--incident", incident["id"], "--by", "ann", "--service"]
    words += [str(service.client.base_url), *(["--tool", "tcp"] if RDMA_HERE else [])]
    assert main(words) == 0
    out, err = capsys.readouterr()
    if not RDMA_HERE:
        assert err.startswith(f"no RDMA device on {' and '.join(pair.names)}: TCP by iperf3")
    found = {way[2]: float(way[1]) * 1e9 for way in RESULT.finditer(out)}
    slow, fast = (found[name] for name in pair.names)
    assert SLOW_BITS / 20 < slow < SLOW_BITS * 1.2
    assert fast > 2 * slow
    shown = service.client.get(f"/v1/incidents/{incident['id']}.md").text.replace("\\", "")
    kept = {way[2]: float(way[1]) * 1e9 for way in RESULT.finditer(shown)}
    assert kept == found
    assert "ann" in shown


@pytest.mark.peer("iperf3")
def test_iperf_without_a_server_is_no_result_though_its_status_says_so(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del programs
    monkeypatch.setattr(ends, "PORT", free_port())
    monkeypatch.setattr(ends, "START_SECONDS", 1.0)
    one, other = ends.End.parse("a=127.0.0.1"), ends.End.parse("b=127.0.0.1")
    wanted = ends.Wanted(tool=ends.Tool.TCP, seconds=1, bytes=131_072)
    with pytest.raises(ParseError, match="unable to connect to server: Connection refused"):
        measured("client", wanted, one, other)


@pytest.mark.peer("ib_write_bw")
@pytest.mark.peer("ib_send_lat")
@pytest.mark.parametrize("tool", ["bandwidth", "latency"])
def test_perftest_without_a_device_is_told_plainly(
    service: InProcess, programs: Path, tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = programs / "here"
    here.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    here.chmod(0o755)
    words = ["bench-pair", "node-1=127.0.0.1", "node-2=127.0.0.1", "--start", str(here)]
    words += ["--device", "none0", "--tool", tool, "--service", str(service.client.base_url)]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert ends.NO_DEVICE in said
    assert "that host has no such RDMA device" in said
    assert "--tool tcp" in said


@pytest.mark.peer("ib_write_bw")
@pytest.mark.peer("ib_send_lat")
@pytest.mark.parametrize(
    ("program", "head", "columns"),
    [("ib_write_bw", "BW average[Gb/sec]", 5), ("ib_send_lat", "t_typical[usec]", 9)],
)
def test_the_tables_that_are_read_are_those_that_the_program_prints(
    program: str, head: str, columns: int
) -> None:
    """Without a device it prints none: its own formats stand in it, and are filled in here."""
    path = peers.find(program)
    assert path is not None
    texts = [text.decode() for text in re.findall(rb"[\t -~]{12,}", binary_of(path).read_bytes())]
    heads = [text for text in texts if head in text and "Port1" not in text]
    rows = [text for text in texts if is_row(text) and text.count("%") == columns]
    assert len(heads) == 1
    assert rows
    numbers = [65_536, 10_000, *(float(place) for place in range(3, columns + 1))]
    for row in rows:
        found = parse_perftest((heads[0] + "\n" + row % tuple(numbers) + "\n").encode())
        assert found.bytes == 65_536
        if program == "ib_write_bw":
            assert found.bits_per_second == pytest.approx(4e9)
        else:
            assert found.seconds_typical == pytest.approx(5e-6)
            assert found.seconds_99 == pytest.approx(8e-6)


def is_row(text: str) -> bool:
    """Of our tables: bytes, then messages; rows with a service level have another second column."""
    return text.startswith(" %-7lu") and ("%-10lu" in text or text.startswith(" %-7lu %lu "))


def binary_of(program: Path) -> Path:
    """What an unpacked peer's script starts."""
    if program.read_bytes()[:2] != b"#!":
        return program
    return Path(program.read_text().rpartition("exec ")[2].split()[0].strip("'"))


@pytest.mark.peer("ib_write_bw")
@pytest.mark.peer("ib_send_lat")
@pytest.mark.peer("iperf3")
@pytest.mark.parametrize("tool", [ends.Tool.BANDWIDTH, ends.Tool.LATENCY, ends.Tool.TCP])
def test_each_option_that_is_given_is_one_that_the_program_has(
    programs: Path, tool: ends.Tool
) -> None:
    device = "" if tool is ends.Tool.TCP else "mlx5_0"
    wanted = ends.Wanted(tool=tool, seconds=5, bytes=65_536, device=device)
    words = [*ends.end_words(wanted), *ends.end_words(wanted, "127.0.0.1")]
    program = programs / ends.PROGRAMS[tool]
    done = subprocess.run([program, "--help"], check=False, capture_output=True, timeout=60)
    known = set(re.findall(r"(?<![\w-])--?\w[\w-]*", done.stdout.decode()))
    assert {word for word in words if word.startswith("-")} <= known
