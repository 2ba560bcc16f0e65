"""Matrices of numbers in JSON: packed, because a million numbers as text take ten times as long."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

FLOATS = "Base64 of little-endian 32-bit floats, row after row; NaN is what was not observed."
BYTES = "Base64 of one byte for each cell, row after row."


class PackedMatrixOut(BaseModel):
    """Numbers in rows and columns."""

    rows: int
    columns: int
    data: str = Field(description=FLOATS)


def pack_floats(values: npt.NDArray[np.float64]) -> PackedMatrixOut:
    """Numbers too large for 32 bits become infinite."""
    with np.errstate(over="ignore"):
        small = values.astype("<f4")
    return PackedMatrixOut(rows=values.shape[0], columns=values.shape[1], data=encoded(small))


def encoded(values: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
