"""What perftest's programs print: `ib_write_bw` and `ib_send_lat`, with `--report_gbits`.

The tables are those of perftest 4.5 (Debian 12's 4.5+0.17, which calls itself 6.06; `RESULT_FMT_G`,
`RESULT_FMT_LAT` and their `REPORT_` rows in src/perftest_parameters.h): a row is read by the
columns that its head names, so that columns behind them are passed over, as `--cpu_util` adds one
and later versions do (`BW min[Gb/sec]`). Pure.
"""

from __future__ import annotations

import math
import re
from typing import Final

from collector.contract.errors import ParseError
from collector.parsing.measured import Measured

TEXT_BYTES_MAX: Final = 1 << 20
"""One size has about a thousand bytes."""
BANDWIDTH_HEAD: Final = re.compile(
    r"#bytes\s+#iterations\s+BW peak\[Gb/sec\]\s+BW average\[Gb/sec\]\s+MsgRate\[Mpps\]"
)
LATENCY_HEAD: Final = re.compile(
    r"#bytes\s+#iterations\s+t_min\[usec\]\s+t_max\[usec\]\s+t_typical\[usec\]\s+t_avg\[usec\]"
    r"\s+t_stdev\[usec\]\s+99% percentile\[usec\]"
)
BANDWIDTH_FIELDS, LATENCY_FIELDS = 5, 8
GIGA, MICRO = 1e9, 1e-6


def parse_perftest(text: bytes) -> Measured:
    r"""The last row. Raises ParseError with what there was instead.

    >>> head = b" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
    >>> row = b"\n 65536      34508            0.00               36.19  0.069"
    >>> parse_perftest(head + row).bits_per_second
    36190000000.0
    """
    lines = text[:TEXT_BYTES_MAX].decode("utf-8", errors="replace").splitlines()
    found: Measured | None = None
    fields = 0
    for line in lines:
        if BANDWIDTH_HEAD.search(line):
            fields = BANDWIDTH_FIELDS
        elif LATENCY_HEAD.search(line):
            fields = LATENCY_FIELDS
        elif fields and (numbers := numbers_of(line, fields)):
            found = measured(numbers)
    if found is None:
        said = next((line.strip() for line in reversed(lines) if line.strip(" -")), "nothing")
        raise ParseError("", f"no row of results; its last line is {said[:120]!r}")
    return found


def numbers_of(line: str, count: int) -> list[float]:
    """The first numbers of a row; none if it is no row."""
    words = line.split()[:count]
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return []
    is_sound = len(numbers) == count and all(math.isfinite(one) and one >= 0 for one in numbers)
    return numbers if is_sound else []


def measured(numbers: list[float]) -> Measured:
    if len(numbers) == BANDWIDTH_FIELDS:
        return Measured(bytes=int(numbers[0]), bits_per_second=numbers[3] * GIGA)
    return Measured(
        bytes=int(numbers[0]),
        seconds_typical=numbers[4] * MICRO,
        seconds_99=numbers[7] * MICRO,
    )
