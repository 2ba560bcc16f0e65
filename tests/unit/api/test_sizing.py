"""`fabricscope sizing`: arithmetic that can be checked by hand, and a page that shows the same."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from api.http.operating.sizing import costs
from api.http.operating.sizing.queueing import serve, simulate
from api.http.operating.sizing.size import Asked, size_of
from collector.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "scale.md"


def test_at_the_measured_sizes_it_is_what_was_measured() -> None:
    for hosts, cores, memory_mib in ((16, 0.739, 810), (64, 1.229, 1383)):
        size = size_of(Asked(hosts=hosts))
        measured = (costs.INGEST, costs.ENGINE, costs.EVALUATE, costs.QUERY)
        assert sum(line.at(hosts) for line in measured) == pytest.approx(cores, abs=0.01)
        assert costs.MEMORY_MIB.at(hosts) == pytest.approx(memory_mib)
        assert size.samples_per_s == pytest.approx(hosts * 855)
    assert size_of(Asked(hosts=16)).processes == {"all": 1}
    assert size_of(Asked(hosts=16)).notes == []


def test_what_doubles_the_load_doubles_what_grows_with_it() -> None:
    one, fast = size_of(Asked(hosts=1000)), size_of(Asked(hosts=1000, interval_s=2.5))
    large = size_of(Asked(hosts=1000, gpus_per_host=16))
    assert fast.samples_per_s == large.samples_per_s == pytest.approx(2 * one.samples_per_s)
    assert (fast.series, large.series) == (one.series, 2 * one.series)
    assert fast.records_bytes == one.records_bytes, "collectives do not depend on the interval"
    assert any("assumed" in note for note in fast.notes)
    long = size_of(Asked(hosts=1000, retention_days=60))
    assert long.samples_bytes == pytest.approx(2 * one.samples_bytes)


def test_no_process_is_busier_than_it_may_be_and_one_may_fail() -> None:
    for hosts in (53, 100, 1000, 12_500):
        size = size_of(Asked(hosts=hosts))
        for role in ("ingest", "query"):
            assert size.cores[role] / (size.processes[role] - 1) <= costs.BUSY + costs.INGEST.fixed
        share = hosts / size.processes["evaluate"]
        assert costs.ROUND_S.at(share) <= costs.ROUND_S_MAX
        assert size.disk_bytes / size.shards <= costs.SHARD_BYTES


def test_a_queue_by_hand() -> None:
    at_s = np.array([0.0, 1.0, 1.5, 9.0])
    done_s, longest = serve(at_s, np.zeros(4, np.int64), 2.0, 1)
    assert done_s.tolist() == [2.0, 4.0, 6.0, 11.0]
    assert longest == 3


def test_the_simulation_repeats_itself_and_loses_nothing() -> None:
    size = size_of(Asked(hosts=1000))
    first, second = simulate(size), simulate(size)
    assert first == second
    assert first != simulate(size, seed=1)
    assert first.batches == 1000 * 24
    assert first.resent > 0
    assert first.wait_p50 >= first.batch_s
    assert first.wait_max < 60, "every batch is taken"


def test_too_few_processes_show_as_a_queue_that_grows() -> None:
    size = size_of(Asked(hosts=1000))
    few = simulate(size_of(Asked(hosts=1000, interval_s=1.0)))
    assert few.busy < 1
    crowded = simulate(msgspec.structs.replace(size, processes={"ingest": 1}))
    assert crowded.busy > 1
    assert crowded.wait_p99 > 10


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text("utf-8")
    assert main(["sizing"]) == 0
    table = capsys.readouterr().out.partition("100 hosts:")[0].rstrip()
    assert table in page
    assert main(["sizing", "--hosts", "12500", "--simulate"]) == 0
    told = capsys.readouterr().out.partition("\n\n")[2].rstrip()
    assert told.startswith("12500 hosts, 120 s")
    assert told in page


def test_json_and_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sizing", "--hosts", "10", "--json", "--interval", "500ms"]) == 0
    [size] = json.loads(capsys.readouterr().out)["sizes"]
    assert size["samples_per_s"] == pytest.approx(85_500)
    for words, says in (
        (["--hosts", "0"], "--hosts is 0; 1 to 100000"),
        (["--interval", "soon"], "--interval is 'soon'; 0.1s to 300s"),
        (["--retention", "9999"], "--retention is 9999; 1 to 3650"),
    ):
        assert main(["sizing", *words]) == 2
        assert says in capsys.readouterr().err
