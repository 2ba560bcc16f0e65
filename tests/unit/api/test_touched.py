"""Which inserts touched which stretches of time, and what is kept until they do."""

import random

import numpy as np
import pytest

from api.base.kept import Kept
from api.data.store import touched as module
from api.data.store.touched import GROUPS, STRETCH_NS, Touched

SPAN = 40


def note(touched: Touched, stretches: list[int], groups: list[int]) -> None:
    times = np.array(stretches, np.int64) * STRETCH_NS + 7
    touched.note(times, np.array(groups, np.int64))


@pytest.mark.parametrize("kept", [8, 1_000])
def test_no_insert_is_missed(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was forgotten may be taken for touched, and never the other way round."""
    monkeypatch.setattr(module, "STRETCHES_MAX", kept)
    rng = random.Random(kept)
    touched = Touched()
    known: dict[tuple[int, int], int] = {}
    for _ in range(300):
        rows = [(rng.randrange(SPAN), rng.randrange(GROUPS)) for _ in range(rng.randrange(1, 5))]
        note(touched, [row[0] for row in rows], [row[1] for row in rows])
        known |= dict.fromkeys(rows, touched.number)
        first = rng.randrange(SPAN)
        last, group = rng.randrange(first, SPAN), rng.randrange(GROUPS)
        expected = max(known.get((each, group), 0) for each in range(first, last + 1))
        found = touched.latest(first * STRETCH_NS, last * STRETCH_NS, [group])
        assert found >= expected
        assert found == expected or kept < SPAN


def test_an_insert_of_anything_touches_everything() -> None:
    touched = Touched()
    touched.note_all()
    assert touched.latest(0, 1) == touched.number == 1
    touched.note(np.zeros(0, np.int64))
    assert touched.number == 1


def test_those_used_least_recently_go_when_there_is_no_room() -> None:
    kept: Kept[str] = Kept(100)
    kept.put("a", "a", 40)
    kept.put("b", "b", 40)
    assert kept.get("a", lambda _: True) == "a"
    kept.put("c", "c", 40)
    assert [kept.get(key, lambda _: True) for key in "abc"] == ["a", None, "c"]
    kept.put("a", "A", 10)
    kept.put("large", "large", 101)
    assert (kept.bytes_used, len(kept)) == (50, 2)
    assert kept.get("a", lambda thing: thing == "a") is None
