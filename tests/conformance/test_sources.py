"""The questions that every source has to answer, asked of all of them.

Cases are folders `tests/fixtures/sources/<source>/<case>/`: `tree/` is what the source reads (or
`tree.json`, see tests/fixtures/trees.py),
`expected.prom` what must come of it (and `expected.jsonl`: events and records), `ORIGIN` what it
models, `settings.toml` (optional) the source's settings. A new source or case is tested by
existing; `make golden` writes expectations.
"""

import builtins
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from api.fleet.health import series as health_series
from collector.agent.exposition import MISSING_METRIC, render
from collector.contract.catalog import load_catalog
from collector.contract.clocks import CONTRADICTION
from collector.contract.collective import Collective, StepSpan
from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources import Source, discover
from collector.sources.netdev import STATISTICS
from collector.tables.ethtool import table_of
from collector.tables.rdma import CLASSIC, HFI1
from tests.conftest import Golden
from tests.fixtures.trees import has_tree, tree_of

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures/sources"
CASES = sorted(path for path in FIXTURES.glob("*/*") if has_tree(path))
SOURCES = discover()
GOLDEN_TARGETS = {
    *("baseline", "collective", "disk", "function", "gds", "gpu", "host", "mount", "nic", "port"),
    *("rdma", "setting", "step"),
}
"""What sources measure; of the other targets the service makes a part or all."""
MADE_BY_THE_SERVICE = {health_series.STATE, health_series.RISK, CONTRADICTION}
"""Of the golden targets, what no source measures; held by test_health_board.py and by
test_measured_clocks.py."""

each_case = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.parent.name}-{c.name}")
each_source = pytest.mark.parametrize("name", SOURCES)


def make_source(case: Path) -> Source:
    kind = SOURCES[case.parent.name]
    file = case / "settings.toml"
    values = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    return kind(msgspec.convert(values, kind.Settings))


def read_case(case: Path) -> list[Reading]:
    host = Host(tree_of(case))
    try:
        return list(make_source(case).read(host))
    finally:
        host.close()


def expose(readings: list[Reading], source: str) -> str:
    return render(readings, {"host": "node-0"}, source)


def sample_lines(text: str) -> set[str]:
    return {line for line in text.splitlines() if not line.startswith("#")}


# --- cases ---------------------------------------------------------------------------------------


@each_source
def test_every_source_has_a_case(name: str) -> None:
    assert [case for case in CASES if case.parent.name == name], f"add one below {FIXTURES / name}"


@each_case
def test_every_case_says_what_it_models(case: Path) -> None:
    assert "Models:" in (case / "ORIGIN").read_text("utf-8")


@each_source
def test_every_source_has_a_case_with_something_missing(name: str) -> None:
    goldens = [case / "expected.prom" for case in CASES if case.parent.name == name]
    assert any(MISSING_METRIC in path.read_text("utf-8") for path in goldens)


# --- what comes out ------------------------------------------------------------------------------


@each_case
def test_the_reading_is_exactly_what_is_expected(case: Path, golden: Golden) -> None:
    readings = read_case(case)
    golden(case / "expected.prom", expose(readings, case.parent.name))
    records = [each for each in readings if not isinstance(each, Sample | Missing)]
    if records or (case / "expected.jsonl").exists():
        golden(case / "expected.jsonl", "".join(record_line(each) for each in records))


def record_line(record: Event | Collective | StepSpan) -> str:
    """A record on a line; without the time of an event, which may be the moment of the read."""
    values = msgspec.to_builtins(record)
    if isinstance(record, Event):
        del values["time_ns"]
    said = {name: value for name, value in values.items() if value not in (None, "", {})}
    return msgspec.json.encode({type(record).__name__.lower(): said}).decode() + "\n"


@each_case
def test_every_metric_and_label_is_in_the_catalog(case: Path) -> None:
    catalog = load_catalog()
    for reading in read_case(case):
        if not isinstance(reading, Sample | Missing):
            continue
        assert catalog.metric(reading.series.metric), reading.series
        labels = {name for name, _ in reading.series.labels}
        assert labels <= catalog.labels_of(reading.series.metric), reading.series


@each_case
def test_no_series_comes_twice(case: Path) -> None:
    series = [each.series for each in read_case(case) if isinstance(each, Sample | Missing)]
    assert len(series) == len(set(series))


@each_case
def test_series_are_built_once(case: Path) -> None:
    """The exposition and the spool recognise series by identity."""
    host, source = Host(tree_of(case)), make_source(case)
    first, second = (
        [each.series for each in source.read(host) if isinstance(each, Sample)] for _ in range(2)
    )
    host.close()
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_every_metric_of_these_sources_is_in_a_golden_file() -> None:
    """A metric that no golden file shows has never been seen to be right."""
    shown = {
        line.partition("{")[0]
        for case in CASES
        for line in sample_lines((case / "expected.prom").read_text("utf-8"))
    }
    wanted = {
        metric.name
        for file in load_catalog().files
        if file.target.name in GOLDEN_TARGETS
        for metric in file.metrics
    }
    assert sorted(wanted - shown) == sorted(MADE_BY_THE_SERVICE)


@each_source
def test_a_machine_without_such_hardware_gives_nothing(name: str, tmp_path: Path) -> None:
    kind = SOURCES[name]
    assert list(kind(kind.Settings()).read(Host(tmp_path))) == []


# --- how it is read ------------------------------------------------------------------------------


def guard(function: Callable[..., object], allowed: str) -> Callable[..., object]:
    def guarded(*args: object, **kwargs: object) -> object:
        caller = sys._getframe(1).f_globals.get("__name__")
        assert caller == allowed, f"{caller} calls {function.__name__}; ask Host instead"
        return function(*args, **kwargs)

    return guarded


@each_case
def test_nothing_but_the_host_touches_the_machine(
    case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source(case)
    host = Host(tree_of(case))
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", guard(builtins.open, "collector.doors.host"))
        for name in ("open", "read", "pread", "listdir", "scandir", "readlink", "stat"):
            patch.setattr(os, name, guard(getattr(os, name), "collector.doors.host"))
        readings = list(source.read(host))
    host.close()
    assert readings


# --- one file, one line --------------------------------------------------------------------------


def is_shown(path: Path, golden_text: str) -> bool:
    """Whether a file of a tree is a counter file that its source reads and shows."""
    if not path.is_file():
        return False
    if path.parent.name == "statistics":
        has_hardware = (path.parents[1] / "device").exists()
        return has_hardware and f"statistics/{path.name}" in STATISTICS
    if path.parents[3].name == "hfi1_0" and path.name not in (*CLASSIC, *HFI1):
        return f'counter="{path.name}"' in golden_text  # hfi1 has more than are passed on
    return path.parent.name in {"counters", "hw_counters"}


def changed_files(tree: Path, golden_text: str) -> Iterator[Path]:
    """Change one counter file after the other; each time all others are as they were."""
    for path in sorted(path for path in tree.rglob("*") if is_shown(path, golden_text)):
        before = path.read_bytes()
        text = before.strip()
        after = b"%d\n" % (int(text) - 1) if text.isdigit() and int(text) else b"1\n"
        path.write_bytes(after)
        yield path
        path.write_bytes(before)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.parent.name in {"ib_sysfs", "netdev"}],
    ids=lambda c: f"{c.parent.name}-{c.name}",
)
def test_changing_one_counter_file_changes_exactly_one_line(case: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(tree_of(case), tree, symlinks=True)
    source, host = make_source(case), Host(tree)

    def lines() -> set[str]:
        return sample_lines(expose(list(source.read(host)), source.name))

    before, wrong, count = lines(), [], 0
    for path in changed_files(tree, (case / "expected.prom").read_text("utf-8")):
        count += 1
        now = lines()
        if (len(before - now), len(now - before)) != (1, 1):
            wrong.append(f"{path.relative_to(tree)}: {sorted(before ^ now)}")
    host.close()
    assert count > 1
    assert wrong == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.parent.name == "ethtool"], ids=lambda c: str(c.name)
)
def test_changing_one_statistic_changes_exactly_one_line(case: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(tree_of(case), tree, symlinks=True)
    source, host = make_source(case), Host(tree)

    def lines() -> set[str]:
        return sample_lines(expose(list(source.read(host)), source.name))

    before, wrong = lines(), []
    for path in sorted(tree.glob("ethtool/*/statistics")):
        text = path.read_text("utf-8")
        driver = re.search(r"driver: (\S+)", (path.parent / "driver").read_text("utf-8"))
        assert driver
        for name, number in re.findall(r"^ +(\S.*): (\d+)$", text, re.MULTILINE):
            if table_of(driver[1]).find(name) is None:
                continue
            path.write_text(text.replace(f" {name}: {number}\n", f" {name}: {int(number) + 1}\n"))
            now = lines()
            if (len(before - now), len(now - before)) != (1, 1):
                wrong.append(f"{name}: {sorted(before ^ now)}")
        path.write_text(text, encoding="utf-8")
    host.close()
    assert wrong == []


# --- the issue's own list ------------------------------------------------------------------------


def test_the_bad_ones_are_named_and_all_others_are_reported() -> None:
    readings = read_case(FIXTURES / "ib_sysfs/mixed_bad")
    absences = {
        (each.series.metric, dict(each.series.labels).get("device"), str(each.reason))
        for each in readings
        if isinstance(each, Missing)
    }
    assert absences == {
        ("fabric_port_symbol_errors_total", "mlx5_0", "unreadable"),
        ("fabric_port_link_downed_total", "mlx5_0", "not_supported"),
        ("fabric_port_local_link_integrity_errors_total", "mlx5_0", "saturated"),
        ("fabric_port_transmit_wait_ticks_total", "mlx5_0", "saturated"),
        ("fabric_port_receive_errors_total", "mlx5_0", "unparseable"),
        ("fabric_port_vl15_dropped_total", "mlx5_0", "absent"),
        ("fabric_port_cnp_sent_total", "mlx5_0", "unparseable"),
        ("fabric_port_state", "mlx5_0", "unparseable"),
        ("fabric_port_rate_bits_per_second", "mlx5_0", "unparseable"),
        ("fabric_port_lanes", "mlx5_0", "unparseable"),
        ("fabric_port_counter_files", "mlx5_1", "absent"),
        ("fabric_port_info", "mlx5_2", "absent"),
    }
    of_that_port = [
        each
        for each in readings
        if isinstance(each, Sample) and ("device", "mlx5_0") in each.series.labels
    ]
    # 21 classic counters less 6 bad, 3 hardware counters less 1, and 6 that describe the port.
    assert len(of_that_port) == 15 + 2 + 6
