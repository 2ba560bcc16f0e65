"""`/readyz` knows when the service cannot do its work, and names what is wrong."""

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from api.data.store.watch import Room
from api.http import wellbeing
from api.http.works import Supervisor
from collector.contract.errors import InventoryError, StoreError
from tests.stands.service import InProcess, ServiceProcess, eventually, in_process
from tests.worlds import remote_write as rw

FULL = "insert into samples: Code: 243. DB::Exception: Cannot reserve 3 MiB in /data. (NOT_ENOUGH)"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InProcess]:
    with in_process(tmp_path) as running:
        yield running


def send(service: InProcess, name: str = "up") -> int:
    now_ms = int(time.time() * 1000)
    series = rw.TimeSeries([("__name__", name), ("host", "h")], [(1.0, now_ms)])
    body = rw.snappy(rw.request_v1([series]))
    return service.client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS).status_code


def lines(service: InProcess) -> list[str]:
    """What is wrong; empty: ready."""
    answer = service.client.get("/readyz")
    first, *rest = answer.text.splitlines()
    if answer.status_code == 200:
        assert first.split()[0] == "ready"
        return []
    assert (answer.status_code, first) == (503, "not ready")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["retry-after"]
    assert rest, "a service that is not ready names the reason"
    return rest


def test_a_service_that_was_never_asked_to_commit_is_ready(service: InProcess) -> None:
    assert lines(service) == []


def test_inserts_that_all_fail_make_it_not_ready_until_one_succeeds(service: InProcess) -> None:
    assert send(service) == 204
    with patch.object(wellbeing, "COMMITS_FAILING_SECONDS", 0.0):
        with patch.object(service.store, "insert_samples", side_effect=StoreError(FULL)):
            assert send(service) == 503
        [line] = lines(service)
        # No path and no text of the engine: clients without a token read this.
        assert line.startswith("commit: every insert has failed for ")
        assert line.endswith("the engine's error 243")
        assert send(service) == 204
        assert lines(service) == []


def test_a_short_stall_does_not_take_it_out_of_service(service: InProcess) -> None:
    with patch.object(service.store, "insert_samples", side_effect=StoreError(FULL)):
        assert send(service) == 503
    assert lines(service) == []


def test_rows_that_wait_without_an_insert_that_ends_make_it_not_ready(service: InProcess) -> None:
    held, may_end = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        held.set()
        assert may_end.wait(60)

    with (
        patch.object(wellbeing, "COMMIT_STUCK_SECONDS", 0.0),
        patch.object(service.store, "insert_samples", side_effect=hold),
    ):
        sender = threading.Thread(target=send, args=(service,))
        sender.start()
        try:
            assert held.wait(60)
            [line] = lines(service)
            # The batch's two; the service's own may wait beside them.
            assert re.match(r"commit: [2-9] rows wait, and no insert has ended for ", line)
        finally:
            may_end.set()
            sender.join(60)
        assert lines(service) == []


def test_damaged_data_makes_it_not_ready(service: InProcess) -> None:
    """As the issue saw it: 503 for one metric, and `/readyz` said ready."""
    assert send(service, "hurt") == 204
    damage_parts(service)
    query: dict[str, str | float] = {"query": "hurt", "time": time.time()}
    assert lines(service) == []  # not read by any client yet
    assert service.client.get("/api/v1/query", params=query).status_code == 503
    [line] = lines(service)
    assert line.startswith("store: data on disk are damaged, met ")
    with patch.object(wellbeing, "DAMAGE_SHOWN_SECONDS", 0.0):
        assert lines(service) == []


def damage_parts(service: InProcess) -> None:
    """Change bytes in the middle of the files of every part of `samples`."""
    parts = service.rows("SELECT path FROM system.parts WHERE table = 'samples' AND active")
    assert parts
    for part in parts:
        for file in Path(part["path"]).glob("*.bin"):
            content = bytearray(file.read_bytes())
            middle = len(content) // 2
            content[middle] ^= 0xFF
            file.write_bytes(content)


def test_an_inventory_that_takes_no_write_makes_it_not_ready(service: InProcess) -> None:
    """A full disk lets SQLite answer questions: only its lease shows that it takes nothing."""
    full = InventoryError("inventory in /data/inventory.db: database or disk is full")
    with patch.object(wellbeing, "COMMITS_FAILING_SECONDS", 0.0):
        with patch.object(service.inventory.leases, "renew", side_effect=full):
            eventually(lambda: bool(lines(service)), "a lease that is not renewed")
            [line] = lines(service)
            assert line.startswith("inventory: it has taken no write for ")
        eventually(lambda: not lines(service), "a lease that is renewed")


def test_an_evaluation_that_does_not_end_makes_the_leader_not_ready(service: InProcess) -> None:
    eventually(service.context.wellbeing.lead.is_held, "the lead")
    with patch.object(wellbeing, "EVALUATION_LATE_SECONDS", -1.0):
        [line] = lines(service)
        assert line.startswith("evaluation: this process leads and has completed none for ")
    assert lines(service) == []


def test_work_that_breaks_again_and_again_makes_it_not_ready(service: InProcess) -> None:
    with patch.object(Supervisor, "failing", ["news"]):
        assert lines(service) == ["background work: 'news' breaks again and again"]


# --- a disk that is really full -----------------------------------------------------------------

MOUNT_AND_RUN = 'mount -t tmpfs -o size=192m none "$0" && exec "$@"'
HAS_NAMESPACES = subprocess.run(
    ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True
).returncode == 0  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not HAS_NAMESPACES, reason="this machine allows no mount namespaces")
def test_a_full_disk_makes_it_not_ready_and_room_ready_again(tmp_path: Path) -> None:
    """The service on a small file system of its own, which a file fills up."""
    data = tmp_path / "data"
    data.mkdir()
    inside = ["unshare", "-m", "sh", "-c", MOUNT_AND_RUN, str(data)]
    with ServiceProcess(data, inside=inside) as service:

        def in_namespace(*words: str) -> None:
            into = ["nsenter", "-t", str(service.pid), "-m"]
            subprocess.run([*into, *words], check=False, capture_output=True)

        def status(name: str) -> int:
            body = rw.snappy(
                rw.request_v1(
                    [rw.TimeSeries([("__name__", name)], [(1.0, int(time.time() * 1000))])]
                )
            )
            write = service.client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
            return write.status_code

        assert status("before") == 204
        ballast = str(data / "ballast")
        in_namespace("dd", "if=/dev/zero", f"of={ballast}", "bs=64k")
        eventually(lambda: status("meanwhile") == 503, "an insert that fails")
        answer = service.client.get("/readyz")
        assert answer.status_code == 503
        assert "MiB are free where the store lies" in answer.text
        assert service.client.get("/healthz").status_code == 200
        in_namespace("rm", ballast)
        eventually(service.is_ready, "ready again")
        assert status("after") == 204
        found = service.samples("before", to=time.time() + 60)
        assert len(found) == 1  # what was acknowledged is there


def test_little_room_makes_it_not_ready(service: InProcess) -> None:
    short = [Room("store", 3 << 20, 24 << 20)]
    with patch.object(service.context.wellbeing.disks, "look_at_disks", return_value=short):
        assert lines(service) == ["disk: 3 of 24 MiB are free where the store lies"]
    assert lines(service) == []


def test_metrics_show_disks_parts_and_the_last_success(service: InProcess) -> None:
    assert send(service) == 204

    def number(name: str) -> float:
        text = service.client.get("/metrics").text
        [line] = [line for line in text.splitlines() if line.startswith(name + " ")]
        return float(line.split()[1])

    eventually(lambda: number('fabric_service_disk_free_bytes{disk="store"}') > 0, "free space")
    free = number('fabric_service_disk_free_bytes{disk="store"}')
    assert free < number('fabric_service_disk_total_bytes{disk="store"}')
    service.context.wellbeing.disks.look_at_parts()
    assert number('fabric_service_store_parts{table="samples"}') >= 1
    assert number('fabric_service_store_rows{table="samples"}') >= 1
    assert number('fabric_service_store_series{day="today"}') >= 1
    assert number('fabric_service_store_series{day="yesterday"}') == 0
    now_s = time.time()
    assert 0 <= now_s - number('fabric_service_last_success_time_seconds{work="commit"}') < 60
    newest = 'fabric_service_newest_sample_time_seconds{protocol="remote_write"}'
    assert abs(now_s - number(newest)) < 60
    assert number('fabric_service_failing_seconds{work="commit"}') == 0
    assert number("fabric_service_inventory_waiting") >= 0
    assert number("fabric_service_inventory_up") == 1
