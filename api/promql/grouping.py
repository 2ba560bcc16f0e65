"""Which series belong together: the groups of an aggregation, the signatures of a match.

Series are compared by columns of label values, one list for each label name. That is several
times faster than making a key from each series' dict, and a label that is absent is the same
as an empty one, as everywhere in Prometheus.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from api.promql.values import Ints, Labels


class Groups(msgspec.Struct, frozen=True):
    """A division of rows 0, 1, 2… into groups; no group is empty.

    ``ids`` is the group of each row. ``order`` lists the rows group after group, each group's in
    their old order; group ``g`` are the ``sizes[g]`` of them from ``starts[g]`` on.
    """

    ids: Ints
    order: Ints
    starts: Ints
    sizes: Ints

    @property
    def count(self) -> int:
        return len(self.starts)

    @property
    def firsts(self) -> Ints:
        return self.order[self.starts]

    def blocks(self) -> Iterator[tuple[Ints, Ints]]:
        """Groups of one size at a time: their numbers, and a matrix (groups, members) of rows."""
        for size in sorted(set(self.sizes.tolist())):
            groups = np.flatnonzero(self.sizes == size)
            yield groups, self.order[self.starts[groups, None] + np.arange(size)]


def keys_of(labels: Iterable[Labels], names: Sequence[str]) -> list[Hashable]:
    """A key for each label set: two are the same exactly if all these labels are."""
    sets = list(labels)
    if not names:
        return [""] * len(sets)
    columns = [[one.get(name, "") for one in sets] for name in names]
    return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))


def other_names(labels: Iterable[Labels], names: Iterable[str]) -> list[str]:
    """All label names that occur, less these: comparing by them is comparing without these."""
    return sorted(set().union(*labels).difference(names))


def number_keys(keys: Iterable[Hashable], numbers: dict[Hashable, int]) -> Ints:
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def group_rows(ids: Ints) -> Groups:
    """The groups of rows that have the same number; the numbers are 0 to n, each used."""
    order = np.argsort(ids, kind="stable")
    sizes = np.bincount(ids)
    return Groups(ids, order, np.cumsum(sizes) - sizes, sizes)
