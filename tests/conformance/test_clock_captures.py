"""Clocks on real collectives: eight real ranks whose clocks were one, then moved apart by us.

The captures lie beside the checkout; without them the tests are skipped.
"""

import io
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from alerts.window.clocks import align
from alerts.window.columns import Records
from alerts.window.common_clock import correct
from collector.contract.collective import Collective
from collector.formats import Origin, discover
from tests.tools.captures import RINGS
from tests.worlds.collectives import clock_errors, shift_clocks, to_columns

RUNS = sorted(path.name for path in RINGS.glob("*/") if (path / "inspector").is_dir())
MS = 1_000_000

pytestmark = pytest.mark.skipif(not RUNS, reason="no captures beside the repository")
each_run = pytest.mark.parametrize("run", RUNS)


def collectives(run: str) -> Iterator[Collective]:
    """The records of the run's own job; an aborted start may have left a few of another."""
    for path in sorted((RINGS / run / "inspector").glob("*.log")):
        content = path.read_bytes()
        if content.count(b"\n") > 5:
            stream = io.BytesIO(content)
            for record in discover()["nccl_inspector"].parse(stream, Origin(path.name)):
                if isinstance(record, Collective):
                    yield record


@cache
def records_of(run: str) -> Records:
    return to_columns(collectives(run))


@each_run
def test_clocks_that_are_one_are_left_alone(run: str) -> None:
    """Every host of a capture had the same clock: no time may be changed."""
    fits = align(records_of(run))
    assert not any(clock.is_corrected for fit in fits for clock in fit.clocks)


@each_run
@pytest.mark.parametrize("seed", range(4))
def test_moved_clocks_are_found_to_within_a_millisecond(run: str, seed: int) -> None:
    truth = records_of(run)
    random = np.random.default_rng([seed, len(run)])
    hosts = len(truth.hosts)
    shifted = shift_clocks(
        truth, random.uniform(-250 * MS, 250 * MS, hosts), random.uniform(-5e-5, 5e-5, hosts)
    )
    fits = align(shifted)
    errors = clock_errors(correct(shifted, fits), truth)
    assert errors.max() < MS
    residuals = np.array([clock.residual_ns for clock in fits[0].clocks])
    # Honest: nearly all errors are within the stated residual, and none is far beyond it.
    assert (errors <= residuals).mean() >= 0.6
    assert (errors <= 3 * residuals).all()
