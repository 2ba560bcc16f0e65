"""The stand of every case: a service, a simulated cluster, a receiver of pages, and the ledger."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx

from api.data.inventory.repository import Inventory
from api.data.store.store import Store, StoreUrl
from tests.chaos.cluster import LiveCluster
from tests.chaos.ledger import Ledger, Tally, check_verdicts, read_incidents
from tests.stands.alerting import Listener
from tests.stands.service import ServiceProcess, eventually

VERDICT_SECONDS = 300.0
"""How long a verdict and its page may take after the last trouble: 25 s on an idle machine, and
minutes on one that has ten other things to do: late is right, wrong is not."""
ROUNDS_SECONDS = 12.0
"""Two rounds and two runs of the rules: time enough for a second page, if there were one."""
POLL_SECONDS = 0.25

NOTIFY = """
[[receivers]]
name = "oncall"
type = "webhook"
url = "{url}"
timeout_s = 5.0

[[routes]]
receiver = "oncall"
group_wait_s = 1
group_interval_s = 5
"""


def write_settings(folder: Path, url: str) -> Path:
    """The service's settings file: one receiver of pages, at this address."""
    notify, settings = folder / "notify.toml", folder / "service.toml"
    notify.write_text(NOTIFY.format(url=url))
    settings.write_text(f'notify_file = "{notify}"\n')
    return settings


class Stand:
    """What a case works with. Seconds count from the beginning of the fault."""

    def __init__(
        self, services: Sequence[ServiceProcess], cluster: LiveCluster, ledger: Ledger
    ) -> None:
        self.services = list(services)
        self.cluster = cluster
        self.ledger = ledger

    @property
    def service(self) -> ServiceProcess:
        return self.services[0]

    def until(self, seconds: float) -> None:
        """Let time pass until the fault is so old."""
        time.sleep(max(0.0, seconds - self.cluster.age_s))

    def incidents(self) -> list[dict]:  # type: ignore[type-arg]
        """The incidents that a service shows, newest first; none while no service answers."""
        for service in self.services:
            with contextlib.suppress(httpx.HTTPError):
                answer = service.client.get("/v1/incidents", params={"state": "open"})
                if answer.status_code == 200:
                    return list(answer.json()["items"])
        return []

    def until_paged(self) -> None:
        """Wait until an incident is open and its page has come."""

        def is_paged() -> bool:
            told = self.ledger.pages()
            return any(told.get(one["id"], {}).get("firing") for one in self.incidents())

        eventually(is_paged, f"the page of {self.cluster.truth}", VERDICT_SECONDS)

    def until_sent(self) -> None:
        """Wait until every batch made so far is acknowledged."""
        eventually(lambda: self.cluster.waiting == 0, "acknowledgements of all", VERDICT_SECONDS)

    def settle(self) -> None:
        """The trouble is over: a verdict and its page, and time in which nothing more comes."""
        self.until_sent()
        self.until_paged()
        time.sleep(ROUNDS_SECONDS)
        self.cluster.end()

    def check(self, store: Store, inventory: Inventory) -> Tally:
        """Compare the ledger with what is stored. The service has been stopped."""
        tally = Tally()
        self.ledger.check_rows(store, tally)
        incidents = read_incidents(inventory)
        assert incidents, f"no incident of {self.cluster.truth}"
        check_verdicts(incidents, self.cluster.truth, tally)
        self.ledger.check_pages(incidents, tally)
        return tally


@contextlib.contextmanager
def opened(store_url: str, inventory_url: str) -> Iterator[tuple[Store, Inventory]]:
    """A store and an inventory that no service has open."""
    store, inventory = Store(StoreUrl.parse(store_url)), Inventory(inventory_url)
    try:
        yield store, inventory
    finally:
        store.close()
        inventory.close()


def opened_data(data: Path) -> contextlib.AbstractContextManager[tuple[Store, Inventory]]:
    return opened(f"chdb://{data / 'telemetry'}", f"sqlite:///{data / 'inventory.db'}")


@contextlib.contextmanager
def paged(ledger: Ledger) -> Iterator[str]:
    """The address of a receiver of pages that writes them into the ledger."""
    with Listener() as listener:
        ledger.calls = listener.calls
        yield listener.url


@contextlib.contextmanager
def standing(
    services: Sequence[ServiceProcess], ledger: Ledger, *, seed: int, fault: str
) -> Iterator[Stand]:
    """A cluster that sends to services that run."""
    targets = [("127.0.0.1", service.port) for service in services]
    cluster = LiveCluster(seed, fault, ledger, lambda: targets)
    cluster.start()
    try:
        yield Stand(services, cluster, ledger)
    finally:
        cluster.abandon()


def run_case(
    folder: Path,
    case: Callable[[Stand], None],
    *,
    seed: int,
    fault: str,
    inside: Sequence[str] = (),
    fetch: Callable[[Path], Path] = lambda data: data,
) -> Tally:
    """One case on one service with an embedded store, and its tally.

    ``inside``: the words of a program that runs the service. ``fetch`` makes its data folder
    readable, where it is not.
    """
    ledger = Ledger()
    data = folder / "data"
    data.mkdir(exist_ok=True)
    with paged(ledger) as url:
        settings = write_settings(folder, url)
        service = ServiceProcess(data, "--config", str(settings), inside=inside)
        with service, standing([service], ledger, seed=seed, fault=fault) as stand:
            case(stand)
            stand.settle()
            assert service.stop() == 0
    with opened_data(fetch(data)) as (store, inventory):
        return stand.check(store, inventory)
