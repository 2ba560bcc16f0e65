"""`fabricscope diagnose` keeps its promises: what it prints, and what hostile folders do to it."""

import base64
import gzip
import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.diagnose.cli import nothing_found
from api.diagnose.load import FileRead, Loaded
from api.diagnose.page import TEMPLATE
from api.diagnose.report import Diagnosis
from dashboards import PAGE
from tests.conftest import Golden
from tests.oracles.trace_format import check
from tests.stands.diagnosing import ROOT, diagnose, plain, report_of

FIXTURE = ROOT / "tests/fixtures/diagnose/net3"
COMMUNICATOR = "0x4c2e4565980881"
IS_BUILT = (PAGE / TEMPLATE).is_file()
needs_page = pytest.mark.skipif(not IS_BUILT, reason="no built page: make page")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run that writes everything: report.txt, report.html, trace.json."""
    folder = tmp_path_factory.mktemp("outputs")
    temporary = folder / "temporary"
    temporary.mkdir()
    # Without a built page everything else is still to be seen.
    html = ["--html", str(folder / "report.html")] if IS_BUILT else []
    done = diagnose(
        "tests/fixtures/diagnose/net3",
        *html,
        "--trace",
        folder / "trace.json",
        TMPDIR=str(temporary),
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b"", "progress is for terminals"
    assert list(temporary.iterdir()) == [], "the throw-away store is thrown away"
    (folder / "report.txt").write_bytes(done.stdout)
    return folder


@pytest.fixture(scope="module")
def report() -> Diagnosis:
    return report_of(FIXTURE)


# --- what it says ------------------------------------------------------------------------------


def test_the_text_is_what_a_person_needs(outputs: Path, golden: Golden) -> None:
    text = (outputs / "report.txt").read_text("utf-8")
    lines = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    golden(ROOT / "tests/fixtures/diagnose/net3.expected.txt", lines)


def test_progress_is_said_in_lines_where_it_is_asked_for() -> None:
    done = diagnose(FIXTURE, "--progress", "--json")
    assert done.returncode == 0
    json.loads(done.stdout)
    said = done.stderr.decode().splitlines()
    assert said[0] == "looking for files"
    assert said[1].startswith("reading ")
    assert said[-1] == "writing files"
    assert not any("\x1b" in line or "\r" in line for line in said)


def test_of_too_many_records_some_are_looked_at_and_nothing_is_missing(report: Diagnosis) -> None:
    """Lateness is of a sample then; operations and steps are all there."""
    (whole,) = report.jobs
    (thin,) = report_of(FIXTURE, TEST_RECORDS_MAX="240").jobs
    assert [(each.operation, each.count, each.complete) for each in thin.operations] == [
        (each.operation, each.count, each.complete) for each in whole.operations
    ]
    assert [each.transfer_ns for each in thin.collectives] == [
        each.transfer_ns for each in whole.collectives
    ]
    assert (len(thin.steps), thin.steps_from) == (21, "collectives")
    assert {each.operations for each in whole.lateness} == {21}
    assert max(each.operations for each in thin.lateness) < 11


def test_everything_is_joined(report: Diagnosis) -> None:
    (job,) = report.jobs
    assert (job.size, len(job.ranks), job.source) == (8, 8, "nccl_inspector")
    assert [(each.operation, each.count, each.complete) for each in job.operations] == [
        ("all_gather", 21, 21),
        ("all_reduce", 21, 21),
    ]
    assert [rank.host for rank in job.ranks] == [f"node{rank}" for rank in range(8)]
    assert job.nccl_versions == ["2.28.9+cuda13.0"]
    wired = next(each for each in job.communicators if each.communicator == COMMUNICATOR)
    assert wired.rings == [list(range(8))] * 2
    assert len(wired.trees) == 2
    assert (len(job.steps), job.steps_from) == (21, "collectives")
    (verdict,) = report.verdicts
    assert (verdict.cause, verdict.culprit.host, verdict.culprit.device) == (
        "slow_link",
        "node3",
        "eth0",
    )


def test_the_slow_link_is_seen_in_the_transfer(report: Diagnosis) -> None:
    (job,) = report.jobs
    by_number = {each.sequence: each for each in job.collectives if each.operation == "all_reduce"}
    assert all(by_number[number].transfer_ns < 60e6 for number in range(25, 33))
    assert all(by_number[number].transfer_ns > 300e6 for number in range(36, 46))
    before, after = job.steps[3], job.steps[-3]
    assert after.transfer_ns > 10 * before.transfer_ns


def test_what_was_read_is_told(report: Diagnosis) -> None:
    formats = {each.format: each for each in report.read.formats}
    assert {name: each.files for name, each in formats.items()} == {
        "flight_recorder": 2,
        "kineto": 1,
        "nccl_debug": 8,
        "nccl_inspector": 8,
        "openmetrics": 2,
    }
    assert formats["nccl_inspector"].counts["collectives"] == 8 * 42
    assert [Path(each.path).name for each in report.read.not_understood] == ["truth.json"]
    assert report.read.broken == []
    assert {loss.lost for loss in report.read.losses} == {0}


def test_the_shape_of_json_is_fixed(golden: Golden) -> None:
    """A change here is a change for everyone who reads it: grow FORMAT if old readers break."""
    schema = json.dumps(msgspec.json.schema(Diagnosis), indent=1, sort_keys=True) + "\n"
    golden(ROOT / "docs/reference/diagnose.schema.json", schema)


def test_every_field_of_json_is_documented() -> None:
    page = (ROOT / "docs/reference/diagnose-json.md").read_text("utf-8")
    schema = msgspec.json.schema(Diagnosis)
    fields = {name for each in schema["$defs"].values() for name in each.get("properties", {})}
    assert sorted(name for name in fields if f"`{name}`" not in page) == []


# --- page and trace ----------------------------------------------------------------------------


class Tags(HTMLParser):
    """Collects the tags and attributes of a page, and checks that they are closed in order."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags_of(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


@needs_page
def test_the_page_needs_nothing_else(outputs: Path) -> None:
    """What it shows is seen by a browser in tests/e2e/test_report.py."""
    page = (outputs / "report.html").read_text("utf-8")
    tags = tags_of(page)
    assert not tags.seen & {"img", "iframe", "object", "base", "form"}
    assert not tags.attributes & {"src", "onload", "onclick", "style"}
    assert re.findall(r"<link[^>]*>", page) == ['<link rel="icon" href="data:," />']
    assert not re.search(r"url\(|@import", page)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    data = data_of(page)
    (job,) = data["jobs"]
    assert [one["title"] for one in job["collectives"]] == [
        "all_reduce, 8 MiB",
        "all_gather, 256 KiB",
    ]
    assert {"Network, sent", "GPU, power"} <= {one["title"] for one in job["readings"]}
    assert len(job["steps"]["spans"]) == len(job["heat"]["columns"]) == 21
    assert len(page) < 400_000


def data_of(page: str) -> Any:  # noqa: ANN401 - JSON
    """What a report shows."""
    (text,) = re.findall(r'<script type="application/json" id="data">([^<]*)</script>', page)
    return json.loads(text)


def test_the_trace_opens_in_perfetto(outputs: Path) -> None:
    trace = check((outputs / "trace.json").read_bytes())
    events = trace.events
    assert {event["ph"] for event in events} == {"M", "X", "C", "i", "s", "f"}
    processes = list(trace.names("process_name").values())
    assert processes == ["job inferred-4c2e4565980881", *(f"node{rank}" for rank in range(8))]
    reduces = [e for e in events if e["ph"] == "X" and e["name"] == "all_reduce"]
    assert len(reduces) == 8 * 21
    last = [event for event in reduces if event["args"]["last_in"]]
    assert len(last) == 21
    assert {"sequence", "size_bytes", "entry_skew_ms", "transfer_ms"} <= last[0]["args"].keys()
    for rank in range(8):
        assert len(trace.slices_on(f"rank {rank} steps")) == 21
    assert len(trace.slices_on("rank 3", "gpu.communication")) > 0
    sent = {e["pid"] for e in events if e["ph"] == "C" and e["name"] == "eth0 sent"}
    assert len(sent) == 8
    (verdict,) = trace.slices_on("incidents")
    assert verdict["name"] == "slow_link: rank 3, node3, eth0 1"
    threads = trace.names("thread_name")
    sources = {threads[e["pid"], e["tid"]].split(" 0x")[0] for e in trace.of("s")}
    assert sources == {"rank 3"}, "arrows come from the slow link's rank"


# --- hostile folders ---------------------------------------------------------------------------


class Executes:
    """Unpickled by the standard library, this runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture, with everything that can go wrong."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    shutil.copytree(FIXTURE, folder)
    logs = sorted((folder / "inspector").iterdir())
    lines = gzip.decompress(logs[0].read_bytes()).splitlines(keepends=True)
    shuffled = [*lines[10:], *reversed(lines), *lines[:10]]
    logs[0].write_bytes(gzip.compress(b"".join(shuffled)))
    lines = gzip.decompress(logs[1].read_bytes()).splitlines(keepends=True)
    lines[3:3] = [os.urandom(5000).replace(b"\n", b"") + b"\n", b"[" * 100_000 + b"\n"]
    lines[9:9] = [b"x" * (6 << 20) + b"\n"]
    logs[1].write_bytes(b"".join(lines))
    trace = folder / "kineto/rank3.pt.trace.json.gz"
    whole = gzip.decompress(trace.read_bytes())
    (folder / "kineto/rank2.pt.trace.json").write_bytes(whole[: len(whole) // 2])
    trace.write_bytes(trace.read_bytes()[: trace.stat().st_size // 2])
    dump = pickle.dumps({"entries": [Executes(f"touch {folder.parent / 'executed'}")]}, 2)
    (folder / "flight_recorder/nccl_trace_rank_5").write_bytes(dump)
    (folder / "flight_recorder/nccl_trace_rank_6").write_bytes(b"\x80\x02" + b"(" * 1000)
    (folder / "empty").write_bytes(b"")
    (folder / "noise").write_bytes(os.urandom(100_000))
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(200 << 20)))
    (folder / "loop").symlink_to(folder)
    (folder / "<script>alert(1)<script>[red]\x1b[2J.log").write_bytes(b"\0\1\2")
    return folder


@pytest.fixture(scope="module")
def after_hostile(hostile: Path) -> Diagnosis:
    return report_of(hostile)


@pytest.mark.slow
def test_nothing_is_executed(hostile: Path, after_hostile: Diagnosis) -> None:
    assert after_hostile.format == 1
    assert not (hostile.parent / "executed").exists()
    problems = {Path(each.path).name: each for each in after_hostile.read.broken}
    assert "execute" in problems["nccl_trace_rank_5"].problems[0]


@pytest.mark.slow
def test_the_rest_is_used(after_hostile: Diagnosis, report: Diagnosis) -> None:
    (job,), (usual,) = after_hostile.jobs, report.jobs
    assert plain(after_hostile)["jobs"][0]["collectives"] == plain(report)["jobs"][0]["collectives"]
    assert job.ranks == usual.ranks
    assert job.clocks == usual.clocks


@pytest.mark.slow
def test_what_is_broken_is_named_with_the_reason(after_hostile: Diagnosis) -> None:
    read = after_hostile.read
    broken = {Path(each.path).name: each for each in read.broken}
    assert broken.keys() == {
        "nccl_trace_rank_5",
        "nccl_trace_rank_6",
        "node1-pid1124.log.gz",
        "rank2.pt.trace.json",
        "rank3.pt.trace.json.gz",
    }
    log = broken["node1-pid1124.log.gz"]
    assert (log.records, log.problem_count) == (43, 3)
    assert any("LINE_BYTES_MAX" in problem for problem in log.problems)
    assert any("cut off" in each for each in broken["rank2.pt.trace.json"].problems)
    assert any("cut off" in each for each in broken["rank3.pt.trace.json.gz"].problems)
    unknown = {Path(each.path).name for each in read.not_understood}
    assert {"empty", "noise", "bomb.gz", "truth.json"} <= unknown
    assert all(each.path.isprintable() for each in read.not_understood)


@pytest.mark.slow
@needs_page
def test_hostile_names_stay_text(hostile: Path, tmp_path: Path) -> None:
    done = diagnose(hostile, "--verbose", "--html", tmp_path / "page.html", "--no-color")
    assert done.returncode == 0, done.stderr.decode()
    assert b"\x1b" not in done.stdout
    assert b"<script>alert(1)<script>[red]" in done.stdout
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<script") == page.count("</script>") == 2
    assert "<script>alert(1)<script>[red]" in json.dumps(data_of(page), ensure_ascii=False)


@pytest.mark.slow
def test_two_runs_at_once_are_two_jobs(tmp_path: Path) -> None:
    """Also where the framework's groups have the same names, as those of all jobs have."""
    other = tmp_path / "other"
    shutil.copytree(FIXTURE, other)
    for path in sorted((other / "inspector").iterdir()):
        text = gzip.decompress(path.read_bytes()).replace(b"0x4c2e4565980881", b"0x11111111111111")
        text = re.sub(rb'"pid":(\d+)', rb'"pid":9\1', text)
        path.write_bytes(gzip.compress(text))
    shutil.rmtree(other / "nccl_debug")
    shutil.rmtree(other / "kineto")
    report = report_of(FIXTURE, other)
    assert [job.job for job in report.jobs] == [
        "inferred-11111111111111",
        "inferred-4c2e4565980881",
    ]
    for job in report.jobs:
        assert [each.count for each in job.operations] == [21, 21]
    dumps = next(each for each in report.read.formats if each.format == "flight_recorder")
    assert dumps.files == 4
    groups = [
        {each.communicator for each in job.communicators if each.source == "process group"}
        for job in report.jobs
    ]
    assert not groups[0] & groups[1]
    only = report_of(FIXTURE, other, "--job", "inferred-4c2e4565980881")
    assert [job.job for job in only.jobs] == ["inferred-4c2e4565980881"]


@pytest.mark.slow
def test_a_file_that_claims_a_hundred_jobs_is_bounded() -> None:
    log = next((FIXTURE / "inspector").glob("node0-*"))
    line = gzip.decompress(log.read_bytes()).splitlines()[0]
    lines = [
        line.replace(b"0x4c2e4565980881", b"0x%014x" % number)
        .replace(b'"pid":1123', b'"pid":%d' % (number + 1))
        .replace(b'"n_ranks":8', b'"n_ranks":2147483647')
        for number in range(100)
    ]
    report = report_of("-", given=b"\n".join(lines))
    assert (len(report.jobs), report.jobs_left_out) == (64, 36)


# --- the command -------------------------------------------------------------------------------


def test_dumps_alone_give_an_estimate() -> None:
    """The watchdog's times are no use; durations are, and the report says what it made of them."""
    (job,) = report_of(FIXTURE / "flight_recorder").jobs
    assert job.source == "flight_recorder"
    assert "an estimate" in job.source_reason
    slow = [
        each for each in job.collectives if each.sequence > 71 and each.operation == "all_reduce"
    ]
    assert all(100e6 < each.transfer_ns < 600e6 for each in slow)
    assert all(each.ranks_seen <= 2 for each in job.collectives)


def test_a_trace_alone_is_enough() -> None:
    (job,) = report_of(FIXTURE / "kineto").jobs
    assert (job.source, job.collectives_total) == ("kineto", 14)
    assert job.first_ns == min(each.start_ns for each in job.collectives)


def test_standard_input_is_a_file() -> None:
    log = next((FIXTURE / "inspector").glob("node0-*"))
    report = report_of("-", given=log.read_bytes())
    assert [(each.format, each.files) for each in report.read.formats] == [("nccl_inspector", 1)]
    assert report.jobs[0].operations[0].lost == 7 * 21


def test_a_part_of_the_time() -> None:
    report = report_of(FIXTURE, "--from", "1794700800", "--to", "2026-11-15T00:00:03Z")
    (job,) = report.jobs
    assert 0 < len(job.collectives) < 20
    assert min(each.end_ns for each in job.collectives) >= 1794700800_000000000


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    done = diagnose(str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"{tmp_path}: no files there; give the folder that" in done.stderr.decode()


def test_what_cannot_be_read_is_not_called_of_no_kind() -> None:
    found = FileRead(path="job.log", problems=["Permission denied"], problem_count=1, counts={})
    said = nothing_found(Loaded(files=[found]), ["job.log"])
    assert said.startswith("job.log: Permission denied; what is understood: ")
    locked = Loaded(left_out=[("logs", "Permission denied")])
    assert nothing_found(locked, ["logs"]) == "logs: Permission denied"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tests/fixtures/diagnos"], "did you mean"),
        ([str(FIXTURE), "--jsn"], "unknown option '--jsn'; did you mean '--json'?"),
        ([str(FIXTURE / "truth.json")], "truth.json is of no kind that is understood"),
        ([str(FIXTURE), "--from", "yesterday"], "--from 'yesterday' is not a time"),
        ([str(FIXTURE), "--from", "20", "--to", "10"], "--from 20 is after --to 10"),
        ([str(FIXTURE), "--html", "nowhere/report.html"], "there is no folder"),
        (
            [str(FIXTURE), "--job", "inferred-4c2e456598088"],
            "did you mean 'inferred-4c2e4565980881'",
        ),
        ([], "the following arguments are required: PATH"),
    ],
)
def test_a_mistake_gets_one_line_that_helps(words: list[str], message: str) -> None:
    done = diagnose(*words)
    assert done.returncode == 2
    assert done.stdout == b""
    last = done.stderr.decode().strip().splitlines()[-1]
    assert message in last
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["interrupt", "terminate", "hang up"],
)
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "tests.stands.diagnosing", str(pipe)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # Opening waits until the program reads: its store is there then.
        with pipe.open("wb"):
            assert list(temporary.iterdir()) != []
            process.send_signal(number)
            assert process.wait(timeout=60) == status
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert list(temporary.iterdir()) == []
