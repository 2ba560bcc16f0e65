"""The `gnmi` source with switches that listen on this machine, and what it reads of them."""

from typing import Any

from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources.gnmi import Gnmi, Settings
from collector.switches.gnmi.model import Target
from tests.doubles.gnmi_server import GnmiServer, wait_until


class Listener:
    """The source with some switches, and its latest readings."""

    def __init__(self, *targets: Target, **settings: Any) -> None:  # noqa: ANN401 - settings
        self.host = Host()
        settings = {"sample_seconds": 0.1, "slow_seconds": 1.0, **settings}
        self.source = Gnmi(Settings(targets=targets, **settings))
        self.readings: list[Reading] = []
        self.events: list[Event] = []

    def read(self) -> list[Reading]:
        self.readings = list(self.source.read(self.host))
        self.events += [each for each in self.readings if isinstance(each, Event)]
        return self.readings

    def values(self, metric: str, **labels: str) -> list[float]:
        return [
            each.value
            for each in self.read()
            if isinstance(each, Sample)
            and each.series.metric == metric
            and labels.items() <= dict(each.series.labels).items()
        ]

    def absences(self) -> list[Missing]:
        return [each for each in self.read() if isinstance(each, Missing)]

    def wait_for(self, metric: str, value: float | None = None, /, **labels: str) -> None:
        def is_there() -> bool:
            found = self.values(metric, **labels)
            return value in found if value is not None else bool(found)

        wait_until(is_there, f"{metric} {labels} = {value}; {self.readings[-8:]}")

    def wait_for_absence(self, words: str) -> Missing:
        found: list[Missing] = []

        def is_there() -> bool:
            found[:] = [each for each in self.absences() if words in each.detail]
            return bool(found)

        wait_until(is_there, f"a Missing with {words!r}; {self.readings[-8:]}")
        return found[0]

    def close(self) -> None:
        for switch in self.source._switches:
            switch.stop()


def target_of(server: GnmiServer, /, name: str = "leaf-1", **more: Any) -> Target:  # noqa: ANN401
    return Target(name=name, address="127.0.0.1", port=server.port, **{"tls": False, **more})
