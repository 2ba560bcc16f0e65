"""Which windows a case may be made of, and until when the store has them."""

from alerts.judge.incident import Incident, IncidentState, News, Turn
from api.oncall.cases.keeper import Retention, age_words, moments_of
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit
from tests.worlds.incidents import straggler

DAY_NS = 86_400 * NS


def incident(*history: Turn, confirmed_ns: int = 900 * NS) -> Incident:
    return Incident(
        id="x",
        state=IncidentState.OPEN,
        verdict=straggler(100 * NS),
        first_said_ns=100 * NS,
        last_seen_ns=confirmed_ns,
        confirmed_ns=confirmed_ns,
        history=history,
    )


def turn(second: int, news: News, cause: Cause = Cause.STRAGGLER, **names: str) -> Turn:
    culprit = Culprit(**names) if names else straggler(0).culprit  # type: ignore[arg-type]
    return Turn(time_ns=second * NS, news=news, cause=cause, culprit=culprit, confidence=0.8)


def test_the_last_confirmation_comes_first_then_when_the_explanation_was_new() -> None:
    story = incident(
        turn(100, News.OPENED, Cause.STALL),
        turn(130, News.CHANGED),
        turn(200, News.UPDATED),
        turn(300, News.CHANGED, host="other"),
    )
    assert list(moments_of(story)) == [900 * NS, 130 * NS]


def test_the_same_window_is_not_read_twice() -> None:
    assert list(moments_of(incident(turn(900, News.OPENED)))) == [900 * NS]


def test_records_are_needed_only_where_there_are_jobs() -> None:
    retention = Retention(samples=30, events=14, collectives=7)
    assert retention.days(has_jobs=True) == 7
    assert retention.days(has_jobs=False) == 14


def test_ages_are_in_hours_and_days() -> None:
    assert (age_words(DAY_NS), age_words(9 * DAY_NS)) == ("24 hours", "9 days")
