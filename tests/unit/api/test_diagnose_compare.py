"""Two reports against each other, the ticket, what is seen last, and the line of progress."""

import io
import re
from pathlib import Path

import msgspec
import pytest

from alerts.window.columns import Step
from api.diagnose import markdown, text
from api.diagnose.against import read_other
from api.diagnose.bandwidth import BandwidthReport, BandwidthRow, expect, nic_rates
from api.diagnose.compare import compare
from api.diagnose.progress import CLEAR, Phases
from api.diagnose.report import (
    Diagnosis,
    ProfileReport,
    RankReport,
    Read,
    SettingReport,
    to_json,
)
from collector.contract.errors import SettingsError
from collector.contract.model import Event
from collector.parsing.nccl_settings import Settings
from tests.unit.api.test_diagnose_show import EVIL, MS, START_NS, a_diagnosis, a_job

GIGA = 1e9
NOTHING = Read(
    files=1, size_bytes=1, formats=[], not_understood=[], not_understood_count=0, broken=[],
    broken_count=0, left_out=[], losses=[],
)  # fmt: skip


def a_run(
    step_ms: int = 10, bus: float = GIGA, host: str = "node0", count: int = 20, **more: object
) -> Diagnosis:
    job = a_job()
    steps = [
        Step(
            number=number, start_ns=START_NS, end_ns=START_NS + step_ms * MS, ranks=3,
            compute_ns=5 * MS, wait_ns=1, transfer_ns=MS, last_rank=0,
        )
        for number in range(count)
    ]  # fmt: skip
    operation = msgspec.structs.replace(
        job.operations[0],
        communicator="c", operation="all_reduce", size_bytes=8 << 20,
        bus_bandwidth_bytes_per_second=bus,
    )  # fmt: skip
    wired = msgspec.structs.replace(job.communicators[0], communicator="c")
    rank = RankReport(
        rank=0, host=host, pid=1, gpu="0", device="mlx5_0", local_rank=0, origins={}, operations=9
    )
    job = msgspec.structs.replace(
        job, job="j", steps=steps, operations=[operation], communicators=[wired], ranks=[rank],
        nccl_versions=["2.28.9"], networks=["IB"],
    )  # fmt: skip
    return msgspec.structs.replace(Diagnosis(read=NOTHING, jobs=[job]), **more)


def a_test(
    bus: float, *, size: int = 1 << 30, ranks: int | None = 8, wrong: float = 0
) -> Diagnosis:
    row = BandwidthRow(
        size_bytes=size, type="float", placement="in_place", seconds=0.01,
        algorithm_bytes_per_second=bus / 2, bus_bytes_per_second=bus, wrong=wrong,
    )  # fmt: skip
    test = BandwidthReport(path="x.txt", operation="all_reduce", ranks=ranks, rows=[row])
    return Diagnosis(read=NOTHING, jobs=[], nccl_tests=[test])


def kinds(now: Diagnosis, before: Diagnosis) -> list[str]:
    return [change.kind for change in compare(now, before, ["b"]).changes]


# --- what changed ------------------------------------------------------------------------------


def test_the_same_run_has_no_changes_and_says_what_is_equal() -> None:
    found = compare(a_run(), a_run(), ["b"])
    assert found.changes == []
    assert any(line.startswith("steps: median 10.0 ms (of 20)") for line in found.equal)
    assert "NCCL: 2.28.9" in found.equal
    assert "ranks: 3" in found.equal


def test_a_slower_step_comes_first_and_has_both_figures() -> None:
    found = compare(a_run(20, GIGA / 30), a_run(), ["b"])
    assert [change.kind for change in found.changes] == ["steps", "collectives"]
    assert found.changes[0].text == "a step takes: 20.0 ms, was 10.0 ms (2 times as slow)"
    assert found.changes[1].text == (
        "all_reduce up to 16MiB of 3 ranks, bus bandwidth: 33.3 MB/s, was 1 GB/s (30 times as slow)"
    )


def test_what_is_faster_is_a_change_too() -> None:
    (change,) = compare(a_run(5), a_run(), ["b"]).changes
    assert "2 times as fast" in change.text


@pytest.mark.parametrize(("now", "before"), [(10, 10.4), (10.4, 10)])
def test_noise_is_no_change(now: float, before: float) -> None:
    assert kinds(a_run(bus=now * GIGA), a_run(bus=before * GIGA)) == []


def test_of_a_few_steps_nothing_is_said() -> None:
    found = compare(a_run(99, count=3), a_run(), ["b"])
    assert not [change for change in found.changes if change.kind == "steps"]
    assert "steps: 3 in this run and 20 in the other; 5 are needed of both" in found.missing


def test_settings_versions_hosts_and_nics() -> None:
    def settings(**values: str) -> list[SettingReport]:
        return [SettingReport(name=name, values={value: 8}) for name, value in values.items()]

    now = a_run(host="node7", nccl_settings=settings(NCCL_IB_TC="106", NCCL_ALGO="RING"))
    before = a_run(nccl_settings=settings(NCCL_IB_TC="0", cuda_driver="12060"))
    texts = [change.text for change in compare(now, before, ["b"]).changes]
    assert texts == [
        "hosts: node7 new, node0 gone",
        "NCCL_ALGO: RING, was not set",
        "NCCL_IB_TC: 106, was 0",
        "cuda_driver: not set, was 12060",
    ]
    lost = compare(a_run(), before, ["b"])
    assert [change.kind for change in lost.changes] == []
    assert any("no log of this run" in line for line in lost.missing)


def test_profiles_are_compared_by_shares() -> None:
    def profile(compute: float) -> list[ProfileReport]:
        parts = {"window": 100.0, "compute": compute, "idle": 5.0}
        return [ProfileReport(rank=0, kernels=9, milliseconds=parts)]

    found = compare(a_run(profiles=profile(50)), a_run(profiles=profile(80)), ["b"])
    assert [change.text for change in found.changes] == [
        "GPU's time for compute, by profiles: 50%, was 80%"
    ]
    assert "GPU's time for idle: 5%, was 5%" in found.equal


def test_tests_of_nccl_tests_are_compared_with_their_like_alone() -> None:
    found = compare(a_test(40 * GIGA), a_test(80 * GIGA), ["b"])
    assert [change.text for change in found.changes] == [
        (
            "all_reduce of nccl-tests, 8 ranks, bus bandwidth at 1 GiB in place: 40 GB/s, "
            "was 80 GB/s (2 times as slow)"
        )
    ]
    assert kinds(a_test(40 * GIGA), a_test(80 * GIGA, ranks=16)) == []
    unknown = compare(a_test(40 * GIGA, ranks=None), a_test(80 * GIGA, ranks=None), ["b"])
    assert unknown.changes == []
    assert any("does not say: x.txt" in line for line in unknown.missing)
    small = compare(a_test(40e6, size=1024), a_test(45e6, size=1024), ["b"])
    assert small.changes == []
    assert kinds(a_test(GIGA, wrong=3), a_test(GIGA)) == ["nccl_tests"]


def test_nothing_in_common_is_said() -> None:
    found = compare(a_run(), a_test(GIGA), ["b"])
    assert found.changes == []
    assert "jobs: the files of the other run have none" in found.missing


# --- what to expect ----------------------------------------------------------------------------


def test_nics_of_nccls_topology_say_what_can_be_reached() -> None:
    settings = Settings()
    for host in ("a", "b"):
        for line in (
            "  + NET[25.0] - NET/0 (5c/1/25.000000)",
            " + NET[25.0] - NET/1 (5d/1/25.000000)",
        ):
            settings.hear(host, line)
        settings.hear(host, "NCCL_IB_TC set by environment to 106.")
        settings.hear(host, "NCCL_SOCKET_IFNAME set to eth0")
        settings.hear(host, "cudaDriverVersion 12060")
        settings.hear(host, "NCCL_X set by environment to")
    events = list(settings.events(5))
    assert events[0].attributes == {
        "host": "a", "NCCL_IB_TC": "106", "NCCL_SOCKET_IFNAME": "eth0", "cuda_driver": "12060",
        "nic_rate.0": "25000000000", "nic_rate.1": "25000000000",
    }  # fmt: skip
    rates = nic_rates(events)
    assert rates == {"a": 50e9, "b": 50e9}
    assert expect("all_reduce", 16, ["a", "b"], rates)[0] == 50e9
    assert expect("all_reduce", 24, ["a", "b", "c"], rates) == (
        None,
        (
            "the NICs' rates are known of 2 of 3 hosts: NCCL prints them with NCCL_DEBUG=INFO "
            "NCCL_DEBUG_SUBSYS=INIT,GRAPH"
        ),
    )
    assert nic_rates([Event(kind="x", time_ns=1, labels={}, attributes={"nic_rate.0": "?"})]) == {}


# --- another run's report ----------------------------------------------------------------------


def test_a_kept_report_is_another_run(tmp_path: Path) -> None:
    kept = tmp_path / "before.json"
    kept.write_bytes(to_json(a_run()))
    assert read_other([str(kept)], tmp_path) == a_run()
    kept.write_bytes(b'{"format":1}')
    with pytest.raises(SettingsError, match="no report of"):
        read_other([str(kept)], tmp_path)
    kept.write_bytes(to_json(msgspec.structs.replace(a_run(), format=99)))
    with pytest.raises(SettingsError, match="a report of format 99"):
        read_other([str(kept)], tmp_path)


# --- the ticket --------------------------------------------------------------------------------


def test_names_in_a_ticket_are_names() -> None:
    wild = "`a` *b* _c_ [x](http://evil) <img> a|b @alice #12 !3 ~~d~~"
    job = msgspec.structs.replace(a_job(), job=wild)
    said = markdown.render(msgspec.structs.replace(a_diagnosis(), jobs=[job]))
    (line,) = [line for line in said.splitlines() if line.startswith("- job ")]
    assert "\\[x\\](http" in line
    assert "\\<img\\>" in line
    assert "a\\|b" in line
    assert not re.search(r"(?<!\\)[`*_\[\]<>|~]", line.removeprefix("- "))
    assert not re.search(r"[@#!]\w", line)


def test_a_ticket_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = compare(a_run(20), a_run(), ["b"])
    change = long.changes[0]
    many = msgspec.structs.replace(
        long, changes=[change] * 500, changes_total=500, equal=[EVIL * 20] * 90
    )
    found = a_run(compared=many)
    assert "and 480 more" in markdown.render(found)
    monkeypatch.setattr(markdown, "CHARS_MAX", 1000)
    said = markdown.render(found)
    assert len(said) <= 1000
    assert said.endswith("*Cut here: `--json` has everything.*\n")


# --- what is seen last -------------------------------------------------------------------------


def shown(diagnosis: Diagnosis, rows: int, *, is_verbose: bool = False) -> list[str]:
    out = io.StringIO()
    text.print_report(diagnosis, out, columns=200, rows=rows, is_plain=True, is_verbose=is_verbose)
    return out.getvalue().splitlines()


def test_the_answer_is_last_where_its_beginning_has_left_the_screen() -> None:
    found = a_diagnosis()
    assert shown(found, 20)[-1].strip() == "In short: Nothing stands out."
    assert "In short" not in "\n".join(shown(found, 10_000))


def test_bandwidths_are_shown_by_size_and_wrong_values_always() -> None:
    rows = [
        BandwidthRow(
            size_bytes=1 << place, type="float", placement="in_place", seconds=1e-3,
            algorithm_bytes_per_second=1e9, bus_bytes_per_second=2e9, wrong=place == 3,
        )
        for place in range(30)
    ]  # fmt: skip
    test = BandwidthReport(
        path=EVIL, operation="all_reduce", ranks=8, hosts=2, rows=rows,
        expected_bus_bytes_per_second=4e9, expectation="because",
    )  # fmt: skip
    found = Diagnosis(read=NOTHING, jobs=[], nccl_tests=[test])
    said = "\n".join(shown(found, 99))
    assert "nccl-tests all_reduce, 8 ranks, 2 hosts" in said
    assert "Reached 2 GB/s bus bandwidth of at most 4 GB/s (50%). because." in said
    assert "1 row has wrong values" in said
    assert re.search(r"^ +8 B ", said, re.MULTILINE)
    assert not re.search(r"^ +16 B ", said, re.MULTILINE)
    assert re.search(r"^ +16 B ", "\n".join(shown(found, 99, is_verbose=True)), re.MULTILINE)
    assert "\x1b" not in said


# --- progress ----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_phases_are_named_on_a_terminal_alone() -> None:
    terminal, file = Terminal(), io.StringIO()
    for one in (terminal, file):
        phases = Phases(one)
        phases.say(f"joining {EVIL}" + "x" * 200)
        phases.clear()
    assert file.getvalue() == ""
    said = terminal.getvalue()
    assert said.startswith(f"{CLEAR}joining")
    assert said.endswith(CLEAR)
    assert "\x1b[2J" not in said
    assert len(said) < 100
