"""Native batches: from the body of `POST /v1/ingest` to rows."""

from __future__ import annotations

import msgspec
import numpy as np

from api.data.ingest.columns import Acceptance, SampleColumns, merge_counts, sort_out
from api.data.ingest.commit import Write
from api.data.ingest.records import accept_collectives, accept_steps
from api.data.ingest.series import NativeTable, NativeTables, check_index
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
    refused: dict[str, int]


def decode_native(body: bytes, tables: NativeTables, acceptance: Acceptance) -> NativeRequest:
    """Raises WireError if it is no batch. What breaks a rule is refused, by its name."""
    batch = decode_batch(body)
    table = tables.recognise(batch)
    index = np.frombuffer(batch.index, dtype="<u4")
    check_index(index, table)
    columns = SampleColumns(
        table.metric[index],
        table.series[index],
        np.frombuffer(batch.time_ms, dtype="<i8"),
        np.frombuffer(batch.value, dtype="<f8"),
    )
    bad_labels = {}
    if not table.valid.all():
        valid = table.valid[index]
        bad_labels = {"bad_labels": int((~valid).sum())} if not valid.all() else {}
        columns = columns.select(valid)
    columns, bad_times = acceptance.apply(columns)
    events, bad_events = accept_events(batch, acceptance)
    collectives = accept_collectives(batch, acceptance)
    steps = accept_steps(batch, acceptance)
    days = columns.days()
    return NativeRequest(
        batch=batch,
        table=table,
        write=Write(
            samples=columns,
            series=tables.unwritten(batch.agent, table, days),
            events=events,
            collectives=collectives.rows,
            steps=steps.rows,
        ),
        days=days,
        refused=merge_counts(bad_labels, bad_times, bad_events, collectives.refused, steps.refused),
    )


def accept_events(batch: Batch, acceptance: Acceptance) -> tuple[list[Event], dict[str, int]]:
    """The batch's events with its common labels added, and how many each rule refused."""
    kept, refused = sort_out(batch.events, lambda event: refuse_event(event, acceptance))
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
