"""`fabricscope simulate`: what it writes, and its errors for impossible requests."""

import json
import sys
from pathlib import Path

import pytest

from collector.cli import main
from simulator.faults import discover

SMALL = ["--hosts", "4", "--gpus", "2", "--seconds", "6"]
JOB = ["--job", "2,compute_seconds=0.2,startup_seconds=0.5"]


def simulate(*words: str | Path) -> int:
    """Run the verb with these words; the exit status."""
    return main(["simulate", *map(str, words)])


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its path."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_it_writes_a_run_its_truth_and_says_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run 1"
    assert simulate(out, *SMALL, *JOB, "--fault", "slow_nic", "--fault", "clock_skew") == 0
    output = capsys.readouterr()
    assert f"fabricscope diagnose '{out}'" in output.out
    assert "4 hosts with 8 GPUs" in output.out
    assert output.err == "", "no terminal, no progress"
    names = {path.name for path in out.iterdir()}
    assert names >= {"inspector", "steps", "nccl_debug", "nic.openmetrics", "gpu.openmetrics"}
    truths = json.loads((out / "truth.json").read_text())
    assert [truth["fault"] for truth in truths] == ["slow_nic", "clock_skew"]
    begin, end = truths[0]["start_ns"], truths[0]["end_ns"]
    assert (begin % 10**11, end - begin) == (2 * 10**9, 2 * 10**9), "the middle third"


def test_the_same_order_gives_the_same_files_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("one", "7"), ("again", "7"), ("other", "8")):
        assert simulate(tmp_path / name, *SMALL, *JOB, "--fault", "bad_cable", "--seed", seed) == 0
    assert files_of(tmp_path / "one") == files_of(tmp_path / "again")
    assert files_of(tmp_path / "one") != files_of(tmp_path / "other")


def test_at_says_when_a_fault_begins(tmp_path: Path) -> None:
    assert simulate(tmp_path / "out", *SMALL, *JOB, "--fault", "slow_nic", "--at", "5") == 0
    (truth,) = json.loads((tmp_path / "out" / "truth.json").read_text())
    assert truth["start_ns"] % 10**11 == 5 * 10**9
    assert truth["end_ns"] % 10**11 == 6 * 10**9, "no longer than the run"


def test_trees_switches_and_ibsim_are_written_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, trees = tmp_path / "out", tmp_path / "trees"
    more: list[str | Path] = ["--trees", trees, "--snmp", "sonic", "--ibsim"]
    assert simulate(out, *SMALL, *JOB, *more) == 0
    output = capsys.readouterr().out
    assert {path.name for path in trees.iterdir()} == {f"node{host:04d}" for host in range(4)}
    assert (trees / "node0003" / "sys" / "class" / "infiniband").is_dir()
    assert list((out / "switches" / "data").glob("*.snmprec"))
    assert (out / "ibsim" / "fabric.net").read_text().startswith("vendid")
    assert "PortXmitData" in (out / "ibsim" / "commands").read_text()
    for word in ("fabricscope agent --once --root", "snmpsim-command-responder", "ibsim -s"):
        assert word in output


def test_list_names_every_fault_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(discover())
    assert all(line.endswith(".") for line in lines)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fault", "slow_nick"], "unknown fault 'slow_nick'; did you mean 'slow_nic'?"),
        (["--topology", "rails"], "unknown topology 'rails'; did you mean 'rail'?"),
        (["--fabric", "rocky"], "unknown fabric 'rocky'; did you mean 'roce'?"),
        (["--speed", "400gbe", "--fabric", "roce"], "did you mean '400GbE'?"),
        (["--speed", "400GbE"], "does not fit fabric"),
        (["--snmp", "sonik"], "did you mean 'sonic'?"),
        (["--snmp", "sonic", "--fabric", "roce", "--ibsim"], "--ibsim plays InfiniBand"),
        (["--fault", "pfc_misconfigured"], "happens on --fabric roce only"),
        (["--fault", "maintenance_flap", "--job", "4"], "needs hosts without a job"),
        (["--at", "99"], "--at 99: from 0 to below --seconds 6"),
        (["--seconds", "0"], "--seconds 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--hosts", "1"], "hosts = 1: must be from 2"),
        (["--job", "5"], "no 5 hosts are left of 4"),
        (["--job", "many"], "begin with a number of hosts"),
        (["--job", "4,pipelin=2"], "did you mean 'pipeline'?"),
        (["--job", "4,pipeline"], "write pipeline=VALUE"),
        (["--job", "4,pipeline=two"], "Expected `int`"),
        (["--job", "4,pipeline=3"], "no multiple of"),
    ],
)
def test_an_order_that_cannot_be_filled_is_one_line(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(tmp_path / "out", *SMALL, *words) == 2
    output = capsys.readouterr()
    assert expected in output.err
    assert output.err.startswith("fabricscope: ")
    assert output.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_it_mixes_no_run_with_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("mine")
    for words, expected in (
        ([tmp_path], "is not empty"),
        ([tmp_path / "notes"], "is a file"),
        ([], "needs a folder"),
        ([tmp_path / "out", "--trees", tmp_path], "is not empty"),
        ([tmp_path / "notes" / "out", *SMALL, *JOB], "Not a directory"),
    ):
        assert simulate(*words) == 2
        assert expected in capsys.readouterr().err
    assert (tmp_path / "notes").read_text() == "mine"


def test_without_numpy_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "simulator.cli", raising=False)
    assert simulate("--list") == 2
    output = capsys.readouterr().err
    assert "simulate needs numpy" in output
    assert "pip install 'fabricscope[server]'" in output
