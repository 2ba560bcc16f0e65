"""Windows for tests: of a captured folder, as `fabricscope diagnose` makes them.

The engine allows one data path in a process, so a folder is read in a process of its own, and the
window comes back pickled.
"""

import contextlib
import pickle
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from alerts.window.model import Window
from api.diagnose.analyse import TimeRange, analyse_job
from api.diagnose.cli import choose_jobs, load_all, temporary_folder
from api.diagnose.find import EARLIEST_NS, Walk
from api.diagnose.jobs import find_jobs
from api.diagnose.load import LATEST_NS
from api.diagnose.throw_away import throw_away_store
from api.diagnose.windows import window_of
from tests.stands.diagnosing import ROOT, RUN_SECONDS
from tests.stands.environment import clean_environment


@cache
def capture_window(*paths: Path) -> Window:
    """The window of these files and folders."""
    with tempfile.NamedTemporaryFile(suffix=".window") as answer:
        done = subprocess.run(
            [sys.executable, "-m", "tests.worlds.windows", answer.name, *map(str, paths)],
            capture_output=True,
            check=False,
            timeout=RUN_SECONDS,
            cwd=ROOT,
            env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr.decode()
        window: Window = pickle.loads(Path(answer.name).read_bytes())  # noqa: S301 - our own
        return window


def read_window(paths: list[str]) -> Window:
    """In this process: load, find jobs, analyse."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        store = stack.enter_context(throw_away_store(folder / "store"))
        loaded = load_all(store, Walk(paths).files())
        jobs = choose_jobs(find_jobs(store, loaded), None)
        asked = TimeRange(EARLIEST_NS, LATEST_NS)
        return window_of(store, [analyse_job(store, job, asked) for job in jobs])


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(pickle.dumps(read_window(sys.argv[2:])))
