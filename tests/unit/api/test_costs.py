"""What incidents cost, added up: by what, in which time, and each second of one trouble once."""

import datetime as dt

import msgspec
import pytest

from alerts.judge.incident import Incident, advance
from alerts.judge.incident_model import Linked
from alerts.judge.stretches import Stretch, with_stretch
from api.oncall.costs import Account, By, account
from api.remote.costs.cli import text_of
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from tests.worlds.incidents import slow_link, straggler

MONDAY = int(dt.datetime(2026, 11, 16, tzinfo=dt.UTC).timestamp()) * NS
HOUR = 3_600 * NS
FOREVER = (0, 1 << 62)


def incident(verdict: Verdict, until_ns: int, gpu_hours: float = 0.0) -> Incident:
    (found,) = advance((), [verdict], verdict.since_ns).incidents
    costs = tuple(
        msgspec.structs.replace(one, gpu_hours=gpu_hours, lost_seconds=gpu_hours * 36)
        for one in verdict.costs
    )
    own = msgspec.structs.replace(verdict, costs=costs)
    return msgspec.structs.replace(found, verdict=own, last_seen_ns=until_ns)


def added(
    incidents: list[Incident], by: By, span: tuple[int, int] = FOREVER, price: float = 0.0
) -> Account:
    return account(incidents, *span, by, price)


def test_the_dearest_is_first_with_its_share_and_its_money() -> None:
    cheap = incident(slow_link(MONDAY, job="small"), MONDAY + HOUR, 10.0)
    dear = incident(slow_link(MONDAY + HOUR, job="large"), MONDAY + 2 * HOUR, 30.0)
    told = added([cheap, dear], By.JOB, price=2.5)
    assert [(one.key, one.gpu_hours, one.money, one.share) for one in told.entries] == [
        ("large", 30.0, 75.0, 0.75),
        ("small", 10.0, 25.0, 0.25),
    ]
    assert (told.gpu_hours, told.money, told.incidents) == (40.0, 100.0, 2)
    assert told.entries[0].dearest == dear.id


def test_one_culprit_is_one_line_however_often_it_came_back() -> None:
    again = [
        incident(slow_link(MONDAY + number * HOUR), MONDAY + (number + 1) * HOUR, 5.0)
        for number in range(3)
    ]
    (entry,) = added(again, By.CULPRIT).entries
    assert (entry.incidents, entry.gpu_hours) == (3, 15.0)
    assert "node3's NIC mlx5_0" in entry.key
    assert entry.money is None


def test_a_range_gets_its_part_of_what_reaches_over_its_edge() -> None:
    one = incident(slow_link(MONDAY - HOUR), MONDAY + 3 * HOUR, 8.0)
    told = added([one], By.CAUSE, (MONDAY, MONDAY + HOUR))
    assert told.gpu_hours == pytest.approx(2.0)
    assert added([one], By.CAUSE, (MONDAY + 4 * HOUR, MONDAY + 5 * HOUR)).entries == ()


def test_weeks_begin_on_monday_and_add_up_to_the_whole() -> None:
    one = incident(slow_link(MONDAY - HOUR), MONDAY + 3 * HOUR, 8.0)
    told = added([one], By.WEEK)
    assert [each.key for each in told.entries] == ["2026-11-09", "2026-11-16"]
    assert [each.gpu_hours for each in told.entries] == pytest.approx([2.0, 6.0])
    assert told.gpu_hours == pytest.approx(8.0)
    assert told.incidents == 1


def test_what_came_and_went_costs_while_it_was_there() -> None:
    one = incident(slow_link(MONDAY + 9 * HOUR), MONDAY + 10 * HOUR, 4.0)
    before = with_stretch(one.earlier, Stretch(MONDAY, MONDAY + HOUR), one.verdict.costs, 0)
    one = msgspec.structs.replace(one, earlier=before)
    assert added([one], By.CAUSE, (MONDAY, MONDAY + 5 * HOUR)).gpu_hours == pytest.approx(2.0)
    assert added([one], By.CAUSE, (MONDAY + 2 * HOUR, MONDAY + 8 * HOUR)).gpu_hours == 0.0


def test_what_was_first_taken_for_something_else_counts_once_as_what_it_was() -> None:
    right = incident(slow_link(MONDAY + HOUR), MONDAY + 3 * HOUR, 6.0)
    other = straggler(MONDAY, job="train")
    wrong = incident(
        msgspec.structs.replace(other, costs=right.verdict.costs), MONDAY + 2 * HOUR, 4.0
    )
    linked = Linked(incident=right.id, cause=right.verdict.cause, culprit=right.verdict.culprit)
    wrong = msgspec.structs.replace(wrong, became=linked)
    told = added([wrong, right], By.CAUSE)
    assert [(one.key, one.incidents) for one in told.entries] == [("slow_link/nic", 1)]
    # Of the first two hours the second is the other's already.
    assert told.gpu_hours == pytest.approx(6.0 + 2.0)


def test_an_incident_without_a_cost_is_counted_and_is_not_free() -> None:
    told = added([incident(straggler(MONDAY), MONDAY + HOUR)], By.CAUSE, price=2.0)
    (entry,) = told.entries
    assert (entry.incidents, entry.unmeasured, entry.gpu_hours) == (1, 1, 0.0)
    assert told.unmeasured == 1


def test_the_table_says_what_its_sums_leave_out() -> None:
    told = {
        "by": "cause", "currency": "EUR", "money": None, "gpu_hours": 1.5, "incidents": 2,
        "unmeasured": 1, "entries_left_out": 0, "is_partial": True,
        "entries": [{"key": "slow_link/nic", "gpu_hours": 1.5, "money": None, "share": 1.0,
                     "incidents": 2}],
    }  # fmt: skip
    text = text_of(told)
    assert "The cost of 1 incidents is not known" in text
    assert "Without a price" in text
    assert "fewer days" in text
    assert "EUR" in text_of(told | {"money": 3.0})
