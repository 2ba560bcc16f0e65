"""Groups of rows of several processes become one insert, and none is answered before it."""

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from api.data.store import gathering as module
from api.data.store.frames import Rows
from api.data.store.gathering import Gathering, Insert, NoTurnError, Part
from api.data.store.together import encode_arrow

SETTINGS = {"max_threads": "1"}


def native(table: str, content: bytes, columns: tuple[str, ...] = ("a",)) -> Part:
    return Part(Rows(table, list(columns), "Native", b"", len(content)), content)


class Engine:
    """Notes what is inserted; refuses what contains `odd`."""

    def __init__(self) -> None:
        self.inserts: list[tuple[str, bytes]] = []
        self.before_insert: Callable[[], object] = lambda: None

    def execute(self, insert: Insert, settings: dict[str, str]) -> None:
        assert settings == SETTINGS
        self.before_insert()
        content = insert.content()
        if b"odd" in content:
            raise RuntimeError("Code: 27. DB::Exception: odd")
        self.inserts.append((insert.rows.table, content))


def bring(gathering: Gathering, groups: list[list[Part]]) -> list[Exception | None]:
    """Bring each group in a thread of its own, in this order; what became of each."""
    failures: list[Exception | None] = [None] * len(groups)

    def insert(place: int) -> None:
        try:
            gathering.insert(groups[place], SETTINGS)
        except (RuntimeError, NoTurnError) as error:
            failures[place] = error

    threads = [threading.Thread(target=insert, args=(place,)) for place in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups wait long enough to meet, however slow the machine is."""
    monkeypatch.setattr(module, "GATHER_SECONDS", 1.0)


@pytest.mark.usefixtures("patient")
def test_groups_that_come_together_are_one_insert_of_each_table_names_first() -> None:
    engine = Engine()
    first = [native("samples", b"1"), native("rollup_late", b"l")]
    second = [native("series", b"s"), native("steps", b"t"), native("samples", b"2")]
    failures = bring(Gathering(engine.execute), [first, second])
    assert failures == [None, None]
    assert [table for table, _ in engine.inserts] in (
        ["series", "rollup_late", "steps", "samples"],
        ["series", "steps", "rollup_late", "samples"],
    )
    assert sorted(engine.inserts[-1][1]) == sorted(b"12")


@pytest.mark.usefixtures("patient")
def test_rows_of_other_columns_are_an_insert_of_their_own() -> None:
    engine = Engine()
    groups = [[native("samples", b"1")], [native("samples", b"2", ("a", "b"))]]
    assert bring(Gathering(engine.execute), groups) == [None, None]
    assert sorted(engine.inserts) == [("samples", b"1"), ("samples", b"2")]


@pytest.mark.usefixtures("patient")
def test_rows_that_the_engine_refuses_fail_their_own_group() -> None:
    engine = Engine()
    groups = [[native("samples", b"1")], [native("samples", b"odd")], [native("samples", b"3")]]
    failures = bring(Gathering(engine.execute), groups)
    assert [type(failure) for failure in failures] == [type(None), RuntimeError, type(None)]
    assert sorted(engine.inserts) == [("samples", b"1"), ("samples", b"3")]


@pytest.mark.usefixtures("patient")
def test_rows_in_arrow_with_words_of_their_own_are_put_together() -> None:
    engine = Engine()
    groups = []
    for words in (["a", "b"], ["b", "c"]):
        column = pa.array(words).dictionary_encode()
        content = encode_arrow(pa.table({"communicator": column}))
        groups.append([Part(Rows("steps", ["communicator"], "Arrow", b"", 0), content)])
    assert bring(Gathering(engine.execute), groups) == [None, None]
    [(_, content)] = engine.inserts
    read = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    assert sorted(read["communicator"].to_pylist()) == ["a", "b", "b", "c"]


def test_nobody_is_answered_before_all_is_written_and_the_next_gather_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.0)
    engine, begun, go_on = Engine(), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go_on.wait(30)

    engine.before_insert = hold
    gathering = Gathering(engine.execute)
    found: list[Exception | None] = []
    first = threading.Thread(
        target=lambda: found.extend(bring(gathering, [[native("samples", b"1")]]))
    )
    first.start()
    assert begun.wait(30)
    later = threading.Thread(
        target=lambda: found.extend(
            bring(gathering, [[native("samples", b"2")], [native("samples", b"3")]])
        )
    )
    later.start()
    assert not found
    go_on.set()
    first.join()
    later.join()
    assert found == [None, None, None]
    assert b"".join(sorted(content for _, content in engine.inserts)).strip()


def test_a_turn_that_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OWNER_WAIT_SECONDS", 0.0)
    engine = Engine()
    gathering = Gathering(engine.execute)
    with gathering._turn:
        [failure] = bring(gathering, [[native("samples", b"1")]])
    assert isinstance(failure, NoTurnError)
    assert bring(gathering, [[native("samples", b"1")]]) == [None]
    assert engine.inserts == [("samples", b"1")]
