"""Captures of real runs, scrubbed: log lines, addresses and paths go, and the verdicts stay."""

import pytest

from alerts.cases.model import ReplayCase, Says, Told, Truth
from alerts.cases.packed import pack, unpack, unpack_frame
from alerts.cases.scrub import scrub
from alerts.judge.verdict import judge
from tests.stands.diagnosing import ROOT
from tests.worlds.windows import capture_window

CAPTURES = ROOT / "tests/fixtures/diagnose"


@pytest.mark.parametrize(("name", "verdicts"), [("dead", 6), ("net3", 1)])
def test_a_scrubbed_capture_gives_the_same_verdicts(name: str, verdicts: int) -> None:
    window = capture_window(CAPTURES / name)
    before = tuple(map(Told.of, judge(window)))
    assert len(before) == verdicts
    truth = Truth(says=Says.RIGHT, told=before[0])
    case = scrub(ReplayCase(truth=truth, window=window, verdicts=before, kept_by="test"))
    packed = pack(case)
    assert tuple(map(Told.of, judge(unpack(packed).window))) == case.verdicts
    hosts = {host for job in window.jobs for host in job.records.hosts}
    lines = {event.message for event in window.events}
    body = unpack_frame(packed)
    left = [text for text in hosts | lines if len(text) > 2 and text.encode() in body]
    assert left == []
