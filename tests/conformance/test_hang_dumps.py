"""Dumps of jobs that were hung on purpose, where they lie beside the repository.

They belong to another project (NVIDIA/nvidia-resiliency-ext) and are not part of this one.
"""

import io
import pickle
from collections import Counter
from pathlib import Path

import pytest

from collector.contract.collective import Collective, State
from collector.contract.errors import ParseError
from collector.contract.model import Event
from collector.formats import HEAD_BYTES, Origin, Record, discover
from collector.formats.flight_recorder import FORMAT
from collector.parsing.plain_pickle import load_plain
from tests.tools.captures import HANGS

pytestmark = pytest.mark.skipif(not HANGS.is_dir(), reason="no dumps beside the repository")

ENTRIES = {"gpu_error": 289, "lock_gil": 142}
"""Operations of all ranks together, counted with Python's own pickle."""


def parse(path: Path) -> list[Record | ParseError]:
    return list(FORMAT.parse(io.BytesIO(path.read_bytes()), Origin(path.name, 1)))


@pytest.mark.parametrize("run", ENTRIES)
def test_every_dump_is_read_whole(run: str) -> None:
    dumps = sorted((HANGS / run).glob("_dump_*"))
    assert len(dumps) == 16
    states: Counter[State] = Counter()
    for path in dumps:
        found = parse(path)
        assert not [each for each in found if isinstance(each, ParseError)], path.name
        states.update(each.state for each in found if isinstance(each, Collective))
        (event,) = [
            each
            for each in found
            if isinstance(each, Event) and each.kind == "flight_recorder_dump"
        ]
        assert event.labels["rank"] == path.name.removeprefix("_dump_")
        assert event.attributes["pending"] == event.attributes["entries"]
    assert states == {State.SCHEDULED: ENTRIES[run]}


@pytest.mark.parametrize("run", ENTRIES)
def test_they_are_what_python_reads_and_no_other_format_s(run: str) -> None:
    for path in (HANGS / run).glob("_dump_*"):
        content = path.read_bytes()
        assert load_plain(content) == pickle.loads(content)  # noqa: S301 - known dumps
        head, origin = content[:HEAD_BYTES], Origin(path.name, 1)
        claims = [name for name, each in discover().items() if each.recognises(head, origin)]
        assert claims == ["flight_recorder"]


def test_ranks_are_found_without_the_file_s_name() -> None:
    for path in sorted(HANGS.glob("*/_dump_*")):
        found = list(FORMAT.parse(io.BytesIO(path.read_bytes()), Origin("copy", 1)))
        assert found == parse(path), path.name


def test_ranks_of_a_group_agree_about_it() -> None:
    """The same communicator, from both sides of a send."""
    found = [
        each
        for path in (HANGS / "gpu_error").glob("_dump_*")
        for each in parse(path)
        if isinstance(each, Collective)
    ]
    members: dict[str, set[int]] = {}
    for each in found:
        members.setdefault(each.communicator, set()).add(each.rank)
        assert each.rank < each.ranks
        assert each.peer is None or (each.peer < each.ranks and each.peer != each.rank)
    assert max(len(ranks) for ranks in members.values()) >= 4
