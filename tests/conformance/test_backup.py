"""Backup of a running service under load, and its restore elsewhere: every answer is the same."""

import datetime as dt
import io
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import httpx
import msgspec
import pytest

from api.data.backup import manifest as manifests
from api.data.backup import rows
from api.data.backup.archive import peek_manifest
from api.data.inventory.repository import Inventory
from api.data.store.store import SHADOW_PREFIX
from api.http.operating.restore import cli as restore_cli
from api.oncall.evaluate import lead, task
from collector.cli import main
from collector.contract import wire
from collector.contract.collective import Collective, Operation, StepSpan
from collector.contract.errors import InventoryError
from collector.contract.model import Event
from collector.contract.units import NS
from tests.stands import postgres
from tests.stands.senders import NATIVE_HEADERS
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds import remote_write as rw
from tests.worlds.incidents import Teller, slow_link, straggler

NOW_S = int(time.time())
METRIC, LOADED = "fabric_port_transmit_bytes_total", "load_samples_total"

QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("/api/v1/query", {"query": f"rate({METRIC}[1m])", "time": str(NOW_S - 60)}),
    (
        "/api/v1/query_range",
        {
            "query": f"sum by (host) ({METRIC})",
            "start": str(NOW_S - 300),
            "end": str(NOW_S - 60),
            "step": "15",
        },
    ),
    ("/api/v1/series", {"match[]": METRIC, "start": str(NOW_S - 600), "end": str(NOW_S)}),
    ("/api/v1/metadata", {}),
    ("/v1/samples", {"match": METRIC, "from": str(NOW_S - 600), "to": str(NOW_S - 60)}),
    ("/v1/events", {}),
    ("/v1/verdicts", {}),
    ("/v1/incidents", {}),
    ("/v1/jobs", {}),
    ("/v1/jobs/train/ranks", {}),
    ("/v1/jobs/train/collectives", {}),
    ("/v1/jobs/train/steps", {}),
    ("/v1/hosts", {}),
    ("/v1/hosts/node1", {}),
    ("/v1/ports", {}),
    ("/v1/holds", {}),
    ("/v1/silences", {}),
]
"""What is asked of the service and of the restored one."""


@contextmanager
def service(data: Path) -> Iterator[InProcess]:
    """Its clock stands still, and nothing of its own is written."""
    asleep = (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
    )
    data.mkdir(exist_ok=True)
    with asleep[0], asleep[1], in_process(data, clock=lambda: float(NOW_S)) as running:
        yield running


def series(name: str, value: float, second: int, host: str = "node1") -> rw.TimeSeries:
    labels = [("__name__", name), ("device", "mlx5_0"), ("host", host), ("port", "1")]
    return rw.TimeSeries(labels, [(value, second * 1000)])


def write(client: httpx.Client, made: list[rw.TimeSeries]) -> None:
    body = rw.snappy(rw.request_v1(made))
    answer = client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
    assert answer.status_code == 204, answer.text


def fill(running: InProcess) -> None:
    """Something of every kind that is asked for."""
    for second in range(NOW_S - 600, NOW_S - 60, 15):
        hosts = ("node1", "node2")
        write(running.client, [series(METRIC, second * 1e3, second, host) for host in hosts])
    ranks = [{"rank": 0, "host": "node1", "gpu": 0, "device": "mlx5_0", "port": "1"}]
    assert running.client.post("/v1/jobs", json={"id": "train", "ranks": ranks}).status_code == 201
    at_ns = (NOW_S - 120) * NS
    made = Collective(
        communicator="0x1",
        operation=Operation.ALL_REDUCE,
        sequence=3,
        rank=0,
        ranks=2,
        source="nccl_inspector",
        time_ns=at_ns,
        host="node1",
        job="train",
    )
    step = StepSpan(step=7, start_ns=at_ns, end_ns=at_ns + 9, source="steps", job="train", rank=0)
    event = Event(kind="link_down", time_ns=at_ns, labels={"host": "node1"}, message="down")
    batch = wire.pack_batch(
        [], [event], [made], [step],
        agent="node1", boot="b", sequence=1, sent_ms=NOW_S * 1000, common={"host": "node1"},
    )  # fmt: skip
    sent = running.client.post(
        "/v1/ingest", content=wire.encode_batch(batch), headers=NATIVE_HEADERS
    )
    assert sent.status_code == 200, sent.text
    teller = Teller(running.inventory, running.store)
    begin_ns = (NOW_S - 500) * NS
    teller.say(begin_ns + 10 * NS, straggler(begin_ns))
    teller.say(begin_ns + 100 * NS, slow_link(begin_ns + 95 * NS, confidence=0.7))
    hold = {"state": "draining", "reason": "disk", "by": "ann", "hours": 4}
    eventually(lambda: running.client.get("/v1/hosts/node1").status_code == 200, "the host")
    assert running.client.put("/v1/hosts/node1/hold", json=hold).status_code == 200
    eventually(lambda: len(running.client.get("/v1/ports").json()["items"]) == 2, "ports")


def answers(client: httpx.Client) -> dict[str, Any]:
    found = {}
    for path, parameters in QUESTIONS:
        answer = client.get(path, params=parameters)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        found[path] = without_judged(answer.json())
    return found


def without_judged(part: Any) -> Any:  # noqa: ANN401 - JSON
    """Health is judged anew by each service, some time after its start."""
    if isinstance(part, list):
        return [without_judged(each) for each in part]
    if not isinstance(part, dict):
        return part
    judged = {"risk", "lemon", "reasons", *({"state"} if "risk" in part else ())}
    return {key: without_judged(value) for key, value in part.items() if key not in judged}


class Load:
    """Writes one sample after the other, and counts what was acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged = 0
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._ended.is_set():
                number = self.acknowledged
                write(client, [series(LOADED, float(number), NOW_S - 50_000 + number)])
                self.acknowledged = number + 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A backup that was made under load, and what the service answered."""
    folder = tmp_path_factory.mktemp("backup")
    file = folder / "one.tar"
    with service(folder / "old") as running:
        fill(running)
        url = str(running.client.base_url).rstrip("/")
        with Load(url) as load:
            eventually(lambda: load.acknowledged > 5, "some samples")
            before = 0
            told: dict[str, Any] = {}

            def is_backed_up() -> bool:
                """Sightings and inferred facts come later: answers must not change meanwhile."""
                nonlocal before, told
                file.unlink(missing_ok=True)
                told, before = answers(running.client), load.acknowledged
                # The one before may still let go what it held.
                is_made = main(["backup", str(file), "--service", url]) == 0
                return is_made and answers(running.client) == told

            eventually(is_backed_up, "a backup between two equal answers")
            after = load.acknowledged
            eventually(lambda: load.acknowledged > after, "writing goes on")
        store = running.store.folder
        assert store is not None
        frozen = store / "shadow"
        eventually(lambda: not list(frozen.glob(f"{SHADOW_PREFIX}*")), "nothing stays frozen")
        assert file.stat().st_mode & 0o777 == 0o600
    return {"file": file, "before": before, "answers": told}


def restore(file: Path, data: Path, *more: str) -> int:
    return main(["restore", str(file), "--data", str(data), *more])


def test_every_answer_is_the_same_after_a_restore(
    made: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert restore(made["file"], tmp_path / "new") == 0
    said = capsys.readouterr().out
    assert "made by fabricscope" in said
    assert re.search(r"collectives +1 rows in 1 parts", said)
    with service(tmp_path / "new") as running:
        there = answers(running.client)
        for path, answer in made["answers"].items():
            assert there[path] == answer, path
        [loaded] = running.samples(LOADED, **{"from": str(NOW_S - 60_000)})
        assert len(loaded["values"]) >= made["before"], "acknowledged before the backup began"
        write(running.client, [series(METRIC, 1.0, NOW_S - 30)])


def test_a_place_that_has_something_is_refused(
    made: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("precious")
    assert restore(made["file"], tmp_path) == 2
    assert f"{tmp_path} is not empty" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    other = tmp_path / "there.db"
    other.touch()
    assert restore(made["file"], tmp_path / "new", "--inventory", f"sqlite:///{other}") == 2
    assert f"the inventory {other} exists" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def rewritten(file: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A copy of an archive with other contents; None leaves a file out."""
    with tarfile.open(file) as old, tarfile.open(target, "w") as new:
        for entry in old:
            content = old.extractfile(entry)
            assert content is not None
            text = change(entry.name, content.read())
            if text is not None:
                entry.size = len(text)
                new.addfile(entry, io.BytesIO(text))
    return target


def with_manifest(**changes: object) -> Callable[[str, bytes], bytes | None]:
    def change(name: str, content: bytes) -> bytes:
        if name != "manifest.json":
            return content
        return msgspec.json.encode(msgspec.json.decode(content) | changes)

    return change


def flipped(name: str, content: bytes) -> bytes:
    is_data = name.startswith("store/samples") and name.endswith("data.bin")
    return content[:-1] + bytes([content[-1] ^ 1]) if is_data else content


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_manifest(version="99.0"), "fabricscope 99.0 made this backup"),
        (with_manifest(format=2), "format 2"),
        (lambda name, content: None if name == "manifest.json" else content, "no manifest"),
        (lambda name, content: None if name == "inventory.db" else content, "inventory.db is not"),
        (flipped, "is not what was backed up: the archive is damaged"),
        (
            lambda name, content: None if "/steps/" in name and "count" in name else content,
            "part steps/",
        ),
    ],
)
def test_what_cannot_be_restored_is_refused_and_leaves_nothing(
    made: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[str, bytes], bytes | None],
    says: str,
) -> None:
    odd = rewritten(made["file"], tmp_path / "odd.tar", change)
    assert restore(odd, tmp_path / "new") == 2
    out, err = capsys.readouterr()
    # Before it, on a slow machine, lines of progress.
    assert says in err.splitlines()[-1]
    assert out == ""
    left = tmp_path / "new"
    assert not left.exists() or list(left.iterdir()) == []


@pytest.mark.parametrize("name", ["../out", "/etc/x", "store/samples/20260101_1_1_0/../../x", "x"])
def test_names_that_no_backup_has_are_refused(
    made: dict[str, Any], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "odd.tar"
    with tarfile.open(made["file"]) as old, tarfile.open(file, "w") as new:
        entry = tarfile.TarInfo(name)
        new.addfile(entry, io.BytesIO(b""))
        manifest = old.getmember("manifest.json")
        new.addfile(manifest, old.extractfile(manifest))
    assert restore(file, tmp_path / "new") == 2
    assert "not a backup: it has a file" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "odd.tar"]


def test_a_file_that_is_no_archive_or_cut_off_is_refused(
    made: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made["file"].read_bytes()
    for content in (b"", b"hello" * 1000, whole[: len(whole) // 2]):
        (tmp_path / "odd.tar").write_bytes(content)
        assert restore(tmp_path / "odd.tar", tmp_path / "new") == 2
        assert "no backup, or was cut off" in capsys.readouterr().err
    assert restore(tmp_path / "none.tar", tmp_path / "new") == 2
    assert "No such file" in capsys.readouterr().err


def test_no_service_starts_where_a_restore_was_killed(
    made: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "new"

    class Killed(BaseException):
        """As SIGKILL: nothing tidies up after it."""

    with (
        patch.object(restore_cli, "restore_inventory", side_effect=Killed),
        patch.object(restore_cli, "remove_made"),
        pytest.raises(Killed),
    ):
        restore(made["file"], data)
    assert main(["serve", "--data", str(data), "--listen", "127.0.0.1:0"]) == 2
    assert "a restore into it did not end" in capsys.readouterr().err


def test_a_second_backup_at_once_is_refused_and_no_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.tar"
    with service(tmp_path / "data") as running:
        url = str(running.client.base_url)
        with running.context.queues.backups.hold("BACKUPS_MAX", 1):
            assert main(["backup", str(file), "--service", url]) == 1
        assert "BACKUPS_MAX = 1 backups are being made already" in capsys.readouterr().err
        assert list(tmp_path.glob("one*")) == []
        assert main(["backup", str(tmp_path), "--service", url]) == 0
        [found] = tmp_path.glob("fabricscope-2*.tar")
        assert main(["backup", str(found), "--service", url]) == 2
        assert "exists; name a new file" in capsys.readouterr().err
        assert main(["backup", str(tmp_path / "no" / "x"), "--service", url]) == 2
    manifest = peek_manifest(found)
    assert manifest.store is not None
    assert manifest.store.rows("samples") == 0


def test_an_inventory_goes_from_one_database_to_the_other(
    inventory: Inventory, url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """SQLite or PostgreSQL, out and in: the digests of all tables are the same."""
    now = dt.datetime.fromtimestamp(NOW_S, tz=dt.UTC)
    assert inventory.leases.take("evaluator", "me", now, now)
    first = tmp_path / "first.db"
    rows.snapshot(url, first)
    revision, facts = rows.facts_of(f"sqlite:///{first}")
    assert (revision, facts) == rows.facts_of(url)
    assert facts["leases"].rows == 1
    with pytest.raises(manifests.BackupError, match="is not empty: table leases has rows"):
        rows.refuse_rows(url)
    targets = [f"sqlite:///{tmp_path / 'second.db'}"]
    if url.startswith("postgresql"):
        targets.append(postgres.new_database(request.getfixturevalue("postgres_url")))
    for target in targets:
        rows.refuse_rows(target)
        rows.fill(first, target)
        assert rows.facts_of(target) == (revision, facts)


def test_an_inventory_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"none\.db: cannot be copied"):
        rows.snapshot(f"sqlite:///{tmp_path / 'none.db'}", tmp_path / "copy.db")
