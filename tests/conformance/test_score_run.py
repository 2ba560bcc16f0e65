"""The scoreboard from end to end: a simulated cluster, the service's own parts, marks."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from collector.cli import EXIT_INTERRUPTED, main
from collector.contract.identity import metric_id
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.jobs.model import JobSpec
from simulator.scenario import START_UNIX_NS, Scenario, Truth
from simulator.score.handicap import Handicap
from simulator.score.marks import Marks, Run, mark
from simulator.score.run import FOLDER_PREFIX, play, run_all
from simulator.score.simulated_service import Evaluator, SimulatedService
from simulator.topology.build import ClusterSpec
from tests.stands.service import eventually, launch

FAULT_START_S, FAULT_END_S = 10.0, 30.0
DELAY_S = 5.0
START_SECONDS = 300.0
"""Two programs start one after the other, in five seconds; on a machine that does ten other things,
in more."""
JOB = JobSpec(name="tiny", hosts=(0, 1), tensor=2, compute_seconds=0.5, startup_seconds=1.0)


def scenario(fault: str | None = None, seconds: float = 40.0) -> Scenario:
    """Two hosts with a job, one without; the first GPU or an idle host is struck."""
    place = Place(host=2, nic=4, gpu=4) if fault == "idle_host_reboot" else Place(host=0, gpu=0)
    injections = (
        ()
        if fault is None
        else (Injection(discover()[fault], place, FAULT_START_S, FAULT_END_S, 1.0),)
    )
    return Scenario(
        cluster=ClusterSpec(topology="single", hosts=3, gpus_per_host=2, nics_per_host=2),
        jobs=(JOB,),
        injections=injections,
        seconds=seconds,
        tick_seconds=5.0,
    )


def run_and_mark(folder: Path, fault: str | None, say: Sequence[Verdict], at_s: float) -> Marks:
    """The marks of a scenario with these verdicts from that moment to the end."""

    class Said:
        def evaluate(self, now_ns: int) -> Sequence[Verdict]:
            return say if now_ns >= START_UNIX_NS + round(at_s * NS) else ()

    simulation = Simulation(scenario(fault))
    sayings = play(simulation, folder, lambda _, __: Said())
    return mark(
        [
            Run(
                case=fault or "healthy",
                seed=1,
                seconds=simulation.scenario.seconds,
                truths=simulation.truths(),
                sayings=sayings,
            )
        ]
    )


def truth_of(fault: str) -> Truth:
    [truth] = Simulation(scenario(fault)).truths()
    return truth


# --- what the service knows after a run ----------------------------------------------------------


class Witness:
    """Looks into the service at every moment, and keeps the last answer."""

    def __init__(self, service: SimulatedService) -> None:
        self.service = service
        self.rows: dict[str, int] = {}
        self.jobs: list[tuple[str, int | None]] = []
        self.hosts: list[str] = []

    def evaluate(self, now_ns: int) -> Sequence[Verdict]:
        assert now_ns == round(self.service.now_s * NS)
        inventory = self.service.inventory
        self.jobs = [(job.job, job.ranks) for job in inventory.jobs.page()]
        self.hosts = [host.host for host in inventory.hosts.page()]
        for table in ("samples", "collectives", "steps"):
            self.rows[table] = self.count(table)
        for metric in ("fabric_communicator_operations_total", "fabric_rank_lateness_seconds"):
            self.rows[metric] = self.count(f"samples WHERE metric = {metric_id(metric)}")
        return ()

    def count(self, what: str) -> int:
        answer = self.service.store.query(f"SELECT count() AS n FROM {what}", {})  # noqa: S608
        return int(answer["n"][0].as_py())


def test_after_a_run_the_service_knows_jobs_and_series_as_in_production(tmp_path: Path) -> None:
    seen: list[Witness] = []

    def witness(service: SimulatedService, _: Handicap) -> Evaluator:
        seen.append(Witness(service))
        return seen[0]

    assert play(Simulation(scenario(seconds=60.0)), tmp_path, witness) == []
    assert seen[0].jobs == [("tiny", 4)]
    assert seen[0].hosts == ["node0000", "node0001", "node0002", "poller-0"]
    assert all(count > 0 for count in seen[0].rows.values()), seen[0].rows


# --- evaluators ----------------------------------------------------------------------------------


def test_an_oracle_is_right_at_once_and_its_delay_is_its_own(tmp_path: Path) -> None:
    truth = truth_of("thermal_throttle")
    right = Verdict(cause=truth.causes[0], culprit=truth.culprits[0], since_ns=truth.start_ns)
    marks = run_and_mark(tmp_path, "thermal_throttle", [right], FAULT_START_S + DELAY_S)
    assert (marks.overall.top_1, marks.overall.recall, marks.overall.precision) == (1.0, 1.0, 1.0)
    assert marks.overall.delay_median_s == DELAY_S


def test_who_blames_the_wrong_host_finds_nothing(tmp_path: Path) -> None:
    truth = truth_of("thermal_throttle")
    wrong = Verdict(
        cause=truth.causes[0], culprit=Culprit(host="node0001", gpu=0), since_ns=truth.start_ns
    )
    marks = run_and_mark(tmp_path, "thermal_throttle", [wrong], FAULT_START_S)
    assert (marks.overall.top_1, marks.overall.recall, marks.overall.precision) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("fault", [None, "idle_host_reboot"])
def test_who_cries_wolf_has_false_incidents(tmp_path: Path, fault: str | None) -> None:
    wolf = Verdict(cause=Cause.STRAGGLER, culprit=Culprit(host="node0000"), since_ns=0)
    marks = run_and_mark(tmp_path, fault, [wolf], 0.0)
    assert marks.overall.truths == 0
    assert marks.false_incidents == 1


def test_a_verdict_that_was_dropped_and_comes_back_is_said_anew(tmp_path: Path) -> None:
    class Wavering:
        def evaluate(self, now_ns: int) -> Sequence[Verdict]:
            seconds = (now_ns - START_UNIX_NS) // NS
            return [] if seconds == 20 else [verdict]

    verdict = Verdict(cause=Cause.STRAGGLER, culprit=Culprit(host="node0000"), since_ns=0)
    sayings = play(Simulation(scenario()), tmp_path, lambda _, __: Wavering())
    assert [(each.said_ns - START_UNIX_NS) // NS for each in sayings] == [5, 25]


# --- many runs -----------------------------------------------------------------------------------


class Dying:
    """A detector with a bug of the worst kind."""

    def evaluate(self, now_ns: int) -> Sequence[Verdict]:
        del now_ns
        os._exit(3)


class Raising:
    """A detector with an ordinary bug."""

    def evaluate(self, now_ns: int) -> Sequence[Verdict]:
        raise ValueError(f"no idea at {now_ns}")


def dying(_: SimulatedService, __: Handicap) -> Evaluator:
    return Dying()


def raising(_: SimulatedService, __: Handicap) -> Evaluator:
    return Raising()


@pytest.mark.slow
@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("make_evaluator", "reason"),
    [(dying, "its process ended with status 3"), (raising, "its process ended with status 1")],
)
def test_a_run_that_crashes_is_named_with_what_it_missed(
    make_evaluator: type[Evaluator], reason: str
) -> None:
    [run] = run_all([("gpu_ecc", 1)], 1, make_evaluator)
    assert reason in run.error
    assert [truth.fault for truth in run.truths] == ["gpu_ecc"]


@pytest.mark.slow
def test_a_case_that_cannot_be_made_stops_no_other() -> None:
    runs = list(run_all([("no_such_case", 1), ("neither_this", 1)], 1))
    assert [run.case for run in runs] == ["no_such_case", "neither_this"]
    assert all("unknown case" in run.error for run in runs)


@pytest.mark.slow
def test_who_stops_asking_leaves_neither_processes_nor_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with contextlib.closing(run_all([("no_such_case", 1), ("healthy", 1)], 2)) as runs:
        next(runs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_score_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = launch(["score", "healthy", "--out", str(tmp_path / "out")], tmp_path / "log")
    try:
        store = f"{FOLDER_PREFIX}*/healthy-1/store"
        eventually(lambda: any(tmp_path.glob(store)), "a store", START_SECONDS)
        tasks = Path(f"/proc/{process.pid}/task")
        children = [pid for file in tasks.glob("*/children") for pid in file.read_text().split()]
        assert children
        process.send_signal(number)
        assert process.wait(START_SECONDS) == EXIT_INTERRUPTED
    finally:
        process.kill()
        process.wait()
    eventually(lambda: not any(Path("/proc", pid).exists() for pid in children), "no process left")
    assert not any(tmp_path.glob(f"{FOLDER_PREFIX}*"))
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.slow
@pytest.mark.rotating(3, turn=2)
def test_one_run_can_be_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["score", "slow_loader", "--folder", str(folder)]) == 0
    assert '"slow_loader"' in (folder / "truth.json").read_text(encoding="utf-8")
    assert main(["diagnose", str(folder)]) == 0
    assert "all_reduce" in capsys.readouterr().out.lower().replace("allreduce", "all_reduce")
