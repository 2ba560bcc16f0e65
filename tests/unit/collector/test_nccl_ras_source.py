"""The source `nccl_ras`: when it asks, requests of the service, several jobs, old NCCL."""

from itertools import pairwise
from pathlib import Path

import pytest

from collector.contract.communicator import COMMUNICATOR
from collector.contract.measurement import RAS_DEVICE
from collector.contract.model import Event, Missing, Reading
from collector.contract.ras import RAS
from collector.contract.reason import UnreadReason
from collector.contract.wire import CaptureRequest
from collector.doors.host import Host
from collector.parsing.nccl_ras import parse_answer
from collector.parsing.ras_reports import JobMemory, reports_of
from collector.reading.jobs import GpuProcess, GpuProcessFinder
from collector.sources.bursts import Bursts
from collector.sources.nccl_ras import JOBS_MAX, NcclRas, Settings
from tests.worlds.ras import Answer, RecordedHost, answers_of


def events_of(readings: list[Reading], kind: str) -> list[Event]:
    return [each for each in readings if isinstance(each, Event) and each.kind == kind]


def request(name: str = "one", devices: tuple[str, ...] = (RAS_DEVICE,)) -> CaptureRequest:
    return CaptureRequest(id=name, seconds_before=1.0, seconds_after=1.0, devices=list(devices))


def moving() -> list[Answer]:
    return [one for one in answers_of("skips5") if one.seconds < 15.0]


def test_a_request_is_answered_at_once_by_a_host_that_would_not_ask(tmp_path: Path) -> None:
    host, source = RecordedHost(tmp_path, moving(), node=7), NcclRas(Settings())
    assert events_of(list(source.read(host)), RAS) == []
    host.seconds += 5.0
    source.capture(request())
    source.capture(request())  # receipts repeat a request until it has ended
    readings = list(source.read(host))
    (ended,) = events_of(readings, "capture")
    assert ended.attributes == {"capture": "one", "result": "finished", "samples": "2"}
    assert events_of(readings, RAS)
    asked = len(host.asked)
    host.seconds += 5.0
    assert events_of(list(source.read(host)), "capture") == []
    assert len(host.asked) == asked + 1  # one answer does not show whether the job moves
    host.seconds += 90.0
    list(source.read(host))
    host.seconds += 5.0
    assert events_of(list(source.read(host)), RAS) == []


def test_a_request_where_nothing_listens_is_refused(tmp_path: Path) -> None:
    host, source = RecordedHost(tmp_path, [Answer(0.0, "json", b"")]), NcclRas(Settings())
    source.capture(request())
    (ended,) = events_of(list(source.read(host)), "capture")
    assert ended.attributes["result"] == "refused"
    assert "nothing listens" in ended.attributes["detail"]


def test_a_request_for_a_burst_capture_is_not_its_business(tmp_path: Path) -> None:
    host, source = RecordedHost(tmp_path, moving()), NcclRas(Settings())
    source.capture(request(devices=("mlx5_0",)))
    source.capture(request("two", devices=()))
    assert events_of(list(source.read(host)), "capture") == []


def test_while_nothing_listens_it_tries_at_every_read(tmp_path: Path) -> None:
    host, source = RecordedHost(tmp_path, [Answer(0.0, "json", b"")]), NcclRas(Settings())
    for _ in range(3):
        assert list(source.read(host)) == []  # a host without GPUs: nothing is missing there
        host.seconds += 5.0
    assert len(host.asked) == 3
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    (missing,) = source.read(host)
    assert isinstance(missing, Missing)
    assert missing.reason is UnreadReason.ABSENT


def test_jobs_that_take_turns_do_not_look_like_one_that_moves(tmp_path: Path) -> None:
    """Two jobs of one user share the port: each is compared with its own last answer."""
    stuck = [one for one in answers_of("stopped3") if 5.0 < one.seconds < 50.0]
    other = [one for one in answers_of("killed2") if -15.0 < one.seconds < -1.0]
    mixed = [
        Answer(5.0 * place, "json", (stuck if place % 2 else other)[place // 2].status)
        for place in range(12)
    ]
    host, source = RecordedHost(tmp_path, mixed), NcclRas(Settings(ask_seconds=5.0))
    found: list[Reading] = []
    while host.seconds <= mixed[-1].seconds:
        found += source.read(host)
        host.seconds += 5.0
    told = {event.labels["communicator"] for event in events_of(found, RAS)}
    assert told == {"0x253d7158f7d888", "0xf21b4f48d40d7b"}


def test_what_is_remembered_of_jobs_is_bounded(tmp_path: Path) -> None:
    status = moving()[0].status
    name = min(one.name for one in parse_answer(status).communicators).encode()
    host, source = RecordedHost(tmp_path, moving()), NcclRas(Settings(ask_seconds=5.0))
    for number in range(3 * JOBS_MAX):
        other = status.replace(name, b"0x%014x" % number)
        host.answers = [Answer(host.seconds, "json", other)]
        assert list(source.read(host))
        host.seconds += 10.0
    assert len(source._jobs) <= JOBS_MAX
    assert len(source._sent) <= JOBS_MAX
    assert len(source._reported) <= JOBS_MAX


@pytest.mark.parametrize("node", [0, 3])
def test_an_old_nccl_is_asked_often_only_where_rank_0_runs(node: int, tmp_path: Path) -> None:
    """Its text lists no addresses in order; no process here has a rank in its environment."""
    texts = [one for one in answers_of("skips5", "text") if one.seconds > 19.0]
    host, source = RecordedHost(tmp_path, texts, node=node), NcclRas(Settings())
    for _ in range(6):
        list(source.read(host))
        host.seconds += 5.0
    assert len(host.asked) == 1


def test_text_shows_a_standstill_by_the_counts_of_those_that_differ() -> None:
    memory = JobMemory(launched={}, absent_since={})
    texts = [one for one in answers_of("skips5", "text") if one.seconds > 19.0]
    for answer in texts:
        memory.take(parse_answer(answer.status), int(answer.seconds * 1e9))
    (_, report), *_ = reports_of(parse_answer(texts[-1].status), memory)
    assert report.standing_ns == pytest.approx((texts[-1].seconds - texts[0].seconds) * 1e9)
    assert report.answers == len(texts)


def test_a_standstill_that_went_over_is_remembered_as_the_longest() -> None:
    memory = JobMemory(launched={}, absent_since={})
    first, second, *_ = (parse_answer(one.status) for one in moving()[3:])
    for answer, seconds in ((first, 0), (first, 10), (first, 25), (second, 30), (second, 35)):
        memory.take(answer, seconds * 10**9)
    assert memory.longest_ns == 25 * 10**9
    assert memory.standing_ns == 5 * 10**9


def container(root: Path, outer: int, inner: int) -> None:
    """A process of a container: another number inside than here."""
    folder = root / f"proc/{outer}"
    folder.mkdir(parents=True)
    (folder / "status").write_text(f"Name:\tpython\nNSpid:\t{outer}\t{inner}\n", "utf-8")


@pytest.mark.parametrize("outer", [[], [4711], [4711, 4712]])
def test_a_process_of_a_container_is_sent_by_its_number_here_or_not_at_all(
    outer: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other sources know it by that number: two numbers would be two processes of one rank."""
    host, source = RecordedHost(tmp_path, moving()), NcclRas(Settings())
    (own,) = {
        member.pid
        for one in parse_answer(moving()[0].status).communicators
        for member in one.members
        if member.address == "10.77.0.1"
    }
    for pid in outer:
        container(tmp_path, pid, own)
    held = [GpuProcess(pid, 1, 1, 0, (0,)) for pid in outer]
    monkeypatch.setattr(GpuProcessFinder, "find", lambda *_: held)
    pids = {event.attributes["pid"] for event in events_of(list(source.read(host)), COMMUNICATOR)}
    wanted = {0: {str(own)}, 1: {"4711"}, 2: set[str]()}
    assert pids == wanted[len(outer)]


def test_places_that_are_sent_again_are_no_news(tmp_path: Path) -> None:
    """A host that asks seldom asks again soon only where communicators are new."""
    host, source = RecordedHost(tmp_path, moving(), node=7), NcclRas(Settings())
    while host.seconds < moving()[0].seconds + 1_000.0:
        list(source.read(host))
        host.seconds += 5.0
    gaps = [round(other - one) for one, other in pairwise(host.asked)]
    assert gaps == [30, 300, 300, 300]


def test_the_fast_sampler_leaves_requests_for_ras_alone(tmp_path: Path) -> None:
    """It would refuse them, and the service would take that for the answer."""
    sampler = Bursts(Bursts.Settings())
    sampler.capture(request("ras"))
    sampler.capture(request("burst", devices=("mlx5_0",)))
    (ended,) = events_of(list(sampler.read(Host(tmp_path))), "capture")
    assert ended.attributes["capture"] == "burst"
