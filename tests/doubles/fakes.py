"""Stand-ins for what an agent's parts meet: a clock that is set by hand, a source by recipe."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from collector.contract.model import Reading, Sample, Series
from collector.doors.host import Host
from collector.sources import SourceSettings

SECOND_NS = 1_000_000_000


class HandClock:
    """Wall and monotonic time, moved by the test."""

    def __init__(self) -> None:
        self.wall_ns = 1_700_000_000 * SECOND_NS
        self.steady_ns = 50_000 * SECOND_NS

    def advance(self, seconds: float) -> None:
        self.wall_ns += int(seconds * SECOND_NS)
        self.steady_ns += int(seconds * SECOND_NS)


class HandHost(Host):
    """A host whose clocks are a HandClock, on an empty tree."""

    def __init__(self, root: Path, clock: HandClock | None = None) -> None:
        super().__init__(root)
        self.clock = clock or HandClock()

    def now_ns(self) -> int:
        return self.clock.wall_ns

    def monotonic_ns(self) -> int:
        return self.clock.steady_ns


class RecipeSource:
    """A source that does what its recipe says."""

    name: ClassVar[str] = "recipe"
    Settings: ClassVar[type[SourceSettings]] = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings
        self.recipe: Callable[[Host], Iterator[Reading]] = lambda _: iter(())

    def read(self, host: Host) -> Iterator[Reading]:
        return self.recipe(host)


class RememberingSource(RecipeSource):
    """A source that keeps a number over restarts."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self.kept: dict[str, Any] = {}

    def save_state(self) -> dict[str, Any]:
        return self.kept

    def load_state(self, state: dict[str, Any]) -> None:
        self.kept = {"count": state["count"]}


def sample(metric: str, value: float, time_ns: int = 0, /, **labels: str) -> Sample:
    return Sample(Series(metric, labels), value, time_ns)
