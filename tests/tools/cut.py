"""Which part of the tests a run takes: `make test` a rotating part, `make test-all` all.

Runs are numbered: the day (days since 1970, UTC) plus the commit (how many commits the branch has,
merges counted once). So the next commit of one day has the next number, and so has the next day of
one commit.

- Dear files (`dear_files.txt`) are dealt into three shares that cost about the same. A run takes
  one, and the next run the next.
- A long proof is divided into numbered parts. Three runs, one for each share of the files, take one
  part; the next three take the next.

The start of a run prints its cut. TEST_CUT=DAY.COMMIT repeats it, and TEST_CUT=all
takes everything. Tests divide a proof in one of three ways:

- `@pytest.mark.rotating(parts, name)`: of each test function's cases, only those of the parts run.
  Functions with the same name take the same cases; without one, each function takes its own. The
  dearest single tests say their ``turn``, so that no run has most of them.
- `CUT.choose(cases, parts)`: the same for a list, inside one test or fixture.
- `CUT.examples(count)`: how many examples Hypothesis tries; its seed comes from the cut, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

VARIABLE = "TEST_CUT"
"""Not `FABRICSCOPE_...`: the service refuses such variables that it does not know."""
ALL = "all"
DAY_SECONDS = 86_400
SHARES = 3
"""With two, a run took 18 minutes on two cores: 75 where a core is four times slower."""
EXAMPLES_SHARE = 5
"""Of Hypothesis' examples a cut tries one in so many; each commit's run tries others."""
EXAMPLES_MIN = 10

TABLE = Path(__file__).parent / "dear_files.txt"
ALWAYS = "always"
DEAR_SECONDS = 8.0
"""Of CPU time, from which on a file belongs into the table."""

Case = TypeVar("Case")


@dataclass(frozen=True)
class DearFile:
    """A line of the table."""

    path: str
    """From the root of the repository."""
    seconds: float
    is_always: bool


def read_table(text: str) -> dict[str, DearFile]:
    """By path. Raises ValueError for a line that is not SECONDS PATH [always]."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        seconds, path, *more = (*words, "")[: max(len(words), 2)]
        if not seconds.isdecimal() or not path or more not in ([], [ALWAYS]):
            raise ValueError(f"{TABLE.name}:{number}: must be SECONDS PATH [{ALWAYS}]: {line!r}")
        found[path] = DearFile(path, float(seconds), bool(more))
    return found


@dataclass(frozen=True)
class Cut:
    """The day and the commit that choose parts, or all of them."""

    day: int
    commit: int
    is_all: bool = False

    def __str__(self) -> str:
        return ALL if self.is_all else f"{self.day}.{self.commit}"

    @property
    def seed(self) -> int:
        """For random cases: the same cut draws the same ones."""
        return zlib.crc32(str(self).encode())

    @property
    def run(self) -> int:
        return self.day + self.commit

    def files(self, dear: Mapping[str, DearFile]) -> set[str]:
        """The dear files that this run takes: its share, and those that always run."""
        share_of, costs = {}, [0.0] * SHARES
        for one in sorted(dear.values(), key=lambda one: (-one.seconds, one.path)):
            if not one.is_always:  # the dearest first, each to the share that costs least so far
                share_of[one.path] = share = costs.index(min(costs))
                costs[share] += one.seconds
        own = self.run % SHARES
        return {path for path in dear if self.is_all or share_of.get(path, own) == own}

    def parts(self, count: int) -> list[int]:
        """The numbers of the parts that are taken, of so many."""
        return list(range(count)) if self.is_all else [self.run // SHARES % count]

    def choose(
        self, cases: Sequence[Case], parts: int, name: str = "", turn: int | None = None
    ) -> list[Case]:
        """The cases of the parts that are taken, in their order.

        Lists with another name begin with another part: else the first cases of all short lists
        would run on the same day. ``turn`` says which part the first case is of.
        """
        taken = set(self.parts(parts))
        first = zlib.crc32(name.encode()) if turn is None else turn
        return [case for at, case in enumerate(cases) if (first + at) % parts in taken]

    def examples(self, count: int) -> int:
        """How many random examples are tried where the whole proof tries so many."""
        return count if self.is_all else max(min(EXAMPLES_MIN, count), count // EXAMPLES_SHARE)


def parse(text: str) -> Cut:
    """A cut as it is printed: `all` or `DAY.COMMIT`."""
    if text == ALL:
        return Cut(0, 0, is_all=True)
    found = re.fullmatch(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"{VARIABLE}={text!r}: must be {ALL!r} or DAY.COMMIT, like 20400.1500")
    return Cut(int(found[1]), int(found[2]))


def commits(root: Path) -> int:
    """How many commits the checked-out branch has; 0 where git does not know."""
    command = ["git", "-C", str(root), "rev-list", "--first-parent", "--count", "HEAD"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(done.stdout)


def current() -> Cut:
    """This run's cut; processes that it starts get the same, even when the day ends meanwhile."""
    text = os.environ.get(VARIABLE)
    if text is None:
        day = int(time.time()) // DAY_SECONDS
        text = os.environ[VARIABLE] = str(Cut(day, commits(Path(__file__).resolve().parent)))
    return parse(text)


CUT = current()
DEAR = read_table(TABLE.read_text("utf-8"))
