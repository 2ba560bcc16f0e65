"""Units. Inside, times and durations are whole nanoseconds and their names end in `_ns`."""

NS = 1_000_000_000
"""Nanoseconds of a second."""
NS_PER_MS = 1_000_000
WORD_BYTES = 4
"""IBTA volume 1, 16.1.3.5 and 16.1.4: PortXmitData and PortRcvData count octets *divided by 4*.
It has nothing to do with the four lanes of a link."""
