"""Cases: packed and unpacked, scrubbed of every name, refused where they do not hold together."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np
import pytest

from alerts.cases import packed as packed_cases
from alerts.cases.compare import Mark, compare
from alerts.cases.events import KINDS, EventScrub
from alerts.cases.model import ReplayCase, Says, Told, Truth
from alerts.cases.names import NameBook
from alerts.cases.packed import MAGIC, ColumnReader, ColumnWriter, pack, unpack, unpack_frame
from alerts.cases.scrub import scrub
from alerts.cases.times import EPOCH_NS, ROUND_NS, TimeShift
from alerts.cases.words import truth_words
from alerts.judge.verdict import judge
from alerts.window.model import Window
from collector.contract.errors import CaseError, CaseTooLarge
from collector.contract.model import Event
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from tests.worlds.filled import MARK, Filler, shape_of, texts_in, times_in
from tests.worlds.machines import GRID, machines

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TIME_NS = 1_800_000_000 * NS + 987_654_321
DURATIONS = {
    "Clock.offset_ns",
    "Clock.residual_ns",
    "Clock.bound_ns",
    "Grid.step_ns",
    "Records.duration_ns",
    "Step.compute_ns",
    "Step.transfer_ns",
    "Step.wait_ns",
}
"""Fields in nanoseconds that are no times: they stay as they are."""


def case_of(window: Window) -> ReplayCase:
    told = Told(cause=Cause.SLOW_LINK, culprit=Culprit(host="node1", device="mlx5_0"))
    truth = Truth(says=Says.RIGHT, told=told)
    return ReplayCase(truth=truth, window=window, verdicts=(told,), kept_by="test")


def filled_case() -> ReplayCase:
    """Something in every field, and events with every label and attribute that is known."""
    filler = Filler(TIME_NS)
    case: ReplayCase = filler.fill(ReplayCase)
    known = EventScrub(NameBook(()), TimeShift(0))
    events = [
        Event(
            kind=kind,
            time_ns=TIME_NS,
            labels={key: filler.text() for key in (*known._labels, "user")},
            attributes={key: filler.text() for key in (*known._attributes, "command")},
            message=filler.text(),
        )
        for kind in sorted(KINDS)
    ]
    window = msgspec.structs.replace(case.window, events=[*case.window.events, *events])
    return msgspec.structs.replace(case, window=window, kept_by="test", is_scrubbed=False)


# --- scrubbing ----------------------------------------------------------------------------------


def test_no_text_of_a_case_is_in_its_export() -> None:
    case = filled_case()
    assert sum(MARK in text for text in texts_in(case)) > 100
    body = unpack_frame(pack(scrub(case)))
    assert MARK.encode() not in body
    assert MARK.lower().encode() not in body.lower()


def test_every_field_of_a_case_is_carried_over() -> None:
    case = filled_case()
    plain = msgspec.structs.replace(case.window, events=[])
    case = msgspec.structs.replace(case, window=plain)
    assert shape_of(scrub(case)) == shape_of(case)


def test_every_time_is_moved_and_no_duration() -> None:
    case = filled_case()
    found = list(times_in(scrub(case)))
    assert {where for where, _ in found} >= DURATIONS
    for where, value in found:
        if where in DURATIONS:
            assert value in {TIME_NS, 0}, where
        else:
            assert abs(value - EPOCH_NS) < ROUND_NS, where


def test_the_residue_of_a_time_tells_nothing() -> None:
    assert abs(TimeShift(TIME_NS).moved(TIME_NS) - EPOCH_NS) < ROUND_NS
    times = TimeShift(TIME_NS).column(np.array([ABSENT, TIME_NS + 5], dtype=np.int64))
    assert times[0] == ABSENT
    assert times[1] == TimeShift(TIME_NS).moved(TIME_NS) + 5


def test_equal_names_stay_equal_and_in_order() -> None:
    book = NameBook({"leaf9"})
    names = ["node10", "node2.rack1", "node2", "alpha"]
    devices = ["mlx5_1", "eth0", "leaf9"]
    for _ in range(2):
        hosts, ports = [book.machine(one) for one in names], [book.port(one) for one in ("1", "x")]
        nics = [book.device(one) for one in devices]
        book.close()
    assert hosts == ["host-2", "host-3.domain-1", "host-3", "host-1"]
    assert nics == ["nic-2", "nic-1", "switch-1"]
    assert ports == ["1", "port-1"]


def test_many_names_keep_their_order_as_texts() -> None:
    book = NameBook(())
    names = [f"n{number:03d}" for number in range(120)]
    for _ in range(2):
        found = [book.machine(one) for one in names]
        book.close()
    assert found == sorted(found)


# --- packing ------------------------------------------------------------------------------------


def test_a_case_is_the_same_after_packing() -> None:
    window = machines(jobs=0)
    again = unpack(pack(case_of(window)))
    assert shape_of(again.window) == shape_of(window)
    for name, reading in window.gpus.readings.items():
        np.testing.assert_array_equal(again.window.gpus.readings[name].values, reading.values)
    assert judge(again.window) == judge(window)


@pytest.mark.parametrize(
    "column",
    [
        np.array([], dtype=np.int64),
        np.array([ABSENT, (1 << 63) - 1, 0, -1], dtype=np.int64),
        np.array([7, -(1 << 31), (1 << 31) - 1], dtype=np.int32),
        np.array([[0.1, np.nan], [np.inf, -0.0]]),
        np.array([True, False]),
    ],
)
def test_columns_are_the_same_bit_by_bit(column: np.ndarray[Any, Any]) -> None:
    kind = np.ndarray[tuple[Any, ...], np.dtype[column.dtype.type]]  # type: ignore[name-defined]
    writer = ColumnWriter()
    described = writer.add(column)
    again = ColumnReader(b"".join(writer.parts)).take(kind, described)
    assert (again.dtype, again.shape) == (column.dtype, column.shape)
    assert again.tobytes() == column.tobytes()


def test_no_byte_of_a_column_is_given_out_twice() -> None:
    kind = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
    reader = ColumnReader(bytes(80))
    reader.take(kind, ["int64", [10]])
    with pytest.raises(ValueError, match="past the end"):
        reader.take(kind, ["int64", [1]])


def test_a_case_past_a_bound_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(machines(jobs=0))
    whole = pack(case)
    monkeypatch.setattr(packed_cases, "CASE_BYTES_MAX", len(whole) - 1)
    with pytest.raises(CaseTooLarge, match="CASE_BYTES_MAX"):
        pack(case)
    with pytest.raises(CaseTooLarge, match="CASE_BYTES_MAX"):
        unpack(whole)
    monkeypatch.undo()
    monkeypatch.setattr(packed_cases, "CASE_STRUCTURE_BYTES_MAX", 1_000)
    with pytest.raises(CaseTooLarge, match="CASE_STRUCTURE_BYTES_MAX"):
        pack(case)
    with pytest.raises(CaseTooLarge, match="CASE_STRUCTURE_BYTES_MAX"):
        unpack(whole)
    monkeypatch.undo()
    monkeypatch.setattr(packed_cases, "CASE_UNPACKED_BYTES_MAX", 1_000)
    with pytest.raises(CaseTooLarge, match="CASE_UNPACKED_BYTES_MAX"):
        pack(case)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_cases, "CASE_UNPACKED_BYTES_MAX", 1 << 20)
    with pytest.raises(CaseTooLarge, match="unpacks to over"):
        unpack(MAGIC + zstd.compress(b"\0" * (8 << 20)))


def test_damaged_cases_are_refused_and_never_break() -> None:
    whole = pack(case_of(machines(jobs=0)))
    random = np.random.default_rng(7)
    for bad in (b"", b"PK\3\4", MAGIC, whole[:-5], whole + b"x", MAGIC + zstd.compress(b"\x80")):
        with pytest.raises(CaseError):
            unpack(bad)
    body = bytearray(unpack_frame(whole))
    for _ in range(200):
        hurt = body.copy()
        for place in random.integers(0, len(hurt), 8).tolist():
            hurt[place] = int(random.integers(256))
        try:
            unpack(MAGIC + zstd.compress(bytes(hurt)))
        except CaseError:
            continue


def test_a_case_of_another_format_says_so() -> None:
    with pytest.raises(CaseError, match="fabricscope case 9"):
        unpack(b"fabricscope case 9\nabc")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda one: msgspec.structs.replace(one, to_ns=one.from_ns), "begins at"),
        (
            lambda one: msgspec.structs.replace(
                one, gpus=msgspec.structs.replace(one.gpus, gpu=[0])
            ),
            "a column of 1",
        ),
        (
            lambda one: msgspec.structs.replace(
                one,
                gpus=msgspec.structs.replace(
                    one.gpus, grid=msgspec.structs.replace(GRID, cells=1 << 40)
                ),
            ),
            "a grid of",
        ),
        (
            lambda one: msgspec.structs.replace(
                one,
                gpus=msgspec.structs.replace(
                    one.gpus,
                    readings={
                        "up": msgspec.structs.replace(
                            one.gpus.readings["up"], row=one.gpus.readings["up"].row + 1
                        )
                    },
                ),
            ),
            "can be",
        ),
        (
            lambda one: msgspec.structs.replace(
                one, events=[Event(kind="gpu_xid", time_ns=1 << 63, labels={})]
            ),
            "no time",
        ),
    ],
)
def test_a_window_that_does_not_hold_together_is_refused(harm: Any, words: str) -> None:  # noqa: ANN401
    window = machines(jobs=0)
    unpack(pack(case_of(window)))
    with pytest.raises(CaseError, match=words):
        unpack(pack(case_of(harm(window))))


def test_a_column_of_another_type_is_refused() -> None:
    window = machines(jobs=0)
    wrong = msgspec.structs.replace(
        window, hosts=msgspec.structs.replace(window.hosts, seen_ns=np.zeros(len(window.hosts)))
    )
    with pytest.raises(CaseError, match="int64"):
        unpack(pack(case_of(wrong)))


# --- comparing ----------------------------------------------------------------------------------

NIC = Culprit(host="host-1", device="nic-1", port="1", switch="switch-1", switch_port="port-1")
TOLD = Told(cause=Cause.SLOW_LINK, culprit=NIC, confidence=0.8)


def verdict(cause: Cause, confidence: float = 0.9, **names: Any) -> Verdict:  # noqa: ANN401
    return Verdict(cause=cause, culprit=Culprit(**names), since_ns=1, confidence=confidence)


SAME = verdict(Cause.SLOW_LINK, host="host-1", device="nic-1")
OTHER = verdict(Cause.LOSSY_LINK, host="host-1", device="nic-1")
ELSEWHERE = verdict(Cause.SLOW_LINK, host="host-2", device="nic-1")
UNSURE = verdict(Cause.SLOW_LINK, 0.3, host="host-1", device="nic-1")


@pytest.mark.parametrize(
    ("truth", "verdicts", "mark"),
    [
        (Truth(says=Says.RIGHT, told=TOLD), [ELSEWHERE, SAME], Mark.AGREES),
        (Truth(says=Says.RIGHT, told=TOLD), [OTHER], Mark.WRONG),
        (Truth(says=Says.RIGHT, told=TOLD), [ELSEWHERE], Mark.WRONG),
        (Truth(says=Says.RIGHT, told=TOLD), [UNSURE], Mark.WRONG),
        (Truth(says=Says.RIGHT, told=TOLD), [], Mark.WRONG),
        (Truth(says=Says.WRONG, told=TOLD), [SAME], Mark.WRONG),
        (Truth(says=Says.WRONG, told=TOLD), [OTHER], Mark.UNKNOWN),
        (Truth(says=Says.WRONG, told=TOLD), [], Mark.UNKNOWN),
        (Truth(says=Says.OTHER, told=TOLD, cause=Cause.LOSSY_LINK), [OTHER], Mark.AGREES),
        (Truth(says=Says.OTHER, told=TOLD, cause=Cause.LOSSY_LINK), [SAME], Mark.WRONG),
        (
            Truth(
                says=Says.OTHER, told=TOLD, cause=Cause.LOSSY_LINK, culprit=Culprit(host="host-2")
            ),
            [OTHER],
            Mark.WRONG,
        ),
        (
            Truth(
                says=Says.OTHER, told=TOLD, cause=Cause.SLOW_LINK, culprit=Culprit(host="host-2")
            ),
            [ELSEWHERE],
            Mark.AGREES,
        ),
    ],
)
def test_marks(truth: Truth, verdicts: list[Verdict], mark: Mark) -> None:
    assert compare(truth, verdicts).mark is mark


def test_a_verdict_that_was_unsure_may_be_repeated_as_unsure() -> None:
    unsure = msgspec.structs.replace(TOLD, confidence=0.2)
    assert compare(Truth(says=Says.RIGHT, told=unsure), [UNSURE]).mark is Mark.AGREES


def test_what_is_said_instead_is_about_the_same_thing() -> None:
    found = compare(Truth(says=Says.RIGHT, told=TOLD), [ELSEWHERE, OTHER])
    assert found.told == Told.of(OTHER)


def test_a_refuted_verdict_reads_as_refuted() -> None:
    assert truth_words(Truth(says=Says.WRONG, told=TOLD)).startswith("not slow_link: host-1 nic-1")
