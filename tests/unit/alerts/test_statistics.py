"""Robust statistics, against numpy's own."""

import numpy as np
import pytest

from alerts.window.statistics import quantile, running_median


@pytest.mark.parametrize("kinds", [1, 2, 9, 60])
@pytest.mark.parametrize("width", [1, 3, 21, 101])
def test_a_running_median_is_numpys(width: int, kinds: int) -> None:
    values = np.random.default_rng(width * kinds).integers(-kinds, kinds, 400)
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    np.testing.assert_array_equal(running_median(values, width), np.median(windows, axis=1))


@pytest.mark.parametrize("kinds", [2, 9, 10**9])
@pytest.mark.parametrize("count", [1, 2, 6, 11, 40])
def test_a_quantile_is_numpys_to_the_last_bit(count: int, kinds: int) -> None:
    values = np.log(np.random.default_rng(count * kinds).integers(1, kinds, count))
    for percent in (0.0, 1.0, 20.0, 37.5, 80.0, 100.0):
        assert quantile(values, percent / 100) == np.percentile(values, percent)
