"""Numbers that NVIDIA's DCGM writes where it has none. Exporters in front of it may print them."""

from __future__ import annotations

from typing import Final

FIELD_PREFIX: Final = "DCGM_FI_"
"""Names of series that hold a field of DCGM begin so; what an exporter counts itself does not."""

BLANKS: Final = frozenset(
    float(first + offset) for first in (0x7FFF_FFF0, 1 << 47) for offset in range(4)
)
"""What DCGM writes for "no value", "not found", "not supported" and "not permitted", in 32 bits
and as a float (dcgm_structs.h). A counter that is really there passes over them."""
IMPOSSIBLE_MIN: Final = float(0x7FFF_FFFF_FFFF_FFF0)
"""The same in 64 bits, which are one number once they are floats. No field can be as large:
the greatest float and infinity, with which other programs say it, are blank as well."""


def is_blank(value: float) -> bool:
    """Whether a field's value stands for none.

    >>> is_blank(2147483634.0), is_blank(9223372036854775794.0), is_blank(51.0)
    (True, True, False)
    """
    return value in BLANKS or value >= IMPOSSIBLE_MIN
