"""Records of operations that had not ended, and that come after the news of their end.

A rank's part in an operation is one row, and of two inserts the later one stays. A dump that shows
an operation as pending is older than the one that shows it as completed, but after an outage the
newest batches come first. So a record that is behind what the store has is not written: whatever
the order, the most advanced state stays. Only dumps of hanging jobs have such records; for all
others this costs a look at the words in one column.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from api.data.store.store import Store
from collector.contract.collective import State

STATES: Final = [state.value for state in State]
"""From the first to the last; what is not among them is taken for the last."""
KEY: Final = ("communicator", "operation", "sequence", "rank", "source", "host", "pid")
"""What makes two records the same row of `collectives`."""

_ADVANCED: Final = f"""
    SELECT {", ".join(KEY)}, state FROM collectives
    WHERE communicator IN {{communicators:Array(String)}}
        AND sequence IN {{sequences:Array(UInt64)}}
        AND host IN {{hosts:Array(String)}}
        AND state != '{STATES[0]}'
"""  # noqa: S608 - names of ours

Key = tuple[object, ...]


def has_pending(rows: pa.Table) -> bool:
    """Whether a record of these may be of an operation that had not ended."""
    state = rows["state"].combine_chunks()
    words = state.dictionary if isinstance(state, pa.DictionaryArray) else state.unique()
    return not {State.COMPLETED.value, ""}.issuperset(words.to_pylist())


def without_overtaken(store: Store, rows: pa.Table) -> pa.Table:
    """The records that are not behind what the store or these have, the most advanced last."""
    if not has_pending(rows):
        return rows
    order = pa.array([step_of(state) for state in rows["state"].to_pylist()], pa.int8())
    pending = rows.filter(pc.less(order, len(STATES) - 1))
    if not pending.num_rows:
        return rows
    asked = {
        "communicators": unique(pending, "communicator"),
        "sequences": unique(pending, "sequence"),
        "hosts": unique(pending, "host"),
    }
    near = rows.filter(pc.is_in(rows["sequence"], pa.array(asked["sequences"], pa.uint64())))
    reached: dict[Key, int] = {}
    for table in (store.query(_ADVANCED, asked), near):
        for key, state in zip(keys(table), table["state"].to_pylist(), strict=True):
            reached[key] = max(step_of(state), reached.get(key, 0))
    steps = order.to_pylist()
    is_kept = [True] * rows.num_rows
    of_pending = [place for place, step in enumerate(steps) if step < len(STATES) - 1]
    for place, key in zip(of_pending, keys(pending), strict=True):
        is_kept[place] = steps[place] >= reached.get(key, 0)
    kept = sorted((place for place, keep in enumerate(is_kept) if keep), key=steps.__getitem__)
    return rows.take(pa.array(kept, pa.int64()))


def step_of(state: str) -> int:
    return STATES.index(state) if state in STATES else len(STATES) - 1


def unique(rows: pa.Table, name: str) -> list[object]:
    found: list[object] = pc.unique(rows[name].combine_chunks()).to_pylist()
    return found


def keys(rows: pa.Table) -> list[Key]:
    return list(zip(*(rows[name].to_pylist() for name in KEY), strict=True))
