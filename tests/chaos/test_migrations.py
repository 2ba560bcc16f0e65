"""SIGKILL before each statement of each migration: the next start ends where it should."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.chaos.conftest import PARTS, Report
from tests.chaos.ledger import Tally
from tests.chaos.migrations import Trial, last_store, revisions
from tests.stands import postgres
from tests.stands.environment import clean_environment
from tests.stands.service import ROOT

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 600


def kill_each(kind: str, where: str) -> Trial:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.migrations", kind, where],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return msgspec.json.decode(done.stdout, type=Trial)


def tally_of(trial: Trial) -> Tally:
    return Tally(verdict=f"{trial.kills} kills in {trial.migrations} migrations")


@pytest.mark.rotating(PARTS)
def test_migrations_of_the_store(tmp_path: Path, report: Report) -> None:
    trial = kill_each("store", str(tmp_path))
    assert trial.migrations == last_store()
    assert trial.kills > 2 * trial.migrations
    assert trial.differences == []
    report(tally_of(trial))


@pytest.mark.rotating(PARTS)
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.peer("initdb", "postgres"))]
)
def test_migrations_of_the_inventory(kind: str, tmp_path: Path, report: Report) -> None:
    if kind == "sqlite":
        trial = kill_each("inventory", f"sqlite:///{tmp_path}")
    else:
        with postgres.server() as url:
            trial = kill_each("inventory", url)
    assert trial.migrations == len(revisions())
    assert trial.kills > 2 * trial.migrations
    assert trial.differences == []
    report(tally_of(trial))
