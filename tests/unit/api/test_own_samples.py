"""Samples that the service makes itself: each series is introduced once a day, and not in vain."""

import asyncio
from typing import cast

import pytest

from api.data.ingest import own
from api.data.ingest.columns import MS_PER_DAY
from api.data.ingest.commit import GroupCommit, Write
from api.data.ingest.own import OwnSamples
from collector.contract.errors import StoreError
from collector.contract.identity import metric_id
from collector.contract.model import Sample, Series
from collector.contract.units import NS_PER_MS

DAY_NS = MS_PER_DAY * NS_PER_MS
ONE, OTHER = (Series("fabric_host_risk_ratio", {"host": host}) for host in ("node1", "node2"))


class Commit:
    """Takes what is written, or fails."""

    is_placed = False

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.is_away = False

    async def write(self, write: Write, *, at_once: bool = False) -> None:
        """Note it."""
        del at_once
        if self.is_away:
            raise StoreError("away")
        self.writes.append(write)


def write(commit: Commit, samples: OwnSamples, *given: Sample) -> list[int]:
    """Write these; the ids of the series that were introduced."""
    asyncio.run(samples.write(given))
    return [new.series for new in commit.writes[-1].series]


@pytest.fixture
def commit() -> Commit:
    return Commit()


@pytest.fixture
def samples(commit: Commit) -> OwnSamples:
    return OwnSamples(cast("GroupCommit", commit))


def test_a_series_is_introduced_once_a_day(commit: Commit, samples: OwnSamples) -> None:
    one, other = ONE.identify({}), OTHER.identify({})
    twice = (Sample(ONE, 1.0, DAY_NS), Sample(ONE, 2.0, DAY_NS + NS_PER_MS))
    assert write(commit, samples, *twice) == [one]
    assert write(commit, samples, Sample(ONE, 3.0, 2 * DAY_NS - 1)) == []
    assert write(commit, samples, *twice, Sample(OTHER, 0.5, DAY_NS)) == [other]
    assert write(commit, samples, Sample(ONE, 1.0, 2 * DAY_NS)) == [one]
    assert commit.writes[-1].series[0].day == 2
    columns = commit.writes[2].samples
    assert columns is not None
    assert columns.series.tolist() == [one, one, other]
    assert columns.metric.tolist() == [metric_id("fabric_host_risk_ratio")] * 3


def test_what_the_store_did_not_take_is_introduced_again(
    commit: Commit, samples: OwnSamples
) -> None:
    commit.is_away = True
    with pytest.raises(StoreError):
        write(commit, samples, Sample(ONE, 1.0, DAY_NS))
    commit.is_away = False
    assert write(commit, samples, Sample(ONE, 1.0, DAY_NS)) == [ONE.identify({})]


def test_what_is_remembered_is_bounded(
    commit: Commit, samples: OwnSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "KNOWN_SERIES_MAX", 1)
    write(commit, samples, Sample(ONE, 1.0, DAY_NS))
    write(commit, samples, Sample(OTHER, 1.0, DAY_NS))
    assert write(commit, samples, Sample(ONE, 1.0, DAY_NS)) == [ONE.identify({})]


def test_nothing_is_no_write(commit: Commit, samples: OwnSamples) -> None:
    asyncio.run(samples.write([]))
    assert commit.writes == []
