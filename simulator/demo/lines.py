"""Output of the demo without a terminal: one plain line for each event."""

from __future__ import annotations

from rich.console import Console

from simulator.demo.answers import Answers
from simulator.demo.story import StepTimes, Story, clock, milliseconds
from simulator.snapshot import Snapshot

MEASURED_SECONDS = 40.0
"""Earlier values are of a job's first seconds, before its rhythm can be measured."""


class Lines:
    """Lines of text; each stands for itself, so that they can be searched."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: list[Story] = []
        self._steps = StepTimes()
        self._has_all_hosts = False
        self._measured: set[str] = set()
        self._found: set[tuple[str, str, str]] = set()

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def tell(self, story: Story) -> None:
        self._running.append(story)
        truth = story.truth
        self.say(f"{clock(story.start_s)} injected {truth.fault} at {story.victim}: {truth.title}")

    def show(self, snapshot: Snapshot, answers: Answers) -> None:
        self._steps.add(snapshot)
        now = clock(snapshot.time_s)
        if answers.hosts >= snapshot.topology.hosts and not self._has_all_hosts:
            self._has_all_hosts = True
            self.say(f"{now} the service hears the agents of all {answers.hosts} hosts")
        for one in answers.found:
            key = one.incident, one.cause, one.culprit
            if key not in self._found:
                self._found.add(key)
                self.say(f"{now} found {one}")
        if snapshot.time_s >= MEASURED_SECONDS:
            self._say_measured(now, answers)
        for story in [one for one in self._running if one.end_s <= snapshot.time_s]:
            self._running.remove(story)
            self._measured.clear()
            self.say(
                f"{now} {story.truth.fault} is over; {self._steps.compare(story, snapshot.time_s)}"
            )

    def _say_measured(self, now: str, answers: Answers) -> None:
        """The service's values of the jobs: once at first, and once at the end of each fault."""
        for name, answer in answers.jobs.items():
            if name not in self._measured and answer.step_seconds and answer.network_share:
                self._measured.add(name)
                self.say(
                    f"{now} the service measures {name}: a step takes "
                    f"{milliseconds(answer.step_seconds)}, {answer.network_share:.0%} network"
                )
