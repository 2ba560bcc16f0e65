"""The report of another run: a file that `--json` wrote, or files to be read by another process.

By another process, because the engine has one folder in each; and before this run's own, so that
the memory of both is never taken at once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from api.diagnose.report import FORMAT, Diagnosis
from collector.contract.errors import SettingsError
from collector.contract.identity import printable

REPORT_BYTES_MAX = 1 << 30
"""A report of ours: some 60 MB for the largest jobs."""
REPORT_START = b'{"format":'
CHILD = "import sys; from collector.cli import main; sys.exit(main(sys.argv[1:]))"


def read_other(paths: Sequence[str], folder: Path) -> Diagnosis:
    """``folder`` takes the other process' report. Raises a SettingsError that names the paths."""
    if len(paths) == 1 and (report := kept_report(Path(paths[0]))) is not None:
        return report
    target = folder / "against.json"
    with target.open("wb") as file:
        # -P: what lies in the folder that this was started in is no module of ours.
        done = subprocess.run(  # noqa: S603 - ourselves, with paths behind `--`
            [sys.executable, "-P", "-c", CHILD, "diagnose", "--json", "--", *paths],
            stdout=file,
            check=False,
        )
    if done.returncode:
        raise SettingsError(f"--against {' '.join(map(printable, paths))}: could not be read")
    return decode(target.read_bytes(), printable(paths[0]))


def kept_report(path: Path) -> Diagnosis | None:
    """The report in a file; None for anything else."""
    try:
        if not path.is_file() or path.stat().st_size > REPORT_BYTES_MAX:
            return None
        with path.open("rb") as file:
            if file.read(len(REPORT_START)) != REPORT_START:
                return None
        return decode(path.read_bytes(), printable(str(path)))
    except OSError as error:
        raise SettingsError(f"{printable(str(path))}: {error.strerror or error}") from error


def decode(content: bytes, name: str) -> Diagnosis:
    try:
        found = msgspec.json.decode(content, type=Diagnosis)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{name} is no report of `diagnose --json`: {error}") from error
    if found.format != FORMAT:
        raise SettingsError(f"{name}: a report of format {found.format}; this one reads {FORMAT}")
    return found
