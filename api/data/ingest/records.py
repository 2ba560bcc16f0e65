"""Records of jobs' work as rows of the tables `collectives` and `steps`.

A batch brings them packed (`collector.contract.records`); `fabricscope diagnose` has them as
objects. Both become Arrow tables with a dictionary for every text that repeats, which costs the
engine a look-up a row. A record that breaks a rule is refused by the rule's name; the records
beside it are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter

import msgspec
import numpy as np
import pyarrow as pa

from api.base.host_names import ANY_HOST, HOST, Hosts
from api.data.ingest.columns import Acceptance, Bools, Int64s, Item, sort_out
from api.data.ingest.door import FOREIGN_HOST
from api.data.store.store import Store
from collector.contract.collective import Collective, StepSpan
from collector.contract.errors import WireError
from collector.contract.records import ABSENT, NAME_CHARS_MAX, Collectives, Context
from collector.contract.units import NS_PER_MS
from collector.contract.wire import Batch

COLLECTIVES, STEPS = "collectives", "steps"

BAD_RECORD = "bad_record"
"""A name that cannot be one, a number out of its range, an exit before its entry."""

RANK_MAX = (1 << 31) - 1
PID_MAX = (1 << 32) - 1
STEP_MAX = (1 << 63) - 1

RECORDS_PER_INSERT = 500_000
"""Records that become columns at once: some 100 MB on the way."""

WIDE_BITS = 64
UNKNOWN_RANK = -1
"""In `steps`: the source does not name the rank."""

_TIME = pa.timestamp("ns", "UTC")


class Accepted(msgspec.Struct, frozen=True):
    """Rows that may be stored, and how many each rule refused."""

    rows: pa.Table | None
    refused: dict[str, int]


NOTHING = Accepted(None, {})


# --- collectives out of a batch ----------------------------------------------------------------


def accept_collectives(batch: Batch, acceptance: Acceptance, hosts: Hosts = ANY_HOST) -> Accepted:
    """The batch's collectives as rows. Raises WireError if one refers to no row of the table."""
    packed = batch.collectives
    if packed is None or not len(packed):
        return NOTHING
    index = np.frombuffer(packed.context, dtype="<u4").astype(np.int64)
    if int(index.max()) >= len(packed.contexts):
        raise WireError(
            f"a collective refers to row {int(index.max())} of its table, "
            f"which has {len(packed.contexts)}"
        )
    numbers = unpack_numbers(packed)
    host = batch.common.get("host", "")
    valid = np.array([is_sound(context, host) for context in packed.contexts], dtype=np.bool_)
    rules = broken_rules(numbers, valid[index], acceptance)
    if not hosts.is_any:
        rules = refuse_foreign(rules, packed.contexts, index, batch, hosts)
    keep = ~np.logical_or.reduce(list(rules.values()))
    refused = {rule: int(broken.sum()) for rule, broken in rules.items() if broken.any()}
    if not keep.any():
        return Accepted(None, refused)
    if refused:
        index = index[keep]
        numbers = {name: column[keep] for name, column in numbers.items()}
    return Accepted(rows_of_columns(packed.contexts, index, numbers, host), refused)


def refuse_foreign(
    rules: dict[str, Bools],
    contexts: Sequence[Context],
    index: Int64s,
    batch: Batch,
    hosts: Hosts,
) -> dict[str, Bools]:
    """The rules with one more: rows of hosts that are not the sender's."""
    host = batch.common.get(HOST, "")
    allowed = [hosts.allow(filter(None, [each.host or host])) for each in contexts]
    foreign = ~np.array(allowed, dtype=np.bool_)[index]
    others = {rule: broken & ~foreign for rule, broken in rules.items()}
    return {FOREIGN_HOST: foreign, **others}


def unpack_numbers(packed: Collectives) -> dict[str, Int64s]:
    names = ("sequence", "time_ns", "entry_ns", "exit_ns", "enqueue_ns", "duration_ns")
    return {
        name: np.frombuffer(getattr(packed, name), dtype="<i8").astype(np.int64, copy=False)
        for name in (*names, "size_bytes")
    }


def is_sound(context: Context, host: str) -> bool:
    """``host`` is the host of ranks whose records name none."""
    names = (context.communicator, context.source)
    words = (context.algorithm, context.protocol, context.host or host, context.job)
    return (
        all(names)
        and all(is_word(text) for text in (*names, *words))
        and 0 <= context.rank <= RANK_MAX
        and 0 <= context.ranks <= RANK_MAX
        and (context.ranks == 0 or context.rank < context.ranks)
        and 0 <= context.pid <= PID_MAX
        and (context.peer is None or 0 <= context.peer <= RANK_MAX)
    )


def is_word(text: str) -> bool:
    """Whether a text may stand in a record: short and printable, or empty."""
    return len(text) <= NAME_CHARS_MAX and text.isprintable()


def broken_rules(
    numbers: Mapping[str, Int64s], sound: Bools, acceptance: Acceptance
) -> dict[str, Bools]:
    """For each rule, the rows that break it; a row breaks one rule at most."""
    entry, leave = numbers["entry_ns"], numbers["exit_ns"]
    bad = ~sound | (numbers["sequence"] < 0) | (numbers["time_ns"] < 0)
    for name in ("entry_ns", "exit_ns", "enqueue_ns", "duration_ns", "size_bytes"):
        bad |= (numbers[name] < 0) & (numbers[name] != ABSENT)
    bad |= (leave != ABSENT) & (entry > leave)
    # An operation that hangs was enqueued long ago; only its time decides whether it is too old.
    too_old = ~bad & (numbers["time_ns"] < acceptance.earliest_ms * NS_PER_MS)
    latest = np.maximum.reduce([numbers[f"{name}_ns"] for name in ("time", "entry", "exit")])
    latest = np.maximum(latest, numbers["enqueue_ns"])
    too_new = ~bad & ~too_old & (latest > acceptance.latest_ms * NS_PER_MS)
    return {BAD_RECORD: bad, "too_old": too_old, "too_far_in_future": too_new}


def rows_of_columns(
    contexts: Sequence[Context], index: Int64s, numbers: Mapping[str, Int64s], host: str
) -> pa.Table:
    """Rows of `collectives`; ``host`` is the host of ranks whose records name none."""
    # A context that is refused may have numbers that fit no column; its rows are gone already.
    used = np.zeros(len(contexts), dtype=np.bool_)
    used[index] = True
    rows = [context if is_used else None for context, is_used in zip(contexts, used, strict=True)]

    def column(field: str, kind: pa.DataType | None) -> pa.Array:
        if kind is not None and field in numbers:
            return nullable(numbers[field], kind)
        values = [None if row is None else getattr(row, field) for row in rows]
        if kind is None:
            default = host if field == "host" else ""
            return spread([value or default for value in values], index)
        known = [ABSENT if value is None else value for value in values]
        return nullable(np.array(known, dtype=np.int64)[index], kind)

    return pa.table({name: column(field, kind) for name, field, kind in _FIELDS})


def spread(values: list[str], index: Int64s) -> pa.DictionaryArray:
    """The values at these places, each kept once."""
    codes: dict[str, int] = {}
    of_values = np.array([codes.setdefault(str(v), len(codes)) for v in values], dtype=np.int32)
    # Not safe: that looks at each code again, and they are places in the list by construction.
    return pa.DictionaryArray.from_arrays(
        pa.array(of_values[index]), pa.array(list(codes), pa.string()), safe=False
    )


def nullable(column: Int64s, kind: pa.DataType) -> pa.Array:
    """The column, which was checked to fit its type, with null for what was not observed.

    Types of 64 bits are another view of the same numbers: to cast them would cost more than all
    else.
    """
    absent = column == ABSENT
    if absent.any():
        numbers = pa.array(np.where(absent, 0, column), mask=absent)
    else:
        numbers = pa.array(column)
    return numbers.view(kind) if kind.bit_width == WIDE_BITS else numbers.cast(kind)


# --- collectives as objects --------------------------------------------------------------------

_FIELDS = (
    ("communicator", "communicator", None),
    ("operation", "operation", None),
    ("sequence", "sequence", pa.uint64()),
    ("rank", "rank", pa.uint32()),
    ("source", "source", None),
    ("host", "host", None),
    ("pid", "pid", pa.uint32()),
    ("time", "time_ns", _TIME),
    ("entry", "entry_ns", _TIME),
    ("exit", "exit_ns", _TIME),
    ("enqueue", "enqueue_ns", _TIME),
    ("duration_ns", "duration_ns", pa.int64()),
    ("size_bytes", "size_bytes", pa.int64()),
    ("ranks", "ranks", pa.uint32()),
    ("peer", "peer", pa.int32()),
    ("algorithm", "algorithm", None),
    ("protocol", "protocol", None),
    ("timing", "timing", None),
    ("state", "state", None),
    ("job", "job", None),
)
"""Column of the table, field of `Collective`, and the column's type; None for text."""


def collective_rows(records: Sequence[Collective]) -> pa.Table:
    """Raises OverflowError for a number that its column cannot hold."""
    return pa.table(
        {
            name: texts(values) if kind is None else whole_numbers(values, kind)
            for name, field, kind in _FIELDS
            for values in (list(map(attrgetter(field), records)),)
        }
    )


def texts(values: Sequence[str]) -> pa.DictionaryArray:
    """The texts, each kept once."""
    return pa.array(values, pa.string()).dictionary_encode()


def whole_numbers(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    try:
        # As plain numbers first: Arrow takes twice as long to read them as moments.
        return pa.array(values, pa.int64() if kind == _TIME else kind).cast(kind)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise OverflowError(f"a record's number does not fit {kind}: {error}") from error


def insert_collectives(store: Store, records: Iterable[Collective]) -> int:
    return insert_all(store, COLLECTIVES, records, collective_rows)


def insert_steps(store: Store, spans: Iterable[StepSpan]) -> int:
    return insert_all(store, STEPS, spans, step_rows)


def insert_all(
    store: Store, table: str, items: Iterable[Item], rows_of: Callable[[list[Item]], pa.Table]
) -> int:
    """Make these durable, however many; returns how many they were."""
    count, rest = 0, iter(items)
    while some := list(islice(rest, RECORDS_PER_INSERT)):
        store.insert_arrow(table, rows_of(some))
        count += len(some)
    return count


# --- steps -------------------------------------------------------------------------------------


def accept_steps(batch: Batch, acceptance: Acceptance, hosts: Hosts = ANY_HOST) -> Accepted:
    host = batch.common.get(HOST, "")

    named: dict[tuple[str, str, str, str], str | None] = {}
    """The rule that a step's names break. A batch has hundreds of steps and few names."""

    def refuse(span: StepSpan) -> str | None:
        key = (span.source, span.phase, span.host or host, span.job)
        if key not in named:
            named[key] = refuse_names(key, hosts)
        rule = named[key]
        if rule is not None:
            return rule
        is_sound = (
            0 <= span.step <= STEP_MAX
            and (span.rank is None or 0 <= span.rank <= RANK_MAX)
            and 0 <= span.pid <= PID_MAX
            and 0 <= span.start_ns <= span.end_ns
        )
        return acceptance.refuse(span.start_ns, span.end_ns) if is_sound else BAD_RECORD

    kept, refused = sort_out(batch.steps, refuse)
    return Accepted(step_rows(kept, host) if kept else None, refused)


def refuse_names(names: tuple[str, str, str, str], hosts: Hosts) -> str | None:
    """The rule that a step's source, phase, host and job break, if any."""
    source, _, host, _ = names
    if not hosts.is_any and not hosts.allow(filter(None, [host])):
        return FOREIGN_HOST
    return None if source and all(map(is_word, names)) else BAD_RECORD


def step_rows(spans: Sequence[StepSpan], host: str = "") -> pa.Table:
    """Rows of `steps`; ``host`` is the host of ranks whose records name none."""
    return pa.table(
        {
            "job": texts([span.job for span in spans]),
            "step": whole_numbers([span.step for span in spans], pa.uint64()),
            "rank": whole_numbers(
                [UNKNOWN_RANK if span.rank is None else span.rank for span in spans], pa.int32()
            ),
            "phase": texts([span.phase for span in spans]),
            "start": whole_numbers([span.start_ns for span in spans], _TIME),
            "end": whole_numbers([span.end_ns for span in spans], _TIME),
            "source": texts([span.source for span in spans]),
            "host": texts([span.host or host for span in spans]),
            "pid": whole_numbers([span.pid for span in spans], pa.uint32()),
        }
    )


def joined(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    """All rows of these tables as one, each text kept once; None if there are none."""
    some = [table for table in tables if table is not None]
    if len(some) <= 1:
        return some[0] if some else None
    return pa.concat_tables(some).unify_dictionaries().combine_chunks()
