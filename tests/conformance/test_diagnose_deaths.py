"""`diagnose` on jobs that died: who is named, in our own recordings and in logs of others.

Our recordings are eight real ranks of which one was broken on purpose
(tests/fixtures/diagnose/dead). What others have recorded lies beside the repository, if at all.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from api.diagnose.report import Diagnosis
from collector.contract.verdict import Cause, Culprit, Reason, Verdict
from tests.stands.diagnosing import ROOT, diagnose, report_of

DEAD = ROOT / "tests/fixtures/diagnose/dead"
RECORDED_S = 1_794_940_000
"""2026-11-17 18:26:40 UTC: files are of that time, whenever the repository was cloned."""
OTHERS = ROOT.parent / "shared/recordings/nccl-logs"
needs_others = pytest.mark.skipif(not OTHERS.is_dir(), reason="others' logs are not there")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def copied(run: str, folder: Path, *parts: str) -> Path:
    """Parts of a recording, with the time of their files."""
    for part in parts:
        shutil.copytree(DEAD / run / part, folder / part)
    for path in folder.rglob("*"):
        os.utime(path, (RECORDED_S, RECORDED_S))
    return folder


def only(diagnosis: Diagnosis) -> Verdict:
    assert [one.problem for one in diagnosis.detectors if one.problem] == []
    (verdict,) = diagnosis.verdicts
    return verdict


def accused(verdict: Verdict) -> list[int | None]:
    return [one.rank for one in (verdict.culprit, *verdict.accomplices)]


def said(verdict: Verdict) -> str:
    return "\n".join(one.text for one in verdict.evidence)


EVERYTHING = ("out", "nccl_debug", "flight_recorder")
WANTED = {
    "ring_killed2": (Cause.HANG, Reason.NOT_LAUNCHED),
    "pipeline_killed6": (Cause.HANG, Reason.NOT_LAUNCHED),
    "ring_never_enters3": (Cause.HANG, Reason.NOT_LAUNCHED),
    "ring_oom4": (Cause.CRASH, Reason.GPU_MEMORY),
    "ring_mismatch5": (Cause.MISMATCH, Reason.UNKNOWN),
    "ring_size5": (Cause.MISMATCH, Reason.UNKNOWN),
}


def test_every_recording_is_tested() -> None:
    assert sorted(WANTED) == sorted(path.name for path in DEAD.iterdir())


@pytest.mark.parametrize("run", WANTED)
def test_who_was_broken_is_named_and_nobody_else(run: str, folder: Path) -> None:
    truth = json.loads((DEAD / run / "truth.json").read_text("utf-8"))
    verdict = only(report_of(copied(run, folder, *EVERYTHING)))
    assert (verdict.cause, verdict.reason) == WANTED[run]
    assert accused(verdict) == truth["ranks"]
    assert not {one.rank for one in verdict.victims} & set(truth["ranks"])
    assert verdict.evidence
    assert verdict.summary.endswith(".")


def test_an_extra_call_is_shown_with_both_sides_and_their_places(folder: Path) -> None:
    text = said(only(report_of(copied("ring_mismatch5", folder, "flight_recorder"))))
    assert "number 51" in text
    assert "rank 5 called all_gather_base of 131,072 BFloat16 at" in text
    assert "rank.py:141" in text
    assert "ranks 0, 1, 2, 3, 4, 6, 7 called all_reduce of 4,194,304 BFloat16 at" in text
    assert "rank.py:152" in text


def test_half_a_buffer_is_shown_with_both_sizes(folder: Path) -> None:
    text = said(only(report_of(copied("ring_size5", folder, "flight_recorder"))))
    assert "rank 5 called all_reduce of 2,097,152 BFloat16" in text
    assert "called all_reduce of 4,194,304 BFloat16" in text


@pytest.mark.parametrize(
    ("run", "cause", "reason", "ranks"),
    [
        # A killed process prints nothing, and what its neighbours print names no rank.
        ("ring_killed2", Cause.CRASH, Reason.CONNECTION_LOST, [None]),
        ("pipeline_killed6", Cause.CRASH, Reason.CONNECTION_LOST, [None]),
        ("ring_never_enters3", Cause.HANG, Reason.NOT_LAUNCHED, [3]),
        ("ring_oom4", Cause.CRASH, Reason.GPU_MEMORY, [4]),
        # The rank with the extra call is the only one that waits, and it may be the others' fault.
        ("ring_mismatch5", Cause.CRASH, Reason.TIMED_OUT, [None]),
        ("ring_size5", Cause.CRASH, Reason.TIMED_OUT, [None]),
    ],
)
def test_output_alone_names_nobody_that_it_does_not_show(
    run: str, cause: Cause, reason: Reason, ranks: list[int | None], folder: Path
) -> None:
    verdict = only(report_of(copied(run, folder, "out")))
    assert (verdict.cause, verdict.reason, accused(verdict)) == (cause, reason, ranks)


@pytest.mark.parametrize("missing", range(8))
def test_without_one_ranks_log_no_innocent_is_named(missing: int, folder: Path) -> None:
    copied("ring_oom4", folder, "out")
    (folder / f"out/node{missing}.log").unlink()
    verdict = only(report_of(folder))
    assert accused(verdict) == ([None] if missing == 4 else [4])


def test_lost_connections_alone_are_no_all_clear(folder: Path) -> None:
    """NCCL's lines show that peers went away: at an orderly end, or not."""
    copied("ring_killed2", folder, "nccl_debug")
    assert report_of(folder).verdicts == []
    text = diagnose(folder).stdout.decode()
    assert "\nProcesses reported errors; whether the job died is not known:" in text
    assert "Nothing stands out" not in text


def test_a_dump_of_one_rank_alone_is_no_all_clear(folder: Path) -> None:
    copied("ring_size5", folder, "flight_recorder")
    for path in (folder / "flight_recorder").iterdir():
        if not path.name.startswith("nccl_trace_rank_5"):
            path.unlink()
    diagnosis = report_of(folder)
    assert diagnosis.verdicts == []
    assert diagnosis.unclear == [
        "2 operations had not ended when the dumps were taken; this evidence names no culprit."
    ]


def test_a_long_training_log_is_looked_through_to_its_end(tmp_path: Path) -> None:
    lines = ["step 1 loss 2.3 lr 1e-4"] * 20_000
    lines += ["[rank2]: Traceback (most recent call last):", '[rank2]:   File "a.py", line 3, in f']
    lines += ["[rank2]: ZeroDivisionError: division by zero", ""]
    (tmp_path / "train.log").write_text("\n".join(lines), "utf-8")
    (tmp_path / "notes.txt").write_text("Run 17 was started by hand.\n", "utf-8")
    diagnosis = report_of(tmp_path)
    verdict = only(diagnosis)
    assert (verdict.cause, verdict.reason) == (Cause.CRASH, Reason.PROGRAM)
    assert verdict.culprit == Culprit(rank=2)
    assert "at a.py:3" in said(verdict)
    assert [Path(one.path).name for one in diagnosis.read.not_understood] == ["notes.txt"]


def test_a_text_without_last_words_alone_is_not_understood(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Run 17 was started by hand.\n", "utf-8")
    done = diagnose(tmp_path)
    assert done.returncode == 2
    assert b"that is understood" in done.stderr


# --- logs of others ------------------------------------------------------------------------------


@needs_others
@pytest.mark.parametrize(
    ("log", "reason", "words"),
    [
        ("efa_fail", Reason.CONNECTION_LOST, "Unresponsive receiver"),
        ("ib_err12", Reason.CONNECTION_LOST, "transport retry counter exceeded"),
        ("watchdog", Reason.TIMED_OUT, "Watchdog caught collective operation timeout"),
    ],
)
def test_a_dead_job_of_others_is_no_all_clear_and_accuses_nobody(
    log: str, reason: Reason, words: str
) -> None:
    verdict = only(report_of(OTHERS / log))
    assert (verdict.cause, verdict.reason) == (Cause.CRASH, reason)
    assert (verdict.culprit.rank, verdict.culprit.host) == (None, "")
    assert words in said(verdict)


@needs_others
@pytest.mark.parametrize("log", ["eks_p4d-24xlarge-1pod-4proc", "sb_nccl"])
def test_a_sound_run_of_others_stays_without_a_verdict(log: str) -> None:
    diagnosis = report_of(OTHERS / log)
    assert (diagnosis.verdicts, diagnosis.unclear) == ([], [])
