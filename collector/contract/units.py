"""Units of time. Inside, times and durations are whole nanoseconds and their names end in `_ns`."""

NS = 1_000_000_000
"""Nanoseconds of a second."""
NS_PER_MS = 1_000_000
