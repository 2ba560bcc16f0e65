"""Feedback on incidents of a simulated cluster: its windows are kept, scrubbed and judged again.

The proof that scrubbing loses nothing: the scrubbed window of every fault gives the verdict of the
one with names, up to the names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pytest
from sqlalchemy import create_engine, delete

from alerts.cases import packed as packed_cases
from alerts.cases.compare import Mark, compare
from alerts.cases.model import Says, Told
from alerts.cases.packed import pack, unpack, unpack_frame
from alerts.cases.scrub import scrub
from alerts.judge.verdict import judge
from api.data.inventory import feedback as feedback_tables
from api.http.routes import feedback as feedback_route
from api.oncall.cases import keeper
from api.oncall.cases.keeper import is_empty
from api.oncall.evaluate import lead, task
from api.oncall.past import PastWindows
from collector.cli import main
from collector.contract.errors import StoreError
from collector.contract.units import NS
from collector.contract.verdict import Cause
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.scenario import START_UNIX_NS
from simulator.score.run import play
from simulator.topology.build import build
from simulator.topology.model import Fabric
from tests.stands.service import INVENTORY, InProcess, in_process
from tests.worlds.filled import texts_in
from tests.worlds.machines import machines
from tests.worlds.simulated_cluster import small_cluster, small_job, small_scenario

START_S = START_UNIX_NS // NS
BEGIN_S, APART_S, LASTS_S = 40, 110, 30
"""When the first fault begins, how far faults are apart, and how long each lasts: incidents of one
job end before the next begins."""
FAULTS: dict[str, Place | int] = {
    "thermal_throttle": Place(host=1, gpu=2),
    "bad_cable": 1,
    "host_steal": Place(host=3),
    "slow_nic": 4,
    "hang_not_launched": Place(host=2),
}
END_S = BEGIN_S + APART_S * (len(FAULTS) - 1) + 60
EXPECTED = [
    Cause.STRAGGLER, Cause.LOSSY_LINK, Cause.STRAGGLER, Cause.SLOW_LINK, Cause.HANG,
]  # fmt: skip
DAY_S = 86_400

Answer = dict[str, Any]


class Stand:
    """A service with incidents, whose clock tests may set."""

    def __init__(self, service: InProcess, clock: list[float]) -> None:
        self.service = service
        self.clock = clock
        items = service.client.get("/v1/incidents").json()["items"]
        self.incidents: list[tuple[str, Cause]] = [
            (item["id"], Cause(item["cause"])) for item in reversed(items)
        ]

    def named(self, cause: Cause) -> str:
        return next(number for number, own in self.incidents if own is cause)

    def put(self, incident: str, says: str = "right", **more: object) -> httpx.Response:
        body = {"says": says, "by": "ann", **more}
        return self.service.client.put(f"/v1/incidents/{incident}/feedback", json=body)

    def say(self, incident: str, says: str = "right", **more: object) -> Answer:
        answer = self.put(incident, says, **more)
        assert answer.status_code == 200, answer.text
        body: Answer = answer.json()
        return body

    def said(self, incident: str) -> Answer:
        body: Answer = self.service.client.get(f"/v1/incidents/{incident}/feedback").json()
        return body

    def export(self, incident: str) -> bytes:
        answer = self.service.client.get(f"/v1/incidents/{incident}/case")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == feedback_route.CASE_TYPE
        return answer.content

    def metric(self, line: str) -> float:
        text = self.service.client.get("/metrics").text
        found = [one for one in text.splitlines() if one.startswith(line + " ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    def forget(self) -> None:
        """All that was said, and all windows."""
        file = Path(self.service.context.settings.data) / INVENTORY
        engine = create_engine(f"sqlite:///{file}")
        with engine.begin() as connection:
            connection.execute(delete(feedback_tables.FEEDBACK))
            connection.execute(delete(feedback_tables.CASES))
        engine.dispose()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The incidents of a simulated cluster, in a service whose evaluator is asleep."""
    folder = tmp_path_factory.mktemp("simulated")
    topology = build(small_cluster(Fabric.ROCE))
    injections = []
    for number, (name, where) in enumerate(FAULTS.items()):
        place = (
            where
            if isinstance(where, Place)
            else Place(host=where // 2, nic=where, link=topology.up(where))
        )
        begin_s = float(BEGIN_S + number * APART_S)
        injections.append(Injection(discover()[name], place, begin_s, begin_s + LASTS_S, 1.0))
    scenario = small_scenario(
        Fabric.ROCE,
        small_job(compute_seconds=0.6),
        seconds=float(END_S),
        tick_seconds=5.0,
        injections=tuple(injections),
    )
    play(Simulation(scenario), folder)
    asleep = patch.object(task, "EVALUATE_SECONDS", 1e6), patch.object(lead, "RENEW_SECONDS", 1e6)
    store = f"chdb://{folder / 'store'}"
    clock = [float(START_S + END_S)]
    with (
        asleep[0],
        asleep[1],
        in_process(folder, clock=lambda: clock[0], store_url=store) as running,
    ):
        yield Stand(running, clock)


@pytest.fixture
def stand(whole: Stand) -> Iterator[Stand]:
    """The same incidents, about which nothing was said."""
    yield whole
    whole.clock[0] = float(START_S + END_S)
    whole.forget()


def is_problem(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in answer.text


# --- nothing is lost, and no name is left -------------------------------------------------------


def test_the_faults_were_found(stand: Stand) -> None:
    assert [cause for _, cause in stand.incidents] == EXPECTED


def test_a_scrubbed_window_gives_the_verdict_of_the_one_with_names(stand: Stand) -> None:
    for number, cause in stand.incidents:
        answer = stand.say(number)
        assert (answer["case"]["state"], answer["case"]["is_repeated"]) == ("kept", True), number
        raw = stand.service.inventory.feedback.packed(number)
        assert raw is not None
        kept, exported = unpack(raw), unpack(stand.export(number))
        assert exported.is_scrubbed
        assert not kept.is_scrubbed
        before, after = judge(kept.window), judge(exported.window)
        assert [(one.cause, one.reason, one.confidence, one.layer) for one in after] == [
            (one.cause, one.reason, one.confidence, one.layer) for one in before
        ]
        # The culprits, too: each is what its name became.
        assert scrub(kept).verdicts == tuple(map(Told.of, after))
        assert tuple(map(Told.of, before)) == kept.verdicts
        found = compare(exported.truth, after)
        assert (found.mark, found.told is not None and found.told.cause) == (Mark.AGREES, cause)


def test_no_name_is_in_an_exported_case(stand: Stand) -> None:
    for number, _ in stand.incidents:
        stand.say(number, note="node0003 was moved by bob in jobs/bob/train.py")
        raw = stand.service.inventory.feedback.packed(number)
        assert raw is not None
        window = unpack(raw).window
        names = {*window.ports.host, *window.ports.device, *window.ports.netdev, *window.hosts.host}
        names |= {name for name in window.ports.port if not name.isdigit()}
        for job in window.jobs:
            names |= {job.job, *job.communicators, *job.records.communicators, *job.records.hosts}
        for event in window.events:
            names |= {event.message, *event.labels.values()}
        hosts = {name for name in names if name.startswith("node")}
        assert len(hosts) >= 6
        body = unpack_frame(stand.export(number))
        left = [name for name in names if len(name) > 2 and name.encode() in body]
        assert left == []
        for word in (b"bob", b"node", b"leaf-", b"ann", number.encode()):
            assert word not in body
        kept_texts = {text for text in texts_in(window) if text.startswith("fabric_")}
        assert kept_texts <= set(texts_in(unpack(stand.export(number)).window))


# --- what is said -------------------------------------------------------------------------------


def test_what_is_said_may_change_and_all_of_it_is_kept(stand: Stand) -> None:
    number = stand.named(Cause.SLOW_LINK)
    first = stand.say(number, note="looks\nright")
    stand.clock[0] += 60
    culprit = {"host": "node0003", "device": "mlx5_1"}
    second = stand.say(number, "other", by="bob", cause="lossy_link", culprit=culprit)
    assert [(one["by"], one["says"]) for one in second["items"]] == [
        ("bob", "other"),
        ("ann", "right"),
    ]
    assert second["items"][0]["culprit"] == culprit
    assert second["items"][0]["told"]["cause"] == "slow_link"
    assert second["items"][1]["note"] == "looks�right"
    # The window is that of the verdict, which has not changed.
    assert second["case"] == first["case"]
    assert stand.said(number) == second
    case = unpack(stand.export(number))
    assert case.truth.says is Says.OTHER
    assert case.truth.cause is Cause.LOSSY_LINK
    assert case.truth.culprit.host.startswith("host-")
    assert case.truth.culprit.host in case.window.ports.host
    assert compare(case.truth, judge(case.window)).mark is Mark.WRONG
    listed = stand.service.client.get("/v1/feedback", params={"limit": 1}).json()
    assert listed["items"] == second["items"][:1]
    after = {"after": listed["next"], "limit": 5}
    page = stand.service.client.get("/v1/feedback", params=after).json()
    assert (page["items"], page["next"]) == (second["items"][1:], None)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"says": "perhaps"}, "says"),
        ({"says": "other"}, "needs the cause"),
        ({"says": "right", "cause": "hang"}, "says=other only"),
        ({"says": "wrong", "culprit": {"host": "a"}}, "says=other only"),
        ({"says": "other", "cause": "slow_link"}, "another culprit"),
        ({"says": "other", "cause": "hang", "culprit": {"gpu": 1}}, "a host, a switch"),
        ({"says": "other", "cause": "hang", "culprit": {"rank": -1}}, "rank"),
        ({"says": "right", "note": "x" * 2_001}, "note"),
        ({"says": "right", "by": ""}, "by"),
        ({"says": "right", "user": "x"}, "user"),
    ],
)
def test_what_is_no_feedback_is_refused(stand: Stand, body: Answer, words: str) -> None:
    number = stand.named(Cause.SLOW_LINK)
    is_problem(stand.put(number, **body), 422, words)
    assert stand.said(number) == {"incident": number, "items": [], "case": None}


def test_a_rank_is_one_of_the_incidents_only_job(stand: Stand) -> None:
    number = stand.named(Cause.SLOW_LINK)
    answer = stand.say(number, "other", cause="straggler", culprit={"rank": 3})
    assert answer["items"][0]["culprit"] == {"job": "train", "rank": 3}


def test_a_verdict_that_has_changed_meanwhile_is_not_judged(stand: Stand) -> None:
    number = stand.named(Cause.SLOW_LINK)
    told = stand.service.client.get(f"/v1/incidents/{number}").json()["verdict"]
    seen = {"cause": told["cause"], "culprit": told["culprit"]}
    for other in ({**seen, "cause": "hang"}, {**seen, "culprit": {"host": "node0000"}}):
        is_problem(stand.put(number, about=other), 409, "verdict_changed", "slow_link")
    assert stand.said(number)["items"] == []
    assert stand.say(number, about=seen)["items"][0]["says"] == "right"


def test_unknown_incidents_are_not_found(stand: Stand) -> None:
    client = stand.service.client
    is_problem(stand.put("20270101-000000-nobod-yhere"), 404, "no such incident")
    is_problem(client.get("/v1/incidents/none/feedback"), 404, "no such incident")
    is_problem(client.get("/v1/incidents/none/case"), 404, "no such incident")
    number = stand.named(Cause.HANG)
    is_problem(client.get(f"/v1/incidents/{number}/case"), 404, "no feedback yet")


def test_too_many_statements_are_refused_and_push_none_out(stand: Stand) -> None:
    number = stand.named(Cause.HANG)
    with patch.object(feedback_tables, "FEEDBACK_PER_INCIDENT_MAX", 2):
        first = stand.say(number)["items"][0]
        stand.say(number, "wrong")
        is_problem(stand.put(number), 409, "FEEDBACK_PER_INCIDENT_MAX")
        assert stand.said(number)["items"][-1] == first


# --- where there is no window -------------------------------------------------------------------


def test_a_window_that_is_too_large_is_not_kept_and_what_was_said_is(stand: Stand) -> None:
    number = stand.named(Cause.HANG)
    before = stand.metric('fabric_service_cases_total{outcome="too_large"}')
    with patch.object(packed_cases, "CASE_BYTES_MAX", 1_000):
        answer = stand.say(number, "wrong")
    assert answer["case"]["state"] == "too_large"
    assert "CASE_BYTES_MAX" in answer["case"]["words"]
    assert [one["says"] for one in answer["items"]] == ["wrong"]
    assert stand.metric('fabric_service_cases_total{outcome="too_large"}') == before + 1
    refused = stand.service.client.get(f"/v1/incidents/{number}/case")
    is_problem(refused, 404, "CASE_BYTES_MAX", "too_large")
    # Said again where it fits, it is kept.
    assert stand.say(number, "wrong")["case"]["state"] == "kept"


def test_a_window_that_is_too_large_is_kept_with_a_part_of_its_records(stand: Stand) -> None:
    number = stand.named(Cause.LOSSY_LINK)
    assert stand.say(number)["case"]["state"] == "kept"
    raw = stand.service.inventory.feedback.packed(number)
    assert raw is not None
    (job,) = unpack(raw).window.jobs
    stand.forget()
    with (
        patch.object(packed_cases, "CASE_BYTES_MAX", len(raw) - 1),
        patch.object(keeper, "EFFORT_RECORDS_MIN", len(job.records) // 2),
    ):
        case = stand.say(number)["case"]
        assert (case["state"], case["is_repeated"]) == ("kept", True)
        again = unpack(stand.export(number))
    assert 0 < len(again.window.jobs[0].records) < len(job.records)


def test_a_window_past_retention_is_stated(stand: Stand) -> None:
    number = stand.named(Cause.STRAGGLER)
    stand.clock[0] += 8 * DAY_S
    answer = stand.say(number)
    assert answer["case"]["state"] == "past_retention"
    assert "8 days ago" in answer["case"]["words"]
    assert "for 7 days" in answer["case"]["words"]
    assert answer["items"][0]["says"] == "right"


def test_a_store_that_is_away_costs_the_window_only(stand: Stand) -> None:
    number = stand.named(Cause.STRAGGLER)
    with patch.object(PastWindows, "read", side_effect=StoreError("it is away")):
        answer = stand.say(number)
    assert (answer["case"]["state"], len(answer["items"])) == ("not_read", 1)
    assert "it is away" in answer["case"]["words"]


def test_a_busy_service_keeps_what_was_said(stand: Stand) -> None:
    number = stand.named(Cause.STRAGGLER)
    with patch.object(feedback_route, "CASES_WAITING_MAX", 0):
        answer = stand.say(number)
        assert "CASES_WAITING_MAX" in answer["case"]["words"]
        busy = stand.service.client.get(f"/v1/incidents/{number}/case")
        is_problem(busy, 503, "CASES_WAITING_MAX")
    assert len(stand.said(number)["items"]) == 1


def test_a_window_without_readings_is_empty() -> None:
    window = machines(jobs=0)
    assert not is_empty(window)
    for things in (window.ports, window.gpus, window.hosts):
        for reading in things.readings.values():
            reading.values[:] = np.nan
    assert is_empty(window)


# --- from a terminal ----------------------------------------------------------------------------


def test_from_a_terminal_to_a_score(
    stand: Stand,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a narrow terminal folds long names
    flags = ["--service", str(stand.service.client.base_url)]
    slow, lossy = stand.named(Cause.SLOW_LINK), stand.named(Cause.LOSSY_LINK)
    assert main(["case", "say", slow, "right", "--by", "ann", "--note", "seen", *flags]) == 0
    shown = capsys.readouterr().out
    assert "slow_link: train rank 4, node0002 mlx5_0/1" in shown
    assert "Its window is kept" in shown
    assert main(["case", "export", slow, "-o", str(tmp_path / "slow.case"), *flags]) == 0
    assert (tmp_path / "slow.case").read_bytes() == stand.export(slow)
    assert main(["score", "--cases", str(tmp_path)]) == 0
    assert "1 case: 1 agrees, 0 wrong, 0 unknown" in capsys.readouterr().out

    assert (
        main(["case", "say", lossy, "other", "--cause", "hang", "--host", "node0001", *flags]) == 0
    )
    assert main(["case", "export", lossy, "-o", str(tmp_path / "lossy.case"), *flags]) == 0
    assert main(["case", "list", *flags]) == 0
    assert "hang: node0001" in capsys.readouterr().out
    assert main(["score", "--cases", str(tmp_path)]) == 1
    table = capsys.readouterr().out
    assert "2 cases: 1 agrees, 1 wrong, 0 unknown" in table
    assert "hang: host-2" in table
    assert "node0" not in table

    assert main(["case", "say", lossy, "wrong", *flags]) == 0
    assert main(["case", "export", lossy, "-o", str(tmp_path / "lossy.case"), *flags]) == 0
    assert main(["case", "show", lossy, *flags]) == 0
    capsys.readouterr()
    assert main(["score", "--cases", str(tmp_path)]) == 1, "it is still said"


def test_a_case_that_cannot_be_read_fails_the_score(
    stand: Stand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = stand.named(Cause.HANG)
    stand.say(number)
    whole = stand.export(number)
    (tmp_path / "good.case").write_bytes(whole)
    (tmp_path / "cut.case").write_bytes(whole[:1_000])
    assert main(["score", "--cases", str(tmp_path)]) == 1
    assert "2 cases: 1 agrees, 0 wrong, 0 unknown, 1 not read" in capsys.readouterr().out
    assert main(["score", "--cases", str(tmp_path / "none")]) == 2
    assert pack(unpack(whole)) == whole
