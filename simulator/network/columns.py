"""Sums of columns by group: numpy's `bincount` with weights, under the type that it really has."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simulator.topology.model import Floats


def add_up(group: NDArray[np.integer[Any]], values: Floats, groups: int) -> Floats:
    """The sum of the values of each group; groups are numbered from 0.

    >>> add_up(np.array([2, 0, 2]), np.array([1.0, 5.0, 2.5]), 4).tolist()
    [5.0, 0.0, 3.5, 0.0]
    """
    return cast("Floats", np.bincount(group, values, minlength=groups))
