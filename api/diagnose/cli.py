"""`fabricscope diagnose`: read the files, report what they show."""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from alerts.window.model import Window as Seen
from api.base.packages import leave_out_needless
from api.base.times import read_time_ms
from api.diagnose.against import read_other
from api.diagnose.analyse import Analysis, TimeRange, analyse_job
from api.diagnose.bandwidth import nic_rates
from api.diagnose.compare import compare
from api.diagnose.find import EARLIEST_NS, STANDARD_INPUT, Found, Walk
from api.diagnose.jobs import Job, find_jobs
from api.diagnose.load import LATEST_NS, Loaded, Loader
from api.diagnose.progress import Phases, reading
from api.diagnose.report import JOBS_MAX, Diagnosis, to_json
from api.diagnose.summarise import (
    find_profiles,
    find_settings,
    find_warnings,
    summarise_job,
    summarise_read,
)
from api.diagnose.throw_away import ThrowAwayStore, throw_away_store
from api.diagnose.verdicts import in_part, judge_windows
from api.diagnose.windows import window_of, windows_of
from collector.contract.errors import SettingsError
from collector.contract.identity import printable
from collector.contract.layers import unknown
from collector.contract.targets import check_file
from collector.contract.units import NS_PER_MS
from collector.parsing.nccl_settings import NCCL_SETTINGS

EXIT_NOTHING = 2
"""Nothing that was found could be read."""
TEXT_COLUMNS = 110
"""The width without a terminal: tables fit, and so does a page of a ticket."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="files, folders and archives (tar, zip), packed or not; - is standard input",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the report as JSON")
    form.add_argument(
        "--md", action="store_true", help="print it in Markdown, for a ticket; bounded in length"
    )
    parser.add_argument(
        "--against",
        action="append",
        metavar="PATH",
        help="another run, as files or a report of --json: what changed since; may be repeated",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with plots, in one file"
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a trace for ui.perfetto.dev; packed if it ends in .gz",
    )
    parser.add_argument("--job", metavar="ID", help="only this job")
    parser.add_argument(
        "--from", dest="start", metavar="TIME", help="unix seconds or 2026-01-31T12:00:00Z"
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="the same")
    parser.add_argument(
        "--verbose", action="store_true", help="name every file that was not understood"
    )
    parser.add_argument("--no-color", action="store_true", help="plain text")
    parser.add_argument(
        "--progress", action="store_true", help="say what is done, in lines, without a terminal too"
    )


def run(arguments: argparse.Namespace) -> int:
    leave_out_needless()
    window = to_time_range(arguments.start, arguments.end)
    for target in (arguments.html, arguments.trace):
        check_file(target)
    if arguments.html is not None:
        # Hours of reading would be lost if a page that cannot be written failed only at the end.
        from api.diagnose.page import read_template

        read_template()
    # A signal, or a terminal that goes away, must not leave gigabytes behind: it becomes an
    # exception, and the folder goes.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    phases = Phases(in_lines=arguments.progress)
    with temporary_folder() as folder:
        other = None
        if arguments.against:
            phases.say("reading the run to compare with")
            other = read_other(arguments.against, folder)
        phases.say("looking for files")
        walk = Walk(arguments.paths)
        files = walk.files()
        phases.clear()
        with throw_away_store(folder / "store") as store:
            loaded = load_all(store, files, in_lines=arguments.progress)
            loaded.left_out += [(printable(path), why) for path, why in walk.left_out]
            if not any(file.format for file in loaded.files):
                print(f"fabricscope: {nothing_found(loaded, arguments.paths)}", file=sys.stderr)
                return EXIT_NOTHING
            diagnosis = look(arguments, window, store, loaded, other, phases)
            phases.clear()
            show(arguments, diagnosis)
    return 0


def look(
    arguments: argparse.Namespace,
    window: TimeRange,
    store: ThrowAwayStore,
    loaded: Loaded,
    other: Diagnosis | None,
    phases: Phases,
) -> Diagnosis:
    """From what was read to the report; writes the files that were asked for."""
    phases.say("finding jobs")
    found = find_jobs(store, loaded)
    jobs = choose_jobs(found, arguments.job)
    analyses = []
    for number, job in enumerate(jobs, 1):
        phases.say(f"joining collectives of job {job.name} ({number} of {len(jobs)})")
        analyses.append(analyse_job(store, job, window))
    phases.say("reading counters and events")
    times = windows_of(store, analyses, window, loaded)
    seen = times[0] if len(times) == 1 else window_of(store, analyses, window, loaded)
    phases.say("looking for faults")
    judged = judge_windows(times, {file.format for file in loaded.files})
    phases.say("summing up")
    shown = {job.job: job for each in times for job in each.jobs}
    reports = [summarise_job(store, analysis, shown) for analysis in analyses]
    unclear = judged.unclear or ([] if judged.verdicts else in_part(reports))
    diagnosis = Diagnosis(
        verdicts=judged.verdicts,
        also_seen=judged.also_seen,
        unclear=unclear,
        looked_at=judged.looked_at,
        detectors=judged.detectors,
        read=summarise_read(loaded, analyses),
        jobs=reports,
        jobs_left_out=len(found) - len(jobs) if arguments.job is None else 0,
        warnings=find_warnings(store),
        nccl_tests=store.results.tests(nic_rates(store.events((NCCL_SETTINGS,)))),
        nccl_settings=find_settings(store),
        profiles=find_profiles(store),
    )
    if other is not None:
        compared = compare(diagnosis, other, [printable(path) for path in arguments.against])
        diagnosis = msgspec.structs.replace(diagnosis, compared=compared)
    # Files first: a reader of the text like `head` closes the pipe before its end.
    phases.say("writing files")
    write_files(arguments, store, diagnosis, analyses, seen)
    return diagnosis


def to_time_range(start: str | None, end: str | None) -> TimeRange:
    edges = []
    for flag, text, default in (("--from", start, EARLIEST_NS), ("--to", end, LATEST_NS)):
        time_ms = read_time_ms(text) if text is not None else default // NS_PER_MS
        if time_ms is None:
            raise SettingsError(
                f"{flag} {printable(text or '')[:64]!r} is not a time: write unix seconds "
                "(1700000000.5) or RFC 3339 with a zone (2023-11-14T22:13:20Z)"
            )
        edges.append(time_ms * NS_PER_MS)
    if edges[0] > edges[1]:
        raise SettingsError(f"--from {start} is after --to {end}")
    return TimeRange(*(min(max(edge, EARLIEST_NS), LATEST_NS) for edge in edges))


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for the store and what the driver hands it; gone at the end, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="fabricscope-"))
    before = tempfile.tempdir
    try:
        tempfile.tempdir = str(folder)
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)


def load_all(store: ThrowAwayStore, files: Sequence[Found], *, in_lines: bool = False) -> Loaded:
    """``in_lines``: progress is said without a terminal, too."""
    loader = Loader(store)
    total_bytes = sum(found.size_bytes for found in files)
    with reading(total_bytes, in_lines=in_lines) as (on_file, on_read):
        for found in files:
            on_file(found)
            with contextlib.ExitStack() as stack:
                file = open_found(found, stack, loader.loaded)
                if file is not None:
                    loader.read(found, file, on_read)
    return loader.finish()


def open_found(found: Found, stack: contextlib.ExitStack, loaded: Loaded) -> BinaryIO | None:
    """None, and an entry in the account, if the file cannot be opened."""
    if found.path == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(found.path).open("rb"))
    except OSError as error:
        loaded.note_unreadable(found, error.strerror or str(error))
        return None


def nothing_found(loaded: Loaded, paths: Sequence[str]) -> str:
    """The message for ``paths`` without any known format."""
    from collector.formats import discover

    problems = [f"{file.path}: {file.problems[0]}" for file in loaded.files if file.problems]
    problems += [f"{path}: {why}" for path, why in loaded.left_out]
    because = "; ".join(problems[:3])
    count = len(loaded.files)
    if not count:
        places = ", ".join(printable(path) for path in paths)
        return because or f"{places}: no files there; give the folder that the ranks wrote logs to"
    titles = ", ".join(reader.title for reader in discover().values())
    if count == 1 and because:
        return f"{because}; what is understood: {titles}"
    if count == 1:
        return f"{loaded.files[0].path} is of no kind that is understood ({titles})"
    what = f"none of the {count} files is of a kind that is understood ({titles})"
    return f"{what}; {because}" if because else what


def choose_jobs(jobs: list[Job], name: str | None) -> list[Job]:
    """The job of this name, or all; of too many the largest."""
    if name is None:
        largest = sorted(jobs, key=lambda job: -len(job.processes))[:JOBS_MAX]
        return sorted(largest, key=lambda job: (job.first_ns, job.name))
    chosen = [job for job in jobs if job.name == name]
    if not chosen:
        raise SettingsError(unknown("job", name, (job.name for job in jobs)))
    return chosen


def show(arguments: argparse.Namespace, diagnosis: Diagnosis) -> None:
    if arguments.json:
        sys.stdout.buffer.write(to_json(diagnosis) + b"\n")
        sys.stdout.flush()
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if arguments.md:
        from api.diagnose.markdown import render

        print(render(diagnosis), end="")
        return
    from api.diagnose.text import SCREEN_ROWS, print_report

    columns, rows = shutil.get_terminal_size((TEXT_COLUMNS, SCREEN_ROWS))
    print_report(
        diagnosis,
        sys.stdout,
        columns=columns,
        rows=rows,
        is_plain=arguments.no_color,
        is_verbose=arguments.verbose,
    )


def write_files(
    arguments: argparse.Namespace,
    store: ThrowAwayStore,
    diagnosis: Diagnosis,
    analyses: Sequence[Analysis],
    seen: Seen,
) -> None:
    if arguments.html is None and arguments.trace is None:
        return
    from api.diagnose.page import render
    from api.diagnose.readings import read_plots
    from api.diagnose.trace import write_trace

    readings = [read_plots(store, TimeRange(job.first_ns, job.last_ns)) for job in diagnosis.jobs]
    if arguments.html is not None:
        write_pieces(arguments.html, render(diagnosis, analyses, readings, seen))
    if arguments.trace is not None:
        write_pieces(arguments.trace, write_trace(store, diagnosis.verdicts, analyses, seen))


def write_pieces(path: Path, pieces: Iterable[str | bytes]) -> None:
    """Write a file, packed if its name ends in .gz; a SettingsError names it if that fails."""
    from api.jobs.trace.stream import packed

    raw = (piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    try:
        with path.open("wb") as file:
            for piece in packed(raw) if path.suffix == ".gz" else raw:
                file.write(piece)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from error
