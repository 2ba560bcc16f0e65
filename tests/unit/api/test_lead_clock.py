"""A process whose clock jumps does not lead until the clock is back, or has stood for a while."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.base.clocks import JUMP_HOLD_SECONDS, TrustedClock
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import EVALUATOR, Lead

START_S = 1_800_000_000.0
HOUR = 3_600.0


class Clocks:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.steady_s = 100.0
        self.ahead_s = START_S

    def wall(self) -> float:
        return self.steady_s + self.ahead_s

    def steady(self) -> float:
        return self.steady_s


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    made = Inventory(f"sqlite:///{tmp_path}/inventory.db")
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def lead(inventory: Inventory, clocks: Clocks) -> Lead:
    made = Lead(
        inventory, clocks.wall, holder="one", trusted=TrustedClock(clocks.wall, clocks.steady)
    )
    assert made.renew()
    return made


@pytest.mark.parametrize("step_s", [HOUR, -HOUR])
def test_a_step_that_is_taken_back_costs_only_its_time(
    lead: Lead, clocks: Clocks, inventory: Inventory, step_s: float
) -> None:
    lease = inventory.leases.get(EVALUATOR)
    clocks.ahead_s += step_s
    assert not lead.is_held()
    assert not lead.renew()
    assert inventory.leases.get(EVALUATOR) == lease, "no lease by a wrong clock"
    clocks.ahead_s -= step_s
    clocks.steady_s += 10.0
    assert lead.is_held()
    assert lead.renew()


@pytest.mark.parametrize("step_s", [HOUR, -HOUR])
def test_a_clock_that_stays_is_believed_after_a_while(
    lead: Lead, clocks: Clocks, step_s: float
) -> None:
    clocks.ahead_s += step_s
    assert not lead.renew()
    clocks.steady_s += JUMP_HOLD_SECONDS - 1.0
    assert not lead.renew()
    clocks.steady_s += 1.0
    assert lead.renew()
    assert lead.is_held()


def test_a_clock_that_is_corrected_bit_by_bit_is_believed(lead: Lead, clocks: Clocks) -> None:
    for _ in range(100):
        clocks.steady_s += 5.0
        clocks.ahead_s += 1.0
        assert lead.renew()
        assert lead.is_held()
