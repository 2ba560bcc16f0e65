"""A SONiC switch seen by `gnmi` without a network."""

from typing import Any

from collector.contract.model import Reading, Sample
from collector.contract.units import NS
from collector.sources.gnmi import Settings, Switch
from collector.switches.gnmi.decode import parse_path
from collector.switches.gnmi.model import Notification, Path, Target, Update
from tests.doubles.sonic_server import Databases, answer

NOW_NS = 1_790_000_000 * NS
STEADY_NS = 5_000 * NS


class Bench:
    """A SONiC switch whose streams the test speaks for."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - settings
        self.switch = Switch(Target(name="leaf-1", profile="sonic"), Settings(**settings))
        self.feeds = {feed.table.name: feed for feed in self.switch._feeds}
        for feed in self.feeds.values():
            self.switch.leaves.begin(feed, self.switch._request(feed.table).subscriptions)
            feed.is_live = True

    def send(self, stream: str, path: str, value: object) -> None:
        update = Update(Path(parse_path(path)), value)
        message = Notification(NOW_NS, [update], [])
        self.switch.leaves.apply(self.feeds[stream], message, NOW_NS, STEADY_NS)

    def sync(self, *streams: str) -> None:
        for name in streams or self.feeds:
            self.switch.leaves.sync(self.feeds[name])

    def send_answers(self, databases: Databases, *streams: str) -> None:
        """What the double answers to everything that the profile asks for, and a sync."""
        for name in streams or self.feeds:
            table = self.feeds[name].table
            for ask in table.subscriptions:
                names = ask.path.strip("/").split("/")
                self.send(name, ask.path, answer(databases, table.target, names))
            self.sync(name)

    def read(self) -> list[Reading]:
        return self.switch.leaves.readings(NOW_NS, STEADY_NS)

    def samples(self) -> list[Sample]:
        return [each for each in self.read() if isinstance(each, Sample)]

    def by_port(self, metric: str) -> dict[str, float]:
        found = [each for each in self.samples() if each.series.metric == metric]
        ports = {dict(each.series.labels)["port"]: each.value for each in found}
        assert len(ports) == len(found), "a port is there twice"
        return ports
