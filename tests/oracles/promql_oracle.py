"""A running Prometheus as the judge of our PromQL: the same series, the same questions, in both.

The Prometheus on most machines is 2.42 (Debian's), so our service runs in its `prometheus-2`
dialect here, and then even samples on the very edge of a range have to agree. What only
Prometheus 3 knows is judged by tests/conformance/test_promql_cases.py.

Thousands of random questions, by hand:

    python -m tests.oracles.promql_oracle --count 10000 --seed 7
"""

import argparse
import itertools
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.oracles import promql_random
from tests.oracles.promql_random import Question
from tests.stands.ports import free_port
from tests.stands.service import READY_SECONDS, ServiceProcess, eventually
from tests.tools import peers
from tests.worlds import remote_write

RELATIVE = 1e-9
"""What two correct answers may differ by: sums in another order, and on some processors
Prometheus multiplies and adds in one rounding."""

QUERY_SECONDS = 60
SERIES_IN_A_REQUEST = 200

# A few samples come late on purpose, and several data sets share one hour.
PROMETHEUS_CONFIG = "storage: {tsdb: {out_of_order_time_window: 1d}}\n"
# The data sets lie at fixed times, so that a seed says everything; they must not be too old.
SERVICE_CONFIG = """
promql_dialect = "{dialect}"
rules_pack = false
own_numbers = false
[retention_days]
samples = 3650
series = 3650
"""

Key = tuple[tuple[str, str], ...]


# --- what was answered -------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """An answer, or the refusal of one."""

    error: str = ""
    is_crash: bool = False
    """Whether the server failed, rather than refused."""
    kind: str = ""
    series: Sequence[tuple[Key, dict[int, float]]] = ()
    """Labels, and values by time in ms; in the order of the answer."""


@dataclass(frozen=True)
class Difference:
    """Where two answers disagree."""

    kind: str
    text: str


def read_reply(answer: httpx.Response) -> Reply:
    """What an HTTP answer says."""
    if answer.status_code >= 500 or "json" not in answer.headers.get("Content-Type", ""):
        return Reply(f"{answer.status_code} {answer.text[:500]}", is_crash=True)
    body = answer.json()
    if body.get("status") != "success":
        return Reply(f"{answer.status_code} {body.get('errorType')}: {body.get('error')}")
    kind, result = body["data"]["resultType"], body["data"]["result"]
    if kind == "scalar":
        return Reply(kind=kind, series=[((), read_points([result]))])
    if kind == "string":
        return Reply(kind=kind, series=[((("text", result[1]),), {})])
    return Reply(
        kind=kind,
        series=[
            (
                tuple(sorted(each["metric"].items())),
                read_points(each["values"] if "values" in each else [each["value"]]),
            )
            for each in result
        ],
    )


def read_points(points: Iterable[tuple[float, str]]) -> dict[int, float]:
    """Values by time in milliseconds."""
    return {round(float(at) * 1000): float(value) for at, value in points}


# --- the comparison ----------------------------------------------------------------------------


def is_same(left: float, right: float, absolute: float) -> bool:
    """Whether two values agree; NaN is NaN, whatever its bits."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right or abs(left - right) <= max(
        absolute, RELATIVE * max(abs(left), abs(right))
    )


def compare(theirs: Reply, ours: Reply, *, absolute: float, ordered: bool) -> Difference | None:
    """The first disagreement. Two refusals agree, whatever their words; a crash never does."""
    if ours.is_crash:
        return Difference("crash", f"ours {ours.error}; theirs {theirs.error or theirs.kind}")
    if bool(theirs.error) != bool(ours.error):
        return Difference(
            "refusal", f"theirs {theirs.error or 'answers'}\n    ours   {ours.error or 'answers'}"
        )
    if theirs.error:
        return None
    return compare_answers(theirs, ours, absolute=absolute, ordered=ordered)


def compare_answers(
    theirs: Reply, ours: Reply, *, absolute: float, ordered: bool
) -> Difference | None:
    """The first disagreement of two answers."""
    if theirs.kind != ours.kind:
        return Difference("type", f"theirs {theirs.kind}, ours {ours.kind}")
    left, right = dict(theirs.series), dict(ours.series)
    if len(right) != len(ours.series):
        return Difference("labels", "ours has the same label set twice")
    if left.keys() != right.keys():
        return Difference(
            "labels",
            f"only theirs {show_keys(left.keys() - right.keys())}\n"
            f"    only ours   {show_keys(right.keys() - left.keys())}",
        )
    if ordered and [key for key, _ in theirs.series] != [key for key, _ in ours.series]:
        return Difference(
            "order",
            f"theirs {[show_key(key) for key, _ in theirs.series]}\n"
            f"    ours   {[show_key(key) for key, _ in ours.series]}",
        )
    found = (compare_points(key, left[key], right[key], absolute) for key in left)
    return next(filter(None, found), None)


def compare_points(
    key: Key, theirs: dict[int, float], ours: dict[int, float], absolute: float
) -> Difference | None:
    """The first time at which one series differs."""
    if theirs.keys() != ours.keys():
        only = sorted(theirs.keys() ^ ours.keys())
        whose = "theirs" if only[0] in theirs else "ours"
        return Difference(
            "times",
            f"{show_key(key)} at {show_time(only[0])}: only {whose} has a value "
            f"({len(only)} such times of {len(theirs.keys() | ours.keys())})",
        )
    wrong = [at for at in theirs if not is_same(theirs[at], ours[at], absolute)]
    if not wrong:
        return None
    at = wrong[0]
    return Difference(
        "value",
        f"{show_key(key)} at {show_time(at)}: theirs {theirs[at]!r}, ours {ours[at]!r} "
        f"({len(wrong)} such times of {len(theirs)})",
    )


def show_key(key: Key) -> str:
    """Labels as PromQL writes them."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in key) + "}"


def show_keys(keys: Iterable[Key]) -> str:
    """The first few of several label sets."""
    chosen = sorted(keys)
    more = f" and {len(chosen) - 3} more" if len(chosen) > 3 else ""
    return " ".join(map(show_key, chosen[:3])) + more if chosen else "nothing"


def show_time(at_ms: int) -> str:
    """Unix seconds as the API takes them."""
    return f"{at_ms / 1000:.3f}"


# --- the two servers ---------------------------------------------------------------------------


class Server:
    """One side: takes series by remote write and answers questions, on one connection."""

    def __init__(self, client: httpx.Client, rename: dict[str, str] | None = None) -> None:
        self._client = client
        self._rename = rename or {}

    def load(self, series: Sequence[remote_write.TimeSeries]) -> None:
        """Store series; what is refused fails the test."""
        for first in range(0, len(series), SERIES_IN_A_REQUEST):
            body = remote_write.request_v1(series[first : first + SERIES_IN_A_REQUEST])
            answer = self._client.post(
                "/api/v1/write", content=remote_write.snappy(body), headers=remote_write.V1_HEADERS
            )
            assert answer.is_success, f"{self._client.base_url}: {answer.text}"

    def ask(self, question: Question) -> Reply:
        """What it answers."""
        text = question.text
        for old, new in self._rename.items():
            text = re.sub(rf"\b{old}\b", new, text)
        if question.step_ms:
            path = "/api/v1/query_range"
            times = {
                "start": show_time(question.start_ms),
                "end": show_time(question.end_ms),
                "step": show_time(question.step_ms),
            }
        else:
            path, times = "/api/v1/query", {"time": show_time(question.start_ms)}
        # By GET, as a reader of the log of a failed test can repeat it.
        return read_reply(self._client.get(path, params={"query": text, **times}))


@dataclass(frozen=True)
class Pair:
    """A Prometheus and our service."""

    theirs: Server
    ours: Server

    def load(self, series: Sequence[remote_write.TimeSeries]) -> None:
        """Store the same series in both."""
        self.theirs.load(series)
        self.ours.load(series)

    def judge(self, question: Question) -> tuple[Reply, Difference | None]:
        """Their answer, and how ours differs from it."""
        theirs = self.theirs.ask(question)
        ours = self.ours.ask(question)
        found = compare(theirs, ours, absolute=question.absolute, ordered=question.ordered)
        return theirs, found

    def explain(self, question: Question, found: Difference) -> str:
        """A disagreement for a reader; with the smallest part of the question that shows it."""
        for part in sorted(set(question.parts), key=len):
            smaller = question.about(part)
            _, difference = self.judge(smaller)
            if difference is not None:
                return show(smaller, difference)
        return show(question, found)


def show(question: Question, found: Difference) -> str:
    """A disagreement, readable and repeatable."""
    when = f"at {show_time(question.start_ms)}"
    if question.step_ms:
        when = (
            f"from {show_time(question.start_ms)} to {show_time(question.end_ms)} "
            f"step {show_time(question.step_ms)}"
        )
    return f"[{found.kind}] {question.text}\n    {when}\n    {found.text}"


@contextmanager
def running_prometheus(folder: Path) -> Iterator[httpx.Client]:
    """A client of a Prometheus that scrapes nothing and takes remote writes."""
    config = folder / "prometheus.yml"
    config.write_text(PROMETHEUS_CONFIG)
    port = free_port()
    command = [
        str(peers.find("prometheus")),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        address = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=address, timeout=QUERY_SECONDS) as client:
            eventually(lambda: is_ready(client, process), f"{address}/-/ready; its log: {log}")
            yield client
    finally:
        process.kill()
        process.wait(READY_SECONDS)


def is_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    """Whether Prometheus answers already."""
    assert process.poll() is None, "Prometheus ended"
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def running_service(folder: Path, dialect: str) -> Iterator[ServiceProcess]:
    """Our service with a dialect and room for old samples."""
    config = folder / f"{dialect}.toml"
    config.write_text(SERVICE_CONFIG.format(dialect=dialect))
    with ServiceProcess(folder / dialect, "--config", str(config)) as service:
        yield service


@contextmanager
def running_pair(folder: Path) -> Iterator[Pair]:
    """Both, empty."""
    with (
        running_prometheus(folder) as prometheus,
        running_service(folder, "prometheus-2") as service,
    ):
        yield Pair(Server(prometheus), our_side(service))


def our_side(service: ServiceProcess) -> Server:
    """Our service as one side; what Prometheus 3 only renamed gets its new name."""
    return Server(service.client, {"holt_winters": "double_exponential_smoothing"})


# --- many random questions ---------------------------------------------------------------------

QUESTIONS_PER_DATA_SET = 250


@dataclass
class Score:
    """How many random questions ended how."""

    agreed: int = 0
    empty: int = 0
    """Of those that agreed, the ones with an empty answer: they prove little."""
    refused: int = 0
    differences: list[tuple[Question, Difference]] = field(default_factory=list)

    def table(self) -> str:
        """The summary of a run."""
        kinds = Counter(found.kind for _, found in self.differences)
        rows = [
            ("agreed, with values", self.agreed - self.empty),
            ("agreed, empty", self.empty),
            ("both refused", self.refused),
            *((f"different: {kind}", count) for kind, count in kinds.most_common()),
        ]
        return "\n".join(f"{count:8d}  {what}" for what, count in rows)


def ask_at_random(
    pair: Pair,
    numbers: Iterable[int],
    seed: int,
    progress: Callable[[int, Score], None] | None = None,
) -> Score:
    """Ask both the random questions with these numbers, in ascending order."""
    score = Score()
    for number, question in enumerate(random_questions(pair, numbers, seed)):
        reply, found = pair.judge(question)
        if found is not None:
            score.differences.append((question, found))
        elif reply.error:
            score.refused += 1
        else:
            score.agreed += 1
            score.empty += not reply.series
        if progress is not None:
            progress(number + 1, score)
    return score


def random_questions(pair: Pair, numbers: Iterable[int], seed: int) -> Iterator[Question]:
    """Questions about one random data set after the other, each loaded before it is asked for."""
    for place, group in itertools.groupby(numbers, lambda number: number // QUESTIONS_PER_DATA_SET):
        world = promql_random.make_world(seed, place)
        pair.load(world.series)
        for number in group:
            yield promql_random.make_question(world, seed, number)


def say(text: str) -> None:
    """A line for the person who started this."""
    print(text, flush=True)  # noqa: T201 - a small command line for developers


def main(arguments: Sequence[str]) -> int:
    """Ask many random questions and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="questions to ask")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other questions")
    parser.add_argument("--show", type=int, default=30, help="differences to print")
    chosen = parser.parse_args(arguments)

    def progress(asked: int, score: Score) -> None:
        if asked % 500 == 0 or asked == chosen.count:
            say(f"{asked}/{chosen.count} asked, {len(score.differences)} differences")

    with tempfile.TemporaryDirectory() as folder, running_pair(Path(folder)) as pair:
        score = ask_at_random(pair, range(chosen.count), chosen.seed, progress)
        for question, found in score.differences[: chosen.show]:
            say(pair.explain(question, found))
    say(score.table())
    return 1 if score.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
