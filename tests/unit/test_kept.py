"""Data sets of tests: made once, found again, and made anew when what makes them changes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools import kept as module
from tests.tools.kept import kept

MAKER = """
import sys
from collections.abc import Iterator
from pathlib import Path
flag, name, folder = sys.argv[1:]
assert (flag, name) == ("--make", "numbers")
with open({calls!r}, "a") as calls:
    calls.write("made\\n")
(Path(folder) / "data.txt").write_text({text!r})
"""


class Clone:
    """A checkout with one module that makes data."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, root / "calls"
        (root / "tests").mkdir()
        (root / "api").mkdir()
        (root / "requirements-dev.lock").write_text("one==1\n")
        self.write("1 2 3")

    def write(self, text: str) -> None:
        """Let the module make something else from now on."""
        code = MAKER.format(calls=str(self.calls), text=text)
        (self.root / "tests/numbers_data.py").write_text(code)
        module.fingerprint.cache_clear()

    def ask(self, seconds_max: float = 1e9) -> str:
        """What the data set holds."""
        return (kept("tests.numbers_data", "numbers", seconds_max) / "data.txt").read_text()

    @property
    def times_made(self) -> int:
        """How often data was made."""
        return len(self.calls.read_text().splitlines())


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clone]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "ROOT", tmp_path)
    yield Clone(tmp_path)
    module.fingerprint.cache_clear()


def test_data_is_made_once(clone: Clone) -> None:
    assert [clone.ask(), clone.ask()] == ["1 2 3"] * 2
    assert clone.times_made == 1


def test_any_change_of_the_makers_makes_it_anew(clone: Clone) -> None:
    clone.ask()
    clone.write("4")
    assert clone.ask() == "4"
    (clone.root / "api/new.sql").write_text("SELECT 1")
    module.fingerprint.cache_clear()
    clone.ask()
    (clone.root / "requirements-dev.lock").write_text("one==2\n")
    module.fingerprint.cache_clear()
    clone.ask()
    (clone.root / "tests/worlds").mkdir()
    (clone.root / "tests/worlds/world.py").touch()
    module.fingerprint.cache_clear()
    clone.ask()
    assert clone.times_made == 5
    clone.write("1 2 3")
    (clone.root / "api/new.sql").unlink()
    (clone.root / "tests/worlds/world.py").unlink()
    (clone.root / "requirements-dev.lock").write_text("one==1\n")
    module.fingerprint.cache_clear()
    assert clone.ask() == "1 2 3"
    assert clone.times_made == 5, "what the first sources made is still there"


def test_data_that_is_too_old_is_made_anew(clone: Clone) -> None:
    clone.ask()
    clone.ask(seconds_max=0.0)
    assert clone.times_made == 2


def test_what_broke_off_is_made_again(clone: Clone) -> None:
    clone.ask()
    (found,) = (clone.root / "cache/fabricscope-tests/numbers").glob("*/made")
    found.unlink()
    (found.parent / "data/half.txt").touch()
    assert clone.ask() == "1 2 3"
    assert clone.times_made == 2
    assert not (found.parent / "data/half.txt").exists()


def test_what_no_run_has_used_for_a_week_is_deleted(clone: Clone) -> None:
    clone.ask()
    (old,) = (clone.root / "cache/fabricscope-tests/numbers").glob("*/")
    long_ago = time.time() - module.UNUSED_SECONDS_MAX - 60
    os.utime(old, (long_ago, long_ago))
    clone.write("4")
    clone.ask()
    assert not old.exists()
