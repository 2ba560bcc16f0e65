"""The store of one run: without an engine until rows come; with one it knows the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from api.diagnose import throw_away
from api.diagnose.bandwidth import Results, is_result
from api.diagnose.throw_away import ThrowAwayStore
from collector.contract.model import Event, Sample, Series

NOW_NS = 1_794_700_000_000_000_000


def event(kind: str, number: int) -> Event:
    return Event(kind=kind, time_ns=NOW_NS - number, labels={"n": str(number)})


def test_events_come_in_order_of_time_and_once(tmp_path: Path) -> None:
    store = ThrowAwayStore(tmp_path / "store")
    for each in (event("a", 1), event("b", 2), event("a", 3), event("a", 1)):
        assert store.add_event(each) is None
    assert list(store.events()) == [event("a", 3), event("b", 2), event("a", 1)]
    assert list(store.events(("b",))) == [event("b", 2)]
    assert list(store.events(without=("b",))) == [event("a", 3), event("a", 1)]
    assert store.rows("collectives", "SELECT 1") == []
    assert not store.is_started
    assert not (tmp_path / "store").exists()


def test_events_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ThrowAwayStore(tmp_path / "store")
    monkeypatch.setattr(throw_away, "EVENTS_MAX", 1)
    assert store.add_event(event("a", 1)) is None
    assert store.add_event(event("a", 1)) is None  # the same, which is there already
    assert "EVENTS_MAX" in (store.add_event(event("a", 2)) or "")
    monkeypatch.setattr(throw_away, "EVENTS_MAX", 9)
    monkeypatch.setattr(throw_away, "EVENTS_BYTES_MAX", 60)
    assert "EVENTS_BYTES_MAX" in (store.add_event(event("a", 3)) or "")


def test_a_log_with_nothing_but_events_starts_no_engine(tmp_path: Path) -> None:
    """The engine is 200 MB, its driver a third of the imports."""
    log = tmp_path / "node-2.log"
    log.write_text("node-2:5776:5902 [0] net_ib.cc:1296 NCCL WARN NET/IB : Got completion\n")
    scene = (
        "import sys; from collector.cli import main; "
        f"assert main(['diagnose', {str(log)!r}]) == 0; "
        "print(sorted({'chdb', 'clickhouse_connect', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", scene], capture_output=True, text=True, check=True)
    assert "Got completion" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_asks_in_sql_finds_the_events_too(tmp_path: Path) -> None:
    """In a process of its own: the engine allows one folder in each."""
    scene = f"""
import pathlib
from api.diagnose.throw_away import throw_away_store
from tests.unit.api.test_diagnose_throw_away import event
with throw_away_store(pathlib.Path({str(tmp_path / "store")!r})) as store:
    for number in range(3):
        store.add_event(event("a", number))
    count = "SELECT count() AS n FROM events"
    first = store.query(count)["n"].to_pylist()
    store.add_event(event("a", 7))
    print(first, store.query(count)["n"].to_pylist(), store.is_started)
"""  # noqa: S608 - our words
    done = subprocess.run([sys.executable, "-c", scene], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[3] [4] True"


def result(metric: str, value: float, **labels: str) -> Sample:
    usual = {"operation": "all_reduce", "ranks": "8", "bytes": "1024", "type": "float"}
    name = f"fabric_baseline_{metric}"
    return Sample(Series(name, {**usual, "placement": "in_place", **labels}), value, NOW_NS)


def test_results_are_a_table_for_each_file_and_a_baseline_for_all() -> None:
    results = Results()
    bus, mean = "bus_bandwidth_bytes_per_second", "mean_bus_bandwidth_bytes_per_second"
    for path, value in (("a.txt", 5e9), ("b.txt", 7e9)):
        for sample in (result(bus, value), result("wrong_values", 0), result(mean, 1e9)):
            assert is_result(sample)
            assert results.add(path, sample) is None
    one, two = results.tests({})
    assert (one.path, one.operation, one.ranks, one.mean_bus_bytes_per_second) == (
        "a.txt", "all_reduce", 8, 1e9,
    )  # fmt: skip
    (row,) = two.rows
    assert (row.size_bytes, row.bus_bytes_per_second, row.wrong) == (1024, 7e9, 0)
    assert results.baselines().find("all_reduce", 8, 2048) == 7e9
    assert not is_result(result("results", 1))


def test_results_of_strangers_are_refused_or_kept_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = Results()
    bus = "bus_bandwidth_bytes_per_second"
    assert "no number" in (results.add("x", result(bus, float("nan"))) or "")
    assert results.add("x", result(bus, 1, ranks="many", bytes="9" * 40, placement="?")) is None
    (test,) = results.tests({})
    assert (test.ranks, test.rows[0].size_bytes, test.rows[0].placement) == (None, 0, "?")
    monkeypatch.setattr("api.diagnose.bandwidth.RESULTS_MAX", 1)
    assert "RESULTS_MAX" in (results.add("x", result(bus, 1)) or "")
