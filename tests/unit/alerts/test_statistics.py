"""Robust statistics, against numpy's own."""

import numpy as np
import pytest

from alerts.window.statistics import running_median


@pytest.mark.parametrize("kinds", [1, 2, 9, 60])
@pytest.mark.parametrize("width", [1, 3, 21, 101])
def test_a_running_median_is_numpys(width: int, kinds: int) -> None:
    values = np.random.default_rng(width * kinds).integers(-kinds, kinds, 400)
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    np.testing.assert_array_equal(running_median(values, width), np.median(windows, axis=1))
