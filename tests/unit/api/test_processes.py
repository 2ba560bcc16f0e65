"""Roles and workers: what is refused, which process does what, and how processes are kept."""

import argparse
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from api.base.process_limits import RESTARTS_MAX
from api.base.unix_sockets import bind_unix
from api.http import cli
from api.http.app import ROUTERS, routers_of
from api.http.duties import EVERYTHING, OF_ROLE, Role, works_for
from api.http.peer_answers import complaints_of
from api.http.peers import METRICS, READY, Peers, Question, answering
from api.http.processes import keeper as keepers
from api.http.processes.keeper import REFUSED_STATUS, Keeper, Ready
from api.http.processes.merged import merge
from api.http.processes.plan import Kind, Planned, plan_of
from api.http.settings import AUTO, ServiceSettings
from collector.contract.errors import SettingsError

CLICKHOUSE = "clickhouse://ch:8123/db"
POSTGRES = "postgresql+psycopg://db/x"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (ServiceSettings(role="both"), "role is 'both'; there are all, ingest, query, evaluate"),
        (ServiceSettings(workers="many"), "workers is 'many'; write auto, or a number from 0"),
        (ServiceSettings(workers=65), "workers is '65'; write auto, or a number from 0 to 64"),
        (ServiceSettings(role="ingest"), "role is ingest and the store is embedded"),
        (ServiceSettings(role="query", store=CLICKHOUSE), "the inventory is in this service's own"),
        (
            ServiceSettings(role="evaluate", store=CLICKHOUSE, inventory=POSTGRES, workers=2),
            "role is evaluate and workers 2",
        ),
    ],
)
def test_what_cannot_work_together_is_refused_by_name(
    settings: ServiceSettings, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        settings.check()


def test_workers_follow_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, workers in ((2, 0), (4, 1), (32, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, count=cores: set(range(count)))
        assert ServiceSettings(workers=AUTO).worker_count == workers


def test_an_address_that_another_shares_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        words = ["--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
        with pytest.raises(SettingsError, match="the address is in use"):
            cli.run(parser.parse_args([*words, "--workers", "2"]))
    assert not (tmp_path / "data").exists()


def test_each_work_is_done_and_what_must_be_done_once_is(tmp_path: Path) -> None:
    plan = plan_of(ServiceSettings(data=str(tmp_path), workers=3))
    assert [one.name for one in plan.processes] == [
        *("store", "evaluator", "worker-1", "worker-2", "worker-3")
    ]
    assert plan.store.socket == str(tmp_path / "run" / "engine.sock")
    duties = [one.duties for one in plan.processes if one.duties is not None]
    works = [works_for(each) for each in duties]
    assert frozenset().union(*works) == works_for(EVERYTHING)
    for once in ("lead", "evaluator", "roll", "port watch", "job watch", "notifier", "self watch"):
        assert [once in each for each in works] == [True, False, False, False]
    # A delta may come to any of them, and none has the sum.
    assert [each.sums_deltas for each in duties] == [True, False, False, False]
    one_worker = plan_of(ServiceSettings(data=str(tmp_path), workers=1))
    assert [p.duties.sums_deltas for p in one_worker.processes if p.duties] == [True, True]
    evaluator, *workers = duties
    assert set(evaluator.peers.paths) == {"store", "worker-1", "worker-2", "worker-3"}
    assert set(workers[0].peers.paths) == {"store", "evaluator", "worker-2", "worker-3"}


def test_beside_a_clickhouse_a_role_has_workers_and_no_store_process(tmp_path: Path) -> None:
    settings = ServiceSettings(
        data=str(tmp_path), role="ingest", workers=2, store=CLICKHOUSE, inventory=POSTGRES
    )
    settings.check()
    plan = plan_of(settings)
    assert [one.name for one in plan.processes] == ["worker-1", "worker-2"]
    duties = [one.duties for one in plan.processes if one.duties is not None]
    assert [(each.answers, each.evaluates, each.is_watch) for each in duties] == [
        (False, False, True),
        (False, False, False),
    ]


def test_roles_share_all_paths_out() -> None:
    paths = {role: {id(each) for each in routers_of(OF_ROLE[role])} for role in Role}
    assert paths[Role.ALL] == set(map(id, ROUTERS))
    assert paths[Role.INGEST] | paths[Role.QUERY] == paths[Role.ALL]
    assert paths[Role.EVALUATE] == paths[Role.INGEST] & paths[Role.QUERY]  # health alone


def test_metrics_of_processes_become_one_page() -> None:
    one = '# HELP a_total An a.\n# TYPE a_total counter\na_total 1.0\na_total{b="}"} 2.0\n'
    two = "# HELP c A c.\n# TYPE c gauge\nc{} 3.0\n" + one
    assert merge({"x": one, "y": two}) == (
        "# HELP a_total An a.\n# TYPE a_total counter\n"
        'a_total{process="x"} 1.0\na_total{b="}",process="x"} 2.0\n'
        'a_total{process="y"} 1.0\na_total{b="}",process="y"} 2.0\n'
        '# HELP c A c.\n# TYPE c gauge\nc{process="y"} 3.0\n'
    )


def test_readiness_names_the_process_that_does_not_answer(tmp_path: Path) -> None:
    well, ill, gone = (tmp_path / f"{name}.sock" for name in ("well", "ill", "gone"))
    peers = Peers({"well": well, "ill": ill, "gone": gone})
    with (
        answering(bind_unix(well), {READY: lambda _: b""}),
        answering(bind_unix(ill), {READY: lambda _: b"commit: stuck"}),
    ):
        assert complaints_of(peers) == ["ill: commit: stuck", "gone: it does not answer"]
        assert peers.ask_all(Question(METRICS))["well"] == b""


class TestKeeper:
    """Processes that are forked, kept and ended."""

    @staticmethod
    def keep(folder: Path, body: Callable[[Planned, Ready], int], *kinds: Kind) -> Keeper:
        return Keeper([Planned(kind.value, kind) for kind in kinds], body, folder)

    def test_a_process_that_ends_again_and_again_ends_the_service(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keepers, "RESTART_WAIT_SECONDS_MAX", 0.0)
        lives = tmp_path / "lives"

        def body(_: Planned, ready: Ready) -> int:
            with lives.open("a") as file:
                file.write("x")
            ready()
            return 1

        assert self.keep(tmp_path, body, Kind.WORKER).run() == 1
        assert len(lives.read_text()) == RESTARTS_MAX + 1

    def test_settings_that_a_process_refuses_are_not_tried_again(self, tmp_path: Path) -> None:
        lives = tmp_path / "lives"

        def body(_: Planned, __: Ready) -> int:
            with lives.open("a") as file:
                file.write("x")
            raise SettingsError("no token")

        assert self.keep(tmp_path, body, Kind.WORKER).run() == REFUSED_STATUS
        assert lives.read_text() == "x"

    def test_processes_start_after_the_store_and_end_before_it(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes"
        parent = os.getpid()

        def note(word: str) -> None:
            with notes.open("a") as file:
                file.write(word + "\n")

        def body(planned: Planned, ready: Ready) -> int:
            ends = threading.Event()
            number = keepers.END_STORE if planned.kind is Kind.STORE else signal.SIGTERM
            signal.signal(number, lambda *_: ends.set())
            note(f"{planned.kind} starts")
            ready()
            if planned.kind is Kind.WORKER:
                os.kill(parent, signal.SIGTERM)
            ends.wait(60)
            note(f"{planned.kind} ends")
            return 0

        assert self.keep(tmp_path, body, Kind.STORE, Kind.WORKER).run() == 0
        assert notes.read_text().split("\n")[:4] == [
            *("store starts", "worker starts", "worker ends", "store ends")
        ]
