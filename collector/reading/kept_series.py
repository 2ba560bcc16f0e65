"""Series that a source makes once and keeps for as long as it shows them."""

from __future__ import annotations

from collector.contract.model import Series


class KeptSeries:
    """As many as two reads show: what the last one did not ask for is forgotten.

    A metric always has the same labels in the same order; without some of them, at their end, it
    is another series.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, ...], Series] = {}
        self._used: dict[tuple[str, ...], Series] = {}

    def begin_read(self) -> None:
        """The last read may have ended early: what it had shown until then is kept."""
        self._series, self._used = self._used, {}

    def find(self, metric: str, **labels: str) -> Series:
        """The series with these labels: the same object in each read."""
        key = (metric, *labels.values())
        series = self._used.get(key)
        if series is None:
            series = self._used[key] = self._series.get(key) or Series(metric, labels)
        return series

    def __len__(self) -> int:
        return len(self._series.keys() | self._used.keys())
