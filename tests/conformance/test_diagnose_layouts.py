"""Folders as people have them, from end to end; logs of others where they lie beside us."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.stands.diagnosing import ROOT, diagnose, plain, report_of
from tests.tools.captures import SHARED

RUNS = ROOT / "tests/fixtures/diagnose"
LOGS = SHARED / "recordings/nccl-logs"
needs_logs = pytest.mark.skipif(not LOGS.is_dir(), reason="no logs of others beside the checkout")


def test_an_archive_has_the_verdict_of_its_folder(tmp_path: Path) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        archive.add(RUNS / "net3", "net3")
    (tmp_path / "net3.tgz").write_bytes(target.getvalue())
    packed, given, plainly = (
        report_of(tmp_path / "net3.tgz"),
        report_of("-", given=target.getvalue()),
        report_of(RUNS / "net3"),
    )
    for found in (packed, given):
        assert plain(found)["verdicts"] == plain(plainly)["verdicts"]
        assert [each.counts for each in found.read.formats] == [
            each.counts for each in plainly.read.formats
        ]


def test_two_runs_are_compared_also_with_a_kept_report(tmp_path: Path) -> None:
    before = diagnose("--json", RUNS / "healthy")
    kept = tmp_path / "healthy.json"
    kept.write_bytes(before.stdout)
    direct = report_of(RUNS / "net3", "--against", RUNS / "healthy").compared
    by_report = report_of(RUNS / "net3", "--against", kept).compared
    assert direct is not None
    assert by_report is not None
    assert direct.changes == by_report.changes
    first = direct.changes[0]
    assert first.text == "a step takes: 459 ms, was 27.1 ms (17 times as slow)"
    assert "ranks: 8" in direct.equal
    same = report_of(RUNS / "healthy", "--against", RUNS / "healthy").compared
    assert same is not None
    assert same.changes == []
    assert same.equal


def test_a_run_to_compare_with_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    done = diagnose(RUNS / "net3", "--against", tmp_path / "x")
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert last == f"fabricscope: --against {tmp_path / 'x'}: could not be read"


def test_a_ticket_begins_with_the_verdict(tmp_path: Path) -> None:
    done = diagnose("--md", RUNS / "net3", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("## node3's NIC eth0 (rank 3) moves bytes too slowly")
    for part in ("### What was read", "- **Ruled out**: straggler", "- **Next step**: Run "):
        assert [line for line in lines if line.startswith(part)], part
    assert "| evidence | seen | usual | n |" in lines


def test_the_last_line_is_the_answer() -> None:
    said = diagnose(RUNS / "net3").stdout.decode().rstrip().rpartition("In short: ")[2]
    assert said.startswith("node3's NIC eth0 (rank 3) moves bytes too slowly")


# --- logs of others ----------------------------------------------------------------------------


@needs_logs
def test_tables_of_others_are_read() -> None:
    found = report_of(LOGS / "sb_nccl").nccl_tests
    assert [(test.operation, test.ranks, test.hosts) for test in found] == [
        (name, 8, 1)
        for name in (
            "all_gather", "all_reduce", "all_to_all", "broadcast", "reduce", "reduce_scatter",
        )
    ]  # fmt: skip
    assert all((test.best_bus_bytes_per_second or 0) > 200e9 for test in found)


@needs_logs
def test_a_table_below_an_object_is_read() -> None:
    """Its first line is a script's dictionary."""
    (test,) = report_of(LOGS / "aws").nccl_tests
    assert (test.operation, test.ranks, test.hosts) == ("all_reduce", 16, 2)
    assert test.best_bus_bytes_per_second == pytest.approx(3.41e9)
    assert "NICs' rates are known of 0 of 2 hosts" in test.expectation


@needs_logs
def test_tables_behind_labels_of_srun_are_compared() -> None:
    """Their first lines are cut off: operation and ranks follow from the bandwidths."""
    slurm = LOGS / "aws_slurm"
    found = report_of(slurm / "nccl-tests_1.out", "--against", slurm / "nccl-tests_2.out")
    (test,) = found.nccl_tests
    assert (test.operation, test.ranks, test.is_inferred) == ("all_reduce", 16, True)
    assert found.compared is not None
    assert "was 441 GB/s (5.7 times as slow)" in found.compared.changes[0].text


@needs_logs
@pytest.mark.parametrize(
    "folder", ["ib_err12", "watchdog", "efa_fail", "eks_p4d-24xlarge-1pod-4proc"]
)
def test_logs_of_others_are_read_in_every_form(folder: str) -> None:
    for form in ((), ("--json",), ("--md",)):
        done = diagnose(LOGS / folder, *form)
        assert (done.returncode, done.stderr) == (0, b"")
