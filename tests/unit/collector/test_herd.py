"""Ten thousand agents that come back at once, in virtual time.

Agents pause by the shipper's own functions, and the service admits by its own bounds: what waits
for the store (`PENDING_ROWS_MAX`), connections, and one `Retry-After` for all. It writes twice as
many rows a second as the agents read, so that all of them together are too much at first.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from api.base.limits import CONNECTIONS_MAX, PENDING_ROWS_MAX, RETRY_AFTER_SECONDS
from collector.agent.coalesce import COALESCED_BATCHES_MAX, COALESCED_READINGS_MAX
from collector.agent.ship import backlog_seconds, pause_seconds, retry_seconds

AGENTS = 10_000
ROWS, FLUSH_SECONDS = 500, 5.0
"""Of one batch, and between two."""
ROWS_A_SECOND = 2 * AGENTS * ROWS / FLUSH_SECONDS
PAUSE_SECONDS_MAX = 30.0
BACKLOG_BATCHES = 12
"""A minute's. What is spare takes as long again; the longer the outage, the longer the rest of
this."""
COMMIT_SECONDS = 1.0
"""What a group waits for more, beside the work that stands before it."""
COALESCED = min(COALESCED_BATCHES_MAX, COALESCED_READINGS_MAX // ROWS)

Retry = Callable[[int, float, float, Random], float]


class Agent:
    """The shipper's rules, without bytes: which batches wait, by number, and how it goes on."""

    def __init__(self, number: int, backlog: int, phase_s: float) -> None:
        self.number = number
        self.phase_s = phase_s
        self.flushed = backlog
        self.waiting = list(range(backlog))
        self.failures = 10
        self.refusals = 0
        self.began_s = 0.0
        """When the request was sent that is on its way."""
        self.fresh_s: float | None = None
        self.sent: Counter[int] = Counter()

    def flush(self, now_s: float) -> None:
        due = int((now_s + self.phase_s) / FLUSH_SECONDS) + BACKLOG_BATCHES
        while self.flushed < due:
            self.waiting.append(self.flushed)
            self.flushed += 1

    def run(self) -> list[int]:
        """The newest, and those right before it unless the service is in trouble."""
        found = [self.waiting[-1]]
        while (
            not self.failures
            and len(found) < min(COALESCED, len(self.waiting))
            and self.waiting[-len(found) - 1] == found[-1] - 1
        ):
            found.append(found[-1] - 1)
        return found


class Herd:
    """The service's return, agent by agent and second by second."""

    def __init__(self, retry: Retry, seed: int = 1) -> None:
        self._retry = retry
        self._random = Random(seed)
        self.agents = [
            Agent(number, BACKLOG_BATCHES, self._random.uniform(0, FLUSH_SECONDS))
            for number in range(AGENTS)
        ]
        self._free_s = 0.0
        """When what waits for the store is written."""
        self.refused = 0
        self.came = Counter[int]()
        """Requests by the tenth of a second."""
        self.open = 0
        self.peak_open = 0

    def play(self, seconds: float) -> None:
        events: list[tuple[float, int, list[int]]] = []
        for agent in self.agents:
            # The service was away for long: each agent is somewhere in its longest pause.
            first_s = pause_seconds(agent.failures, PAUSE_SECONDS_MAX, self._random)
            heapq.heappush(events, (first_s, agent.number, []))
        while events and events[0][0] < seconds:
            now_s, number, delivered = heapq.heappop(events)
            agent = self.agents[number]
            if delivered:
                self.open -= 1
                next_s = self._settle(agent, delivered, now_s)
            else:
                next_s = now_s
            agent.flush(next_s)
            if next_s > now_s:
                heapq.heappush(events, (next_s, number, []))
            elif agent.waiting:
                self._send(agent, now_s, events)
            else:
                until_s = FLUSH_SECONDS - (now_s + agent.phase_s) % FLUSH_SECONDS
                heapq.heappush(events, (now_s + until_s + 1e-6, number, []))

    def _send(self, agent: Agent, now_s: float, events: list[tuple[float, int, list[int]]]) -> None:
        self.came[int(now_s * 10)] += 1
        run = agent.run()
        pending = max(0.0, self._free_s - now_s) * ROWS_A_SECOND
        if pending + len(run) * ROWS > PENDING_ROWS_MAX or self.open >= CONNECTIONS_MAX:
            self.refused += 1
            agent.failures += 1
            agent.refusals += 1
            wait_s = self._retry(
                agent.refusals, RETRY_AFTER_SECONDS, PAUSE_SECONDS_MAX, self._random
            )
            heapq.heappush(events, (now_s + wait_s, agent.number, []))
            return
        self.open += 1
        self.peak_open = max(self.peak_open, self.open)
        self._free_s = max(now_s, self._free_s) + len(run) * ROWS / ROWS_A_SECOND
        agent.began_s = now_s
        heapq.heappush(events, (self._free_s + COMMIT_SECONDS, agent.number, run))

    def _settle(self, agent: Agent, run: list[int], now_s: float) -> float:
        """Note what was delivered; when the agent goes on."""
        agent.failures = agent.refusals = 0
        agent.sent.update(run)
        place = bisect_left(agent.waiting, run[-1])
        del agent.waiting[place : place + len(run)]
        if agent.fresh_s is None:
            agent.fresh_s = now_s
        if len(run) == 1:
            return now_s
        return now_s + backlog_seconds(now_s - agent.began_s, self._random)


def of_before(failures: int, asked_s: float, seconds_max: float, random: Random) -> float:
    """What agents did before: never less than they were asked for, and mostly exactly that."""
    return max(pause_seconds(failures, seconds_max, random), asked_s)


SECONDS = 150.0


@pytest.fixture(scope="module")
def herd() -> Herd:
    herd = Herd(retry_seconds)
    herd.play(SECONDS)
    return herd


def test_all_agents_are_fresh_within_a_minute(herd: Herd) -> None:
    fresh = [agent.fresh_s for agent in herd.agents]
    times = sorted(time_s for time_s in fresh if time_s is not None)
    assert len(times) == AGENTS
    assert times[AGENTS // 2] < 20
    assert times[-1] < 60


def test_no_batch_is_lost_or_sent_twice_and_the_backlog_ends(herd: Herd) -> None:
    for agent in herd.agents:
        assert set(agent.sent.values()) == {1}
        assert sorted([*agent.sent, *agent.waiting]) == list(range(agent.flushed))
        assert len(agent.waiting) <= 2, "what is on its way, and what was read meanwhile"


def test_the_load_is_spread(herd: Herd) -> None:
    settled = AGENTS / FLUSH_SECONDS / 10
    assert max(herd.came.values()) < 2.5 * settled, "in a tenth of a second"
    assert herd.peak_open < CONNECTIONS_MAX


def test_agents_that_are_refused_together_come_back_apart() -> None:
    """All of them at one moment, as after a proxy's restart: the second wave is no wave."""
    peaks = {}
    for name, retry in (("before", of_before), ("now", retry_seconds)):
        random = Random(3)
        came = Counter(int(10 * retry(1, 2.0, 30.0, random)) for _ in range(AGENTS))
        peaks[name] = max(came.values())
    assert peaks["before"] == AGENTS, "so it was: all at the same moment"
    assert peaks["now"] < AGENTS / 15
