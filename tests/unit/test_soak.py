"""The soak's own parts: what it sends, how it judges, what it draws."""

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from collector.contract import wire
from collector.contract.model import Event, Sample, Series
from tests.bench.processes import disk_bytes
from tests.soak.curves import drawing
from tests.soak.feed import parted
from tests.soak.figures import Moment, append, last_line, process_figures, read, service_figures
from tests.soak.growth import GROWTH_MAX, SLACK, growths, table_of

HOUR = 3600.0


def run(**ends: tuple[float, float]) -> list[Moment]:
    """Two hours whose figures go straight from one value to another."""
    times = np.arange(0.0, 2 * HOUR + 1, 60.0)
    return [
        Moment(
            float(at),
            {
                name: first + (last - first) * float(at) / (2 * HOUR)
                for name, (first, last) in ends.items()
            },
        )
        for at in times
    ]


def test_what_is_flat_passes_and_what_grows_does_not() -> None:
    found = {
        one.name: one
        for one in growths(
            run(rss_bytes=(1e9, 1e9), anonymous_bytes=(1e9, 2e9), rows=(0.0, 1e9), parts=(1, 9))
        )
    }
    assert not found["rss_bytes"].is_too_much
    assert found["anonymous_bytes"].is_too_much
    assert found["anonymous_bytes"].share == pytest.approx(0.5 / 1.46, abs=0.02)
    assert not found["rows"].is_too_much, "rows grow by nature"
    assert found["parts"].share > GROWTH_MAX
    assert not found["parts"].is_too_much, f"less than {SLACK['parts']} more"


def test_the_table_names_what_grows_first() -> None:
    lines = table_of(growths(run(rows=(1, 2), rss_bytes=(1e9, 2e9))), 2 * HOUR).lines()
    assert "2.00 h" in lines[0]
    assert lines[2].split()[0] == "rss_bytes"
    assert lines[2].split()[-1] == "grows"


def test_a_late_source_s_samples_come_in_a_second_batch() -> None:
    samples = [
        Sample(Series("m", {"n": str(number)}), float(number), number * 1_000_000)
        for number in range(20)
    ]
    whole = wire.pack_batch(
        samples,
        [Event(kind="xid", time_ns=1, labels={}, message="79")],
        agent="a",
        boot="b",
        sequence=7,
        sent_ms=0,
        common={"host": "h"},
    )
    parts = list(parted(wire.encode_batch(whole), np.random.default_rng(3)))
    first, second = (wire.decode_batch(body) for body, _ in parts)
    assert (first.sequence, second.sequence) == (14, 15)
    assert sum(count for _, count in parts) == len(samples)
    assert (len(first.events), len(second.events)) == (1, 0)
    assert sorted(sent(first) + sent(second)) == sorted(sent(whole))
    assert 0 < second.sample_count < len(samples)


def sent(batch: wire.Batch) -> list[tuple[str, int, float]]:
    rows = batch.series_rows()
    return [
        (rows[row][1]["n"], time_ms, value)
        for row, time_ms, value in zip(
            np.frombuffer(batch.index, "<u4").tolist(),
            np.frombuffer(batch.time_ms, "<i8").tolist(),
            np.frombuffer(batch.value, "<f8").tolist(),
            strict=True,
        )
    ]


def test_figures_survive_their_file(tmp_path: Path) -> None:
    file = tmp_path / "figures.csv"
    moments = [Moment(15.0, {"a": 1.0, 'b{x="1,2"}': 2.5}), Moment(30.0, {"a": 3.0, "c": 1e18})]
    for moment in moments:
        append(file, moment)
    assert read(file) == moments


def test_half_a_line_of_the_process_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "inside.jsonl"
    assert last_line(file) == {}
    file.write_text('{"time": 1, "a": 2}\n{"time": 2, "a"')
    assert last_line(file) == {"a": 2}


def test_sizes_of_the_service_are_read_and_times_are_not() -> None:
    text = """\
# HELP fabric_service_senders …
fabric_service_senders 2.0
fabric_service_known_series{protocol="native"} 12.0
fabric_service_requests_total{method="GET"} 7.0
fabric_service_health_age_seconds 3.0
fabric_service_inflight_bytes NaN
fabric_service_commit_rows_bucket{le="1.0"} 4.0
"""
    assert service_figures(text) == {
        "metric_lines": 6.0,
        "senders": 2.0,
        'known_series{protocol="native"}': 12.0,
    }


def test_a_folder_that_goes_while_it_is_weighed_weighs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, staying = tmp_path / "going", tmp_path / "staying"
    for folder in (going, staying):
        folder.mkdir()
        (folder / "part").write_bytes(bytes(10_000))
    whole = disk_bytes(tmp_path)
    scan = os.scandir

    def remove_and_scan(path: str) -> object:
        if Path(path) == going:
            (going / "part").unlink(missing_ok=True)
            going.rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", remove_and_scan)
    assert 10_000 <= disk_bytes(tmp_path) < whole


def test_a_process_is_seen_from_outside() -> None:

    found = process_figures(os.getpid())
    assert found["rss_bytes"] >= found["anonymous_bytes"] > 1 << 20
    assert found["threads"] >= 1
    assert found["descriptors"] >= 3


def test_the_curves_are_a_drawing() -> None:
    root = ET.fromstring(drawing(run(rss_bytes=(1e9, 2e9), parts=(3, 4))))  # noqa: S314
    lines = [each for each in root if each.tag.endswith("polyline")]
    assert len(lines) == 2
    assert len(str(lines[0].get("points")).split()) == len(run(rss_bytes=(1, 1)))
