"""Native batches: from the body of `POST /v1/ingest` to rows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from api.base.host_names import Hosts, hosts_named
from api.data.ingest.columns import Acceptance, SampleColumns, UInt32s, merge_counts, sort_out
from api.data.ingest.commit import Write
from api.data.ingest.door import FOREIGN_HOST, OPEN, Door
from api.data.ingest.identities import BAD_IDENTITY, odd_names
from api.data.ingest.records import accept_collectives, accept_steps
from api.data.ingest.series import (
    ROW_RULES,
    Ahead,
    NativeTable,
    NativeTables,
    NewSeries,
    check_index,
    ids_of,
)
from collector.contract.identity import LABELS_MAX, canonical_labels
from collector.contract.model import EVENT_TEXT_BYTES_MAX, Event
from collector.contract.wire import Batch, decode_batch

EVENT_ATTRIBUTES_MAX = 256
"""NCCL has up to 64 channels, and a communicator's event has two attributes for each."""


class NativeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded batch: what to write, what was refused and by which rule."""

    batch: Batch
    table: NativeTable
    write: Write
    days: list[int]
    """For which the store knows the table's series, when it is written."""
    refused: dict[str, int]
    complaint: str = ""
    """Why the first series was refused."""


def decode_native(
    body: bytes, tables: NativeTables, acceptance: Acceptance, door: Door = OPEN
) -> NativeRequest:
    """Raises WireError if it is no batch, Over if its sender must wait before it may bring it.

    What breaks a rule is refused, by its name. A sender that is over a budget of a minute is
    refused whole batches: its agent keeps them and tries again, so nothing is lost. Past its series
    of a day it loses new ones alone: batches that wait until midnight would hold up all others.
    """
    batch = decode_batch(body)
    table = tables.recognise(batch, door)
    index = np.frombuffer(batch.index, dtype="<u4")
    complaint = ""
    check_index(index, table)
    columns = SampleColumns(
        table.metric[index],
        table.series[index],
        np.frombuffer(batch.time_ms, dtype="<i8"),
        np.frombuffer(batch.value, dtype="<f8"),
        None if table.place is None else table.place[index],
    )
    bad_series: dict[str, int] = {}
    if not table.valid.all():
        valid = table.valid[index]
        bad_series, complaint = refused_series(table, index[~valid])
        columns = columns.select(valid)
    columns, bad_times = acceptance.apply(columns)
    events, bad_events = accept_events(batch, acceptance, door.hosts)
    complaint = complaint or complain_of(batch.common)
    collectives = accept_collectives(batch, acceptance, door.hosts)
    steps = accept_steps(batch, acceptance, door.hosts)
    days = columns.days()
    tomorrow = Ahead.at(acceptance.now_ms).days(batch.agent, days)
    news, ahead = (tables.unwritten(batch, table, each) for each in (days, tomorrow))
    if news and door.is_past_day(len(news)):
        columns, past_day = without_series(columns, news, door.day_rule)
        # What the store knows of the table stays as it was.
        days, news, tomorrow, ahead = [], [], [], []
        bad_series = merge_counts(bad_series, past_day)
    elif news:
        door.check_series(len(news))
    count = len(columns) + len(events) + sum(len(each.rows or ()) for each in (collectives, steps))
    door.settle(count, ids_of(news), ids_of(ahead))
    table.are_hosts_counted = True
    return NativeRequest(
        batch=batch,
        table=table,
        write=Write(
            samples=columns,
            series=news + ahead,
            events=events,
            collectives=collectives.rows,
            steps=steps.rows,
        ),
        days=days + tomorrow,
        refused=merge_counts(bad_series, bad_times, bad_events, collectives.refused, steps.refused),
        complaint=complaint,
    )


def without_series(
    columns: SampleColumns, news: list[NewSeries], rule: str
) -> tuple[SampleColumns, dict[str, int]]:
    """The samples of other series, and how many there were of these."""
    is_new = np.isin(columns.series, np.array([new.series for new in news], dtype=np.uint64))
    return columns.select(~is_new), {rule: int(is_new.sum())}


def refused_series(table: NativeTable, rows: UInt32s) -> tuple[dict[str, int], str]:
    """How many samples each rule refused with their series, and why the first one was."""
    if not len(rows):
        return {}, ""
    counts = np.bincount(table.rule[rows], minlength=len(ROW_RULES)).tolist()
    refused = {rule: count for rule, count in zip(ROW_RULES, counts, strict=True) if count}
    return refused, table.complaints[ROW_RULES[table.rule[rows[0]]]]


def complain_of(common: Mapping[str, str]) -> str:
    """Why events and records of this batch name no host, if they do not."""
    odd = odd_names(common)
    return f"the batch's own {odd}" if odd else ""


def accept_events(
    batch: Batch, acceptance: Acceptance, hosts: Hosts
) -> tuple[list[Event], dict[str, int]]:
    """The batch's events with its common labels added, and how many each rule refused."""
    odd = {name for name in batch.common if odd_names({name: batch.common[name]})}

    def refuse(event: Event) -> str | None:
        # An event's own label takes the place of the batch's.
        if odd_names(event.labels) or (odd and not odd <= event.labels.keys()):
            return BAD_IDENTITY
        if not hosts.is_any and not hosts.allow(hosts_named({**batch.common, **event.labels})):
            return FOREIGN_HOST
        return refuse_event(event, acceptance)

    kept, refused = sort_out(batch.events, refuse)
    all_labels = [canonical_labels({**batch.common, **event.labels}) for event in kept]
    labelled = [
        msgspec.structs.replace(event, labels=dict(labels))
        for event, labels in zip(kept, all_labels, strict=True)
    ]
    return labelled, refused


def refuse_event(event: Event, acceptance: Acceptance) -> str | None:
    words = [*event.labels.items(), *event.attributes.items(), (event.kind, event.message)]
    size = sum(len(name.encode()) + len(text.encode()) for name, text in words)
    if (
        not event.kind
        or len(event.labels) > LABELS_MAX
        or len(event.attributes) > EVENT_ATTRIBUTES_MAX
        or size > EVENT_TEXT_BYTES_MAX
    ):
        return "bad_event"
    return acceptance.refuse(event.time_ns, event.time_ns)
