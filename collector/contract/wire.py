"""The native batch: how an agent's readings travel to the service.

A batch is a msgpack map inside one zstd frame. Its series are a table of label sets, and its
samples are three columns of equal length, packed little-endian: the row of the table (uint32),
the time (int64, unix milliseconds) and the value (float64). Events, steps and collectives
(`collector.contract.records`) lie beside them. Each batch stands alone: every later release can
decode it (`tests/fixtures/wire/v1`).

The table stays packed (`msgspec.Raw`) in the decoded batch. A host sends the same table with
every batch, so the service recognises it by its digest and unpacks it once.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from collector.contract.collective import Collective, StepSpan
from collector.contract.errors import WireError, WireTooLarge, WireVersionError
from collector.contract.model import Event, Sample, Series
from collector.contract.records import Collectives, check_collectives, pack_collectives
from collector.contract.units import NS_PER_MS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

VERSION = 1
CONTENT_TYPE = "application/vnd.fabricscope.batch+msgpack"

BODY_BYTES_MAX = 8 << 20
"""A compressed body. A batch of a full day's backlog of one host is well below 1 MiB."""
BATCH_BYTES_MAX = 64 << 20
"""An unpacked batch: bounds what one request can make the service hold."""
SAMPLES_MAX = 1_000_000
SERIES_MAX = 200_000
EVENTS_MAX = 10_000
STEPS_MAX = 50_000
"""Stretches of steps: a profile of a hundred steps has about so many."""
COMMON_LABELS_MAX = 16
NAME_BYTES_MAX = 255

COMPRESSION_LEVEL = 1
"""Level 3 saves 4 % of the bytes for twice the agent's time."""

INDEX_BYTES, TIME_BYTES, VALUE_BYTES = 4, 8, 8

SeriesRow = tuple[str, dict[str, str]]
"""A metric's name and its labels, without the batch's common ones."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent read in one stretch of time.

    ``(agent, boot, sequence)`` numbers it: ``boot`` changes whenever an agent's numbering starts
    again, ``sequence`` counts up by one. Unknown fields are ignored, so that an older service
    takes batches of a newer agent of the same version.

    ``first`` marks a batch of a backlog: it holds those of ``first`` to ``sequence``, and later
    ones may have come before it.
    """

    version: int
    agent: str
    boot: str
    sequence: int
    sent_ms: int
    common: dict[str, str]
    series: msgspec.Raw
    index: bytes
    time_ms: bytes
    value: bytes
    events: list[Event] = []
    collectives: Collectives | None = None
    steps: list[StepSpan] = []
    first: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def backlog_first(self) -> int | None:
        """The first of the batches in this one of a backlog; None if it is not of one."""
        return None if self.first is msgspec.UNSET else self.first

    @property
    def sample_count(self) -> int:
        return len(self.index) // INDEX_BYTES

    @property
    def reading_count(self) -> int:
        collectives = len(self.collectives) if self.collectives is not None else 0
        return self.sample_count + len(self.events) + collectives + len(self.steps)

    def table_digest(self) -> bytes:
        """A digest that identifies the series table together with the common labels."""
        digest = blake2b(self.series, digest_size=16)
        digest.update(msgspec.msgpack.encode(sorted(self.common.items())))
        return digest.digest()

    def series_rows(self) -> list[SeriesRow]:
        try:
            rows = _ROWS.decode(self.series)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            msg = f"series table: {error}"
            raise WireError(msg) from error
        if len(rows) > SERIES_MAX:
            msg = f"series table has {len(rows)} rows; SERIES_MAX is {SERIES_MAX}"
            raise WireTooLarge(msg)
        return rows


_BATCH = msgspec.msgpack.Decoder(Batch)
_ROWS = msgspec.msgpack.Decoder(list[SeriesRow])


def pack_batch(  # noqa: PLR0913 - the fields of a batch
    samples: Iterable[Sample],
    events: Iterable[Event] = (),
    collectives: Sequence[Collective] = (),
    steps: Iterable[StepSpan] = (),
    *,
    agent: str,
    boot: str,
    sequence: int,
    sent_ms: int,
    common: Mapping[str, str],
) -> Batch:
    """A batch of these readings, in order of series and, within a series, as they came.

    The order makes the table the same in every batch, whichever source was read first, so that
    the service recognises it; and numbers that resemble each other lie side by side.
    """
    by_series: dict[Series, list[Sample]] = {}
    for sample in samples:
        by_series.setdefault(sample.series, []).append(sample)
    rows = sorted(by_series, key=lambda series: (series.metric, series.labels))
    index, time_ms, value = array("I"), array("q"), array("d")
    for row, series in enumerate(rows):
        for sample in by_series[series]:
            index.append(row)
            time_ms.append(sample.time_ns // NS_PER_MS)
            value.append(sample.value)
    if sys.byteorder == "big":
        for column in (index, time_ms, value):
            column.byteswap()
    table = [(series.metric, dict(series.labels)) for series in rows]
    return Batch(
        version=VERSION,
        agent=agent,
        boot=boot,
        sequence=sequence,
        sent_ms=sent_ms,
        common=dict(common),
        series=msgspec.Raw(msgspec.msgpack.encode(table)),
        index=index.tobytes(),
        time_ms=time_ms.tobytes(),
        value=value.tobytes(),
        events=list(events),
        collectives=pack_collectives(collectives) if collectives else None,
        steps=list(steps),
    )


def encode_batch(batch: Batch) -> bytes:
    """The bytes of a batch, on the wire and in the spool alike."""
    return zstd.compress(msgspec.msgpack.encode(batch), level=COMPRESSION_LEVEL)


def decode_batch(body: bytes) -> Batch:
    """The batch in these bytes, with its columns' lengths checked.

    Raises WireError, and nothing else, whatever the bytes are. The series table and the order
    of its rows are not checked here: see `Batch.series_rows`.
    """
    payload = decompress_bounded(body)
    try:
        batch = _BATCH.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"not a batch: {error}"
        raise WireError(msg) from error
    check_batch(batch)
    return batch


def decompress_bounded(body: bytes) -> bytes:
    """What the zstd frame holds, never more than BATCH_BYTES_MAX of it."""
    if len(body) > BODY_BYTES_MAX:
        msg = f"body has {len(body)} bytes; BODY_BYTES_MAX is {BODY_BYTES_MAX}"
        raise WireTooLarge(msg)
    decompressor = zstd.ZstdDecompressor()
    try:
        payload = decompressor.decompress(body, max_length=BATCH_BYTES_MAX)
    except zstd.ZstdError as error:
        msg = f"not a zstd frame: {error}"
        raise WireError(msg) from error
    if not decompressor.eof:
        if len(payload) >= BATCH_BYTES_MAX:
            msg = f"batch unpacks to over BATCH_BYTES_MAX = {BATCH_BYTES_MAX} bytes"
            raise WireTooLarge(msg)
        msg = f"zstd frame is cut off after {len(body)} bytes"
        raise WireError(msg)
    if decompressor.unused_data:
        msg = f"{len(decompressor.unused_data)} bytes after the zstd frame"
        raise WireError(msg)
    return payload


def check_batch(batch: Batch) -> None:
    """Raise WireError unless the batch keeps the format's rules."""
    if batch.version != VERSION:
        msg = f"batch of version {batch.version}; this program reads version {VERSION}"
        raise WireVersionError(msg)
    count, rest = divmod(len(batch.index), INDEX_BYTES)
    if rest or len(batch.time_ms) != count * TIME_BYTES or len(batch.value) != count * VALUE_BYTES:
        msg = (
            f"columns disagree: index {len(batch.index)} B, time {len(batch.time_ms)} B, "
            f"value {len(batch.value)} B do not make equally many samples"
        )
        raise WireError(msg)
    if count > SAMPLES_MAX:
        msg = f"{count} samples; SAMPLES_MAX is {SAMPLES_MAX}"
        raise WireTooLarge(msg)
    if len(batch.events) > EVENTS_MAX:
        msg = f"{len(batch.events)} events; EVENTS_MAX is {EVENTS_MAX}"
        raise WireTooLarge(msg)
    if len(batch.steps) > STEPS_MAX:
        msg = f"{len(batch.steps)} steps; STEPS_MAX is {STEPS_MAX}"
        raise WireTooLarge(msg)
    if batch.collectives is not None:
        check_collectives(batch.collectives)
    if len(batch.common) > COMMON_LABELS_MAX:
        msg = f"{len(batch.common)} common labels; COMMON_LABELS_MAX is {COMMON_LABELS_MAX}"
        raise WireError(msg)
    for name, text in (("agent", batch.agent), ("boot", batch.boot)):
        if not text or len(text) > NAME_BYTES_MAX or not text.isprintable():
            msg = f"{name} is {text[:40]!r}; it must be 1 to {NAME_BYTES_MAX} printable characters"
            raise WireError(msg)
    if batch.sequence < 0:
        msg = f"sequence is {batch.sequence}; sequences count up from 0"
        raise WireError(msg)
    first = batch.backlog_first
    if first is not None and not 0 <= first <= batch.sequence:
        msg = f"first is {first}; it must be 0 to {batch.sequence}, the sequence"
        raise WireError(msg)


CAPTURES_MAX = 8
"""Requests in one receipt; the others come with the next one."""


class CaptureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request for an agent's raw fast samples around the time it gets this."""

    id: str
    seconds_before: float
    seconds_after: float
    devices: list[str] = []
    """Only these devices; empty: all."""


class ConfigurationNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that an agent should run; it fetches the document by its version."""

    version: int
    """0: the agent's own file alone; there is no document then."""
    sha256: str = ""
    signature: str = ""
    """HMAC over version and digest (`collector.contract.rollout`); empty: not signed."""
    trial_seconds: float = 0.0
    """How long the agent tries it before it calls it good; 0: it was good before, no trial."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What the service answers to a batch that it has made durable.

    ``refused`` counts samples and events that were not stored, by the name of the rule that
    refused them. They will never be stored: the agent drops them and counts them.

    ``captures`` are requests to this agent. They come with every receipt until the agent confirms
    them by an event of the kind `capture`: a receipt that is lost costs nothing.

    ``configuration`` is there while this agent should run another version than it has reported by
    an event of the kind `configuration`; agents that have not reported one are never told.

    ``probe_targets`` names the list of targets (`collector.contract.probes`) that this agent should
    probe, as long as the service has one for it. Only agents that ask for one have one.

    ``any_order``: the service knows that batches may come in any order, and several as one
    (`Batch.first`). An older one takes them too, but counts those that come late as lost.
    """

    boot: str
    sequence: int
    stored: int
    refused: dict[str, int] = {}
    captures: list[CaptureRequest] | msgspec.UnsetType = msgspec.UNSET
    configuration: ConfigurationNotice | msgspec.UnsetType = msgspec.UNSET
    probe_targets: str | msgspec.UnsetType = msgspec.UNSET
    any_order: bool | msgspec.UnsetType = msgspec.UNSET
