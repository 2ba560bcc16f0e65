"""Captures beside the checkout: none may be missing unseen, and a few are in every clone."""

import json
import os
from pathlib import Path

import pytest

from tests.tools.captures import SHARED, WANTED, missing

OWN = Path(__file__).resolve().parent.parent / "fixtures/diagnose"
OWN_BYTES_MAX = 800_000


@pytest.mark.skipif(not SHARED.is_dir(), reason="there is no ../shared")
@pytest.mark.skipif(
    os.environ.get("CI", "").lower() not in {"1", "true"}, reason="only CI must have all captures"
)
def test_ci_has_every_capture() -> None:
    assert missing() == []


def test_a_missing_capture_is_named(tmp_path: Path) -> None:
    for folder, runs in WANTED.items():
        for run in runs:
            (tmp_path / folder / run).mkdir(parents=True)
            (tmp_path / folder / run / "truth.json").write_text("{}")
    assert missing(tmp_path) == []
    (tmp_path / "h200-ring/net3/truth.json").unlink()
    assert missing(tmp_path) == ["h200-ring/net3"]


def test_a_clone_has_real_runs_with_and_without_a_fault() -> None:
    truths = [json.loads(path.read_text("utf-8")) for path in OWN.glob("*/truth.json")]
    assert {"none", "slow_link", "straggler"} <= {truth["cause"] for truth in truths}
    assert sum(path.stat().st_size for path in OWN.rglob("*") if path.is_file()) <= OWN_BYTES_MAX
