"""What a newcomer does first: an agent on a host, a service, and three questions."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fixtures import trees
from tests.stands.service import READY_SECONDS, ServiceProcess, eventually, launch

DEVICES = 2


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    trees.write_rdma_tree(root, devices=DEVICES, hw_counters=5, seed=7)
    return root


@contextmanager
def agent(folder: Path, service: ServiceProcess, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`fabricscope agent` on a captured tree, sending to this service."""
    config = folder / "agent.toml"
    config.write_text(
        f'service_url = "{service.url}"\nspool_dir = "{folder / "spool"}"\nlisten = ""\n'
        'cluster = "blue"\nflush_seconds = 0.2\n'
        "[sources.ib_sysfs]\ninterval_seconds = 0.2\n",
        encoding="utf-8",
    )
    log = folder / "agent.log"
    process = launch(["agent", "--config", str(config), "--root", str(root)], log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(READY_SECONDS)


@pytest.mark.slow
def test_from_a_counter_file_to_an_answer(tmp_path: Path, tree: Path) -> None:
    transmitted = tree / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
    words = int(transmitted.read_text())
    selector = 'fabric_port_transmit_bytes_total{device="mlx5_0"}'
    with ServiceProcess(tmp_path / "data") as service, agent(tmp_path, service, tree) as process:
        ask = service.client.get
        eventually(lambda: bool(ask("/v1/hosts").json()["items"]), "a host in the inventory")
        eventually(lambda: len(ask("/v1/ports").json()["items"]) == DEVICES, "its ports")

        [host] = ask("/v1/hosts").json()["items"]
        assert (host["host"], host["cluster"]) == ("node-7", "blue")
        ports = ask("/v1/ports", params={"host": "node-7"}).json()["items"]
        assert [port["id"] for port in ports] == [f"node-7/mlx5_{n}/1" for n in range(DEVICES)]
        eventually(
            lambda: all(port["state"] for port in ask("/v1/ports").json()["items"]),
            "what the ports' info says",
        )
        detail = ask("/v1/hosts/node-7").json()
        assert [one["device"] for one in detail["devices"]] == ["mlx5_0", "mlx5_1"]

        # The file holds words of four bytes.
        [series] = service.samples(selector)
        assert series["labels"]["host"] == "node-7"
        assert set(series["values"]) == {words * 4}
        assert abs(series["times_ms"][-1] / 1000 - time.time()) < 60

        # A counter moves, and its series follows.
        transmitted.write_text(f"{words + 10}\n")
        eventually(
            lambda: service.samples(selector)[0]["values"][-1] == (words + 10) * 4,
            "the counter's new value",
        )

        # On SIGTERM the agent delivers what it has; numbers prove that nothing is missing.
        process.send_signal(signal.SIGTERM)
        assert process.wait(READY_SECONDS) == 0
        known = {one["name"] for one in ask("/v1/catalog").json()["items"]}
        assert "fabric_port_transmit_bytes_total" in known
        eventually(
            lambda: ask("/v1/hosts/node-7").json()["last_sequence"] is not None, "its batches"
        )
        assert ask("/v1/hosts/node-7").json()["batches_missing"] == 0
        assert service.stop() == 0
    assert "Traceback" not in service.log.read_text() + (tmp_path / "agent.log").read_text()


@pytest.mark.slow
def test_a_second_service_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service:
        second = ServiceProcess(service.data)
        process = launch(
            ["serve", "--data", str(second.data), "--listen", f"127.0.0.1:{second.port}"],
            tmp_path / "second.log",
        )
        assert process.wait(READY_SECONDS) == 2
        assert "is in use by another service" in (tmp_path / "second.log").read_text()
        assert service.is_ready()


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--listen", "0.0.0.0:9700"], "which others can reach, and there is no token"),
        (["--listen", "9700"], "write HOST:PORT"),
        (["--store", "mysql://x"], "write chdb:///path or clickhouse://"),
        (["--config", "/no/such/file.toml"], "No such file"),
        (["--log-level", "loud"], "debug, info, warning or error"),
        (["--data", "/proc/nothing"], "data folder /proc/nothing"),
        (["--tls-key", "key.pem"], "go together"),
    ],
)
def test_settings_that_cannot_work_end_in_one_line(
    tmp_path: Path, words: list[str], reason: str
) -> None:
    log = tmp_path / "log"
    defaults = [] if "--data" in words else ["--data", str(tmp_path / "data")]
    assert launch(["serve", *defaults, *words], log).wait(READY_SECONDS) == 2
    text = log.read_text()
    assert reason in text
    assert "Traceback" not in text
