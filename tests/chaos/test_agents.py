"""Real agents and a service: the network between them is cut or half open, agents are killed."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos import network
from tests.chaos.agents import Fleet
from tests.chaos.conftest import PARTS, Report
from tests.chaos.ledger import Ledger, Tally, read_incidents
from tests.chaos.stand import opened_data, paged, write_settings
from tests.stands import namespaces
from tests.stands.service import ServiceProcess, eventually

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120.0
OUTAGE_BATCHES = 10
"""That wait in each agent's spool at the end of an outage."""
TOKEN = "a-token-for-the-chaos-of-this-one-test"  # noqa: S105 - of a service that ends with the test


class Field:
    """A service and its agents, and the ledger of what lay in their spools."""

    def __init__(self, service: ServiceProcess, fleet: Fleet, ledger: Ledger) -> None:
        self.service, self.fleet, self.ledger = service, fleet, ledger

    def until_delivered(self) -> None:
        """Every batch that waits now has been acknowledged."""
        waiting = [(agent, set(agent.spooled())) for agent in self.fleet.agents]
        eventually(
            lambda: not any(names & set(agent.spooled()) for agent, names in waiting),
            "acknowledgements of all",
            PATIENCE_SECONDS,
        )

    def until_hosts_are_known(self) -> None:
        def known() -> bool:
            hosts = self.service.client.get("/v1/hosts").json()["items"]
            return len([host for host in hosts if host["agent"]]) == len(self.fleet.agents)

        eventually(known, "all hosts", PATIENCE_SECONDS)

    def until_spooled(self) -> None:
        """An outage has lasted: note the batches that wait."""
        eventually(
            lambda: all(len(agent.spooled()) >= OUTAGE_BATCHES for agent in self.fleet.agents),
            f"{OUTAGE_BATCHES} batches in each spool",
            PATIENCE_SECONDS,
        )
        self.note_spools()

    def note_spools(self) -> None:
        for agent in self.fleet.agents:
            for body in agent.spooled().values():
                self.ledger.expect(body)


def play(field: Field, case: Callable[[Field], None]) -> None:
    field.until_hosts_are_known()
    case(field)
    field.until_delivered()
    assert field.service.stop() == 0


def check(ledger: Ledger, data: Path) -> Tally:
    """What lay in a spool is stored, and an outage of healthy hosts accuses no machine."""
    tally = Tally()
    with opened_data(data) as (store, inventory):
        ledger.check_rows(store, tally)
        assert read_incidents(inventory) == []
        assert not ledger.pages()
    return tally


@pytest.mark.rotating(PARTS)
@pytest.mark.skipif(bool(namespaces.why_not()), reason=namespaces.why_not() or "it can")
@pytest.mark.parametrize("how", ["cut", "half_open"])
def test_network(how: str, tmp_path: Path, report: Report) -> None:
    ledger = Ledger()
    data, tokens, socket = tmp_path / "data", tmp_path / "tokens", tmp_path / "way"
    tokens.write_text(f"{TOKEN} admin chaos\n")
    with ExitStack() as stack:
        cable = stack.enter_context(network.cable())
        settings = write_settings(tmp_path, stack.enter_context(paged(ledger)))
        words = ("--config", str(settings), "--token-file", str(tokens))
        service = network.ServiceOnACable(
            data, *words, inside=cable.service_inside, socket=socket, token=TOKEN
        )
        stack.enter_context(network.passed_on(cable.service_inside, socket, service.port))
        stack.enter_context(service)
        url = f"http://{network.SERVICE}:{service.port}"
        fleet = Fleet(tmp_path / "hosts", url, inside=cable.agents_inside, token=TOKEN)
        stack.enter_context(fleet)

        def case(field: Field) -> None:
            (cable.cut if how == "cut" else cable.lose_answers)()
            field.until_spooled()
            (cable.mend if how == "cut" else cable.carry_answers)()

        play(Field(service, fleet, ledger), case)
    report(check(ledger, data))


@pytest.mark.rotating(PARTS)
def test_agents_killed_and_stopped(tmp_path: Path, report: Report) -> None:
    ledger = Ledger()
    data = tmp_path / "data"
    with ExitStack() as stack:
        settings = write_settings(tmp_path, stack.enter_context(paged(ledger)))
        service = stack.enter_context(ServiceProcess(data, "--config", str(settings)))
        fleet = stack.enter_context(Fleet(tmp_path / "hosts", service.url))

        def case(field: Field) -> None:
            first, second = fleet.agents
            service.kill()
            field.until_spooled()
            first.kill()
            second.signal(signal.SIGSTOP)
            field.note_spools()
            service.start()
            time.sleep(5.0)  # the service runs, one agent is dead and the other stands still
            first.start()
            second.signal(signal.SIGCONT)
            field.until_delivered()
            for _ in range(3):
                field.note_spools()
                first.kill()
                field.note_spools()
                first.start()

        play(Field(service, fleet, ledger), case)
    report(check(ledger, data))
