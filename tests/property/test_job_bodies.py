"""What people send about jobs: any bytes are a job, or a problem that says why not."""

import contextlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from api.base.errors import Problem
from api.base.positions import encode_position
from api.data.inventory.records import JobChange, JobSaid
from api.data.inventory.sightings import RANK_MAX
from api.jobs.records import COLLECTIVES, STEPS, decode_position
from api.jobs.registration import read_change, read_job

texts = st.text(max_size=20)
numbers = st.integers(-(2**70), 2**70)
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
NAMES = sorted({*JobSaid.__struct_fields__, *JobChange.__struct_fields__})


def read_all(body: bytes) -> None:
    """Read a body as both kinds; only a Problem may come of it."""
    for read in (read_job, read_change):
        with contextlib.suppress(Problem):
            said = read(body)
            assert all(0 <= rank.rank <= RANK_MAX for rank in said.ranks)
            assert all(host.isprintable() for host in said.hosts)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_job_or_a_problem(body: bytes) -> None:
    read_all(body)


@given(st.dictionaries(st.sampled_from(NAMES) | texts, anything, max_size=6))
def test_any_fields_are_a_job_or_a_problem(fields: dict[str, object]) -> None:
    with contextlib.suppress(UnicodeEncodeError):
        read_all(msgspec.json.encode(fields))
        read_all(msgspec.json.encode({**fields, "id": "j"}))


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
small = st.integers(0, 2**31 - 1)


@given(st.tuples(words, words, st.integers(0, 2**64 - 1), small, words, words, small))
def test_a_position_comes_back(key: tuple[str | int, ...]) -> None:
    assert decode_position(COLLECTIVES, encode_position(key)) == key


@given(texts)
def test_any_text_is_a_position_or_a_problem(text: str) -> None:
    for table in (COLLECTIVES, STEPS):
        with contextlib.suppress(Problem):
            decode_position(table, text)
