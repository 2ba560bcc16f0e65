"""A fleet under a roll-out in which anything happens at any moment: kills, outages, bad versions.

The agents' half is the real one, on real folders; the service's half is its pure decisions. What
must hold whatever happens: no agent keeps a configuration that is bad for it, none comes up with
one that was on trial, and no roll-out goes past a share whose failures have reached the bound.
"""

import datetime as dt
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from api.data.inventory.rollout_model import AgentConfiguration, Rollout, RolloutState
from api.data.rollouts.reports import updated
from api.data.rollouts.stages import at_stage, decide, tally, wanted
from collector.agent.meter import Meter
from collector.agent.rollout.follow import Follow
from collector.agent.rollout.judge import Numbers
from collector.agent.settings import AgentSettings
from collector.contract.model import Event
from collector.contract.rollout import digest_of
from collector.contract.units import NS
from collector.contract.wire import ConfigurationNotice
from collector.sources import SourceSettings

AGENTS = 4
VERSION, BASE = 7, 0
DOCUMENT = b"flush_seconds = 2.0\n"
TRIAL_SECONDS = 20.0
START = dt.datetime(2026, 11, 18, tzinfo=dt.UTC)
LOCAL = AgentSettings(sources={"a": SourceSettings()})


class KilledError(BaseException):
    """The process ends here, whatever it was doing."""


class World:
    """The clock, and the moment at which the next write of a disk ends the process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.writes_left: int | None = None

    def now_ns(self) -> int:
        return int((START.timestamp() + self.seconds) * NS)

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.seconds)

    def sync(self, _: int) -> None:
        """In the place of fsync: the file is written under its temporary name, or renamed."""
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise KilledError


class Fleet:
    """One agent of the fleet and the service's knowledge of it."""

    def __init__(self, folder: Path, name: str, world: World, *, is_bad_here: bool) -> None:
        self.name = name
        self.world = world
        self.is_bad_here = is_bad_here
        self.events: list[Event] = []
        self.follow: Follow | None = None
        self.in_force = BASE
        self._folder = folder / name
        self._is_woken = False
        self._reads = {True: 0.0, False: 0.0}
        self._shipped = 0.0

    def start(self) -> None:
        """As `Agent.run` does."""
        self._reads = {True: 0.0, False: 0.0}
        self._is_woken = False
        self.follow = Follow(
            self._folder,
            key_file="",
            overlay=lambda _: LOCAL,
            meter=Meter(),
            clocks=(self.world.now_ns, self.world.now_ns),
            wake=self._wake,
        )
        self.follow.tell = self.events.append
        self.follow.fetch = lambda *_: (200, DOCUMENT)
        self.follow.settings(LOCAL)
        self.in_force = self.follow._keeper.version
        assert self.follow._keeper.state.trying is None, "a trial outlived its process"
        self.follow.hello()

    def _wake(self) -> None:
        self._is_woken = True

    def _numbers(self) -> Numbers:
        is_bad = self.is_bad
        self._reads[not is_bad] += 3
        self._shipped += 1
        read = {("a", is_good): count for is_good, count in self._reads.items()}
        up = {"a": 0.0 if is_bad else 1.0}
        return Numbers(up=up, read=read, errors={}, shipped=self._shipped)

    @property
    def is_bad(self) -> bool:
        """Whether what is in force is bad for this host."""
        return self.is_bad_here and self.in_force == VERSION

    def step(self, notice: ConfigurationNotice | None) -> None:
        """A receipt, and then a round of the main thread."""
        assert self.follow is not None
        if notice is not None:
            self.follow.offer(notice)
        if self._is_woken:
            self._is_woken = False
            before = self._numbers()
            self.in_force = self.follow._keeper.version
            self.follow.begin(before)
        elif self.follow.is_trying and self.follow.look(self._numbers(), LOCAL):
            self.in_force = self.follow._keeper.version
        self.check()

    def check(self) -> None:
        if self.follow is not None:
            good = self.follow._keeper.state.good
            assert not (self.is_bad_here and good == VERSION), "a bad version was called good"


class Service:
    """What the service knows and decides."""

    def __init__(self, world: World, shares: list[float], failures_max: int) -> None:
        self.world = world
        self.known: dict[str, AgentConfiguration] = {}
        made = Rollout(
            version=VERSION,
            base=BASE,
            shares=shares,
            failures_max=failures_max,
            trial_seconds=TRIAL_SECONDS,
            since=world.now(),
        )
        self.rollout = at_stage(made, 0, world.now())

    def take(self, agent: Fleet) -> None:
        events, agent.events[:] = list(agent.events), []
        for event in events:
            report = updated(self.known.get(agent.name), agent.name, event, self.world.now())
            assert report is not None
            self.known[agent.name] = report

    def notice(self, agent: Fleet) -> ConfigurationNotice | None:
        """As `RolloutBook.of` does."""
        known = self.known.get(agent.name)
        if known is None:
            return None
        version = wanted(self.rollout, known)
        if version == known.good and known.trying is None:
            return None
        if version == BASE:
            return ConfigurationNotice(version=BASE)
        return ConfigurationNotice(
            version=version, sha256=digest_of(DOCUMENT), trial_seconds=TRIAL_SECONDS
        )

    def round(self, alive: list[Fleet]) -> None:
        """The leader's look; checks that it goes on only with proof."""
        agents, reporting = list(self.known.values()), {each.name for each in alive}
        old, self.rollout = self.rollout, decide(self.rollout, agents, reporting, self.world.now())
        goes_on = self.rollout.stage > old.stage or (
            self.rollout.state is not old.state
            and self.rollout.state in {RolloutState.DONE, RolloutState.WAITING}
        )
        if goes_on:
            found = tally(old, agents, reporting)
            assert len(found.failed) < old.failures_max, "it went past its failures"
            proofs = [
                each for each in alive if each.follow and each.follow._keeper.state.good == VERSION
            ]
            assert proofs, "it went on without one agent that runs it"
            assert all(not each.is_bad_here for each in proofs)


@contextmanager
def world_of_disks() -> Iterator[tuple[World, Path]]:
    world = World()
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(os, "fsync", world.sync),
    ):
        yield world, Path(folder)


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["step", "kill", "start", "report"]), st.integers(0, AGENTS - 1)),
    st.tuples(st.just("killed_while_writing"), st.integers(0, AGENTS - 1), st.integers(0, 4)),
    st.tuples(st.just("time"), st.sampled_from([1, 5, 30, 1_000])),
    st.tuples(st.just("round")),
    st.tuples(st.just("ordinary"), st.integers(1, 8)),
    st.tuples(st.sampled_from(["stop", "back"])),
)


def play(action: tuple[object, ...], agents: list[Fleet], service: Service, world: World) -> None:
    match action:
        case ("time", int(seconds)):
            world.seconds += seconds
        case ("ordinary", int(rounds)):
            for _ in range(rounds):
                pass_by(agents, service, world, seconds=8)
        case ("round",):
            service.round([each for each in agents if each.follow is not None])
        case ("stop",) if service.rollout.state is RolloutState.ROLLING:
            service.rollout = msgspec.structs.replace(service.rollout, state=RolloutState.STOPPED)
        case ("back",):
            service.rollout = msgspec.structs.replace(service.rollout, state=RolloutState.BACK)
        case (str(does), int(number), *more):
            happen(does, agents[number], service, world, more)


def happen(does: str, agent: Fleet, service: Service, world: World, more: list[object]) -> None:
    """Something happens to one agent; what cannot happen to one that is down, does not."""
    if agent.follow is None:
        if does == "start":
            agent.start()
    elif does == "step":
        agent.step(service.notice(agent))
    elif does == "kill":
        agent.follow = None
    elif does == "report":
        service.take(agent)
    elif does == "killed_while_writing":
        (writes,) = more
        assert isinstance(writes, int)
        world.writes_left = writes
        try:
            agent.step(service.notice(agent))
        except KilledError:
            agent.follow = None
        world.writes_left = None


def pass_by(agents: list[Fleet], service: Service, world: World, seconds: float) -> None:
    """Some seconds in which all that are up do what they should."""
    world.seconds += seconds
    alive = [agent for agent in agents if agent.follow is not None]
    for agent in alive:
        service.take(agent)
        agent.step(service.notice(agent))
    service.round(alive)


def calm_down(agents: list[Fleet], service: Service, world: World) -> None:
    """All hosts are up, and nothing happens any more but time."""
    for agent in agents:
        if agent.follow is None:
            agent.start()
    for _ in range(80):
        pass_by(agents, service, world, seconds=61)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.booleans(), min_size=AGENTS, max_size=AGENTS),
    st.sampled_from([[100.0], [1.0, 100.0], [30.0, 60.0, 100.0], [50.0]]),
    st.integers(1, 2),
    st.lists(ACTIONS, max_size=60),
)
def test_no_agent_stays_on_a_bad_configuration_and_no_share_is_passed_over(
    bad: list[bool], shares: list[float], failures_max: int, actions: list[tuple[object, ...]]
) -> None:
    with world_of_disks() as (world, folder):
        service = Service(world, shares, failures_max)
        agents = [
            Fleet(folder, f"n{number}", world, is_bad_here=is_bad)
            for number, is_bad in enumerate(bad)
        ]
        for agent in agents:
            agent.start()
            service.take(agent)
        for action in actions:
            play(action, agents, service, world)
        calm_down(agents, service, world)
        assert not any(agent.is_bad for agent in agents)
        if service.rollout.state is RolloutState.BACK:
            assert {agent.in_force for agent in agents} == {BASE}
        if service.rollout.state is RolloutState.DONE:
            # Every agent that it is good for has it, but for those killed in trial after trial.
            for agent in agents:
                assert agent.follow is not None
                state = agent.follow._keeper.state
                assert agent.in_force == VERSION or VERSION in state.failed


def test_a_calm_fleet_gets_a_good_version_and_leaves_a_bad_one() -> None:
    """The play above is not vacuous: without trouble a roll-out ends."""
    for bad, state in ((False, RolloutState.DONE), (True, RolloutState.STOPPED)):
        with world_of_disks() as (world, folder):
            service = Service(world, [1.0, 100.0], 1)
            agents = [
                Fleet(folder, f"n{number}", world, is_bad_here=bad) for number in range(AGENTS)
            ]
            calm_down(agents, service, world)
            assert service.rollout.state is state
            assert {agent.in_force for agent in agents} == {BASE if bad else VERSION}
