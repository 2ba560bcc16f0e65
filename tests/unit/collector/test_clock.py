"""Clocks of hosts: what chronyd and ptp4l really say, odd answers, and that nothing is set."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.contract.model import Missing, Sample
from collector.doors.clocks import parse_hardware_clock, parse_kernel_clock, read_hardware_clock
from collector.doors.host import Host
from collector.parsing.clocks import parse_pmc, parse_tracking
from collector.sources.clock import SOURCE, Settings
from tests.stands import namespaces
from tests.stands.service import eventually
from tests.tools import peers

ROOT = Path(__file__).resolve().parents[3]
OFFSET_S = 0.08
"""What chronyd is told that its server is off by."""
READ = """
import json, sys
from collector.contract.model import Sample
from collector.doors.host import Host
from collector.sources.clock import SOURCE, Settings
host, found = Host(), {}
for each in SOURCE(Settings(**json.loads(sys.argv[1]))).read(host):
    labels = dict(each.series.labels)
    what = each.value if isinstance(each, Sample) else f"{each.reason}: {each.detail}"
    found[f"{each.series.metric.removeprefix('fabric_host_clock_')} {labels.get('by', '')}"] = [
        what, labels.get("source", ""), labels.get("state", "")]
print(json.dumps(found))
"""

Found = dict[str, list[Any]]


class Daemons:
    """Programs in two joined namespaces, ended by their process ids."""

    def __init__(self, joined: namespaces.Joined, folder: Path) -> None:
        self.joined = joined
        self.folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        programs = {path.parent for name in PEERS if (path := peers.find(name)) is not None}
        self._path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])

    def start(self, place: int, *words: str) -> None:
        program = shutil.which(words[0], path=self._path)
        assert program is not None
        with (self.folder / f"{words[0]}-{place}.log").open("wb") as log:
            command = [*self.joined.inside(place), program, *words[1:]]
            self._running.append(subprocess.Popen(command, stdout=log, stderr=log))

    def write(self, name: str, *lines: str) -> str:
        file = self.folder / name
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(file)

    def read(self, place: int, **settings: str) -> Found:
        """The source, live, in this namespace."""
        command = [*self.joined.inside(place), sys.executable, "-c", READ, json.dumps(settings)]
        environment = {**os.environ, "PATH": self._path}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        found: Found = json.loads(done.stdout)
        return found

    def end(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(20)
        self._running = []


PEERS = ("chronyd", "chronyc", "ptp4l", "pmc")


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    if why := namespaces.why_not():
        pytest.skip(why)
    with namespaces.joined() as joined:
        made = Daemons(joined, tmp_path)
        try:
            yield made
        finally:
            made.end()


def chrony_settings(daemons: Daemons, place: int, *lines: str) -> str:
    folder = daemons.folder / f"chrony-{place}"
    folder.mkdir(mode=0o700)
    return daemons.write(
        f"chrony-{place}.conf",
        *lines,
        "user root",
        "cmdport 0",
        f"bindcmdaddress {folder}/sock",
        f"pidfile {folder}/pid",
    )


@pytest.mark.peer("chronyd")
@pytest.mark.peer("chronyc")
def test_a_real_chronyd_that_is_behind_its_server_and_then_gone(daemons: Daemons) -> None:
    """Over a veth pair; `-x`: neither sets this machine's clock."""
    server = chrony_settings(daemons, 0, "local stratum 1", "allow all")
    near = f"server {daemons.joined.addresses[0]} iburst minpoll -4 maxpoll -2 offset {OFFSET_S}"
    client = chrony_settings(daemons, 1, near)
    socket = f"{daemons.folder}/chrony-1/sock"
    asked = {"chrony_folder": f"{daemons.folder}/chrony-1", "chrony_host": socket}
    asked["ptp_socket"] = f"{daemons.folder}/none"
    daemons.start(1, "chronyd", "-x", "-d", "-f", client)
    eventually(lambda: Path(socket).exists(), "chronyd's socket")
    before = daemons.read(1, **asked)
    assert before["synchronized chrony"][0] == 0.0
    assert "offset_seconds chrony" not in before, "a clock that follows nothing has no offset"
    assert before["synchronized ptp4l"][0].startswith("absent: there is no ")
    daemons.start(0, "chronyd", "-x", "-d", "-f", server)
    eventually(lambda: daemons.read(1, **asked)["synchronized chrony"][0] == 1.0, "its server")
    found = daemons.read(1, **asked)
    # The server's clock is this machine's, so what chronyd sees is what it was told.
    assert found["offset_seconds chrony"][0] == pytest.approx(-OFFSET_S, abs=0.005)
    assert OFFSET_S < found["error_seconds chrony"][0] < OFFSET_S + 0.5
    assert found["source_info chrony"][1:] == [daemons.joined.addresses[0], "stratum 2"]
    assert found["synchronized kernel"][0] in {0.0, 1.0}
    daemons.end()
    gone = daemons.read(1, **asked)
    assert gone["synchronized chrony"][0].startswith("unreadable: ")


@pytest.mark.peer("ptp4l")
@pytest.mark.peer("pmc")
def test_a_real_ptp4l_behind_a_master(daemons: Daemons) -> None:
    """With software time stamps; `free_running`: its servo sets nothing, and so never settles."""
    asked = {"chrony_folder": f"{daemons.folder}/none"}
    sockets = [f"{daemons.folder}/ptp-{place}" for place in (0, 1)]
    for place, words in enumerate((("--priority1", "10"), ("-s",))):
        file = daemons.write(
            f"ptp-{place}.conf",
            "[global]",
            "time_stamping software",
            "free_running 1",
            "logAnnounceInterval -2",
            "logSyncInterval -3",
            "logMinDelayReqInterval -3",
            f"uds_address {sockets[place]}",
        )
        interface = daemons.joined.interfaces[place]
        daemons.start(place, "ptp4l", "-f", file, "-i", interface, "-m", *words)

    def read(place: int) -> Found:
        if not Path(sockets[place]).exists():
            return {}
        return daemons.read(place, **asked, ptp_socket=sockets[place])

    eventually(lambda: "error_seconds ptp4l" in read(1), "an offset from the master")
    found, master = read(1), read(0)
    assert abs(found["offset_seconds ptp4l"][0]) < 0.005, "both have this machine's clock"
    assert 0 < found["error_seconds ptp4l"][0] < 0.01
    assert found["source_info ptp4l"][1] == master["source_info ptp4l"][1] != ""
    assert found["source_info ptp4l"][2] == "UNCALIBRATED"
    assert found["synchronized ptp4l"][0] == 0.0
    assert master["source_info ptp4l"][2] == "MASTER"
    assert "synchronized ptp4l" not in master, "a master follows no clock, and that is right"
    assert "offset_seconds ptp4l" not in master
    daemons.end()
    if Path(sockets[1]).exists():
        assert read(1)["synchronized ptp4l"][0].startswith("unreadable: ptp4l does not answer")


def test_the_kernel_is_asked_and_nothing_is_set() -> None:
    before_ns, started_ns = time.time_ns(), time.monotonic_ns()
    clock = Host().kernel_clock()
    assert 0 <= clock.error_bound_s <= 16.1
    assert abs(clock.frequency_ratio) <= 500e-6, "the most that Linux corrects"
    moved_ns = (time.time_ns() - before_ns) - (time.monotonic_ns() - started_ns)
    assert abs(moved_ns) < 1_000_000


def test_a_hardware_clock_is_read_by_its_device() -> None:
    """Any clock device; `/dev/null` is none, and the kernel says so."""
    devices = sorted(Path("/dev").glob("ptp[0-9]*"))
    with pytest.raises(OSError, match=r"Invalid argument|not supported"):
        read_hardware_clock("/dev/null")
    if devices and os.access(devices[0], os.R_OK):
        assert read_hardware_clock(str(devices[0])).took_ns >= 0


@pytest.mark.parametrize(
    "line",
    ["", "506 Cannot talk to daemon", "a,b,x,1,0,0,0,0,0,0,0,0,0,Normal", "a,b,1" + ",nan" * 11],
)
def test_an_odd_line_of_chronyc_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"fields|invalid literal|no number|could not convert"):
        parse_tracking(line.encode())


def test_a_clock_that_serves_itself_is_not_synchronised() -> None:
    """The directive `local`: as captured of chrony 4.3."""
    line = b"7F7F0101,,1,1795030931.252399027,0.000000000,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,Normal"
    said = parse_tracking(line)
    assert (said.is_synchronised, said.source) == (False, "local")


@pytest.mark.parametrize("text", [b"", b"sending: GET TIME_STATUS_NP\n", b"\xff\x00" * 99])
def test_no_answer_of_ptp4l_is_none(text: bytes) -> None:
    assert parse_pmc(text) is None


def test_recordings_that_are_none() -> None:
    for parse in (parse_kernel_clock, parse_hardware_clock):
        with pytest.raises(ValueError, match="it has no"):
            parse(b"x=1")


def test_programs_are_started_only_where_their_daemons_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock/adjtimex").write_text("state=0 maxerror=1 freq=0")
    host, asked = Host(tmp_path), list[Sequence[str]]()
    monkeypatch.setattr(host, "run", lambda words, *_: asked.append(words))
    readings = list(SOURCE(Settings()).read(host))
    assert asked == []
    assert sum(isinstance(each, Missing) for each in readings) == 2
    assert sum(isinstance(each, Sample) for each in readings) == 3
