"""`fabricscope diagnose` on broken copies of real files: a report or a refusal, soon, in bounds."""

import contextlib
import signal
import types
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.diagnose.cli import EXIT_NOTHING
from api.diagnose.report import Diagnosis
from collector.cli import main
from tests.oracles.broken_files import Breaker
from tests.stands.diagnosing import ROOT, RUN_SECONDS
from tests.tools.cut import CUT

pytestmark = pytest.mark.slow

FOLDERS = ("diagnose/net3", "diagnose/compute5", "diagnose/healthy", "formats")
COPIES = 4
"""Of each file, each broken in another way."""
ROUNDS = 40
"""Each breaks twenty to a hundred files; a cut takes four of these."""
GROWTH_BYTES_MAX = 1 << 30
"""The files are a megabyte; the throw-away store is in the same process."""
BROKEN_SHARE = 0.7


def sources(folder: str) -> list[Path]:
    root = ROOT / "tests/fixtures" / folder
    # What a case expects is no input.
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(("expected", "ORIGIN", "truth"))
    )


def write_copies(folder: Path, breaker: Breaker, files: list[Path]) -> int:
    """Copies of the files, most of them broken; how many are."""
    count = 0
    for number, source in enumerate(files * COPIES):
        target = folder / f"{number:03d}" / source.name.removeprefix("input.")
        target.parent.mkdir()
        if breaker.random.random() < BROKEN_SHARE:
            breaker.copy(source, target)
            count += 1
        else:
            target.write_bytes(source.read_bytes())
    return count


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fails if what runs inside takes too long or too much memory; signals stay ours."""

    def too_long(_: int, frame: types.FrameType | None) -> None:
        raise AssertionError(f"not done after {RUN_SECONDS} s: {frame}")

    kept = {
        number: signal.getsignal(number)
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP)
    }
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(RUN_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in kept.items():
            signal.signal(number, handler)
    grown = memory("VmHWM") - before
    assert grown < GROWTH_BYTES_MAX, f"it took {grown >> 20} MiB"


def memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


@pytest.mark.rotating(ROUNDS // 2)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_broken_files_are_reported_or_refused(
    number: int, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    breaker = Breaker(CUT.seed + number)
    folder = tmp_path / "files"
    folder.mkdir()
    assert write_copies(folder, breaker, sources(FOLDERS[number % len(FOLDERS)]))
    words = ["--json"] if number % 2 else ["--trace", str(tmp_path / "trace.json")]
    with bounded():
        status = main(["diagnose", *words, str(folder)])
    said = capfdbinary.readouterr()
    assert b"Traceback" not in said.err
    assert status in {0, EXIT_NOTHING}, said.err[-2000:]
    if status == EXIT_NOTHING:
        assert said.err.startswith(b"fabricscope: ")
    elif "--json" in words:
        msgspec.json.decode(said.out, type=Diagnosis)
    else:
        assert b"\x1b" not in said.out, "a file's bytes reach the terminal"
        assert b"\0" not in said.out
