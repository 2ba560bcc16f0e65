"""`fabricscope diagnose` for tests: as a user runs it, in a process of its own.

The engine allows one data path in a process, so every run is a process.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from api.diagnose.report import Diagnosis
from tests.stands.environment import clean_environment

ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS = 240
"""A run takes three seconds; on a machine that does ten other things, more."""


def diagnose(
    *words: str | Path, given: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """What the command did; its temporary files go where ``TMPDIR`` says."""
    command = [sys.executable, "-m", "tests.stands.diagnosing", *map(str, words)]
    return subprocess.run(
        command,
        input=given,
        capture_output=True,
        check=False,
        timeout=RUN_SECONDS,
        cwd=ROOT,
        env={**clean_environment(), "COLUMNS": "110", "PYTHONPATH": str(ROOT), **environment},
    )


def report_of(*words: str | Path, given: bytes = b"", **environment: str) -> Diagnosis:
    """The report; its shape is checked field by field."""
    done = diagnose("--json", *words, given=given, **environment)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    return msgspec.json.decode(done.stdout, type=Diagnosis)


def plain(report: Diagnosis) -> Any:  # noqa: ANN401 - JSON
    """The report as dictionaries."""
    return msgspec.to_builtins(report)


if __name__ == "__main__":
    gc.disable()  # as the command does, until it has imported what it needs
    from api.diagnose import analyse
    from api.jobs.correlate.read import RECORDS_MAX
    from collector.cli import main

    # A test may lower the bound, to see what happens beyond it.
    vars(analyse)["RECORDS_MAX"] = int(os.environ.get("TEST_RECORDS_MAX", RECORDS_MAX))
    os.environ.setdefault("NO_COLOR", "1")
    sys.exit(main(["diagnose", *sys.argv[1:]]))
