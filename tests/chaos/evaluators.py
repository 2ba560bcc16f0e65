"""Two services on one PostgreSQL and one store, whose judge is killed again and again.

`python -m tests.chaos.evaluators` plays ten minutes: NICs become slow one after the other, so that
incidents open and close and are paged, and every 30 s the process that judges is killed and started
again. Then the history is checked (`check_history`): no page twice, none lost, every acknowledged
sample readable, verdict series without overlap, never two judges, all news from either service.
`tests/e2e/test_evaluators.py` plays the same with one kill.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx

from alerts.judge.incident import Incident
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from tests.chaos.cluster import LiveCluster
from tests.chaos.ledger import Ledger, Tally, incidents_of, is_innocent, read_incidents
from tests.chaos.stand import VERDICT_SECONDS, opened, paged, write_settings
from tests.doubles import clickhouse_http
from tests.stands import postgres
from tests.stands.service import ServiceProcess, eventually

KILL_SECONDS = 30.0
LOOK_SECONDS = 0.5
READ_SECONDS = 30.0
"""How long a stream may say nothing: it speaks every fifteen seconds."""
TAKEOVER_SECONDS = 120.0
"""A lease lasts 20 s, and machines are slow."""
SPACING_MS_MIN = 4_000
"""Rounds of one judge begin 5 s apart; the series of two at once would lie closer together."""
LEADS = "\nfabric_service_evaluation_leads 1.0"

VERDICT_TIMES = """
    SELECT DISTINCT toUnixTimestamp64Milli(time) AS time FROM samples
    WHERE series IN (SELECT series FROM series WHERE metric_name = 'fabric_incident')
    ORDER BY time"""
NAMED_TWICE = """
    SELECT time, incident, job, count() AS times FROM (
        SELECT DISTINCT time, series, labels['incident'] AS incident, labels['job'] AS job
        FROM (SELECT time, series FROM samples FINAL WHERE NOT isNaN(value)) AS numbers
        INNER JOIN (
            SELECT DISTINCT series, labels FROM series WHERE metric_name = 'fabric_incident'
        ) AS named USING series
    ) GROUP BY time, incident, job HAVING times > 1"""
TWO_STATES = """
    SELECT time, alert, count() AS times FROM (
        SELECT DISTINCT time, labels['alertstate'] AS state,
               arrayFilter(
                   one -> one.1 != 'alertstate', arrayZip(mapKeys(labels), mapValues(labels))
               ) AS alert
        FROM (SELECT time, series FROM samples FINAL WHERE NOT isNaN(value)) AS numbers
        INNER JOIN (
            SELECT DISTINCT series, labels FROM series WHERE metric_name = 'ALERTS'
        ) AS named USING series
    ) GROUP BY time, alert HAVING times > 1"""


@dataclass
class History:
    """What a run came to."""

    kills: int = 0
    without_judge_s: list[float] = field(default_factory=list)
    """After each kill: how long no process judged."""
    two_judges: int = 0
    incidents: int = 0
    reopened: int = 0
    firing: int = 0
    resolved: int = 0
    sent_again: int = 0
    """Notices that came twice under one id, as documented."""
    rounds: int = 0
    """Moments at which verdict series were written."""
    closest_ms: int = 0
    live: int = 0
    """News that each service sent to who follows it."""
    tally: Tally = field(default_factory=Tally)

    def text(self) -> str:
        waits = sorted(self.without_judge_s) or [0.0]
        return (
            f"kills of the judge: {self.kills}; without a judge: median "
            f"{waits[len(waits) // 2]:.0f} s, longest {waits[-1]:.0f} s; two at once: "
            f"{self.two_judges} times\n"
            f"rows acknowledged: {self.tally.acknowledged:,}, stored: {self.tally.stored:,}\n"
            f"incidents: {self.incidents}, reopened {self.reopened} times; pages: {self.firing}, "
            f"ends: {self.resolved}, sent again under their id: {self.sent_again}\n"
            f"moments of verdict series: {self.rounds}, closest {self.closest_ms / 1e3:.1f} s; "
            f"live events from each service: {self.live}"
        )


def leads(service: ServiceProcess) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return LEADS in service.client.get("/metrics", timeout=5.0).text
    return False


class Killer(threading.Thread):
    """Kills the process that judges again and again, and starts it again."""

    def __init__(
        self, services: Sequence[ServiceProcess], kills: int, every_s: float, history: History
    ) -> None:
        super().__init__(name="killer", daemon=True)
        self._services = services
        self._kills = kills
        self._every_s = every_s
        self._history = history
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(self._kills):
                self._kill_next()
            self._find_judge(time.monotonic())
        except BaseException as error:  # noqa: BLE001 - shown by the stand
            self.error = error

    def _kill_next(self) -> None:
        begun = time.monotonic()
        judge = self._find_judge(begun)
        while time.monotonic() < begun + self._every_s and leads(judge):
            self._look()
            time.sleep(LOOK_SECONDS)
        judge.kill()
        self._history.kills += 1
        judge.launch()

    def _find_judge(self, begun: float) -> ServiceProcess:
        found: list[ServiceProcess] = []
        while not found:
            assert time.monotonic() < begun + TAKEOVER_SECONDS, "no process judges"
            found = self._look()
            time.sleep(LOOK_SECONDS)
        if self._history.kills:
            self._history.without_judge_s.append(time.monotonic() - begun)
        return found[0]

    def _look(self) -> list[ServiceProcess]:
        found = [service for service in self._services if leads(service)]
        self._history.two_judges += len(found) > 1
        return found


class Follower(threading.Thread):
    """Follows the live events of one service as a browser does: it comes back where it was."""

    def __init__(self, service: ServiceProcess) -> None:
        super().__init__(name="follower", daemon=True)
        self._url = f"{service.url}/v1/live"
        self._ends = threading.Event()
        self._last = "0"
        self.numbers: list[int] = []

    def run(self) -> None:
        while not self._ends.is_set():
            with contextlib.suppress(httpx.HTTPError):
                self._follow()
            self._ends.wait(LOOK_SECONDS)

    def _follow(self) -> None:
        headers, number = {"Last-Event-ID": self._last}, ""
        with httpx.stream("GET", self._url, headers=headers, timeout=READ_SECONDS) as answer:
            if answer.status_code != 200:
                return
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    number = line.removeprefix("id: ")
                elif line.startswith("event: ") and line != "event: ready" and number:
                    self.numbers.append(int(number))
                    self._last, number = number, ""
                if self._ends.is_set():
                    return

    def end(self) -> None:
        self._ends.set()


@contextlib.contextmanager
def two_services(folder: Path, pager: str) -> Iterator[tuple[list[ServiceProcess], str, str]]:
    """Two that run, and the addresses of their store and inventory."""
    data = folder / "clickhouse"
    data.mkdir()
    with (
        postgres.stoppable() as server,
        clickhouse_http.server(data) as store_url,
        contextlib.ExitStack() as running,
    ):
        inventory = postgres.new_database(server.url)
        settings = write_settings(folder, pager)
        words = ("--config", str(settings), "--inventory", inventory, "--store", store_url)
        services = [ServiceProcess(folder / name, *words) for name in ("one", "two")]
        for service in services:
            running.enter_context(service)
        yield services, store_url, inventory


def play(
    folder: Path, *, kills: int, episodes: int, every_s: float = KILL_SECONDS, seed: int = 4
) -> History:
    """One run, and its history, which was checked."""
    ledger, history = Ledger(), History()
    with paged(ledger) as pager, two_services(folder, pager) as (services, store_url, inventory):
        targets = [("127.0.0.1", service.port) for service in services]
        cluster = LiveCluster(seed, "slow_nic", ledger, lambda: targets, episodes)
        cluster.start()
        followers = [Follower(service) for service in services]
        for follower in followers:
            follower.start()
        try:
            eventually(lambda: any(map(leads, services)), "a judge", TAKEOVER_SECONDS)
            killer = Killer(services, kills, every_s, history)
            killer.start()
            killer.join()
            if killer.error is not None:
                raise killer.error
            with opened(store_url, inventory) as (_, read):
                settle(read, ledger)
                cluster.end()
                check_live(followers, read, history)
        finally:
            cluster.abandon()
            for follower in followers:
                follower.end()
        for service in services:
            assert service.stop() == 0
        with opened(store_url, inventory) as (store, read):
            check_history(store, read, ledger, cluster, history)
    return history


def settle(inventory: Inventory, ledger: Ledger) -> None:
    """Wait until every incident is paged, and the end of each that has ended."""

    def untold() -> list[str]:
        found, told = read_incidents(inventory), ledger.pages()
        missing = [
            f"{one.id} ({one.state}): {word}"
            for one in found
            for word in ("firing", "resolved")
            if not told.get(one.id, {}).get(word) and (word == "firing" or not one.is_open)
        ]
        return missing if found else ["any incident"]

    deadline = time.monotonic() + VERDICT_SECONDS
    while missing := untold():
        assert time.monotonic() < deadline, f"not within {VERDICT_SECONDS} s: {missing}"
        time.sleep(LOOK_SECONDS)


def check_live(followers: Sequence[Follower], inventory: Inventory, history: History) -> None:
    """Each service sends all news, in order and once, whichever process judged."""

    def numbers() -> list[int]:
        return [one.number for one in inventory.incidents.changes(0)]

    for follower in followers:
        eventually(
            lambda follower=follower: len(follower.numbers) >= len(numbers()),  # type: ignore[misc]
            f"all news from {follower._url}",
            VERDICT_SECONDS,
        )
        wanted = numbers()
        assert follower.numbers[: len(wanted)] == wanted, f"{follower.numbers} of {wanted}"
    history.live = len(numbers())


def check_history(
    store: Store, inventory: Inventory, ledger: Ledger, cluster: LiveCluster, history: History
) -> None:
    ledger.check_rows(store, history.tally)
    incidents = read_incidents(inventory)
    history.incidents = len(incidents)
    history.reopened = sum(one.reopened for one in incidents)
    check_pages(incidents, ledger, history)
    for incident in incidents:
        for culprit in (incident.verdict.culprit, *(turn.culprit for turn in incident.history)):
            is_wrong = all(is_innocent(culprit, truth) for truth in cluster.truths)
            assert not is_wrong, f"{incident.id} named an innocent: {culprit}"
    check_series(store, history)
    assert not history.two_judges, f"two processes judged at once, {history.two_judges} times"


def check_pages(incidents: Sequence[Incident], ledger: Ledger, history: History) -> None:
    """A page each time that an incident opened, and one each time that it ended."""
    told = ledger.pages()
    for incident in incidents:
        times = 1 + incident.reopened
        got = told.get(incident.id, {})
        firing, resolved = (len(got.get(word, ())) for word in ("firing", "resolved"))
        # An alert that goes on over a short end of its incident is one page.
        assert 1 <= firing <= times, f"{incident.id}: {firing} pages for {times} openings"
        assert resolved <= firing, f"{incident.id}: {resolved} ends for {firing} pages"
        assert incident.is_open or resolved == firing, f"{incident.id}: its end is not told"
        history.firing += firing
        history.resolved += resolved
    strangers = told.keys() - {incident.id for incident in incidents}
    assert not strangers, f"pages of incidents that do not exist: {strangers}"
    ids = Counter(call.body["fabricscope"]["id"] for call in ledger.calls if incidents_of(call))
    history.sent_again = sum(count - 1 for count in ids.values())


def check_series(store: Store, history: History) -> None:
    times = store.query(VERDICT_TIMES)["time"].to_pylist()
    gaps = [later - before for before, later in pairwise(times)]
    history.rounds, history.closest_ms = len(times), min(gaps, default=0)
    assert times, "no verdict series"
    assert not gaps or min(gaps) >= SPACING_MS_MIN, f"verdict series overlap: {sorted(gaps)[:5]} ms"
    for what, sql in (("incidents", NAMED_TWICE), ("alerts", TWO_STATES)):
        twice = store.query(sql).to_pylist()
        assert not twice, f"{what} that say two things at one moment: {twice[:5]}"


def main(words: Sequence[str], say: Callable[[str], object] = sys.stdout.write) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where logs and data stay; must not exist")
    chosen = parser.parse_args(words)
    kills = max(1, round(chosen.minutes * 60 / KILL_SECONDS))
    episodes = max(1, round(chosen.minutes * 60 / 150))
    with contextlib.ExitStack() as stack:
        folder = chosen.folder
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="fs-evaluators-")
            folder = Path(stack.enter_context(made))
        else:
            folder.mkdir(parents=True)
        history = play(folder, kills=kills, episodes=episodes, seed=chosen.seed)
    say(history.text() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
