"""A real agent process on a captured tree, and a service that comes and goes.

Ten minutes of outage are 120 batches at the default of one in five seconds; here the ticks are
fast instead, and the outage lasts until 200 batches wait.
"""

import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from collector.contract import wire

DEADLINE_SECONDS = 180
OUTAGE_BATCHES = 200


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Look again and again until the condition holds, or fail."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.01)


class FakeService:
    """Takes batches, or does not, as the test says; remembers those it acknowledged or refused.

    ``takes_any_order``: it says so, as the service does since agents send the newest first.
    """

    def __init__(self) -> None:
        self.is_accepting = True
        self.takes_any_order = False
        self.batches: list[wire.Batch] = []
        self.refused: list[wire.Batch] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one packet: else each answer waits 40 ms for an acknowledgement.
            wbufsize = -1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                batch = wire.decode_batch(body)
                if not service.is_accepting:
                    service.refused.append(batch)
                    self.answer(503, b"out of order")
                    return
                service.batches.append(batch)
                receipt = wire.Receipt(
                    boot=batch.boot,
                    sequence=batch.sequence,
                    stored=batch.sample_count,
                    any_order=service.takes_any_order or msgspec.UNSET,
                )
                self.answer(200, msgspec.json.encode(receipt))

            def answer(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """An agent that is killed hangs up; that is the test."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def sequences(self) -> list[int]:
        """The numbers of all batches in the order of their arrival, however they came."""
        runs = [(batch.backlog_first, batch.sequence) for batch in list(self.batches)]
        return [
            number
            for first, last in runs
            for number in range(last if first is None else first, last + 1)
        ]

    def times_ms(self, metric: str) -> list[int]:
        """When the samples of this metric were read, in the order of their arrival."""
        found: list[int] = []
        for batch in list(self.batches):
            rows = batch.series_rows()
            index = memoryview(batch.index).cast("I")
            times = memoryview(batch.time_ms).cast("q")
            found += [at for row, at in zip(index, times, strict=True) if rows[row][0] == metric]
        return found


class AgentProcess:
    """`fabricscope agent` with fast ticks, on a tree with one port."""

    def __init__(self, folder: Path, service: FakeService) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.config = folder / "agent.toml"
        self.log = folder / "agent.log"
        self.service = service
        self.process: subprocess.Popen[bytes] | None = None
        self.tree = folder / "tree"
        counters = self.tree / "sys/class/infiniband/mlx5_0/ports/1/counters"
        kernel = self.tree / "proc/sys/kernel"
        for path, text in (
            (counters / "port_xmit_data", "1024\n"),
            (counters / "symbol_error", "3\n"),
            (kernel / "hostname", "node-0\n"),
            (kernel / "random" / "boot_id", "0b0b0b0b-1111-2222-3333-444444444444\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.configure()

    def configure(
        self, *, spool_bytes_max: int = 1 << 24, cluster: str = "", more: str = ""
    ) -> None:
        self.config.write_text(
            f'service_url = "{self.service.url}"\nspool_dir = "{self.spool}"\n'
            f'spool_bytes_max = {spool_bytes_max}\nlisten = ""\ncluster = "{cluster}"\n'
            "flush_seconds = 0.05\nretry_seconds_max = 0.1\nstop_seconds = 20\n"
            f"{more}\n[sources.ib_sysfs]\ninterval_seconds = 0.05\n"
            "[sources.netdev]\nenabled = false\n[sources.ethtool]\nenabled = false\n"
        )

    def start(self) -> None:
        main = "import sys; from collector.cli import main; sys.exit(main())"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", main, "agent", "--config", self.config, "--root", self.tree],
                stderr=log,
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE_SECONDS)

    def waiting(self) -> list[str]:
        """Names of the batches in the spool."""
        folder = self.spool / "batches"
        if not folder.exists():
            return []
        return sorted(path.name for path in folder.glob("*.batch"))

    def logged(self, text: str) -> bool:
        return text in self.log.read_text()


@pytest.fixture
def service() -> Iterator[FakeService]:
    made = FakeService()
    yield made
    made.close()


@pytest.fixture
def agent(tmp_path: Path, service: FakeService) -> Iterator[AgentProcess]:
    made = AgentProcess(tmp_path, service)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


METRIC = "fabric_agent_source_up"


def test_an_outage_loses_nothing_and_the_backlog_comes_in_order(
    agent: AgentProcess, service: FakeService
) -> None:
    service.is_accepting = False
    agent.start()
    eventually(lambda: len(agent.waiting()) >= OUTAGE_BATCHES, "batches wait in the spool")
    assert service.batches == []
    service.is_accepting = True
    eventually(lambda: len(service.batches) > OUTAGE_BATCHES, "the backlog arrives")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert agent.waiting() == []
    assert service.sequences() == list(range(len(service.batches)))
    assert len({batch.boot for batch in service.batches}) == 1
    times = service.times_ms("fabric_port_transmit_bytes_total") or service.times_ms(METRIC)
    assert times == sorted(times)
    assert len(times) >= OUTAGE_BATCHES / 2
    assert agent.logged("does not take batches: HTTP 503: out of order")
    assert agent.logged("takes batches again after")
    assert agent.logged("delivered backlog of")


def test_the_newest_come_first_and_the_backlog_behind_them(
    agent: AgentProcess, service: FakeService
) -> None:
    service.takes_any_order = True
    agent.start()
    eventually(lambda: len(service.batches) > 3, "batches arrive")
    service.is_accepting = False
    eventually(lambda: len(agent.waiting()) >= OUTAGE_BATCHES, "batches wait in the spool")
    before = len(service.batches)
    newest = int(agent.waiting()[-1].partition(".")[0])
    # What is on its way by now was chosen before; the one after this refusal is not.
    eventually(lambda: service.refused[-1].sequence >= newest, "the newest is tried")
    service.is_accepting = True
    eventually(lambda: not agent.waiting(), "the backlog arrives")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    after = service.batches[before:]
    assert after[0].sequence >= newest, "the present comes first"
    # On a busy machine readings pile up while the backlog travels: those are newer than the first.
    behind = [batch.sequence for batch in after[1:] if batch.sequence < after[0].sequence]
    assert behind, "what waited follows"
    assert behind == sorted(behind, reverse=True), "from the newest to the oldest"
    arrived = service.sequences()
    assert sorted(arrived) == list(range(max(arrived) + 1)), "each once"
    coalesced = [batch for batch in after if batch.backlog_first is not None]
    assert len(coalesced) < OUTAGE_BATCHES / 20, "in few requests"
    times = service.times_ms("fabric_port_transmit_bytes_total") or service.times_ms(METRIC)
    assert times != sorted(times)
    assert len(times) == len(set(times)) >= OUTAGE_BATCHES / 2


def test_the_bound_holds_and_the_newest_survive(agent: AgentProcess, service: FakeService) -> None:
    bound = 64 << 10
    agent.configure(spool_bytes_max=bound)
    service.is_accepting = False
    agent.start()
    sizes: list[int] = []

    def has_dropped() -> bool:
        sizes.append(_size(agent.spool / "batches"))
        names = agent.waiting()
        return bool(names) and int(names[-1].partition(".")[0]) > len(names) + 5

    eventually(has_dropped, "the oldest batches are dropped")
    assert max(sizes) <= bound
    service.is_accepting = True
    eventually(lambda: len(service.batches) > 3, "the rest arrives")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    arrived = service.sequences()
    assert arrived == sorted(set(arrived))
    dropped = _last_value(service.batches[-1], "fabric_agent_dropped_batches_total", "spool_full")
    assert dropped == arrived[-1] + 1 - len(arrived) > 5


def _size(folder: Path) -> int:
    """Bytes of the batches that are there; the agent removes some while we look."""
    total = 0
    for path in folder.glob("*.batch"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _last_value(batch: wire.Batch, metric: str, reason: str) -> float:
    rows = batch.series_rows()
    wanted = rows.index((metric, {"reason": reason}))
    pairs = zip(memoryview(batch.index).cast("I"), memoryview(batch.value).cast("d"), strict=True)
    return [value for row, value in pairs if row == wanted][-1]


def test_sigterm_without_a_service_leaves_everything_for_the_next_start(
    agent: AgentProcess, service: FakeService
) -> None:
    agent.configure()
    agent.config.write_text(
        agent.config.read_text().replace("stop_seconds = 20", "stop_seconds = 0.2")
    )
    service.is_accepting = False
    agent.start()
    eventually(lambda: len(agent.waiting()) >= 3, "batches wait in the spool")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    left = agent.waiting()
    assert agent.logged(f"{len(left)} batches stay in the spool")
    service.is_accepting = True
    agent.start()
    eventually(lambda: len(service.batches) > len(left), "old and new batches arrive")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert service.sequences() == list(range(len(service.batches)))


def test_sighup_reads_the_settings_again_and_refuses_bad_ones(
    agent: AgentProcess, service: FakeService
) -> None:
    agent.start()
    eventually(lambda: len(service.batches) >= 2, "batches arrive")
    agent.configure(cluster="blue")
    agent.signal(signal.SIGHUP)
    eventually(
        lambda: service.batches[-1].common == {"host": "node-0", "cluster": "blue"},
        "batches carry the new label",
    )
    agent.configure(cluster="green", more="spool_dri = 1")
    agent.signal(signal.SIGHUP)
    eventually(lambda: agent.logged("did you mean 'spool_dir'?"), "the mistake in the log")
    count = len(service.batches)
    eventually(lambda: len(service.batches) > count + 2, "the agent goes on")
    assert service.batches[-1].common["cluster"] == "blue"
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert service.sequences() == list(range(len(service.batches)))
    assert len({batch.boot for batch in service.batches}) == 1


@pytest.mark.parametrize("takes_any_order", [False, True])
def test_kill_9_loses_no_batch_and_the_sequence_goes_on(
    agent: AgentProcess, service: FakeService, *, takes_any_order: bool
) -> None:
    service.takes_any_order = takes_any_order
    seen_on_disk: set[int] = set()
    for round_ in range(4):
        service.is_accepting = round_ % 2 == 1
        target = len(service.sequences()) + 10
        agent.start()
        if service.is_accepting:
            eventually(lambda: len(service.sequences()) >= target, "batches arrive")  # noqa: B023
        else:
            eventually(lambda: len(agent.waiting()) >= 10, "batches wait in the spool")
        agent.signal(signal.SIGKILL)
        agent.wait()
        seen_on_disk.update(int(name.partition(".")[0]) for name in agent.waiting())
    service.is_accepting = True
    agent.start()
    count = len(service.batches)
    eventually(lambda: len(service.batches) > count + 5, "batches arrive")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    arrived = service.sequences()
    # A batch may come twice: acknowledged, and the agent killed before it read the acknowledgement.
    assert takes_any_order or arrived == sorted(arrived)
    assert sorted(set(arrived)) == list(range(max(arrived) + 1))
    assert seen_on_disk <= set(arrived)
    assert len({batch.boot for batch in service.batches}) == 1


def test_two_agents_on_one_spool_are_refused(agent: AgentProcess, service: FakeService) -> None:
    agent.start()
    eventually(lambda: len(service.batches) >= 1, "batches arrive")
    first = agent.process
    agent.start()
    assert agent.wait() == 2
    assert agent.logged("is in use by another agent")
    assert first is not None
    first.terminate()
    assert first.wait(DEADLINE_SECONDS) == 0


def test_metrics_of_a_running_agent(agent: AgentProcess, service: FakeService) -> None:
    agent.config.write_text(
        agent.config.read_text().replace('listen = ""', 'listen = "127.0.0.1:0"')
    )
    agent.start()
    eventually(lambda: agent.logged("metrics at http://127.0.0.1:"), "the agent listens")
    eventually(lambda: len(service.batches) >= 2, "batches arrive")
    [line] = [each for each in agent.log.read_text().splitlines() if "metrics at" in each]

    def says(sample: str) -> bool:
        with urllib.request.urlopen(line.split()[-1], timeout=10) as answer:  # noqa: S310 - loopback
            return f"{sample}\n" in answer.read().decode()

    # On a busy machine a read may pass the 50 ms that this source has; the next one will not.
    eventually(
        lambda: says('fabric_agent_source_up{host="node-0",source="ib_sysfs"} 1'), "a source is up"
    )
    eventually(lambda: says('fabric_agent_service_up{host="node-0"} 1'), "the service is up")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
