"""Native batches: good samples beside bad ones, and the rules of events."""

import pytest

from api.data.ingest.columns import Acceptance
from api.data.ingest.native import decode_native
from api.data.ingest.series import NativeTables
from collector.contract import wire
from collector.contract.model import Event, Sample, Series

NOW_MS = 1_800_000_000_000
ACCEPTANCE = Acceptance.at(NOW_MS, 30)
GOOD, BAD = Series("good"), Series("bad", {"x": "v" * 3000})


def encode(*samples: Sample, events: tuple[Event, ...] = ()) -> bytes:
    batch = wire.pack_batch(
        samples, events, agent="a", boot="b", sequence=0, sent_ms=0, common={"host": "h"}
    )
    return wire.encode_batch(batch)


def at(time_ms: int, series: Series = GOOD, value: float = 1.0) -> Sample:
    return Sample(series, value, time_ms * 1_000_000)


def event(**changes: object) -> Event:
    fields: dict[str, object] = {"kind": "k", "time_ns": NOW_MS * 1_000_000, "labels": {"a": "b"}}
    return Event(**{**fields, **changes})  # type: ignore[arg-type]


def test_bad_samples_are_counted_by_rule_and_the_good_ones_kept() -> None:
    body = encode(
        at(NOW_MS), at(NOW_MS, BAD), at(0), at(0, BAD), at(NOW_MS + 10**9), at(NOW_MS + 1)
    )
    tables = NativeTables()
    for _ in range(2):  # on first sight, and recognised
        request = decode_native(body, tables, ACCEPTANCE)
        assert request.write.samples.time_ms.tolist() == [NOW_MS, NOW_MS + 1]
        assert request.refused == {"bad_labels": 2, "too_old": 1, "too_far_in_future": 1}
        assert [dict(new.labels)["__name__"] for new in request.write.series] == ["good"]


def test_an_empty_batch_is_a_batch() -> None:
    request = decode_native(encode(), NativeTables(), ACCEPTANCE)
    assert (request.write.rows, request.refused, request.days) == (0, {}, [])


def test_events_get_the_batch_s_labels_and_their_own_win() -> None:
    body = encode(events=(event(), event(labels={"host": "other"})))
    kept = decode_native(body, NativeTables(), ACCEPTANCE).write.events
    assert [each.labels for each in kept] == [{"a": "b", "host": "h"}, {"host": "other"}]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"kind": ""}, "bad_event"),
        ({"message": "x" * 16_385}, "bad_event"),
        ({"message": "é" * 8_193}, "bad_event"),
        ({"labels": {str(n): "" for n in range(65)}}, "bad_event"),
        ({"attributes": {str(n): "" for n in range(257)}}, "bad_event"),
        ({"time_ns": (ACCEPTANCE.earliest_ms * 1_000_000) - 1}, "too_old"),
        ({"time_ns": (ACCEPTANCE.latest_ms * 1_000_000) + 1}, "too_far_in_future"),
        ({"time_ns": 2**64 - 1}, "too_far_in_future"),
    ],
)
def test_an_event_that_breaks_a_rule_is_refused_by_name(
    changes: dict[str, object], rule: str
) -> None:
    request = decode_native(encode(events=(event(), event(**changes))), NativeTables(), ACCEPTANCE)
    assert len(request.write.events) == 1
    assert request.refused == {rule: 1}
